//! Drill 25: all nodes are killed and started again with a large backlog and little memory.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::load;

use crate::cgroup::Cgroup;
use crate::scene::Scene;
use crate::traffic::usual;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 25,
    name: "backlog",
    broken: "All nodes are killed with many messages waiting, and started again, each with 512 MiB of memory at most, page cache included.",
    holds: "They serve within 10 s, the first message comes within 1 s more, no node is killed for its memory, and all messages are there.",
    tools: &[],
    setup: USUAL,
    run,
};

const CAP_MIB: u64 = 512;
const WAITING: &str = "waiting";
/// What is promised.
const READY: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_secs(1);

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.start()?;
    let messages = scene.sized(20_000, 300_000);
    let filled = load::fill(&scene.world.cluster.addresses(), WAITING, messages, 256)?;
    scene.say(format!("{messages} messages wait, filled in {:.1} s", filled.as_secs_f64()));
    scene.load_with(usual(scene.options.short))?;
    let groups = (0..3)
        .map(|at| {
            let group = Cgroup::make("memory", &scene.options.run, scene.world.name(at))?;
            group.set("memory.limit_in_bytes", &(CAP_MIB << 20).to_string())?;
            Ok(group)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        restart_all(scene, &groups, messages)?;
    }
    scene.nemesis.demand("restarts under a cap", 3)?;
    let there = load::drain(&scene.world.cluster.addresses(), WAITING)?;
    let count = there.ids.len() as u64;
    ensure!(
        count == messages && there.left == 0,
        "expected {messages} messages, but {count} came and {} are left",
        there.left
    );
    scene.finish()?;
    drop(groups);
    Ok(())
}

fn restart_all(scene: &mut Scene, groups: &[Cgroup], messages: u64) -> anyhow::Result<()> {
    scene.forget_outage()?;
    scene.nemesis.begin("restarts under a cap", "all", &format!("SIGKILL, then memory.limit_in_bytes {CAP_MIB} MiB"));
    scene.world.cluster.kill_all()?;
    let killed = Instant::now();
    for (at, group) in groups.iter().enumerate() {
        scene.world.cluster.spawn(at)?;
        group.hold(scene.world.cluster.node_mut(at)?.server.child()?.id())?;
    }
    scene.world.cluster.start_all()?;
    let ready = killed.elapsed();
    let address = scene.world.cluster.addresses();
    load::one_message(&address, "first").context("expected a message to be served")?;
    let first = killed.elapsed() - ready;
    scene.outage()?;
    let stats = load::queue_stats(&address, WAITING)?;
    ensure!(stats.depth() == messages, "expected {messages} waiting, but there are {}", stats.depth());
    let mut most = 0;
    for (at, group) in groups.iter().enumerate() {
        let name = scene.world.name(at).to_owned();
        let used = group.number("memory.max_usage_in_bytes", None)? >> 20;
        let killed = group.number("memory.oom_control", Some("oom_kill"))?;
        ensure!(killed == 0, "expected {name} to stay below {CAP_MIB} MiB, but it was killed for its memory");
        let anonymous = scene.world.cluster.node_mut(at)?.anonymous_mib()?;
        most = most.max(anonymous);
        let proof = format!("in the group, {used} MiB used at most, {anonymous} of its own");
        scene.nemesis.effect("restarts under a cap", &name, &proof, u64::from(used > 0));
    }
    scene.nemesis.end("restarts under a cap", "all", "served");
    scene.note(format!("{most} MiB of their own at most"));
    scene.say(format!(
        "all killed with {messages} waiting: ready after {} ms, first message {} ms after that; {most} MiB of their own at most",
        ready.as_millis(),
        first.as_millis()
    ));
    scene.promised("to be ready with a backlog", ready, READY)?;
    scene.promised("the first message", first, FIRST)
}
