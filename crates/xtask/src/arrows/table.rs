//! The rules for crates. A change here is a change of the design: say why in a decision record.

/// A crate of the workspace, and what it may depend on.
#[derive(Debug)]
pub(super) struct Row {
    /// The package.
    pub(super) package: &'static str,
    /// The packages of the workspace that it may use.
    pub(super) uses: &'static [&'static str],
    /// All packages from outside that it may use, where the list is closed.
    pub(super) outside: Option<&'static [&'static str]>,
    /// The same for its tests, beside the above.
    pub(super) outside_in_tests: &'static [&'static str],
    /// What it must not reach, over any number of arrows.
    pub(super) never_reaches: &'static [&'static str],
}

/// The crates.
///
/// ```text
/// rail ──► server ──► api ──► node ──► storage ──► core    (server also ──► storage: record 0007)
///   └──► client ──► proto          api, node ──► proto
/// cluster-tests ──► client, audit, disk; and storage, core, node to open the directory of a stopped node;  peers ──► client
/// chaos ──► cluster-tests, client, history, load
/// audit ──► history; and storage, core, without RocksDB
/// sim ──► api, node, storage, core, proto, without RocksDB
/// ```
pub(super) const CRATES: &[Row] = &[
    Row {
        package: "ticketrail-core",
        uses: &[],
        outside: Some(&["bytes", "prost", "siphasher", "thiserror"]),
        outside_in_tests: &["goldenscript", "proptest"],
        never_reaches: &["tokio", "tonic", "librocksdb-sys", "tracing", "rand"],
    },
    Row {
        package: "ticketrail-storage",
        uses: &["ticketrail-core"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["openraft", "tonic", "tokio"],
    },
    Row {
        package: "ticketrail-node",
        uses: &["ticketrail-storage", "ticketrail-core", "ticketrail-proto"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["clap", "figment"],
    },
    Row {
        package: "ticketrail-proto",
        uses: &[],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["librocksdb-sys", "openraft"],
    },
    Row {
        package: "ticketrail-api",
        uses: &["ticketrail-node", "ticketrail-core", "ticketrail-proto"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["clap", "figment"],
    },
    Row {
        package: "ticketrail-server",
        uses: &["ticketrail-api", "ticketrail-node", "ticketrail-storage", "ticketrail-core", "ticketrail-proto"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["clap"],
    },
    Row {
        package: "ticketrail-client",
        uses: &["ticketrail-proto"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["ticketrail-core", "librocksdb-sys", "openraft", "clap"],
    },
    Row {
        package: "ticketrail",
        uses: &["ticketrail-server", "ticketrail-client"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &[],
    },
    Row {
        package: "ticketrail-xtask",
        uses: &[],
        outside: Some(&["cargo_metadata"]),
        outside_in_tests: &[],
        never_reaches: &[],
    },
    Row {
        package: "ticketrail-peers",
        uses: &["ticketrail-client"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["librocksdb-sys", "openraft"],
    },
    Row {
        package: "ticketrail-disk",
        uses: &[],
        outside: Some(&["anyhow", "clap", "fuser", "nix", "parking_lot", "regex"]),
        outside_in_tests: &["tempfile"],
        never_reaches: &["librocksdb-sys", "openraft", "tonic", "tokio"],
    },
    Row {
        package: "ticketrail-history",
        uses: &[],
        outside: Some(&["anyhow", "clap", "serde", "serde_json", "thiserror"]),
        outside_in_tests: &["tempfile"],
        never_reaches: &["librocksdb-sys", "openraft", "tonic", "tokio"],
    },
    Row {
        package: "ticketrail-load",
        uses: &["ticketrail-history", "ticketrail-proto"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["librocksdb-sys", "openraft", "ticketrail-core"],
    },
    Row {
        package: "ticketrail-audit",
        uses: &["ticketrail-core", "ticketrail-storage", "ticketrail-history"],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["openraft", "tonic", "tokio"],
    },
    Row {
        package: "ticketrail-sim",
        uses: &[
            "ticketrail-api",
            "ticketrail-node",
            "ticketrail-storage",
            "ticketrail-core",
            "ticketrail-proto",
            "ticketrail-load",
            "ticketrail-history",
            "ticketrail-audit",
        ],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &["figment"],
    },
    Row {
        package: "ticketrail-chaos",
        uses: &[
            "ticketrail-cluster-tests",
            "ticketrail-client",
            "ticketrail-disk",
            "ticketrail-history",
            "ticketrail-load",
        ],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &[],
    },
    Row {
        package: "ticketrail-cluster-tests",
        uses: &[
            "ticketrail-client",
            "ticketrail-storage",
            "ticketrail-core",
            "ticketrail-node",
            "ticketrail-audit",
            "ticketrail-disk",
        ],
        outside: None,
        outside_in_tests: &[],
        never_reaches: &[],
    },
];

/// Packages from outside that only some crates may name in their Cargo.toml.
pub(super) const ONLY: &[(&str, &[&str])] = &[
    ("rocksdb", &["ticketrail-storage"]),
    ("openraft", &["ticketrail-node"]),
    ("openraft-rt", &["ticketrail-node"]),
    ("openraft-rt-tokio", &["ticketrail-node"]),
    ("figment", &["ticketrail-server"]),
    ("fuser", &["ticketrail-disk"]),
    ("async-nats", &["ticketrail-peers"]),
    ("axum", &["ticketrail-server"]),
    ("prometheus-client", &["ticketrail-server"]),
    ("clap", &["ticketrail", "ticketrail-disk", "ticketrail-history"]),
    ("clap_complete", &["ticketrail"]),
    ("cargo_metadata", &["ticketrail-xtask"]),
    ("protox", &["ticketrail-proto"]),
    ("tonic-prost", &["ticketrail-proto"]),
    ("tonic-prost-build", &["ticketrail-proto"]),
    ("tonic-health", &["ticketrail-server"]),
    ("tonic-reflection", &["ticketrail-server"]),
    ("tracing-subscriber", &["ticketrail-server", "ticketrail", "ticketrail-sim"]),
    ("turmoil", &["ticketrail-sim"]),
    (
        "tonic",
        &[
            "ticketrail-proto",
            "ticketrail-node",
            "ticketrail-api",
            "ticketrail-server",
            "ticketrail-client",
            "ticketrail-load",
            "ticketrail-sim",
            "ticketrail-chaos",
        ],
    ),
];

/// Arrows that must be optional, so that a crate can be built without what they bring.
pub(super) const OPTIONAL: &[(&str, &str)] =
    &[("ticketrail", "ticketrail-server"), ("ticketrail-storage", "rocksdb"), ("ticketrail-peers", "async-nats")];
