//! Drill 4: one node loses its power while the two others are stopped, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use ticketrail_cluster_tests::faults;
use ticketrail_disk::Crash;

use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 4,
    name: "power-in-turn",
    broken: "One node loses its power, and with it all that it had not synced, while first the one and then the other of the rest is \
             stopped with SIGSTOP: a majority with the node that has forgotten must know all.",
    holds: "Nothing is lost, replicas agree, and no term has two leaders.",
    tools: &[],
    setup: Setup { nodes: 3, disk: Disk::Lossy, args: &[], proxied: false },
    run,
};

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    let first = scene.dice.index(3);
    while scene.goes_on(begun, round, 3) {
        let victim = (first + usize::try_from(round).unwrap_or(0)) % 3;
        round += 1;
        lose_power(scene, victim)?;
    }
    scene.nemesis.demand("power losses", 2)?;
    scene.nemesis.demand("stopped in turn", 4)?;
    scene.finish()
}

fn lose_power(scene: &mut Scene, victim: usize) -> anyhow::Result<()> {
    pass(scene.dice.between(Duration::from_millis(300), Duration::from_millis(1_500)));
    let name = scene.world.name(victim).to_owned();
    let others = scene.world.others(victim);
    let [one, other] = others.as_slice() else { anyhow::bail!("expected two others, but there are {others:?}") };
    let leader = scene.world.cluster.leader()?;
    let led = if leader.at == victim { ", which led," } else { "" };
    let seed = scene.dice.throw();
    let crash = match scene.dice.below(4) {
        0 => Crash::Plain,
        1 => Crash::NoDir,
        2 => Crash::Torn { seed },
        _ => Crash::Reordered { seed },
    };
    scene.forget_outage()?;
    stop(scene, *one)?;
    scene.nemesis.begin("power losses", &name, &format!("SIGKILL, then {crash:?}"));
    let before = scene.world.volume(victim)?.lossy()?.stats();
    scene.world.cluster.node_mut(victim)?.server.kill_9()?;
    scene.world.volume(victim)?.lossy()?.crash(crash).with_context(|| format!("take the power of {name}'s disk"))?;
    let after = scene.world.volume(victim)?.lossy()?.stats();
    ensure!(after.crashes == before.crashes + 1, "expected one power loss more, but {after}");
    let at_risk = after.bytes_at_risk - before.bytes_at_risk;
    let lost = at_risk + (after.names_lost - before.names_lost) + (after.names_back - before.names_back);
    let proof = format!("{at_risk} bytes were not synced, {} files cut", after.files_cut - before.files_cut);
    scene.nemesis.effect("power losses", &name, &proof, u64::from(lost > 0));
    scene.world.cluster.spawn(victim)?;
    // First the one is away, then the other: the node that lost its power is in each majority.
    pass(scene.dice.between(Duration::from_millis(200), Duration::from_millis(1_500)));
    go_on(scene, *one)?;
    stop(scene, *other)?;
    pass(scene.dice.between(Duration::from_secs(1), scene.sized(Duration::from_secs(2), Duration::from_secs(5))));
    go_on(scene, *other)?;
    scene.world.cluster.node_mut(victim)?.server.until_ready()?;
    scene.nemesis.end("power losses", &name, "serves again");
    let outage = scene.outage()?;
    let now = scene.world.cluster.leader()?;
    scene.say(format!(
        "{name}{led} lost its power ({crash:?}: {proof}) while {} and then {} were stopped; {} leads in term {}, no write for {} ms",
        scene.world.name(*one),
        scene.world.name(*other),
        scene.world.name(now.at),
        now.term,
        outage.as_millis()
    ));
    Ok(())
}

fn stop(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    scene.nemesis.begin("stopped in turn", &name, "SIGSTOP");
    faults::signal(scene.world.cluster.node_mut(at)?.server.child()?, Signal::SIGSTOP)?;
    poll(Duration::from_secs(5), || Ok((scene.world.state(at)? == 'T').then_some(())))?;
    scene.nemesis.effect("stopped in turn", &name, "the kernel has it as T", 1);
    Ok(())
}

fn go_on(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    faults::signal(scene.world.cluster.node_mut(at)?.server.child()?, Signal::SIGCONT)?;
    let name = scene.world.name(at).to_owned();
    scene.nemesis.end("stopped in turn", &name, "SIGCONT");
    Ok(())
}
