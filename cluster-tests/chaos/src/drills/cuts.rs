//! Drill 10: cuts that part no side from the other cleanly: one-way ones, a bridge, a ring of majorities, a leader that
//! reaches one follower alone.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::cut::{Rule, Way};
use crate::poll::pass;
use crate::scene::Scene;
use crate::tools::Tool;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 10,
    name: "cuts",
    broken: "Links fail in odd ways: one way only, at the leader, at a follower; a bridge that alone reaches all; a ring in which \
             each reaches a majority, but not all; a leader with one follower.",
    holds: "A majority that reach each other have a leader within 5 s and writes go on, and terms do not rise faster than by ten a minute.",
    tools: &[Tool::Nft],
    setup: Setup { nodes: 5, disk: Disk::Plain, args: &[], proxied: false },
    run,
};

/// What is promised.
const LEADER: Duration = Duration::from_secs(5);
const ELECTIONS_A_MINUTE: u64 = 10;

/// How links fail.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Nothing comes to the leader.
    DeafLeader,
    /// Nothing comes from the leader.
    MuteLeader,
    /// Nothing comes to a follower.
    DeafFollower,
    /// Two and two that reach each other only through the fifth.
    Bridge,
    /// Each reaches its two neighbours on each side but one.
    Ring,
    /// The leader and one follower reach each other, and nobody else reaches them.
    LeaderWithOne,
}

const SHAPES: [Shape; 6] =
    [Shape::DeafLeader, Shape::Bridge, Shape::MuteLeader, Shape::Ring, Shape::LeaderWithOne, Shape::DeafFollower];

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    let first = scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 6) {
        let shape = SHAPES[usize::try_from(round).unwrap_or(0) % SHAPES.len()];
        round += 1;
        cut(scene, shape)?;
    }
    let elections = scene.world.cluster.leader()?.term.saturating_sub(first.term);
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    scene.note(format!("{elections} terms in {round} cuts"));
    // Each cut and each healing may cost one.
    let lawful = 2 * u64::from(round) + (minutes * ELECTIONS_A_MINUTE as f64) as u64;
    ensure!(elections <= lawful, "expected at most {lawful} terms in {minutes:.1} minutes, but there were {elections}");
    scene.nemesis.demand("packets stopped", 60)?;
    scene.nemesis.demand("cuts", 6)?;
    scene.finish()
}

/// The rules of a shape, by the node that they stand at.
fn rules(scene: &Scene, shape: Shape, leader: usize) -> anyhow::Result<Vec<(usize, Rule)>> {
    let world = &scene.world;
    let others = world.others(leader);
    let next = |steps: usize| (leader + steps) % 5;
    let apart = |at: usize, others: &[usize]| Ok::<_, anyhow::Error>((at, world.apart(Way::Both, others)?));
    Ok(match shape {
        Shape::DeafLeader => vec![(leader, world.apart(Way::In, &others)?)],
        Shape::MuteLeader => vec![(leader, world.apart(Way::Out, &others)?)],
        Shape::DeafFollower => vec![(next(1), world.apart(Way::In, &world.others(next(1)))?)],
        Shape::Bridge => vec![apart(leader, &[next(3), next(4)])?, apart(next(1), &[next(3), next(4)])?],
        // Each is without the one that is two steps on, and so without the one two steps back.
        Shape::Ring => (0..5).map(|at| apart(at, &[(at + 2) % 5])).collect::<anyhow::Result<_>>()?,
        Shape::LeaderWithOne => {
            let cut_off = [next(2), next(3), next(4)];
            vec![apart(leader, &cut_off)?, apart(next(1), &cut_off)?]
        }
    })
}

fn cut(scene: &mut Scene, shape: Shape) -> anyhow::Result<()> {
    pass(scene.dice.between(Duration::from_millis(500), Duration::from_secs(2)));
    scene.forget_outage()?;
    let leader = scene.world.cluster.leader()?;
    let name = scene.world.name(leader.at).to_owned();
    let rules = rules(scene, shape, leader.at)?;
    scene.nemesis.begin("cuts", &name, &format!("{shape:?}: {rules:?}"));
    let begun = Instant::now();
    for (at, rule) in &rules {
        scene.world.cut(*at, std::slice::from_ref(rule))?;
    }
    let outage = scene.outage()?;
    let back = begun.elapsed();
    let (least, most) = scene.sized((1_000, 1_000), (1_000, 8_000));
    pass(scene.dice.between(Duration::from_millis(least), Duration::from_millis(most)));
    let mut stopped = 0;
    for (at, _) in &rules {
        stopped += scene.world.heal(*at)?;
    }
    scene.nemesis.effect("packets stopped", &name, &format!("nft counters: {stopped}"), stopped);
    scene.nemesis.effect("cuts", &name, &format!("{shape:?}"), u64::from(stopped > 0));
    scene.nemesis.end("cuts", &name, "all rules removed");
    let now = scene.world.cluster.leader()?;
    scene.say(format!(
        "{shape:?} while {name} led in term {}: writes again {} ms after, no write for {} ms; {} leads in term {}",
        leader.term,
        back.as_millis(),
        outage.as_millis(),
        scene.world.name(now.at),
        now.term
    ));
    scene.promised("writes after a cut", outage, LEADER)
}
