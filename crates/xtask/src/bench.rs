//! `cargo xtask bench`: builds an optimised `rail` and becomes `rail bench`; or measures beside others.

use std::process::{Command, ExitCode};

use crate::peers;
use crate::workspace::{Profile, Workspace, become_program};

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    if let Some((first, rest)) = args.split_first()
        && first == "peers"
    {
        return peers::run(workspace, rest);
    }
    become_program(Command::new(workspace.build_rail(Profile::Release)?).arg("bench").args(args))
}
