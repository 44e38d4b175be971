//! A fourth node joins by snapshot under load, an old one leaves for good.

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::replay;

use crate::turns;

/// A log that is purged after a few seconds of load.
pub(crate) const SHORT_LOG: &[&str] =
    &["--log-retention-bytes", "256KiB", "--log-retention-age", "30s", "--flush-bytes", "1MiB", "--flush-age", "1s"];

#[test]
fn a_fourth_node_joins_by_snapshot_and_an_old_one_leaves() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = Cluster::start(SHORT_LOG)?;
    let addresses = cluster.addresses();
    let plan =
        Plan { callers: 4, streamers: 2, per_second: Some(200), consumers: 1, receivers: 1, ..Plan::of("orders") };
    let load = Load::start(&addresses, Plan { body: 4_096, ..plan })?;
    let leader = cluster.leader()?;
    cluster.until("the log to be purged", |cluster| {
        let figures = cluster.node(leader.at)?.figures();
        Ok(figures.filter(|figures| figures.or_0("ticketrail_raft_purged_index") > 0).map(|_| ()))
    })?;

    let fourth = cluster.add_place("d", "d")?;
    cluster.restart(fourth)?;
    let id = cluster.node(fourth)?.id().context("expected an id")?;
    ensure!(id >= 100, "expected an id of its own, but it is {id}");
    cluster.until_members("its vote", |members| {
        members.len() == 4 && members.iter().any(|member| member.node == id && member.votes())
    })?;
    let figures = cluster.node(fourth)?.figures().context("expected figures")?;
    let installed = figures.or_0("ticketrail_snapshots_installed_total");
    ensure!(installed >= 1, "expected it to come by snapshot, but it installed {installed}");

    let leaves = (cluster.leader()?.at + 1) % 3;
    let old = cluster.node(leaves)?.id().context("expected an id")?;
    // Asked of whom nobody told that there is a new one.
    let removed = cluster.rail(leaves, &["cluster", "remove", &old.to_string(), "--yes"])?;
    let said = String::from_utf8_lossy(&removed.stderr).into_owned();
    ensure!(removed.status.success() && said.contains(&format!("removed node {old}")), "{}: {said}", removed.status);
    let left = cluster.until_members("three members", |members| members.len() == 3)?;
    ensure!(left.iter().all(|member| member.votes() && member.node != old), "{left:?}");
    // It is told, and ends by itself.
    let server = &mut cluster.node_mut(leaves)?.server;
    let status = server.wait().context("wait until the removed node ends")?;
    ensure!(status.code() == Some(1), "expected exit code 1, but {status}");
    let refused = cluster.refused(leaves)?;
    refused.check(&["was removed from the cluster", "empty its data directory"])?;

    // As the message says.
    cluster.node(leaves)?.wipe()?;
    cluster.restart(leaves)?;
    let new = cluster.node(leaves)?.id().context("expected an id")?;
    ensure!(new != old && new >= 100, "expected a new id after {old}, but it is {new}");
    cluster.until_members("four members that vote", |members| {
        members.len() == 4 && members.iter().all(|member| member.votes() && member.alive)
    })?;
    let tally = load.stop()?;
    tally.check_no_error()?;
    tally.check_finished(load::queue_stats(&addresses, "orders")?.enqueued)?;
    cluster.until_level()?;
    cluster.stop_all()?;
    let agreed = replay::agree(&cluster.data_dirs())?;
    println!(
        "under {:.0}/s a fourth node joined as {id} by {installed} snapshot, {old} was removed, its disk refused ({}), and came \
         back wiped as {new}; {} acknowledged and finished, lost 0; {} records the same on all four",
        tally.rate(),
        refused.status,
        tally.acknowledged(),
        agreed.records
    );
    Ok(())
}
