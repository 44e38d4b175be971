//! Drill 12: a node is alive, but hardly: little processor time, or a thin link; a follower first, then the leader. And a
//! leader whose large packets are lost: its heartbeats arrive, its entries do not.

use std::time::{Duration, Instant};

use crate::cgroup::Cgroup;
use crate::cut::{Rule, Way};
use crate::poll::pass;
use crate::scene::Scene;
use crate::tools::Tool;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 12,
    name: "gray-node",
    broken: "A node gets 10 % of a processor, or a link of 256 kbit/s; a follower first, then the leader. Then the leader's large packets are lost.",
    holds: "A slow follower does not hold writes up; a slow leader is followed by another one within 10 s, or serves on.",
    tools: &[Tool::Tc, Tool::Nft],
    setup: USUAL,
    run,
};

/// What is promised.
const OUTAGE: Duration = Duration::from_secs(10);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    let long = scene.sized(Duration::from_secs(3), Duration::from_secs(7));
    while scene.goes_on(begun, round, 1) {
        round += 1;
        let follower = scene.world.cluster.follower()?;
        starve(scene, follower, long)?;
        let follower = scene.world.cluster.follower()?;
        thin(scene, follower, long)?;
        let leader = scene.world.cluster.leader()?.at;
        starve(scene, leader, long)?;
        let leader = scene.world.cluster.leader()?.at;
        thin(scene, leader, long)?;
        lose_large(scene)?;
    }
    scene.nemesis.demand("periods throttled", 20)?;
    scene.nemesis.demand("links limited", 2)?;
    scene.nemesis.demand("large packets lost", 10)?;
    scene.nemesis.demand("leaders that left", 1)?;
    scene.finish()
}

/// A tenth of a processor.
fn starve(scene: &mut Scene, at: usize, long: Duration) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let group = Cgroup::make("cpu", &scene.options.run, &name)?;
    group.set("cpu.cfs_period_us", "100000")?;
    group.set("cpu.cfs_quota_us", "10000")?;
    let before = (scene.world.cluster.leader()?, Instant::now());
    scene.forget_outage()?;
    scene.nemesis.begin("periods throttled", &name, "10 ms in 100 ms");
    group.hold(scene.world.cluster.node_mut(at)?.server.child()?.id())?;
    pass(long);
    let outage = scene.outage()?;
    let throttled = group.number("cpu.stat", Some("nr_throttled"))?;
    drop(group);
    scene.nemesis.effect("periods throttled", &name, &format!("cpu.stat: nr_throttled {throttled}"), throttled);
    scene.nemesis.end("periods throttled", &name, "none");
    tell(scene, &format!("a tenth of a processor for {name}"), before, at, outage)
}

/// A thin link.
fn thin(scene: &mut Scene, at: usize, long: Duration) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let before = (scene.world.cluster.leader()?, Instant::now());
    scene.forget_outage()?;
    scene.nemesis.begin("links limited", &name, "tbf, 256 kbit/s each way");
    scene.world.switch().limit(scene.world.host(at)?, Some(256))?;
    pass(long);
    let outage = scene.outage();
    scene.world.switch().limit(scene.world.host(at)?, None)?;
    scene.nemesis.effect("links limited", &name, "tc shows the limit", 1);
    scene.nemesis.end("links limited", &name, "none");
    let outage = outage?;
    tell(scene, &format!("256 kbit/s for {name}"), before, at, outage)
}

/// Packets of more bytes than this are lost: heartbeats and votes are smaller.
const LARGE: u16 = 500;

/// A leader whose entries get lost, until another one leads.
fn lose_large(scene: &mut Scene) -> anyhow::Result<()> {
    let leader = scene.world.cluster.leader()?;
    let (at, name) = (leader.at, scene.world.name(leader.at).to_owned());
    let rule = Rule { longer_than: LARGE, ..scene.world.apart(Way::Out, &scene.world.others(at))? };
    scene.forget_outage()?;
    scene.nemesis.begin("large packets lost", &name, "nft drops what is larger on the way to the others");
    scene.world.cut(at, &[rule])?;
    let begun = Instant::now();
    let next = scene.world.until_leader_after(leader)?;
    scene.nemesis.effect("leaders that left", &name, "another one leads", 1);
    let outage = scene.outage()?;
    let lost = scene.world.heal(at)?;
    scene.nemesis.effect("large packets lost", &name, &format!("nft counters: {lost}"), lost);
    scene.nemesis.end("large packets lost", &name, "none");
    scene.say(format!(
        "packets of more than {LARGE} bytes lost at {name}, which led: {} leads in term {} after {} ms, no write for {} ms",
        scene.world.name(next.at),
        next.term,
        begun.elapsed().as_millis(),
        outage.as_millis()
    ));
    scene.promised("writes behind a leader whose entries get lost", outage, OUTAGE)
}

fn tell(
    scene: &mut Scene,
    what: &str,
    before: (ticketrail_cluster_tests::cluster::Leader, Instant),
    at: usize,
    outage: Duration,
) -> anyhow::Result<()> {
    let (leader, begun) = before;
    let now = scene.world.cluster.leader()?;
    scene.say(format!(
        "{what}{} for {} ms: {} leads in term {} after {}, no write for {} ms",
        if leader.at == at { ", which led," } else { "" },
        begun.elapsed().as_millis(),
        scene.world.name(now.at),
        now.term,
        leader.term,
        outage.as_millis()
    ));
    scene.promised("writes beside a slow node", outage, OUTAGE)
}
