//! One node after the other restarted by SIGTERM under load: who uses the SDK with all addresses sees no error.
//!
//! `TICKETRAIL_TEST_ROLLS` says how often around, 1 by default.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::size::size;

use crate::turns;

/// An orderly stop takes no longer.
const STOP: Duration = Duration::from_secs(20);

#[test]
fn a_rolling_restart_is_seen_by_nobody() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let rolls: u32 = size("TICKETRAIL_TEST_ROLLS", 1)?;
    let mut cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    let plan =
        Plan { callers: 8, streamers: 4, per_second: Some(300), consumers: 2, receivers: 2, ..Plan::of("orders") };
    let load = Load::start(&addresses, plan)?;
    load.until_more(300)?;
    let (mut stops, mut outages) = (Vec::new(), Vec::new());
    for _ in 0..rolls {
        // As a StatefulSet does it: from the last to the first, each ready again before the next one goes.
        for at in (0..3).rev() {
            let led = cluster.leader()?.at == at;
            load.longest_gap();
            let begun = Instant::now();
            let status = cluster.node_mut(at)?.server.stop()?;
            let took = begun.elapsed();
            let log = cluster.node(at)?.server.log_of_this_life();
            ensure!(status.success(), "expected a clean stop, but {status}:\n{log}");
            ensure!(took <= STOP, "expected a stop within {STOP:?}, but it took {took:?}:\n{log}");
            cluster.restart(at)?;
            cluster.until("the node to be ready", |cluster| Ok(cluster.node(at)?.readiness().0.then_some(())))?;
            load.until_more(75)?;
            let outage = load.longest_gap();
            println!(
                "{at} restarted{}: gone after {} ms, ready after {} ms; write outage {} ms",
                if led { ", which led" } else { "" },
                took.as_millis(),
                begun.elapsed().as_millis(),
                outage.as_millis()
            );
            stops.push(took);
            outages.push(outage);
        }
    }
    let tally = load.stop()?;
    tally.check_no_error()?;
    ensure!(tally.leases_lost == 0, "expected each ack in time, but {} came too late", tally.leases_lost);
    tally.check_finished(load::queue_stats(&addresses, "orders")?.enqueued)?;
    println!(
        "{} restarts by SIGTERM under load: {} sends and {} acks, all OK, {} redelivered, lost 0, doubled 0; longest stop {} ms, \
         longest write outage {} ms",
        stops.len(),
        tally.acknowledged(),
        tally.finished.len(),
        tally.redelivered,
        stops.iter().max().map_or(0, Duration::as_millis),
        outages.iter().max().map_or(0, Duration::as_millis)
    );
    Ok(())
}
