//! `cargo xtask sim`: nodes and clients in a deterministic simulation.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workspace::Workspace;

/// What can be set: the program's own words, without building it.
const USAGE: &str = include_str!("../../../cluster-tests/sim/src/usage.txt");

/// The library whose build takes twenty minutes of a processor.
const ROCKSDB: &str = "librocksdb-sys";

/// Builds `sim` and hands the process over; returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<ExitCode, String> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let sim = workspace.build("sim", &["--package", "ticketrail-sim"])?;
    Err(format!("expected to start {}, but it failed: {}", sim.display(), Command::new(&sim).args(args).exec()))
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
