//! Drill 1: the leader is killed with -9, again and again, and comes back a while later.

use std::time::{Duration, Instant};

use crate::poll::pass;
use crate::scene::Scene;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 1,
    name: "kill-leader",
    broken: "The leader is killed with -9 under load, and started again up to 10 s later, over and over.",
    holds: "Another one leads, and writes are back within 3 s, 1.5 s at the median.",
    tools: &[],
    setup: USUAL,
    run,
};

/// What is promised for each, and at the median.
const OUTAGE: Duration = Duration::from_secs(3);
const MEDIAN: Duration = Duration::from_millis(1_500);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round, mut outages) = (Instant::now(), 0, Vec::new());
    while scene.goes_on(begun, round, 2) {
        round += 1;
        let seconds = Duration::from_secs;
        let (calm, down) = scene.sized(([0, 1], [0, 2]), ([3, 10], [0, 10]));
        let calm = scene.dice.between(seconds(calm[0]), seconds(calm[1]));
        let down = scene.dice.between(seconds(down[0]), seconds(down[1]));
        pass(calm);
        scene.forget_outage()?;
        let leader = scene.world.cluster.leader()?;
        let name = scene.world.name(leader.at).to_owned();
        scene.nemesis.begin("leaders killed", &name, "SIGKILL");
        scene.world.cluster.node_mut(leader.at)?.server.kill_9()?;
        let next = scene.world.until_leader_after(leader)?;
        let proof = format!("killed by signal 9; term {} after {}", next.term, leader.term);
        scene.nemesis.effect("leaders killed", &name, &proof, 1);
        let outage = scene.outage()?;
        scene.say(format!(
            "{name} led and is killed; {} leads in term {}, no write for {} ms",
            scene.world.name(next.at),
            next.term,
            outage.as_millis()
        ));
        pass(down);
        scene.world.cluster.restart(leader.at)?;
        scene.nemesis.end("leaders killed", &name, "started again");
        outages.push(outage);
    }
    scene.nemesis.demand("leaders killed", 2)?;
    outages.sort_unstable();
    let median = outages.get(outages.len() / 2).copied().unwrap_or_default();
    scene.note(format!("median outage {} ms", median.as_millis()));
    scene.promised("the longest outage", scene.longest_outage(), OUTAGE)?;
    scene.promised("the outage at the median", median, MEDIAN)?;
    scene.finish()
}
