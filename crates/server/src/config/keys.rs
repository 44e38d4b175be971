//! The one list of keys: fields, overrides, docs and printing come from it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ticketrail_core::limits;

use super::{Age, JoinAs, LogFormat, MaybeAddress, Mode, PeerList, Size};

/// One key, for documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name in a file; the flag has dashes for underscores.
    pub name: &'static str,
    /// What it means, with unit and range.
    pub doc: &'static str,
}

impl Key {
    /// The name of its environment variable.
    pub fn variable(&self) -> String {
        format!("TICKETRAIL_{}", self.name.to_uppercase())
    }
}

macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty,)+) => {
        /// What a server can be told.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        /// What the command line says: whatever is absent comes from the environment, the file or the defaults.
        #[derive(Debug, Clone, PartialEq, Default, Serialize)]
        pub struct Overrides {
            $($(#[doc = $doc])+ #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)+
        }

        impl Config {
            /// All keys, in the order of their documentation.
            pub const KEYS: &'static [Key] =
                &[$(Key { name: stringify!($name), doc: concat!($($doc, "\n"),+) },)+];
        }
    };
}

keys! {
    /// The data directory: one process, one disk that keeps what it has synced.
    data_dir: PathBuf,
    /// The address for clients (gRPC), as `IP:PORT`. Port 0: a free one.
    listen: SocketAddr,
    /// The node's name among its peers, which outlives its disk: an empty disk under a member's name replaces that
    /// member. 1 to 128 of `A-Z a-z 0-9 . _ -`. Default: the host's name.
    name: String,
    /// The peers of the cluster, as NAME=HOST:PORT, with commas between; the same list on each node, this one included.
    /// The first may found the cluster, the others wait for it; once there is one they join it. Empty: this node is a
    /// cluster of its own.
    peers: PeerList,
    /// The address for peers, as `IP:PORT`. Nobody listens there while `peers` is empty.
    peer_listen: SocketAddr,
    /// Where the peers reach this node, as `HOST:PORT`; a DNS name that stays. Empty: as in `peers`.
    advertise_peer: String,
    /// Where clients reach this node, as `HOST:PORT`, so that they can go to the leader directly. Empty: the host of
    /// advertise_peer and the port of listen.
    advertise_client: String,
    /// Whether the first of the peers may found a cluster. Off: it waits until it is let in, or invited with
    /// `rail cluster add`.
    may_found: bool,
    /// Whether a node that joins gets a vote (voter), or only follows (learner) until `rail cluster promote`.
    join_as: JoinAs,
    /// The fastest that a snapshot is sent to a node that comes back or joins, in bytes a second.
    snapshot_rate: Size,
    /// The address for probes and metrics (HTTP: /livez, /readyz, /metrics), as `IP:PORT`. Port 0: a free one. none: none.
    http_listen: MaybeAddress,
    /// A file to write the actual HTTP address to, once probes are answered. Empty: none.
    http_ready_file: PathBuf,
    /// A file to write the actual address to, once the node serves. Empty: none.
    ready_file: PathBuf,
    /// Whether an enqueue makes a queue that is not there, and a receive waits for one.
    auto_create: bool,
    /// The largest body of a message, 1 B to 4 MiB.
    max_body_bytes: Size,
    /// Whether the server tells its protocol to tools such as grpcurl.
    reflection: bool,
    /// What is logged, to stderr: error, warn, info, debug or trace, or directives such as `info,ticketrail_node=debug`.
    log_level: String,
    /// How log lines look: auto (pretty on a terminal, JSON elsewhere), pretty or json.
    log_format: LogFormat,
    /// Enqueues are refused (DISK_LOW) while less than this is free on the disk. At least disk_critical_bytes +
    /// ballast_bytes + 64 MiB.
    disk_low_bytes: Size,
    /// The ballast file is given up while less than this is free on the disk.
    disk_critical_bytes: Size,
    /// The size of the ballast file, which makes room for finishing work on a full disk. 0 B: none.
    ballast_bytes: Size,
    /// Log kept for nodes that come back, in bytes; more is purged once the state holds it.
    log_retention_bytes: Size,
    /// Log kept for nodes that come back, by age.
    log_retention_age: Age,
    /// Changes not yet flushed at which the state is flushed, in bytes: they bound the replay after a crash.
    flush_bytes: Size,
    /// Age of the oldest change not yet flushed at which the state is flushed.
    flush_age: Age,
    /// Requests that may wait to be put into the log, in bytes; more are refused (RATE_LIMITED). At least 8 MiB.
    proposal_queue_bytes: Size,
    /// Receives that may wait at one time; more are refused (RATE_LIMITED).
    parked_receives: usize,
    /// How often a leader shows itself. Longer than the slowest sync of the disk.
    heartbeat: Age,
    /// The shortest silence after which a node campaigns; more than heartbeat.
    election_timeout_min: Age,
    /// The longest; more than election_timeout_min. A restart without other nodes takes about as long.
    election_timeout_max: Age,
    /// How long an orderly stop waits for calls in progress, at most 15 s; the whole stop ends within 20 s.
    drain_timeout: Age,
}

/// The host's name, as far as it can be a member's.
fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    if super::peers::is_name(&name) { name } else { "rail".to_owned() }
}

impl Config {
    /// Where the peers reach this node.
    pub fn peer_address(&self) -> String {
        if self.advertise_peer.is_empty() {
            self.peers.address_of(&self.name).unwrap_or_default().to_owned()
        } else {
            self.advertise_peer.clone()
        }
    }

    /// Where clients reach this node, which listens on `port`; empty where there are no peers to tell.
    pub fn client_address(&self, port: u16) -> String {
        if !self.advertise_client.is_empty() {
            return self.advertise_client.clone();
        }
        match self.peer_address().rsplit_once(':') {
            Some((host, _)) => format!("{host}:{port}"),
            None => String::new(),
        }
    }

    /// The defaults.
    pub fn defaults(mode: Mode) -> Self {
        let ip = match mode {
            Mode::Dev => Ipv4Addr::LOCALHOST,
            Mode::Serve => Ipv4Addr::UNSPECIFIED,
        };
        Self {
            data_dir: PathBuf::from("ticketrail-data"),
            listen: SocketAddr::new(IpAddr::V4(ip), 50_000),
            name: host_name(),
            peers: PeerList::default(),
            peer_listen: SocketAddr::new(IpAddr::V4(ip), 50_001),
            advertise_peer: String::new(),
            advertise_client: String::new(),
            may_found: true,
            join_as: JoinAs::Voter,
            snapshot_rate: Size::mib(256),
            http_listen: MaybeAddress(Some(SocketAddr::new(IpAddr::V4(ip), 8_080))),
            http_ready_file: PathBuf::new(),
            ready_file: PathBuf::new(),
            auto_create: true,
            max_body_bytes: Size(limits::BODY_BYTES as u64),
            reflection: true,
            log_level: "info".to_owned(),
            log_format: LogFormat::Auto,
            disk_low_bytes: Size::gib(1),
            disk_critical_bytes: Size::mib(256),
            ballast_bytes: Size::mib(256),
            log_retention_bytes: Size::gib(2),
            log_retention_age: Age::secs(600),
            flush_bytes: Size::mib(64),
            flush_age: Age::secs(30),
            proposal_queue_bytes: Size::mib(32),
            parked_receives: 100_000,
            heartbeat: Age::millis(150),
            election_timeout_min: Age::millis(400),
            election_timeout_max: Age::millis(800),
            drain_timeout: Age::secs(5),
        }
    }

    /// The configuration as a TOML file with its documentation: it reads back as it is.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        let table = toml::Table::try_from(self)?;
        let mut text = String::new();
        for key in Self::KEYS {
            for line in key.doc.lines() {
                let _ = writeln!(text, "#{line}");
            }
            let _ = writeln!(text, "# Environment: {}.", key.variable());
            if let Some(value) = table.get(key.name) {
                let _ = writeln!(text, "{} = {value}\n", key.name);
            }
        }
        Ok(text)
    }
}
