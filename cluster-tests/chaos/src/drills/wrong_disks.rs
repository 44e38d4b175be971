//! Drill 19: disks stand where they do not belong: exchanged, of another cluster, a day old, copied.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::faults::copy_dir;

use crate::scene::Scene;
use crate::traffic::usual;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 19,
    name: "wrong-disks",
    broken: "Two nodes get each other's disk; one gets the disk of another cluster; one gets its own disk as it was a while ago.",
    holds: "Each is refused with a message that says what to do, the others go on, and no leader changes for it.",
    tools: &[],
    setup: USUAL,
    run,
};

/// The place that gets a wrong disk. It does not lead, so that a change of leader would be its doing.
const WRONG: usize = 2;

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.start()?;
    let foreign = scene.world.home().join("foreign");
    make_foreign_disk(&foreign)?;
    scene.load_with(usual(scene.options.short))?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        foreign_disk(scene, &foreign)?;
        old_disk(scene)?;
        swapped_disks(scene)?;
    }
    for (fault, least) in [("a foreign disk", 1), ("an old disk", 1), ("exchanged disks", 2)] {
        scene.nemesis.demand(fault, least)?;
    }
    scene.finish()
}

/// The disk of a node that is a cluster of its own, on this machine's own address.
fn make_foreign_disk(to: &std::path::Path) -> anyhow::Result<()> {
    let mut foreign = Cluster::of(3, &[])?;
    foreign.start_all()?;
    foreign.stop_all()?;
    copy_dir(&foreign.node(WRONG)?.server.data_dir(), to)
}

fn refused(scene: &mut Scene, at: usize, fault: &'static str, says: &[&str]) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    let refusal = scene.world.cluster.refused(at)?;
    refusal.check(says)?;
    let last = refusal.log.lines().last().unwrap_or_default().to_owned();
    scene.nemesis.effect(fault, &name, &last, 1);
    scene.nemesis.end(fault, &name, "refused");
    scene.say(format!("{fault} at {name}: refused, {}", refusal.status));
    Ok(())
}

fn foreign_disk(scene: &mut Scene, foreign: &std::path::Path) -> anyhow::Result<()> {
    scene.world.lead_elsewhere(WRONG)?;
    let before = scene.world.cluster.leader()?;
    scene.nemesis.begin("a foreign disk", "c", "the data of a node of another cluster");
    let aside = scene.world.home().join("aside");
    let node = scene.world.cluster.node_mut(WRONG)?;
    node.server.kill_9()?;
    fs::rename(node.server.data_dir(), &aside)?;
    copy_dir(foreign, &node.server.data_dir())?;
    refused(scene, WRONG, "a foreign disk", &["expected a disk of cluster", "mount the disk of this node"])?;
    let data = scene.world.cluster.node(WRONG)?.server.data_dir();
    fs::remove_dir_all(&data)?;
    fs::rename(&aside, &data)?;
    scene.world.cluster.restart(WRONG)?;
    same_leader(scene, before)
}

/// A disk as it was before entries that its node has acknowledged since.
fn old_disk(scene: &mut Scene) -> anyhow::Result<()> {
    scene.world.lead_elsewhere(WRONG)?;
    let before = scene.world.cluster.leader()?;
    scene.nemesis.begin("an old disk", "c", "a copy from a while ago");
    let old = scene.world.home().join("old");
    scene.world.cluster.node_mut(WRONG)?.server.kill_9()?;
    let data = scene.world.cluster.node(WRONG)?.server.data_dir();
    copy_dir(&data, &old)?;
    scene.world.cluster.restart(WRONG)?;
    scene.load()?.until_more(100)?;
    scene.world.cluster.until_level_under_load()?;
    let status = scene.world.cluster.node_mut(WRONG)?.server.stop()?;
    ensure!(status.success(), "expected a clean stop, but {status}");
    let aside = scene.world.home().join("aside");
    fs::rename(&data, &aside)?;
    fs::rename(&old, &data)?;
    refused(scene, WRONG, "an old disk", &["rolled back", "empty the data directory"])?;
    // As its message says.
    fs::remove_dir_all(&data)?;
    fs::remove_dir_all(&aside)?;
    fs::create_dir(&data)?;
    scene.world.cluster.restart(WRONG)?;
    let id = scene.world.cluster.node(WRONG)?.id().context("expected an id")?;
    scene.world.cluster.until_members("three voters, the new one among them", |members| {
        members.len() == 3
            && members.iter().all(|member| member.votes() && member.alive)
            && members.iter().any(|member| member.node == id)
    })?;
    same_leader(scene, before)
}

fn swapped_disks(scene: &mut Scene) -> anyhow::Result<()> {
    scene.world.lead_elsewhere(WRONG)?;
    let other = 1 - scene.world.cluster.leader()?.at.min(1);
    for at in [other, WRONG] {
        let name = scene.world.name(at).to_owned();
        scene.nemesis.begin("exchanged disks", &name, "each of two has the other's");
        scene.world.cluster.node_mut(at)?.server.kill_9()?;
    }
    scene.world.cluster.swap_disks(other, WRONG)?;
    for at in [other, WRONG] {
        refused(scene, at, "exchanged disks", &["it is the one of", "mount each disk where it belongs"])?;
    }
    scene.world.cluster.swap_disks(other, WRONG)?;
    scene.world.cluster.start_all()?;
    // Two of three were away: nothing could be written meanwhile.
    scene.outage()?;
    Ok(())
}

fn same_leader(scene: &mut Scene, before: ticketrail_cluster_tests::cluster::Leader) -> anyhow::Result<()> {
    let after = scene.world.cluster.leader()?;
    scene.outage()?;
    ensure!(before == after, "expected {before:?} to lead on beside a wrong disk, but {after:?} leads");
    Ok(())
}
