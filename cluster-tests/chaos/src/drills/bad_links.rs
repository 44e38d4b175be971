//! Drill 11: links lose packets, are slow, or flap. (What runs over TCP is never doubled or reordered for the nodes.)

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::cut::Rule;
use crate::poll::pass;
use crate::proxy::{Delay, Links};
use crate::scene::Scene;
use crate::switch::link_address;
use crate::tools::Tool;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 11,
    name: "bad-links",
    broken: "Links between nodes lose 5 and 30 of a hundred packets, take 100±50 ms each way, or go down and up every 2 s.",
    holds: "Writes go on at a loss of 30 %; at 5 % no leader steps down.",
    tools: &[Tool::Nft],
    setup: Setup { nodes: 3, disk: Disk::Plain, args: &[], proxied: true },
    run,
};

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    let links = Links::start(3, scene.options.seed)?;
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    let long = scene.sized(Duration::from_secs(3), Duration::from_secs(8));
    while scene.goes_on(begun, round, 1) {
        round += 1;
        lose(scene, 5, long)?;
        lose(scene, 30, long)?;
        slow(scene, &links, long)?;
        flap(scene, scene.sized(2, 4))?;
    }
    scene.nemesis.demand("packets lost", 20)?;
    scene.nemesis.demand("pieces delayed", 50)?;
    scene.nemesis.demand("links down", 2)?;
    scene.finish()
}

/// Each node loses some of what it sends to and gets from the others.
fn lose(scene: &mut Scene, percent: u8, long: Duration) -> anyhow::Result<()> {
    scene.forget_outage()?;
    let before = scene.world.cluster.leader()?;
    scene.nemesis.begin("packets lost", "all", &format!("{percent} of 100"));
    for at in 0..3 {
        // Half at the one end of a link, half at the other.
        scene.world.cut(at, &[Rule::some(percent.div_ceil(2), (0..3).map(link_address))])?;
    }
    pass(long);
    let outage = scene.outage()?;
    let mut lost = 0;
    for at in 0..3 {
        lost += scene.world.heal(at)?;
    }
    scene.nemesis.effect("packets lost", "all", &format!("nft counters: {lost}"), lost);
    scene.nemesis.end("packets lost", "all", "all rules removed");
    let after = scene.world.cluster.leader()?;
    let elections = after.term - before.term;
    scene.say(format!(
        "{percent} of 100 packets lost for {} s, {lost} in all: {elections} elections, no write for {} ms",
        long.as_secs(),
        outage.as_millis()
    ));
    scene.note(format!("{elections} elections at {percent} %"));
    if percent <= 5 && scene.options.strict {
        ensure!(elections == 0, "expected no leader to step down at a loss of {percent} %, but {elections} did");
    }
    Ok(())
}

fn slow(scene: &mut Scene, links: &Links, long: Duration) -> anyhow::Result<()> {
    scene.forget_outage()?;
    let (before, delayed) = (scene.world.cluster.leader()?, links.delayed());
    let delay = Delay { least: Duration::from_millis(50), most: Duration::from_millis(150) };
    scene.nemesis.begin("pieces delayed", "all", "100±50 ms each way");
    links.delay(delay);
    pass(long);
    let outage = scene.outage()?;
    links.delay(Delay::default());
    let delayed = links.delayed() - delayed;
    scene.nemesis.effect("pieces delayed", "all", "counted by the proxies", delayed);
    scene.nemesis.end("pieces delayed", "all", "none");
    let after = scene.world.cluster.leader()?;
    scene.say(format!(
        "100±50 ms each way for {} s: {} elections, no write for {} ms",
        long.as_secs(),
        after.term - before.term,
        outage.as_millis()
    ));
    Ok(())
}

/// A node's link goes down and up again, the leader's first.
fn flap(scene: &mut Scene, times: usize) -> anyhow::Result<()> {
    let leader = scene.world.cluster.leader()?.at;
    for turn in 0..times {
        scene.forget_outage()?;
        let at = (leader + turn) % 3;
        let name = scene.world.name(at).to_owned();
        scene.nemesis.begin("links down", &name, "ip link set down");
        scene.world.switch().set_link(scene.world.host(at)?, false)?;
        let unreachable = scene.world.cluster.node(at)?.figures().is_none();
        pass(Duration::from_secs(2));
        scene.world.switch().set_link(scene.world.host(at)?, true)?;
        scene.nemesis.effect("links down", &name, "the node did not answer", u64::from(unreachable));
        scene.nemesis.end("links down", &name, "ip link set up");
        let outage = scene.outage()?;
        scene.say(format!("{name}'s link down for 2 s: no write for {} ms", outage.as_millis()));
    }
    Ok(())
}
