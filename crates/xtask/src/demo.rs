//! `cargo xtask demo`: builds `rail` and becomes `rail demo`.

use std::process::{Command, ExitCode};

use crate::workspace::{Profile, Workspace, become_program};

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    become_program(Command::new(workspace.build_rail(Profile::Dev)?).arg("demo").args(args))
}
