//! `cargo xtask bench`: builds an optimised `rail` and becomes `rail bench`; or measures beside others.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::peers;
use crate::workspace::{Profile, Workspace};

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    if let Some((first, rest)) = args.split_first()
        && first == "peers"
    {
        return peers::run(workspace, rest);
    }
    let rail = workspace.build_rail(Profile::Release)?;
    let error = Command::new(&rail).arg("bench").args(args).exec();
    Err(format!("expected to start {}, but it failed: {error}", rail.display()))
}
