//! `cargo xtask chaos`: builds `rail` and the drills, and runs them.

use std::process::{Command, ExitCode};

use crate::workspace::{Profile, Workspace, help_or_become};

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/chaos/src/usage.txt");

/// Builds, then hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    help_or_become(args, USAGE, || {
        let dir = workspace.target().join("chaos");
        std::fs::create_dir_all(&dir).map_err(|error| format!("expected to make {}, but {error}", dir.display()))?;
        let rail = workspace.build_rail(Profile::Dev)?;
        // With the whole workspace selected, so that it is built with the same features as `rail` and the tests.
        let chaos = workspace.build("chaos", &["--workspace"])?;
        let mut command = Command::new(chaos);
        command.arg("--rail").arg(rail).arg("--dir").arg(dir);
        Ok(command)
    })
}
