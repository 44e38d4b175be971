//! The programs that check the files in `deploy/`: a schema validator for manifests and a linter for the Dockerfile.
//!
//! They are Python packages with all that they need inside, so that the checks themselves reach no network. They stand in a
//! virtual environment beside the build, made anew when the list of packages changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// The environment variable through which tests get the folder of the programs.
pub(crate) const VARIABLE: &str = "TICKETRAIL_TEST_DEPLOY_TOOLS";

/// The packages, as pip reads them.
const LIST: &str = "deploy/requirements.txt";

/// What holds the list that was installed, once all of it is there.
const MARK: &str = "installed.txt";

/// The folder of the programs; installs them where they are not there yet. `None`, with the reason on stderr: the tests
/// that need them say that they were skipped.
pub(crate) fn ensure(workspace: &Workspace) -> Option<PathBuf> {
    let folder = workspace.target().join("deploy-tools");
    match prepare(&workspace.root().join(LIST), &folder) {
        Ok(()) => Some(folder.join("bin")),
        Err(problem) => {
            eprintln!("expected the programs that check deploy/, but {problem}");
            eprintln!(
                "  Debian, Ubuntu: sudo apt-get install python3-venv    elsewhere: Python 3.9 or later with venv and pip"
            );
            None
        }
    }
}

fn prepare(list: &Path, folder: &Path) -> Result<(), String> {
    let wanted = fs::read_to_string(list).map_err(|error| format!("{} can't be read: {error}", list.display()))?;
    if is_installed(folder, &wanted) {
        return Ok(());
    }
    eprintln!("installing the programs of {LIST} in {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{} can't be removed: {error}", folder.display()))?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let options = ["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--requirement"];
    run(Command::new(folder.join("bin/pip")).args(options).arg(list))?;
    fs::write(folder.join(MARK), wanted).map_err(|error| format!("{} can't be written: {error}", folder.display()))
}

/// Whether all of the list `wanted`, and nothing else, was installed in `folder`.
fn is_installed(folder: &Path, wanted: &str) -> bool {
    fs::read_to_string(folder.join(MARK)).is_ok_and(|installed| installed == wanted)
}

fn run(command: &mut Command) -> Result<(), String> {
    // What it says is talk: the output of the tests stays alone on stdout.
    match command.stdin(Stdio::null()).stdout(std::io::stderr()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?} can't be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_counts_only_with_the_list_that_is_wanted_now() {
        let folder = std::env::temp_dir().join(format!("ticketrail-deploy-tools-{}", std::process::id()));
        assert!(!is_installed(&folder, "a==1\n"));
        fs::create_dir_all(&folder).expect("a folder");
        assert!(!is_installed(&folder, "a==1\n"), "begun and not finished");
        fs::write(folder.join(MARK), "a==1\n").expect("written");
        assert!(is_installed(&folder, "a==1\n"));
        assert!(!is_installed(&folder, "a==2\n"));
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn every_package_has_one_version() {
        let list = include_str!("../../../deploy/requirements.txt");
        let packages: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(packages.len() >= 2);
        for package in packages {
            let version = package.split_once("==").map(|(_, version)| version);
            assert!(version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit())), "{package}");
        }
    }
}
