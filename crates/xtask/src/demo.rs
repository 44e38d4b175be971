//! `cargo xtask demo`: builds `rail` and becomes `rail demo`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workspace::{Profile, Workspace};

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    let rail = workspace.build_rail(Profile::Dev)?;
    let error = Command::new(&rail).arg("demo").args(args).exec();
    Err(format!("expected to start {}, but it failed: {error}", rail.display()))
}
