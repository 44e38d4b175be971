//! Drill 8: the leader is stopped with SIGSTOP, for less or much more than an election takes, and let go on.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::sys::signal::Signal;
use ticketrail_cluster_tests::faults;

use crate::poll::pass;
use crate::scene::Scene;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 8,
    name: "stopped-leader",
    broken: "The leader is stopped with SIGSTOP for 0.5 to 20 times the election timeout, then let go on, believing that it leads.",
    holds: "Writes are back within 3 s of the stop; the old leader grants and confirms nothing from its past.",
    tools: &[],
    setup: USUAL,
    run,
};

/// What is promised.
const OUTAGE: Duration = Duration::from_secs(3);
/// The longest time after which a node campaigns, by default.
const ELECTION: Duration = Duration::from_millis(800);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 3) {
        round += 1;
        // Tenths of an election: each third time too short for one.
        let tenths = match round % 3 {
            0 => 5 + scene.dice.below(5),
            _ => 20 + scene.dice.below(scene.sized(20, 180)),
        };
        stop(scene, ELECTION * u32::try_from(tenths).unwrap_or(20) / 10, tenths >= 20)?;
    }
    scene.nemesis.demand("leaders stopped", 3)?;
    scene.nemesis.demand("leaders deposed", 1)?;
    scene.finish()
}

fn stop(scene: &mut Scene, long: Duration, deposes: bool) -> anyhow::Result<()> {
    pass(scene.dice.between(Duration::from_millis(200), Duration::from_secs(2)));
    scene.forget_outage()?;
    let leader = scene.world.cluster.leader()?;
    let name = scene.world.name(leader.at).to_owned();
    scene.nemesis.begin("leaders stopped", &name, &format!("SIGSTOP for {} ms", long.as_millis()));
    faults::signal(scene.world.cluster.node_mut(leader.at)?.server.child()?, Signal::SIGSTOP)?;
    let stopped = Instant::now();
    crate::poll::poll(Duration::from_secs(5), || Ok((scene.world.state(leader.at)? == 'T').then_some(())))?;
    scene.nemesis.effect("leaders stopped", &name, "the kernel has it as T", 1);
    if deposes {
        let others = scene.world.others(leader.at);
        let next = scene.world.cluster.until("a leader beside the stopped one", |cluster| {
            let leads = |at: usize| {
                let figures = cluster.node(at).ok()?.figures()?;
                (figures.get("ticketrail_raft_leading") == Some(1)).then(|| figures.or_0("ticketrail_raft_term"))
            };
            Ok(others.iter().find_map(|at| leads(*at)))
        })?;
        ensure!(next > leader.term, "expected a later term than {}, but {next}", leader.term);
        scene.nemesis.effect("leaders deposed", &name, &format!("term {next} after {}", leader.term), 1);
    }
    pass(long.saturating_sub(stopped.elapsed()));
    faults::signal(scene.world.cluster.node_mut(leader.at)?.server.child()?, Signal::SIGCONT)?;
    scene.nemesis.end("leaders stopped", &name, "SIGCONT");
    let outage = scene.outage()?;
    let now = scene.world.cluster.leader()?;
    scene.say(format!(
        "{name} stopped for {} ms while it led in term {}; {} leads in term {}, no write for {} ms",
        stopped.elapsed().as_millis(),
        leader.term,
        scene.world.name(now.at),
        now.term,
        outage.as_millis()
    ));
    scene.promised("writes while the leader is stopped", outage, OUTAGE)
}
