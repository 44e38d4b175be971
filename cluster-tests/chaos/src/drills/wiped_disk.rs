//! Drill 18: a node's disk is emptied, and the node started again under its name; then the next one's.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::poll::pass;
use crate::scene::Scene;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 18,
    name: "wiped-disk",
    broken: "A node is killed, its disk emptied, and it is started again under the same name; then the next one, the leader too.",
    holds: "It comes back under a new id, the old one is removed, it has a vote again within 2 minutes, and there are never \
            more than three votes.",
    tools: &[],
    setup: USUAL,
    run,
};

/// What is promised.
const BACK: Duration = Duration::from_secs(120);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0_u32);
    let first = scene.dice.index(3);
    while scene.goes_on(begun, round, scene.sized(2, 3)) {
        let at = (first + usize::try_from(round).unwrap_or(0)) % 3;
        round += 1;
        wipe(scene, at)?;
    }
    scene.nemesis.demand("disks wiped", 2)?;
    scene.finish()
}

fn wipe(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    pass(scene.dice.between(Duration::ZERO, scene.sized(Duration::ZERO, Duration::from_secs(5))));
    let name = scene.world.name(at).to_owned();
    let leader = scene.world.cluster.leader()?;
    let led = if leader.at == at { ", which led," } else { "" };
    let old = scene.world.cluster.node(at)?.id().context("expected an id")?;
    scene.forget_outage()?;
    scene.nemesis.begin("disks wiped", &name, "SIGKILL, then all files removed");
    scene.world.cluster.node_mut(at)?.server.kill_9()?;
    scene.world.cluster.node(at)?.wipe()?;
    let wiped = Instant::now();
    scene.world.cluster.restart(at)?;
    let new = scene.world.cluster.node(at)?.id().context("expected an id")?;
    ensure!(new != old, "expected a new id after {old}");
    let most = Cell::new(0);
    scene.world.cluster.until_members("the old id to be gone and the new one to vote", |members| {
        // While the new id takes the old one's vote, a listing may name both: each is in one of the two sets of voters.
        let takes_over = members.iter().any(|member| member.node == new && member.votes());
        let votes = members.iter().filter(|member| member.votes() && !(takes_over && member.node == old));
        most.set(most.get().max(votes.count()));
        members.len() == 3
            && members.iter().all(|member| member.votes() && member.alive && member.node != old)
            && members.iter().any(|member| member.node == new)
    })?;
    let back = wiped.elapsed();
    ensure!(most.get() <= 3, "expected three votes at most, but there were {}", most.get());
    scene.nemesis.effect("disks wiped", &name, &format!("id {new} after {old}"), 1);
    scene.nemesis.end("disks wiped", &name, "has a vote again");
    let outage = scene.outage()?;
    scene.say(format!(
        "{name}{led} wiped: id {new} after {old}, votes {} ms after, no write for {} ms",
        back.as_millis(),
        outage.as_millis()
    ));
    scene.promised("a vote after the disk was wiped", back, BACK)
}
