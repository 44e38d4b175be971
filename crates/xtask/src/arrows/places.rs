//! The rules for code: where a library may be named, who may read the clock, what the core must do without.

use crate::rust_text::has_word;
use crate::tree::Tree;

/// Words that may stand only in some places.
#[derive(Debug)]
struct Rule {
    /// The words; a use of any is a use.
    words: &'static [&'static str],
    /// Where the rule holds: the start of a path, or everywhere.
    within: &'static str,
    /// Where the words are at home all the same: the start of a path, or (after a `*`) its end.
    except: &'static [&'static str],
    /// Whether tests are free of it.
    not_in_tests: bool,
    /// What to do instead.
    instead: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        words: &["rocksdb::"],
        within: "",
        except: &["crates/storage/src/rocks/", "crates/storage/src/rocks.rs", "crates/storage/tests/"],
        not_in_tests: false,
        instead: "RocksDB is named below crates/storage/src/rocks/ alone; use the types of ticketrail-storage",
    },
    Rule {
        words: &["openraft", "openraft_rt", "openraft_rt_tokio"],
        within: "",
        except: &["crates/node/src/raft/", "crates/node/src/raft.rs", "crates/node/tests/"],
        not_in_tests: false,
        instead: "openraft is named below crates/node/src/raft/ alone; use the types of ticketrail-node",
    },
    Rule {
        words: &["unsafe"],
        within: "",
        except: &["crates/storage/src/rocks/"],
        not_in_tests: false,
        instead: "unsafe code stands in the storage wrapper alone, crates/storage/src/rocks/",
    },
    Rule {
        words: &["SystemTime::now", "Instant::now"],
        within: "",
        except: &[
            "crates/node/src/clock.rs",
            "crates/client/src/retry.rs",
            "crates/rail/",
            "crates/xtask/",
            // It measures the log's own sync.
            "crates/storage/src/*/committer.rs",
            // Tells how many seeds a minute there were.
            "cluster-tests/sim/src/fleet.rs",
            // They measure.
            "crates/storage/examples/",
            "crates/node/examples/",
            "cluster-tests/history/examples/",
        ],
        not_in_tests: true,
        instead: "the clock is read in crates/node/src/clock.rs (server) and crates/client/src/retry.rs (client); take the time as an argument",
    },
    Rule {
        words: &[
            ".unwrap()",
            ".unwrap_err()",
            ".expect(",
            "panic!",
            "unreachable!",
            "HashMap",
            "HashSet",
            "f32",
            "f64",
            "SystemTime",
            "std::thread",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::process",
            "println!",
            "eprintln!",
            "async",
        ],
        within: "crates/core/src/",
        except: &[],
        not_in_tests: true,
        instead: "the replicated machine never panics and knows no IO, clock, thread, float or hash order; return a Fault, use BTreeMap and integers",
    },
];

/// One line for each breach in `tree`.
pub(super) fn breaches(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for (path, file) in tree.files() {
        for rule in RULES.iter().filter(|rule| rule.holds_at(path)) {
            for (number, code, test) in file.code() {
                if test && rule.not_in_tests {
                    continue;
                }
                for word in rule.words.iter().filter(|word| has_word(code, word)) {
                    breaches.push(format!("{path}:{number}: expected no `{word}` here: {}", rule.instead));
                }
            }
        }
    }
    breaches
}

impl Rule {
    fn holds_at(&self, path: &str) -> bool {
        path.starts_with(self.within) && !self.except.iter().any(|home| is_at(path, home))
    }
}

/// Whether `path` is in `home`: what it starts with, and behind a `*` what it ends with.
fn is_at(path: &str, home: &str) -> bool {
    match home.split_once('*') {
        None => path.starts_with(home),
        Some((start, end)) => path.len() >= start.len() + end.len() && path.starts_with(start) && path.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str) -> Vec<String> {
        breaches(&Tree::of([(path.to_owned(), text.to_owned())]))
    }

    #[track_caller]
    fn assert_caught(path: &str, text: &str) {
        let breaches = check(path, text);
        assert_eq!(breaches.len(), 1, "{path}: {text}: {breaches:#?}");
        assert!(breaches[0].starts_with(&format!("{path}:1: expected no ")), "{breaches:#?}");
    }

    #[track_caller]
    fn assert_fine(path: &str, text: &str) {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }

    #[test]
    fn libraries_are_named_in_their_place_alone() {
        assert_caught("crates/storage/src/state.rs", "use rocksdb::DB;");
        assert_fine("crates/storage/src/rocks/state.rs", "use rocksdb::DB;");
        assert_fine(
            "crates/storage/src/state.rs",
            "// as rocksdb::DB does\n#[cfg(feature = \"rocksdb\")]\npub mod rocks;",
        );
        assert_caught("crates/node/src/lib.rs", "pub use openraft::Raft;");
        assert_caught("crates/api/src/lib.rs", "use openraft_rt::Runtime;");
        assert_fine("crates/node/src/raft/types.rs", "use openraft::Raft;");
        assert_fine("crates/node/tests/suite.rs", "use openraft::testing::log::Suite;");
        assert_fine("crates/storage/src/log.rs", "//! What openraft calls a flush.");
    }

    #[test]
    fn the_clock_is_read_in_its_place_alone() {
        assert_caught("crates/node/src/proposer.rs", "let now = std::time::Instant::now();");
        assert_caught("crates/server/src/lib.rs", "let now = tokio::time::Instant::now();");
        assert_caught("crates/api/src/convert.rs", "SystemTime::now()");
        assert_fine("crates/node/src/clock.rs", "SystemTime::now()");
        assert_fine("crates/client/src/retry.rs", "Instant::now()");
        assert_fine("crates/storage/src/rocks/committer.rs", "Instant::now()");
        assert_fine("crates/node/src/waiters.rs", "#[cfg(test)]\nmod tests { fn a() { Instant::now(); } }");
        assert_fine("cluster-tests/tests/kill.rs", "Instant::now()");
    }

    #[test]
    fn the_core_is_pure_and_never_panics() {
        for text in
            ["x.unwrap();", "x.expect(\"\");", "panic!()", "let x: HashMap<u8, u8>;", "x as f64", "std::thread::spawn"]
        {
            assert_caught("crates/core/src/queue/settle.rs", text);
            assert_fine("crates/core/src/queue/tests.rs", text);
            assert_fine("crates/rail/src/main.rs", text);
        }
        assert_fine("crates/core/src/lib.rs", "/// Never call `x.unwrap()`.\nfn f() { x.unwrap_or_default() }");
    }

    #[test]
    fn unsafe_code_stands_in_the_wrapper_alone() {
        assert_caught("crates/rail/src/main.rs", "unsafe { f() }");
        assert_fine("crates/rail/src/main.rs", "#![forbid(unsafe_code)]");
        assert_fine("crates/storage/src/rocks/handle.rs", "unsafe { f() }");
    }
}
