//! Drill 2: all nodes are killed with -9 at one moment: at a random one, and each at its own n-th sync of the log.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;

use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::tools::Tool;
use crate::traffic::usual;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 2,
    name: "kill-all",
    broken: "All nodes are killed with -9, at one moment or each within a sync of its own log, and started again.",
    holds: "They are back within 10 s, and no entry is skipped or applied twice.",
    tools: &[Tool::Strace],
    setup: USUAL,
    run,
};

/// What is done.
const ONE_MOMENT: &str = "killed at one moment";
const SYNC_KILL: &str = "killed in a sync";
/// What is promised for each.
const BACK: Duration = Duration::from_secs(10);
/// How long a node may go on until it comes to its sync.
const SYNC: Duration = Duration::from_secs(20);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    // Faster than the usual one: there are entries on their way at each moment.
    let mut busy = usual(scene.options.short);
    busy.sdk.streamers = 2;
    busy.sdk.per_second = Some(600);
    scene.warm_with(busy)?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 2) {
        round += 1;
        let (least, most) = scene.sized((200, 500), (500, 4_000));
        pass(scene.dice.between(Duration::from_millis(least), Duration::from_millis(most)));
        scene.forget_outage()?;
        let (fault, how) = match round % 2 {
            0 => (SYNC_KILL, at_a_sync(scene)?),
            _ => (ONE_MOMENT, at_one_moment(scene)?),
        };
        let killed = Instant::now();
        let leader = scene.world.cluster.start_all()?;
        let outage = scene.outage()?;
        let back = killed.elapsed();
        scene.say(format!(
            "all killed {how}; {} leads in term {}, back after {} ms, no write for {} ms",
            scene.world.name(leader.at),
            leader.term,
            back.as_millis(),
            outage.as_millis()
        ));
        scene.nemesis.end(fault, "all", "started again");
        scene.promised("to be back", back, BACK)?;
    }
    scene.nemesis.demand(ONE_MOMENT, 3)?;
    scene.nemesis.demand(SYNC_KILL, 2)?;
    scene.finish()
}

fn at_one_moment(scene: &mut Scene) -> anyhow::Result<String> {
    scene.nemesis.begin(ONE_MOMENT, "all", "SIGKILL");
    scene.world.cluster.kill_all()?;
    scene.nemesis.effect(ONE_MOMENT, "all", "each ended by signal 9", 3);
    Ok("at one moment".to_owned())
}

/// Each node is killed by a tracer when it calls `fdatasync` for the n-th time from now.
fn at_a_sync(scene: &mut Scene) -> anyhow::Result<String> {
    scene.nemesis.begin(SYNC_KILL, "all", "SIGKILL in a sync");
    let all = scene.world.cluster.nodes.len();
    let numbers: Vec<u64> = (0..all).map(|_| 1 + scene.dice.below(12)).collect();
    let mut tracers = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        let log = scene.world.home().join(format!("strace-{}", scene.world.name(at)));
        let pid = scene.world.cluster.node_mut(at)?.server.child()?.id();
        tracers.push(trace(pid, *number, &log)?);
    }
    let cluster = &mut scene.world.cluster;
    let ended = poll(SYNC, || all_ended(cluster)).context("wait until each came to its sync");
    for tracer in &mut tracers {
        // It ends with what it traces; whoever was not killed goes on without it.
        let _ = tracer.kill();
        tracer.wait()?;
    }
    // Two that are gone are no quorum: the third may have nothing more to sync.
    for node in &mut cluster.nodes {
        if node.server.ended()?.is_none() {
            node.server.kill_9()?;
        }
    }
    let mut killed = 0;
    for at in 0..all {
        let seen = std::fs::read_to_string(scene.world.home().join(format!("strace-{}", scene.world.name(at))))?;
        if seen.contains("+++ killed by SIGKILL +++") && seen.contains("fdatasync(") {
            let name = scene.world.name(at).to_owned();
            scene.nemesis.effect(SYNC_KILL, &name, "strace: fdatasync, then killed by SIGKILL", 1);
            killed += 1;
        }
    }
    ended.with_context(|| {
        format!("expected a majority to be killed in its syncs, number {numbers:?}, but {killed} were")
    })?;
    Ok(format!("({killed} of them in a sync, number {numbers:?})"))
}

/// Traces a process, and kills it in its sync of this number.
fn trace(pid: u32, number: u64, log: &std::path::Path) -> anyhow::Result<Child> {
    let tracer = Command::new("strace")
        .args(["-f", "-e", "trace=fdatasync", "-e", &format!("inject=fdatasync:signal=SIGKILL:when={number}")])
        .arg("-o")
        .arg(log)
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start strace")?;
    Ok(tracer)
}

fn all_ended(cluster: &mut Cluster) -> anyhow::Result<Option<()>> {
    let running = cluster.nodes.len() - gone(cluster)?;
    // One alone commits nothing, and need not sync.
    Ok((running <= 1).then_some(()))
}

/// How many have ended by signal 9.
fn gone(cluster: &mut Cluster) -> anyhow::Result<usize> {
    use std::os::unix::process::ExitStatusExt as _;
    let mut gone = 0;
    for node in &mut cluster.nodes {
        if let Some(status) = node.server.child()?.try_wait()? {
            ensure!(status.signal() == Some(9), "expected {} to be killed, but {status}", node.name);
            gone += 1;
        }
    }
    Ok(gone)
}
