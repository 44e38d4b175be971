//! A pod's life, with processes: founded in order or all at once, moved to another address, its volume lost.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::poll::poll;

use crate::turns;

/// How long nothing may happen where nothing should.
const QUIET: Duration = Duration::from_secs(3);

/// All belong to one cluster, and each has a vote in it.
fn check_one_cluster(cluster: &Cluster) -> anyhow::Result<Vec<u64>> {
    let members = cluster.until_members("all to vote", |members| {
        members.len() == cluster.nodes.len() && members.iter().all(|member| member.votes() && member.alive)
    })?;
    let first = cluster.node(0)?.cluster().context("expected a cluster")?;
    for node in &cluster.nodes {
        ensure!(node.cluster().as_ref() == Some(&first), "expected one cluster, but {} is of another", node.name);
        ensure!(members.iter().any(|member| Some(member.node) == node.id()), "{}: {members:?}", node.name);
    }
    Ok(members.iter().map(|member| member.node).collect())
}

/// Waits until a node says why it waits.
fn until_it_waits(cluster: &Cluster, at: usize) -> anyhow::Result<()> {
    cluster.until("a node that waits for a cluster", |cluster| {
        let node = cluster.node(at)?;
        Ok(node.server.log_of_this_life().contains("waits for a cluster").then_some(()))
    })
}

#[test]
fn an_ordered_start_founds_one_cluster() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = Cluster::of(3, &[])?;
    cluster.spawn(0)?;
    until_it_waits(&cluster, 0)?;
    ensure!(cluster.node(0)?.id().is_none(), "expected no identity before there is a majority");
    let (ready, page) = cluster.node(0)?.readiness();
    ensure!(!ready && page.contains("looking for a cluster"), "expected it to be unready, but: {page}");
    cluster.spawn(1)?;
    let leader = cluster.leader()?;
    load::one_message(&cluster.addresses()[..2], "orders")?;
    cluster.restart(2)?;
    let ids = check_one_cluster(&cluster)?;
    println!("started one after the other: {} led as soon as two were there; members {ids:?}", leader.at);
    Ok(())
}

#[test]
fn a_parallel_start_founds_one_cluster() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = Cluster::of(3, &[])?;
    let begun = Instant::now();
    cluster.start_all()?;
    let led = begun.elapsed();
    let ids = check_one_cluster(&cluster)?;
    println!("started all at once: led after {} ms; members {ids:?}", led.as_millis());
    Ok(())
}

#[test]
fn without_the_first_of_the_list_nothing_is_founded() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = Cluster::of(3, &[])?;
    cluster.spawn(1)?;
    cluster.spawn(2)?;
    until_it_waits(&cluster, 1)?;
    until_it_waits(&cluster, 2)?;
    let begun = Instant::now();
    poll(2 * QUIET, || {
        for node in &cluster.nodes[1..] {
            if let Some(id) = node.id() {
                bail!("expected {} to found nothing, but it is node {id}", node.name);
            }
        }
        Ok((begun.elapsed() >= QUIET).then_some(()))
    })?;
    cluster.spawn(0)?;
    cluster.leader()?;
    let ids = check_one_cluster(&cluster)?;
    println!("two without the first waited for {} s and founded nothing; with it: members {ids:?}", QUIET.as_secs());
    Ok(())
}

#[test]
fn lost_volumes_and_new_addresses_need_no_hand() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    let founded = check_one_cluster(&cluster)?;
    let id = cluster.node(0)?.cluster();
    let load = Load::start(&addresses, Plan { callers: 4, per_second: Some(100), consumers: 1, ..Plan::of("orders") })?;
    load.until_more(50)?;

    // The founder's volume is lost: it must not found again.
    let mut told = Vec::new();
    for at in [0, 2] {
        let old = cluster.node(at)?.id().context("expected an id")?;
        cluster.node_mut(at)?.server.kill_9()?;
        cluster.node(at)?.wipe()?;
        let begun = Instant::now();
        cluster.restart(at)?;
        let new = cluster.node(at)?.id().context("expected an id")?;
        ensure!(new >= 100, "expected a new id after {old}, but it is {new}");
        ensure!(cluster.node(at)?.cluster() == id, "expected the old cluster, but it founded another one");
        cluster.until_members("the new one in place of the old one", |members| {
            let ids: Vec<_> = members.iter().map(|member| member.node).collect();
            ids.contains(&new) && !ids.contains(&old) && ids.len() == 3 && members.iter().all(|member| member.votes())
        })?;
        told.push(format!("{old} came back as {new} with a vote after {} ms", begun.elapsed().as_millis()));
    }

    // A pod that was scheduled anew.
    let status = cluster.node_mut(1)?.server.stop()?;
    ensure!(status.success(), "expected a clean stop, but {status}");
    let old = cluster.node(1)?.peer_address();
    cluster.move_peer_address(1)?;
    cluster.restart(1)?;
    let new = cluster.node(1)?.peer_address();
    cluster.until_members("the new address", |members| {
        members.iter().any(|member| member.peer_address == new && member.alive && member.votes())
    })?;
    let ids = check_one_cluster(&cluster)?;
    let tally = load.stop()?;
    tally.check_no_error()?;
    tally.check_finished(load::queue_stats(&addresses, "orders")?.enqueued)?;
    cluster.until_level()?;
    println!(
        "founded as {founded:?}; volumes lost: {}; b moved from {old} to {new}; members {ids:?}; {} acknowledged and finished \
         meanwhile, lost 0",
        told.join(", "),
        tally.acknowledged()
    );
    Ok(())
}
