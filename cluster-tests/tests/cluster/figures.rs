//! A backlog in a cluster: what each node holds in memory, and how soon it confirms again after all were killed.
//!
//! `TICKETRAIL_TEST_CLUSTER_BACKLOG` says how many messages wait, 20,000 by default; `TICKETRAIL_TEST_RAIL_BIN` may name a
//! release build.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load;
use ticketrail_cluster_tests::size::size;

use crate::turns;

const BODY: usize = 1 << 10;
/// Far more than it takes; the figure is printed.
const RESTART: Duration = Duration::from_secs(30);
/// Memtables, log tail and caches have fixed sizes, 260 MiB at most together; the backlog must not stand beside them.
const MEMORY_MIB: u64 = 512;

fn memory(cluster: &mut Cluster) -> anyhow::Result<Vec<u64>> {
    cluster.nodes.iter_mut().map(ticketrail_cluster_tests::cluster::Node::anonymous_mib).collect()
}

#[test]
fn a_backlog_is_not_kept_in_memory_and_not_read_at_a_restart() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let messages: u64 = size("TICKETRAIL_TEST_CLUSTER_BACKLOG", 20_000)?;
    let mut cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    let empty = memory(&mut cluster)?;
    let filled = load::fill(&addresses, "backlog", messages, BODY)?;
    let full = memory(&mut cluster)?;
    let ready = load::queue_stats(&addresses, "backlog")?.ready;
    ensure!(ready == messages, "expected {messages} waiting, but {ready}");

    cluster.kill_all()?;
    let begun = Instant::now();
    cluster.start_all()?;
    let leads = begun.elapsed();
    load::one_message(&addresses, "another")?;
    let confirms = begun.elapsed();
    let restarted = memory(&mut cluster)?;

    // The others went on: it has only to be found again.
    let leader = cluster.leader()?;
    let begun = Instant::now();
    cluster.node_mut(leader.at)?.server.kill_9()?;
    load::one_message(&addresses, "another")?;
    let failover = begun.elapsed();
    cluster.restart(leader.at)?;
    cluster.until_level()?;
    let ready = load::queue_stats(&addresses, "backlog")?.ready;
    ensure!(ready == messages, "expected {messages} still waiting, but {ready}");
    println!(
        "{messages} waiting on three nodes, filled at {:.0}/s; anonymous memory a node {empty:?} MiB empty, {full:?} MiB full, \
         {restarted:?} MiB restarted; after -9 of all a leader after {} ms, a send, a receive and an ack confirmed after {} ms; \
         after -9 of the leader after {} ms",
        messages as f64 / filled.as_secs_f64(),
        leads.as_millis(),
        confirms.as_millis(),
        failover.as_millis(),
    );
    ensure!(confirms < RESTART, "expected to serve within {RESTART:?}, but it took {confirms:?}");
    let most = full.iter().chain(&restarted).copied().max().unwrap_or(0);
    ensure!(most < MEMORY_MIB, "expected memory that does not grow with the backlog, but a node holds {most} MiB");
    cluster.stop_all()
}
