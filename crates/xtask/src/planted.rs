//! `cargo xtask planted`: bugs on purpose, and which seed of the simulation catches each.

use std::process::{Command, ExitCode};

use crate::workspace::{Workspace, help_or_become};

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/sim/src/planted.txt");

/// The bugs that the gate hunts: one of the core, one of the snapshots, one of the log's durability.
const GATE: [&str; 3] = ["repeat-runs-again", "snapshot-without-sessions", "answer-before-sync"];

/// Hunts a few bugs. Errors where one is not caught.
pub(crate) fn few(workspace: &Workspace) -> Result<(), String> {
    let mut hunt = hunt(workspace)?;
    hunt.args(GATE.iter().flat_map(|bug| ["--bug", bug]));
    match hunt.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("expected each bug to be caught, but {hunt:?} ended with {status}")),
        Err(error) => Err(format!("expected to start {hunt:?}, but it failed: {error}")),
    }
}

/// `sim planted`, with the bugs built in.
fn hunt(workspace: &Workspace) -> Result<Command, String> {
    let sim = workspace.build("sim", &["--package", "ticketrail-sim", "--features", "planted"])?;
    let mut command = Command::new(sim);
    command.arg("planted");
    Ok(command)
}

/// Builds `sim` with the bugs in it and hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    help_or_become(args, USAGE, || hunt(workspace))
}
