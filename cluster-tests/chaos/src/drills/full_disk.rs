//! Drill 15: disks run full: a follower's, the leader's, a majority's, all; and one to the last byte.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_client::{Client, Delivery, Reason};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::server::DEADLINE;
use tokio::runtime::Runtime;

use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::tools::Tool;
use crate::volume::Disk;
use crate::world::Setup;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 15,
    name: "full-disk",
    broken: "Disks run full: a follower's, the leader's, those of a majority; then one to the last byte. Space comes back while \
             the nodes run.",
    holds: "With one full disk writes go on; with a majority of them enqueues are refused with DISK_LOW while acks go on; writes \
            are back by themselves within 15 s of the space.",
    tools: &[Tool::Fallocate],
    setup: Setup {
        nodes: 3,
        disk: Disk::Memory(640),
        args: &["--disk-low-bytes", "192MiB", "--disk-critical-bytes", "16MiB", "--ballast-bytes", "16MiB"],
        proxied: false,
    },
    run,
};

/// Less than the mark below which enqueues are refused, and more than the one at which the ballast goes.
const LOW: u64 = 96 << 20;
/// What is promised.
const RECOVERY: Duration = Duration::from_secs(15);
/// What a client allows a call here.
const PATIENCE: Duration = Duration::from_secs(2);
/// Messages that are held, to be acked while disks are full.
const HELD: u32 = 4;

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        one_disk(scene)?;
        most_disks(scene)?;
        to_the_last_byte(scene)?;
    }
    scene.nemesis.demand("disks low", 3)?;
    scene.nemesis.demand("enqueues refused", 1)?;
    scene.nemesis.demand("acks while full", 1)?;
    scene.nemesis.demand("disks without any room", 1)?;
    scene.finish()
}

fn is_low(cluster: &Cluster, at: usize) -> anyhow::Result<bool> {
    Ok(cluster.node(at)?.figures().is_some_and(|figures| figures.get("ticketrail_disk_low") == Some(1)))
}

/// Fills a disk past its low mark, and waits until the node says so.
fn fill(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    let name = scene.world.name(at).to_owned();
    scene.nemesis.begin("disks low", &name, "fallocate");
    scene.world.volume(at)?.fill(LOW)?;
    scene.world.cluster.until("the disk to be low", |cluster| Ok(is_low(cluster, at)?.then_some(())))?;
    let free = scene.world.volume(at)?.free()? >> 20;
    scene.nemesis.effect("disks low", &name, &format!("{free} MiB free, ticketrail_disk_low 1"), 1);
    Ok(())
}

fn clear(scene: &mut Scene, at: usize) -> anyhow::Result<()> {
    scene.world.volume(at)?.clear()?;
    let name = scene.world.name(at).to_owned();
    scene.nemesis.end("disks low", &name, "space is back");
    Ok(())
}

/// The leader's disk alone: it hands over, and writes go on.
fn one_disk(scene: &mut Scene) -> anyhow::Result<()> {
    scene.forget_outage()?;
    let leader = scene.world.cluster.leader()?;
    fill(scene, leader.at)?;
    let next = scene.world.cluster.until("a leader with room", |cluster| {
        Ok(cluster.leader_now().filter(|next| next.at != leader.at && next.term > leader.term))
    })?;
    let outage = scene.outage()?;
    scene.say(format!(
        "{}'s disk is low while it leads: {} leads, no write for {} ms",
        scene.world.name(leader.at),
        scene.world.name(next.at),
        outage.as_millis()
    ));
    clear(scene, leader.at)?;
    scene.world.cluster.until("room again", |cluster| Ok((!is_low(cluster, leader.at)?).then_some(())))
}

/// A majority's disks: enqueues are refused, acks go on, and writes are back by themselves.
fn most_disks(scene: &mut Scene) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = {
        let _entered = runtime.enter();
        Client::builder().addresses(scene.world.cluster.addresses()).timeout(PATIENCE).connect()?
    };
    let held = hold(&runtime, &client)?;
    let full = if scene.dice.below(2) == 0 { 2 } else { 3 };
    for at in 0..full {
        fill(scene, at)?;
    }
    // Whatever gets in before the leader knows that its peers are low is finished below, like all else.
    let mut entered = 0;
    let refused = poll(DEADLINE, || match runtime.block_on(async { client.queue("held").send("while full").await }) {
        Ok(_) => {
            entered += 1;
            Ok(None)
        }
        Err(error) => Ok(Some(error)),
    })?;
    ensure!(refused.reason() == Some(&Reason::DiskLow), "expected DISK_LOW, but {refused:?}");
    scene.nemesis.effect("enqueues refused", "all", "RESOURCE_EXHAUSTED, DISK_LOW", 1);
    let acks = held.len() as u64;
    ack(&runtime, held).context("ack while disks are full")?;
    scene.nemesis.effect("acks while full", "all", "answered OK", acks);
    pass(scene.dice.between(Duration::ZERO, scene.sized(Duration::ZERO, Duration::from_secs(5))));
    scene.forget_outage()?;
    let space = Instant::now();
    for at in 0..full {
        clear(scene, at)?;
    }
    scene.outage()?;
    let back = space.elapsed();
    ack(&runtime, receive(&runtime, &client, entered)?).context("ack what got in")?;
    scene.say(format!(
        "{full} disks low: an enqueue refused with DISK_LOW, {acks} acks answered OK; writes back {} ms after the space",
        back.as_millis()
    ));
    scene.promised("writes after the space came back", back, RECOVERY)
}

/// Deliveries of messages that were sent while there was room.
fn hold(runtime: &Runtime, client: &Client) -> anyhow::Result<Vec<Delivery>> {
    runtime.block_on(client.queue("held").send_batch((0..HELD).map(|number| format!("held {number}"))))?;
    receive(runtime, client, HELD)
}

/// So many deliveries, no fewer.
fn receive(runtime: &Runtime, client: &Client, count: u32) -> anyhow::Result<Vec<Delivery>> {
    let (queue, mut missing, mut deliveries) = (client.queue("held"), count, Vec::new());
    while missing > 0 {
        let received = runtime
            .block_on(async { queue.receive().max(missing).lease(Duration::from_secs(600)).wait(DEADLINE).await })?;
        ensure!(!received.deliveries.is_empty(), "expected {missing} more deliveries of {count}");
        missing -= u32::try_from(received.deliveries.len())?;
        deliveries.extend(received.deliveries);
    }
    Ok(deliveries)
}

fn ack(runtime: &Runtime, deliveries: Vec<Delivery>) -> anyhow::Result<()> {
    for delivery in deliveries {
        runtime.block_on(delivery.ack())?;
    }
    Ok(())
}

/// One disk to its last byte, at once: whatever its node does, nothing is lost, and it goes on once there is room.
fn to_the_last_byte(scene: &mut Scene) -> anyhow::Result<()> {
    let leader = scene.world.cluster.leader()?;
    let at = if scene.dice.below(2) == 0 { leader.at } else { scene.world.cluster.follower()? };
    let name = scene.world.name(at).to_owned();
    let led = if at == leader.at { ", which led," } else { "" };
    scene.nemesis.begin("disks without any room", &name, "fallocate to the last byte");
    scene.forget_outage()?;
    scene.world.volume(at)?.fill(0)?;
    let free = scene.world.volume(at)?.free()?;
    scene.nemesis.effect("disks without any room", &name, &format!("{free} bytes free"), 1);
    let outage = scene.outage().context("expected writes by the other two")?;
    // It may end by itself, of ENOSPC; or have given up its ballast in time.
    pass(scene.sized(Duration::from_secs(1), Duration::from_secs(5)));
    scene.world.volume(at)?.clear()?;
    scene.nemesis.end("disks without any room", &name, "space is back");
    let ended = scene.until_it_follows_or_ends(at)?;
    if let Some(status) = ended {
        ensure!(!status.success(), "expected a node without room to fail, but it ended with {status}");
        let said = scene.world.cluster.node(at)?.server.log_of_this_life();
        ensure!(said.contains("No space left") || said.contains("os error 28"), "expected it to say why:\n{said}");
        scene.world.cluster.restart(at)?;
        scene.note("1 ended of ENOSPC");
    }
    let ended =
        ended.map_or_else(|| "went on".to_owned(), |status| format!("ended with {status} and was started again"));
    scene.say(format!("{name}{led} without any room: {ended}, no write for {} ms", outage.as_millis()));
    Ok(())
}
