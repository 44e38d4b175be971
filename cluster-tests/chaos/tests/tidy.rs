//! What a run leaves behind: nothing, however it ends.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticketrail_cluster_tests::faults::needs_root;
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::server::rail;

const PATIENCE: Duration = Duration::from_secs(60);

/// A run that would take long, in `dir`, once its nodes are up.
fn start(dir: &Path) -> anyhow::Result<(Child, Vec<u32>)> {
    let run = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--drill", "kill-leader", "--seconds", "600", "--dir"])
        .arg(dir)
        .env("TICKETRAIL_TEST_RAIL_BIN", rail()?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let nodes = poll(PATIENCE, || Ok(Some(nodes_below(dir)).filter(|nodes| nodes.len() == 3)));
    Ok((run, nodes.context("wait until three nodes run")?))
}

/// The processes whose command line names a data directory below `dir`.
fn nodes_below(dir: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let dir = format!("{}/", dir.display());
    let is_node = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.split('\0').any(|word| word.starts_with(&dir)) && words.contains("serve")
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_node).collect()
}

/// Nothing of a run is left: no process, no directory, no mount, no link.
fn check_that_nothing_is_left(dir: &Path, links: &[String]) -> anyhow::Result<()> {
    poll(PATIENCE, || Ok(nodes_below(dir).is_empty().then_some(()))).context("wait until all nodes are gone")?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let path = dir.display().to_string();
    ensure!(!mounts.contains(&path), "expected no mount below {path}, but:\n{mounts}");
    ensure!(self::links()? == links, "expected the links {links:?}, but there are {:?}", self::links()?);
    Ok(())
}

fn links() -> anyhow::Result<Vec<String>> {
    let names = fs::read_dir("/sys/class/net")?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<anyhow::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn runs_left(dir: &Path) -> anyhow::Result<Vec<String>> {
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

#[test]
fn an_interrupted_run_leaves_nothing() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let links = links()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let dir = tempfile::tempdir()?;
        let (mut run, nodes) = start(dir.path())?;
        kill(Pid::from_raw(i32::try_from(run.id())?), signal)?;
        let status = run.wait()?;
        ensure!(status.code() == Some(128 + signal as i32), "expected it to say {signal}, but {status}");
        ensure!(nodes.len() == 3);
        check_that_nothing_is_left(dir.path(), &links)?;
        ensure!(runs_left(dir.path())?.is_empty(), "expected no files, but {:?}", runs_left(dir.path())?);
    }
    Ok(())
}

#[test]
fn a_killed_run_leaves_only_files_which_the_next_one_removes() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let links = links()?;
    let dir = tempfile::tempdir()?;
    let (mut run, _) = start(dir.path())?;
    run.kill()?;
    run.wait()?;
    check_that_nothing_is_left(dir.path(), &links)?;
    ensure!(runs_left(dir.path())?.len() == 1, "expected the files of one run, but {:?}", runs_left(dir.path())?);
    let swept = ticketrail_chaos::leftovers::sweep(dir.path())?;
    ensure!(swept.len() == 1 && runs_left(dir.path())?.is_empty(), "expected {swept:?} to be all that there was");
    Ok(())
}
