//! `cargo xtask planted`: bugs on purpose, and which seed of the simulation catches each.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workspace::Workspace;

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/sim/src/planted.txt");

/// Builds `sim` with the bugs in it and hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let sim = workspace.build("sim", &["--package", "ticketrail-sim", "--features", "planted"])?;
    let error = Command::new(&sim).arg("planted").args(args).exec();
    Err(format!("expected to start {}, but it failed: {error}", sim.display()))
}
