//! Drill 22: one node after the other is restarted by SIGTERM, as a StatefulSet does it.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::scene::Scene;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 22,
    name: "rolling-restart",
    broken: "One node after the other is stopped by SIGTERM and started again, each once the one before is ready.",
    holds: "Each stops in order within 20 s; who uses the SDK sees no error, and no gap in writes of more than 500 ms.",
    tools: &[],
    setup: USUAL,
    run,
};

/// What holds always.
const STOP: Duration = Duration::from_secs(20);
/// What is promised.
const OUTAGE: Duration = Duration::from_millis(500);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        for at in (0..3).rev() {
            let leader = scene.world.cluster.leader()?;
            let name = scene.world.name(at).to_owned();
            scene.forget_outage()?;
            scene.nemesis.begin("restarts", &name, "SIGTERM");
            let stopping = Instant::now();
            let status = scene.world.cluster.node_mut(at)?.server.stop()?;
            let stop = stopping.elapsed();
            slowest = slowest.max(stop);
            let log = scene.world.cluster.node(at)?.server.log_of_this_life();
            ensure!(status.success(), "expected a clean stop of {name}, but {status}:\n{log}");
            ensure!(stop <= STOP, "expected a stop of {name} within {STOP:?}, but it took {stop:?}:\n{log}");
            scene.nemesis.effect("restarts", &name, &format!("{status} after {} ms", stop.as_millis()), 1);
            scene.world.cluster.restart(at)?;
            scene
                .world
                .cluster
                .until("the node to be ready", |cluster| Ok(cluster.node(at)?.readiness().0.then_some(())))?;
            scene.nemesis.end("restarts", &name, "ready");
            let outage = scene.outage()?;
            scene.say(format!(
                "{name}{} gone after {} ms, ready after {} ms, no write for {} ms",
                if leader.at == at { ", which led," } else { "" },
                stop.as_millis(),
                stopping.elapsed().as_millis(),
                outage.as_millis()
            ));
            scene.promised("a gap in writes", outage, OUTAGE)?;
        }
    }
    scene.note(format!("slowest stop {} ms", slowest.as_millis()));
    scene.nemesis.demand("restarts", 3)?;
    scene.finish()
}
