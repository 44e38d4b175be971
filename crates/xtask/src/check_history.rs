//! `cargo xtask check-history`: builds the checker and becomes it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workspace::Workspace;

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let program = workspace.build("check-history", &["--package", "ticketrail-history"])?;
    Err(format!("expected to start {}, but it failed: {}", program.display(), Command::new(&program).args(args).exec()))
}
