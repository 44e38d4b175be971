//! The drills of the gate, in their short form, one at a time. By hand: `cargo xtask chaos`.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use ticketrail_cluster_tests::faults::needs_root;
use ticketrail_cluster_tests::server::rail;

/// Drills measure: one has the machine for itself.
static TURN: Mutex<()> = Mutex::new(());

fn drill(name: &str) -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Where what a failed drill wrote is kept.
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let output = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--short", "--drill", name])
        .arg("--dir")
        .arg(dir)
        .env("TICKETRAIL_TEST_RAIL_BIN", rail()?)
        .output()?;
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    println!("{told}");
    anyhow::ensure!(output.status.success(), "expected drill {name} to pass, but {}:\n{told}", output.status);
    Ok(())
}

#[test]
fn drill_1_kill_leader() -> anyhow::Result<()> {
    drill("kill-leader")
}

#[test]
fn drill_2_kill_all() -> anyhow::Result<()> {
    drill("kill-all")
}

#[test]
fn drill_7_stopped_worker() -> anyhow::Result<()> {
    drill("stopped-worker")
}

#[test]
fn drill_9_isolated_leader() -> anyhow::Result<()> {
    drill("isolated-leader")
}

#[test]
fn drill_15_full_disk() -> anyhow::Result<()> {
    drill("full-disk")
}

#[test]
fn drill_18_wiped_disk() -> anyhow::Result<()> {
    drill("wiped-disk")
}

#[test]
fn drill_22_rolling_restart() -> anyhow::Result<()> {
    drill("rolling-restart")
}
