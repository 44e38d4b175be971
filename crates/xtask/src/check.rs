//! `cargo xtask check`: what to run before each commit.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode, Stdio};

use crate::report::Report;
use crate::workspace::{Profile, Workspace};
use crate::{arrows, suite};

/// The crate whose tests always run: they take seconds, and all else stands on it.
const ALWAYS_TESTED: &str = "ticketrail-core";

/// The crate at `cluster-tests/` itself; those in its folders are named for them.
const CLUSTER_TESTS: &str = "ticketrail-cluster-tests";

/// The crates whose tests drive the program from outside.
const DRIVE_RAIL: [&str; 2] = [CLUSTER_TESTS, "ticketrail-chaos"];

/// Selected beside the crates that bring RocksDB. Without it cargo gives RocksDB's build script dependencies with fewer
/// features, takes the script for another one, and compiles RocksDB again (docs/adr/0002-gate-on-a-bare-machine.md).
const KEEPS_ROCKSDB: &str = "ticketrail-proto";

/// The crates that bring RocksDB and may be selected without [`KEEPS_ROCKSDB`].
const BRING_ROCKSDB: [&str; 2] = ["ticketrail-storage", "ticketrail-node"];

/// The branch that a change is compared with.
const TRUNK: &str = "main";

/// Runs every step, whatever the ones before it gave, and prints the last line.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let touched = match changed_paths(workspace) {
        Some(paths) => touched(&paths),
        None => Touched::All,
    };
    let mut report = Report::default();
    report.command("format", workspace.cargo("fmt").args(["--all", "--check"]));
    report.step("arrows", || arrows::check(workspace));
    let selection = selection(&touched);
    eprintln!("touched: {}", if selection.is_empty() { "no crate".to_owned() } else { selection.join(" ") });
    if !selection.is_empty() {
        let clippy = ["--all-targets", "--", "-D", "warnings"];
        report.command("clippy", workspace.cargo("clippy").args(&selection).args(clippy));
    }
    report.tests("tests", || {
        let rail = match DRIVE_RAIL.iter().any(|package| touched.includes(package)) {
            true => Some(workspace.build_rail(Profile::Dev)?),
            false => None,
        };
        let tested = match &touched {
            Touched::All => selection.clone(),
            Touched::Packages(packages) => {
                let mut packages = packages.clone();
                packages.insert(ALWAYS_TESTED.to_owned());
                self::selection(&Touched::Packages(packages))
            }
        };
        suite::run_tests(workspace, &tested, rail.as_deref())
    });
    Ok(report.finish())
}

/// What a change touches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Touched {
    /// Something that all crates depend on, or nobody knows.
    All,
    /// These packages.
    Packages(BTreeSet<String>),
}

impl Touched {
    fn includes(&self, package: &str) -> bool {
        match self {
            Touched::All => true,
            Touched::Packages(packages) => packages.contains(package),
        }
    }
}

/// How cargo is told of the packages.
fn selection(touched: &Touched) -> Vec<String> {
    match touched {
        Touched::All => vec!["--workspace".to_owned()],
        Touched::Packages(packages) => {
            let mut packages = packages.clone();
            if BRING_ROCKSDB.iter().any(|package| packages.contains(*package)) {
                packages.insert(KEEPS_ROCKSDB.to_owned());
            }
            packages.iter().map(|package| format!("--package={package}")).collect()
        }
    }
}

/// The packages that own `paths`; files that no crate is built from touch nothing.
fn touched(paths: &[String]) -> Touched {
    let mut packages = BTreeSet::new();
    for path in paths {
        let mut parts = path.split('/');
        match (parts.next(), parts.next()) {
            (Some("crates"), Some("rail")) => packages.insert("ticketrail".to_owned()),
            (Some("crates"), Some(folder)) => packages.insert(format!("ticketrail-{folder}")),
            (Some("cluster-tests"), None | Some("src" | "tests" | "Cargo.toml")) => {
                packages.insert(CLUSTER_TESTS.to_owned())
            }
            (Some("cluster-tests"), Some(folder)) => packages.insert(format!("ticketrail-{folder}")),
            (Some("proto"), _) => packages.insert("ticketrail-proto".to_owned()),
            // Its tests check what is in there.
            (Some("deploy"), _) => packages.insert(CLUSTER_TESTS.to_owned()),
            (Some("docs" | ".ci" | "README.md" | "CHANGELOG.md" | "LICENSE"), _)
            | (Some(".gitignore" | "deny.toml" | "rustfmt.toml"), _) => false,
            _ => return Touched::All,
        };
    }
    Touched::Packages(packages)
}

/// The paths that differ from where this branch left the trunk, or `None` where git can't say.
fn changed_paths(workspace: &Workspace) -> Option<Vec<String>> {
    let git = |args: &[&str]| -> Option<String> {
        let mut command = Command::new("git");
        let output = command.args(args).current_dir(workspace.root()).stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    let base = git(&["merge-base", "HEAD", TRUNK]).or_else(|| git(&["rev-parse", "HEAD"]))?;
    // Paths that git would quote are nobody's here; -z keeps them whole all the same. A crate that is gone has no tests.
    let changed = git(&["diff", "--name-only", "-z", &base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let paths = changed.split('\0').chain(new.split('\0')).filter(|path| !path.is_empty()).map(str::to_owned);
    let is_known = |path: &String| {
        let mut parts = path.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("cluster-tests"), Some("src" | "tests"), _) => true,
            (Some(home @ ("crates" | "cluster-tests")), Some(folder), Some(_)) => {
                workspace.root().join(home).join(folder).join("Cargo.toml").is_file()
            }
            _ => true,
        }
    };
    Some(paths.filter(is_known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched_by(paths: &[&str]) -> Touched {
        touched(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    fn packages(names: &[&str]) -> Touched {
        Touched::Packages(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn paths_lead_to_their_packages() {
        let paths =
            ["crates/node/src/lib.rs", "crates/rail/Cargo.toml", "cluster-tests/tests/kill.rs", "proto/a.proto"];
        let all = ["ticketrail-node", "ticketrail", "ticketrail-cluster-tests", "ticketrail-proto"];
        assert_eq!(touched_by(&paths), packages(&all));
    }

    #[test]
    fn each_crate_of_the_cluster_tests_is_one_of_its_own() {
        let paths =
            ["cluster-tests/history/src/lib.rs", "cluster-tests/sim/seeds/regressions.txt", "cluster-tests/src/lib.rs"];
        assert_eq!(touched_by(&paths), packages(&["ticketrail-history", "ticketrail-sim", "ticketrail-cluster-tests"]));
    }

    #[test]
    fn a_crate_that_brings_rocksdb_is_not_selected_alone() {
        assert_eq!(
            selection(&packages(&["ticketrail-storage"])),
            ["--package=ticketrail-proto", "--package=ticketrail-storage"]
        );
        assert_eq!(selection(&packages(&["ticketrail-core"])), ["--package=ticketrail-core"]);
        assert_eq!(selection(&Touched::All), ["--workspace"]);
    }

    #[test]
    fn documents_touch_no_package_and_the_root_touches_all() {
        assert_eq!(touched_by(&["deploy/Dockerfile"]), packages(&["ticketrail-cluster-tests"]));
        assert_eq!(touched_by(&["README.md", "docs/adr/README.md", ".ci/run"]), packages(&[]));
        for path in ["Cargo.toml", "Cargo.lock", ".cargo/config.toml", "clippy.toml"] {
            assert_eq!(touched_by(&["crates/node/src/lib.rs", path]), Touched::All, "{path}");
        }
    }
}
