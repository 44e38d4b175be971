//! Drill 14: a sync or a write of the log fails once, with EIO.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::server::DEADLINE;

use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::tools::Tool;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 14,
    name: "sync-error",
    broken: "A sync of the log fails once with EIO, then a write of it; at the leader and at a follower.",
    holds: "The node acknowledges nothing from then on and ends with an exit code that is not 0; started again, it follows.",
    tools: &[Tool::Strace],
    setup: USUAL,
    run,
};

/// What fails.
#[derive(Debug, Clone, Copy)]
enum Call {
    Sync,
    Write,
}

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, scene.sized(2, 4)) {
        let call = if round % 2 == 0 { Call::Sync } else { Call::Write };
        let at = match round % 4 {
            0 | 3 => scene.world.cluster.leader()?.at,
            _ => scene.world.cluster.follower()?,
        };
        round += 1;
        fail(scene, at, call)?;
    }
    scene.nemesis.demand("calls failed", 2)?;
    scene.finish()
}

fn fail(scene: &mut Scene, at: usize, call: Call) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let leader = scene.world.cluster.leader()?;
    let led = if leader.at == at { ", which led," } else { "" };
    scene.forget_outage()?;
    let log = scene.world.home().join(format!("strace-{name}"));
    let number = 2 + scene.dice.below(8);
    scene.nemesis.begin("calls failed", &name, &format!("{call:?} number {number}"));
    let server = &mut scene.world.cluster.node_mut(at)?.server;
    let (pid, data) = (server.child()?.id(), server.data_dir());
    let mut tracer = trace(pid, call, number, &data, &log)?;
    let status = scene.world.cluster.node_mut(at)?.server.wait();
    let _ = tracer.kill();
    tracer.wait()?;
    let seen = std::fs::read_to_string(&log).unwrap_or_default();
    let injected = seen.lines().filter(|line| line.contains("EIO") && line.contains("INJECTED")).count() as u64;
    scene.nemesis.effect("calls failed", &name, &format!("strace: {injected} calls failed with EIO"), injected);
    scene.nemesis.demand("calls failed", 1)?;
    let status = status.with_context(|| format!("expected {name} to end after {call:?} number {number} failed"))?;
    ensure!(!status.success(), "expected {name} to fail, but it ended with {status}");
    let said = scene.world.cluster.node(at)?.server.log_of_this_life();
    let last: Vec<&str> = said.lines().rev().take(40).collect();
    ensure!(
        last.iter().any(|line| line.contains("Input/output error") || line.contains("os error 5")),
        "expected {name} to say why it ended, but it logged:\n{said}"
    );
    let outage = scene.outage()?;
    pass(scene.dice.between(Duration::ZERO, scene.sized(Duration::ZERO, Duration::from_secs(2))));
    scene.world.cluster.restart(at)?;
    scene.nemesis.end("calls failed", &name, "started again");
    scene.say(format!(
        "{call:?} number {number} of {name}{led} failed with EIO: it ended with {status}, no write for {} ms",
        outage.as_millis()
    ));
    Ok(())
}

/// Traces a process, and has one call of its log fail.
fn trace(pid: u32, call: Call, number: u64, data: &Path, log: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(log);
    match call {
        Call::Sync => {
            command.args(["-e", "trace=fdatasync", "-e", &format!("inject=fdatasync:error=EIO:when={number}")]);
        }
        Call::Write => {
            command.args(["-e", "trace=write", "-e", &format!("inject=write:error=EIO:when={number}")]);
            command.arg("-P").arg(newest_log(&data.join("raft"))?);
        }
    }
    let tracer = command
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start strace")?;
    poll(DEADLINE, || Ok(is_traced(pid).then_some(()))).context("wait until the node is traced")?;
    Ok(tracer)
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

/// The file that the log is being written to: RocksDB numbers them.
fn newest_log(dir: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let logs =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "log"));
    let number = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
    logs.max_by_key(number).with_context(|| format!("expected a log in {}", dir.display()))
}
