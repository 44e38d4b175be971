//! `cargo xtask sim`: nodes and clients in a deterministic simulation.

use std::process::{Command, ExitCode};

use crate::workspace::{Workspace, help_or_become};

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/sim/src/usage.txt");

/// The library whose build takes twenty minutes of a processor.
const ROCKSDB: &str = "librocksdb-sys";

/// Builds `sim` and hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    help_or_become(args, USAGE, || Ok(Command::new(workspace.build("sim", &["--package", "ticketrail-sim"])?)))
}

/// Holds that the simulation builds without RocksDB.
pub(crate) fn is_lean(workspace: &Workspace) -> Result<(), String> {
    let mut tree = workspace.cargo("tree");
    tree.args(["--locked", "--package", "ticketrail-sim", "--edges", "normal,build", "--prefix", "none"]);
    let output = tree.output().map_err(|error| format!("expected to start cargo tree, but it failed: {error}"))?;
    if !output.status.success() {
        return Err(format!("expected cargo tree to succeed, but {}", String::from_utf8_lossy(&output.stderr)));
    }
    if String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with(ROCKSDB)) {
        return Err(format!("expected ticketrail-sim to build without {ROCKSDB}, but it brings it"));
    }
    Ok(())
}
