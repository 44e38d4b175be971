//! The leader killed with -9 under load, and how long nobody could write; and that nobody else takes over without need.
//!
//! `TICKETRAIL_TEST_LEADER_KILLS` says how often it is killed, 3 by default; `TICKETRAIL_TEST_SATURATION_SECONDS` for how long
//! the cluster is saturated, 8 by default.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::{Cluster, Leader};
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::size::{size, strict};

use crate::turns;

const RATE: u32 = 300;
/// What is promised, and what is asked of a gate that shares its machine.
const OUTAGE: Duration = Duration::from_secs(3);
const GENEROUS: Duration = Duration::from_secs(10);

#[test]
fn a_killed_leader_is_followed_by_another_one_soon() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let kills: u32 = size("TICKETRAIL_TEST_LEADER_KILLS", 3)?;
    let mut cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    let plan = Plan { callers: 8, streamers: 4, per_second: Some(RATE), consumers: 2, ..Plan::of("orders") };
    let load = Load::start(&addresses, plan)?;
    let mut outages = Vec::new();
    for kill in 0..kills {
        load.until_more(u64::from(RATE))?;
        let Leader { at, term } = cluster.leader()?;
        load.longest_gap();
        cluster.node_mut(at)?.server.kill_9()?;
        let killed = Instant::now();
        let next = cluster.until("another leader", |cluster| {
            Ok(cluster.leader_now().filter(|next| next.at != at && next.term > term))
        })?;
        let leads = killed.elapsed();
        load.until_more(u64::from(RATE) / 4)?;
        let outage = load.longest_gap();
        println!(
            "kill {kill}: {at} led in term {term}; {} leads after {} ms in term {}; write outage {} ms",
            next.at,
            leads.as_millis(),
            next.term,
            outage.as_millis()
        );
        outages.push(outage);
        cluster.restart(at)?;
    }
    let tally = load.stop()?;
    tally.check_no_error()?;
    tally.check_finished(load::queue_stats(&addresses, "orders")?.enqueued)?;
    cluster.until_level()?;
    cluster.stop_all()?;
    let agreed = replay::agree(&cluster.data_dirs())?;
    outages.sort();
    let longest = outages.last().copied().context("expected an outage")?;
    println!(
        "leader killed {kills} times under {RATE}/s: {} acknowledged at {:.0}/s, lost 0, doubled 0, {} redelivered, {} acks too \
         late; write outage median {} ms, longest {} ms; {} records the same on all three",
        tally.acknowledged(),
        tally.rate(),
        tally.redelivered,
        tally.leases_lost,
        outages[outages.len() / 2].as_millis(),
        longest.as_millis(),
        agreed.records
    );
    let bound = if strict() { OUTAGE } else { GENEROUS };
    ensure!(longest <= bound, "expected a write outage of at most {bound:?}, but one took {longest:?}");
    Ok(())
}

#[test]
fn nobody_campaigns_while_the_machine_is_saturated() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let seconds: u64 = size("TICKETRAIL_TEST_SATURATION_SECONDS", 8)?;
    let cluster = Cluster::start(&[])?;
    let addresses = cluster.addresses();
    let before = cluster.leader()?;
    let plan = Plan { streamers: 4, consumers: 4, unconfirmed: 1_024, body: 1_024, ..Plan::of("orders") };
    let load = Load::start(&addresses, plan)?;
    let begun = Instant::now();
    poll(Duration::from_secs(seconds + 1), || Ok((begun.elapsed().as_secs() >= seconds).then_some(())))?;
    let gap = load.longest_gap();
    let after = cluster.leader()?;
    let tally = load.stop()?;
    tally.check_no_error()?;
    tally.check_finished(load::queue_stats(&addresses, "orders")?.enqueued)?;
    println!(
        "{seconds} s at full load: {} acknowledged and finished at {:.0}/s, longest gap {} ms; term {} before, {} after: {} \
         elections",
        tally.acknowledged(),
        tally.rate(),
        gap.as_millis(),
        before.term,
        after.term,
        after.term - before.term
    );
    ensure!(!strict() || before == after, "expected no election, but {before:?} was followed by {after:?}");
    Ok(())
}
