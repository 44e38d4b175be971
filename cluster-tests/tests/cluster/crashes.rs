//! All three nodes killed with -9 at one moment under load, again and again.
//!
//! `TICKETRAIL_TEST_CLUSTER_KILLS` says how often, 2 by default; `TICKETRAIL_TEST_CLUSTER_MESSAGES` how many messages are
//! acknowledged at least, 3,000 by default.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::size::size;

use crate::turns;

#[test]
fn all_killed_at_once_again_and_again_lose_nothing() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let kills: u32 = size("TICKETRAIL_TEST_CLUSTER_KILLS", 2)?;
    let messages: u64 = size("TICKETRAIL_TEST_CLUSTER_MESSAGES", 3_000)?;
    let mut cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    // One queue is only filled, the other one is worked on meanwhile.
    let kept = Load::start(&addresses, Plan { callers: 3, streamers: 2, unconfirmed: 64, ..Plan::of("kept") })?;
    let worked = Plan { callers: 2, streamers: 1, unconfirmed: 64, consumers: 1, receivers: 1, ..Plan::of("worked") };
    let worked = Load::start(&addresses, worked)?;

    let mut outages = Vec::new();
    for _ in 0..kills {
        kept.until_more(messages / u64::from(kills + 1))?;
        worked.until_more(50)?;
        kept.longest_gap();
        cluster.kill_all()?;
        let killed = Instant::now();
        let leader = cluster.start_all()?;
        let leads = killed.elapsed();
        kept.until_more(100)?;
        outages.push(kept.longest_gap());
        println!("all killed: {} leads after {} ms, in term {}", leader.at, leads.as_millis(), leader.term);
    }
    while kept.acknowledged() + worked.acknowledged() < messages {
        kept.until_more(10)?;
    }
    let (kept, worked) = (kept.stop()?, worked.stop()?);
    kept.check_no_error()?;
    worked.check_no_error()?;
    let drained = load::drain(&addresses, "kept")?;
    kept.check_drained(&drained)?;
    let stats = load::queue_stats(&addresses, "worked")?;
    worked.check_finished(stats.enqueued)?;
    ensure!(stats.depth() == 0, "expected an empty queue, but it holds {}", stats.depth());

    cluster.until_level()?;
    cluster.stop_all()?;
    let agreed = replay::agree(&cluster.data_dirs())?;
    let whole = replay::check_dir(&cluster.node(0)?.server.data_dir())?;
    outages.sort();
    println!(
        "{kills} times all three killed, {} acknowledged, {} of them drained, {} finished; {} redelivered, {} acks too late, {} \
         replayed; lost 0, doubled 0, finished twice 0; write outage median {} ms, longest {} ms; {} records the same on all \
         three, {} entries replayed to the hash {:016x}",
        kept.acknowledged() + worked.acknowledged(),
        drained.ids.len(),
        worked.finished.len(),
        worked.redelivered,
        worked.leases_lost,
        kept.replayed + worked.replayed,
        outages.get(outages.len() / 2).map_or(0, Duration::as_millis),
        outages.last().map_or(0, Duration::as_millis),
        agreed.records,
        whole.entries,
        agreed.clock.digest,
    );
    Ok(())
}
