//! Drill 24: a follower is cut off until the others have purged the log that it lacks, then let back under full load.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::cut::Way;
use crate::scene::Scene;
use crate::tools::Tool;
use crate::traffic::usual;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 24,
    name: "black-hole",
    broken: "A follower is cut off until the others have purged the log behind it, then let back while load runs as fast as it goes.",
    holds: "It catches up by a snapshot while the load goes on, and the leader's log stays within its bounds.",
    tools: &[Tool::Nft],
    setup: Setup {
        nodes: 3,
        disk: Disk::Plain,
        args: &[
            "--log-retention-bytes",
            "1MiB",
            "--log-retention-age",
            "30s",
            "--flush-bytes",
            "1MiB",
            "--flush-age",
            "1s",
        ],
        proxied: false,
    },
    run,
};

/// Past its bound a log holds what is not flushed yet, and what came since it was looked at last.
const LOG_BYTES: u64 = 16 << 20;

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    let mut fast = usual(scene.options.short);
    fast.sdk.streamers = 2;
    fast.sdk.per_second = Some(scene.sized(400, 800));
    fast.sdk.body = 2_048;
    scene.warm_with(fast)?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        swallow(scene)?;
    }
    scene.nemesis.demand("packets stopped", 10)?;
    scene.nemesis.demand("snapshots installed", 1)?;
    scene.finish()
}

fn swallow(scene: &mut Scene) -> anyhow::Result<()> {
    let at = scene.world.cluster.follower()?;
    let name = scene.world.name(at).to_owned();
    let leader = scene.world.cluster.leader()?;
    let figure = |scene: &Scene, at: usize, name: &str| {
        scene
            .world
            .cluster
            .until("figures", |cluster| Ok(cluster.node(at)?.figures().map(|figures| figures.or_0(name))))
    };
    let had = figure(scene, at, "ticketrail_raft_last_log_index")?;
    let installed = figure(scene, at, "ticketrail_snapshots_installed_total")?;
    scene.forget_outage()?;
    scene.nemesis.begin("packets stopped", &name, "nft drops all between it and the others");
    let rule = scene.world.apart(Way::Both, &scene.world.others(at))?;
    scene.world.cut(at, &[rule])?;
    let cut = Instant::now();
    scene.world.cluster.until("the others to purge what it lacks", |cluster| {
        let figures = cluster.leader_now().and_then(|leader| cluster.node(leader.at).ok()?.figures());
        Ok(figures.filter(|figures| figures.or_0("ticketrail_raft_purged_index") > had + 100).map(|_| ()))
    })?;
    let away = cut.elapsed();
    let stopped = scene.world.heal(at)?;
    scene.nemesis.effect("packets stopped", &name, &format!("nft counters: {stopped}"), stopped);
    let healed = Instant::now();
    scene.world.cluster.until("a snapshot", |cluster| {
        let figures = cluster.node(at)?.figures();
        Ok(figures.filter(|figures| figures.or_0("ticketrail_snapshots_installed_total") > installed).map(|_| ()))
    })?;
    scene.nemesis.effect("snapshots installed", &name, "ticketrail_snapshots_installed_total", 1);
    scene.world.cluster.until_level_under_load()?;
    let back = healed.elapsed();
    let outage = scene.outage()?;
    let held = figure(scene, scene.world.cluster.leader()?.at, "ticketrail_raft_log_held_bytes")?;
    scene.nemesis.end("packets stopped", &name, "follows");
    scene.say(format!(
        "{name} away for {} ms, back by a snapshot {} ms after; the leader's log holds {} KiB; no write for {} ms",
        away.as_millis(),
        back.as_millis(),
        held >> 10,
        outage.as_millis()
    ));
    ensure!(held <= LOG_BYTES, "expected a log of {LOG_BYTES} bytes at most, but the leader holds {held}");
    let now = scene.world.cluster.leader()?;
    scene.note(format!("{} elections", now.term - leader.term));
    scene.promised("writes while a follower is away", outage, Duration::from_secs(3))
}
