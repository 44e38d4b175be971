//! Drill 13: a disk is slow, or does not answer at all for a while; the leader's, then a follower's.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::cgroup::Cgroup;
use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::tools::Tool;
use crate::volume::Disk;
use crate::world::{Setup, World};

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 13,
    name: "slow-disk",
    broken: "A disk takes 20 writes a second, then none at all for a while (fsfreeze); the leader's, then a follower's.",
    holds: "A follower's disk does not hold writes up; with the leader's, writes are back within 5 s; the node whose disk hung goes on or \
            ends, and follows again.",
    tools: &[Tool::Mkfs, Tool::Fsfreeze, Tool::Fallocate],
    setup: Setup {
        nodes: 3,
        disk: Disk::Own(640),
        args: &["--disk-low-bytes", "96MiB", "--disk-critical-bytes", "16MiB"],
        proxied: false,
    },
    run,
};

/// What is promised.
const OUTAGE: Duration = Duration::from_secs(5);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    let seconds = Duration::from_secs;
    while scene.goes_on(begun, round, 1) {
        round += 1;
        let leader = scene.world.cluster.leader()?.at;
        slow(scene, leader, scene.sized(seconds(3), seconds(8)))?;
        let follower = scene.world.cluster.follower()?;
        slow(scene, follower, scene.sized(seconds(3), seconds(8)))?;
        let leader = scene.world.cluster.leader()?.at;
        hang(scene, leader, scene.sized(seconds(4), seconds(30)))?;
        let follower = scene.world.cluster.follower()?;
        hang(scene, follower, scene.sized(seconds(4), seconds(12)))?;
    }
    scene.nemesis.demand("writes throttled", 20)?;
    scene.nemesis.demand("disks hung", 2)?;
    scene.finish()
}

/// 20 writes a second.
fn slow(scene: &mut Scene, at: usize, long: Duration) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let led = scene.world.cluster.leader()?.at == at;
    let device = scene.world.volume(at)?.device()?;
    let group = Cgroup::make("blkio", &scene.options.run, &name)?;
    group.set("blkio.throttle.write_iops_device", &format!("{device} 20"))?;
    scene.forget_outage()?;
    scene.nemesis.begin("writes throttled", &name, "20 writes a second");
    group.hold(scene.world.cluster.node_mut(at)?.server.child()?.id())?;
    let (begun, syncs) = (Instant::now(), syncs(&scene.world, at));
    pass(long);
    let outage = scene.outage();
    let took = begun.elapsed();
    let served = group.number("blkio.throttle.io_serviced", Some(&format!("{device} Write")))?;
    let synced = self::syncs(&scene.world, at).saturating_sub(syncs);
    drop(group);
    let outage = outage?;
    let rate = served as f64 / took.as_secs_f64();
    // Fewer than the limit allows would be a disk that had nothing to do.
    let throttled = if (5.0..=40.0).contains(&rate) { served } else { 0 };
    let proof = format!("blkio.throttle.io_serviced {served} in {} ms, {synced} syncs", took.as_millis());
    scene.nemesis.effect("writes throttled", &name, &proof, throttled);
    scene.nemesis.end("writes throttled", &name, "no limit");
    tell(scene, &format!("20 writes a second for {name} ({synced} syncs)"), led, took, outage)
}

fn syncs(world: &World, at: usize) -> u64 {
    let figures = world.cluster.node(at).ok().and_then(|node| node.figures());
    figures.map_or(0, |figures| figures.or_0("ticketrail_log_sync_duration_seconds_count"))
}

/// No answer at all.
fn hang(scene: &mut Scene, at: usize, long: Duration) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let led = scene.world.cluster.leader()?.at == at;
    scene.forget_outage()?;
    scene.nemesis.begin("disks hung", &name, "fsfreeze");
    let begun = Instant::now();
    let frozen = scene.world.volume(at)?.freeze()?;
    let pid = scene.world.cluster.node_mut(at)?.server.child()?.id();
    let waits = poll(Duration::from_secs(3), || Ok(waits_for_disk(pid).then_some(()))).is_ok();
    scene.nemesis.effect("disks hung", &name, "a thread of the node in state D", u64::from(waits));
    let outage = scene.outage();
    pass(long.saturating_sub(begun.elapsed()));
    frozen.thaw()?;
    let took = begun.elapsed();
    scene.nemesis.end("disks hung", &name, "fsfreeze --unfreeze");
    let outage = outage.with_context(|| format!("expected writes while the disk of {name} hangs"))?;
    let ended = scene.until_it_follows_or_ends(at)?;
    if let Some(status) = ended {
        ensure!(!status.success(), "expected a node whose disk hung to fail, but it ended with {status}");
        scene.world.cluster.restart(at)?;
    }
    let what = if ended.is_some() { "ended" } else { "went on" };
    tell(scene, &format!("{name}'s disk hung and it {what}"), led, took, outage)
}

/// Whether a thread of a process waits for a disk.
fn waits_for_disk(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
    })
}

fn tell(scene: &mut Scene, what: &str, led: bool, took: Duration, outage: Duration) -> anyhow::Result<()> {
    let now = scene.world.cluster.leader()?;
    scene.say(format!(
        "{what}{} for {} ms: {} leads in term {}, no write for {} ms",
        if led { ", which led," } else { "" },
        took.as_millis(),
        scene.world.name(now.at),
        now.term,
        outage.as_millis()
    ));
    scene.promised("writes beside a bad disk", outage, OUTAGE)
}
