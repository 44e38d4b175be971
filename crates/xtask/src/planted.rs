//! `cargo xtask planted`: bugs on purpose, and which seed of the simulation catches each.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::workspace::Workspace;

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/sim/src/planted.txt");

/// The bugs that the gate hunts: one of the core, one of the snapshots, one of the log's durability.
const GATE: [&str; 3] = ["repeat-runs-again", "snapshot-without-sessions", "answer-before-sync"];

/// Hunts a few bugs. Errors where one is not caught.
pub(crate) fn few(workspace: &Workspace) -> Result<(), String> {
    let mut hunt = Command::new(build(workspace)?);
    hunt.arg("planted").args(GATE.iter().flat_map(|bug| ["--bug", bug]));
    match hunt.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("expected each bug to be caught, but {hunt:?} ended with {status}")),
        Err(error) => Err(format!("expected to start {hunt:?}, but it failed: {error}")),
    }
}

fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    workspace.build("sim", &["--package", "ticketrail-sim", "--features", "planted"])
}

/// Builds `sim` with the bugs in it and hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let sim = build(workspace)?;
    let error = Command::new(&sim).arg("planted").args(args).exec();
    Err(format!("expected to start {}, but it failed: {error}", sim.display()))
}
