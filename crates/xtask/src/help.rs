//! The commands, and what they say about themselves.

/// A command of `cargo xtask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Demo,
    Test,
    Check,
    Ci,
    Arrows,
    Tidy,
    Bench,
    CheckHistory,
    Sim,
    Planted,
    Chaos,
}

impl Command {
    /// All of them, in the order of the overview.
    pub(crate) const ALL: &[Command] = &[
        Command::Demo,
        Command::Test,
        Command::Check,
        Command::Ci,
        Command::Arrows,
        Command::Tidy,
        Command::Bench,
        Command::CheckHistory,
        Command::Sim,
        Command::Planted,
        Command::Chaos,
    ];

    /// The command called `name`.
    pub(crate) fn named(name: &str) -> Option<Command> {
        Self::ALL.iter().copied().find(|command| command.name() == name)
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Command::Demo => "demo",
            Command::Test => "test",
            Command::Check => "check",
            Command::Ci => "ci",
            Command::Arrows => "arrows",
            Command::Tidy => "tidy",
            Command::Bench => "bench",
            Command::Sim => "sim",
            Command::Planted => "planted",
            Command::CheckHistory => "check-history",
            Command::Chaos => "chaos",
        }
    }

    /// Whether what follows its name goes to the program as it is, `--help` included.
    pub(crate) fn passes_arguments(self) -> bool {
        match self {
            Command::Demo
            | Command::Bench
            | Command::CheckHistory
            | Command::Sim
            | Command::Planted
            | Command::Chaos => true,
            Command::Test | Command::Check | Command::Ci | Command::Arrows | Command::Tidy => false,
        }
    }

    /// Whether it may compile RocksDB, so that the machine is looked at first.
    pub(crate) fn builds_rocksdb(self) -> bool {
        match self {
            Command::Demo | Command::Test | Command::Check | Command::Ci | Command::Bench | Command::Chaos => true,
            Command::Arrows | Command::Tidy | Command::CheckHistory | Command::Sim | Command::Planted => false,
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Command::Demo => "demo [args of `rail demo`]",
            Command::Bench => "bench [peers | args of `rail bench`]",
            Command::CheckHistory => "check-history DIR",
            Command::Sim => "sim [--seeds N] [--seed S]",
            Command::Planted => "planted [--bug NAME] [--seeds N]",
            Command::Chaos => "chaos [--drill NAME] [--seconds N]",
            Command::Test | Command::Check | Command::Ci | Command::Arrows | Command::Tidy => self.name(),
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Command::Demo => "real orders through a queue whose server is killed again and again",
            Command::Test => "all tests",
            Command::Check => "before each commit: format, clippy, arrows, tests of what was touched",
            Command::Ci => "the whole gate: lints, arrows, house rules, docs, all tests",
            Command::Arrows => "which crate may depend on which, and where a library may be named",
            Command::Tidy => "house rules for the text of the tree",
            Command::Bench => "builds an optimised `rail` and measures with it",
            Command::CheckHistory => "judges what clients of a test run asked and were told",
            Command::Sim => "nodes and clients in a simulation, with faults from a seed",
            Command::Planted => "bugs on purpose, and which seed of the simulation catches each",
            Command::Chaos => "drills: three nodes under load, with something going wrong",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Command::Demo => {
                "Sets the machine up, builds `rail`, and becomes `rail demo` with the arguments given, for example\n\
                 `cargo xtask demo --orders 20000`. `cargo xtask demo --help` shows them all.\n"
            }
            Command::Test => {
                "Sets the machine up, builds `rail`, runs every test of every crate, doc tests included, and ends with\n\
                 the line `N passed, N failed`. The tests find the program through TICKETRAIL_TEST_RAIL_BIN.\n\
                 A test that needs root and has none prints `skipped: needs root`; with CI=true a skip is a failure.\n\
                 A build that fails and a test program that dies each count as one failure.\n"
            }
            Command::Check => {
                "A few minutes: cargo fmt --check, clippy (warnings are errors) on the crates that differ from `main`,\n\
                 arrows, the tests of `core` and of those crates. Changes outside the crates count for all of them.\n"
            }
            Command::Ci => {
                "cargo fmt --check, arrows, tidy, clippy on everything (warnings are errors), a build of the command line\n\
                 alone and of the storage without RocksDB, docs (warnings are errors), then `test`. A step that fails\n\
                 counts as one failure and the others still run. Prints the time of each, then `N passed, N failed`.\n"
            }
            Command::Arrows => {
                "Compares `cargo metadata` with the table in crates/xtask/src/arrows/table.rs, and the code with the rules\n\
                 in crates/xtask/src/arrows/places.rs: who may name RocksDB and openraft, read the clock, and what the\n\
                 replicated machine must do without. Exit 1 if anything breaks them.\n"
            }
            Command::Tidy => {
                "File lengths, leftovers (todo!, dbg!, ignored tests, sleeps in tests), paths of one machine, trailing\n\
                 whitespace, .proto files outside proto/, unlisted decision records, dead links in documents.\n\
                 Exit 1 if anything breaks a rule; a long file is named first as a warning.\n"
            }
            Command::Bench => {
                "Builds `rail` in the release profile, which compiles RocksDB once more, and becomes `rail bench` with\n\
                 the arguments given. `cargo xtask bench --help` shows them all.\n\
                 `cargo xtask bench peers` measures three nodes beside three of NATS JetStream, which it installs from\n\
                 PyPI into the target folder: three alternating pairs, throughput and latencies, and the median ratios.\n\
                 `cargo xtask bench peers --help` shows what can be set.\n"
            }
            Command::CheckHistory => {
                "Builds the checker and judges the run in DIR: its history against a model of the queue and against rules\n\
                 that trust nothing but the clients' clock. A line for each check, violations in words below it, then\n\
                 `N passed, N failed`. Exit 0 all is well, 1 a violation, 2 wrong use or unreadable, 3 the run has not\n\
                 shown what it should.\n"
            }
            Command::Sim => {
                "Builds `sim`, without RocksDB, and becomes it with the arguments given: the seeds that once found\n\
                 something, then as many as asked for. Each failing seed is told of with the command that replays it.\n\
                 Exit 1 if a seed breaks anything, 3 if a fault never had an effect. `cargo xtask sim --help` shows\n\
                 what can be set.\n"
            }
            Command::Planted => {
                "Builds `sim` with bugs to switch on, and hunts each with seeds of the simulation until one breaks that is\n\
                 green without the bug. Exit 1 if a bug is not caught. `cargo xtask planted --help` shows what can be set.\n"
            }
            Command::Chaos => {
                "Builds `rail` and the drills, and runs them, each in network namespaces of its own. Needs root.\n\
                 `cargo xtask chaos --list` names them, `cargo xtask chaos --help` shows what can be set.\n"
            }
        }
    }

    /// Its page in the help.
    pub(crate) fn page(self) -> String {
        format!("cargo xtask {}: {}\n\n{}", self.usage(), self.summary(), self.detail())
    }
}

/// What `cargo xtask help` prints.
pub(crate) fn overview() -> String {
    let width = Command::ALL.iter().map(|command| command.usage().len()).max().unwrap_or_default();
    let mut text = String::from("cargo xtask <command>\n\n");
    for command in Command::ALL {
        text.push_str(&format!("  {:width$}  {}\n", command.usage(), command.summary()));
    }
    text.push_str("\n`cargo xtask help <command>` says more. Exit codes: 0 fine, 1 failed, 2 wrong use or something to install.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_and_stands_in_the_overview() {
        for command in Command::ALL {
            assert_eq!(Command::named(command.name()), Some(*command));
            assert!(overview().contains(&format!("  {}", command.name())), "{command:?}");
            assert!(command.page().lines().all(|line| line.len() <= 120), "{command:?}");
        }
        assert_eq!(Command::named("dance"), None);
    }
}
