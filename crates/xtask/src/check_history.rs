//! `cargo xtask check-history`: builds the checker and becomes it.

use std::process::{Command, ExitCode};

use crate::workspace::{Workspace, become_program};

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let program = workspace.build("check-history", &["--package", "ticketrail-history"])?;
    become_program(Command::new(program).args(args))
}
