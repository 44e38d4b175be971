//! Power loss: all nodes are killed with -9 under load and their disks forget what was not fsynced, again and again.
//!
//! `TICKETRAIL_TEST_POWER_LOSSES` says how often, 2 by default; `TICKETRAIL_TEST_POWER_SEED` is the first seed.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::faults::needs_root;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::size::size;
use ticketrail_disk::{Command, Crash, LossyDisk, Stats};

use crate::turns;

/// Messages acknowledged before and after each power loss, at least.
const MESSAGES: u64 = 1_000;

/// A disk that is fast has everything fsynced whenever one looks.
const SLOW: &str = "delay fsync 1..15";
/// Bytes that the power losses must find not durable, on average of each disk.
const AT_RISK: u64 = 500;

/// Three nodes, each with its data on a disk that forgets.
struct Rig {
    cluster: Cluster,
    disks: Vec<LossyDisk>,
}

impl Rig {
    fn start() -> anyhow::Result<Self> {
        let mut rig = Self { cluster: Cluster::of(3, &[])?, disks: Vec::new() };
        for (at, dir) in rig.cluster.data_dirs().into_iter().enumerate() {
            let backing = rig.cluster.beside(&format!("backing-{at}"));
            fs::create_dir(&backing)?;
            fs::create_dir_all(&dir)?;
            let disk = LossyDisk::mount(&backing, &dir)?;
            disk.run(&SLOW.parse()?)?;
            rig.disks.push(disk);
        }
        rig.cluster.start_all()?;
        Ok(rig)
    }

    /// The power goes at one moment, fsyncs under way or not; each disk comes back in its own way.
    fn lose_power(&mut self, how: impl Fn(usize) -> Crash) -> anyhow::Result<()> {
        for disk in &self.disks {
            disk.cut()?;
        }
        self.cluster.kill_all()?;
        for (at, disk) in self.disks.iter().enumerate() {
            disk.crash(how(at))?;
        }
        Ok(())
    }

    fn stats(&self) -> Vec<Stats> {
        self.disks.iter().map(LossyDisk::stats).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Nobody may be on a disk when it is unmounted, and each must be before its directory is removed.
        let _ = self.cluster.kill_all();
        self.disks.clear();
    }
}

/// Each disk another way, and over the rounds each disk all of them.
fn way(at: usize, round: u64, seed: u64) -> Crash {
    let seed = seed + round * 3 + at as u64;
    match (at as u64 + round) % 4 {
        0 => Crash::Torn { seed },
        1 => Crash::Reordered { seed },
        2 => Crash::NoDir,
        _ => Crash::Plain,
    }
}

#[test]
fn power_losses_of_all_nodes_lose_nothing_acknowledged() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let _alone = turns::alone();
    let losses: u64 = size("TICKETRAIL_TEST_POWER_LOSSES", 2)?;
    let seed: u64 = size("TICKETRAIL_TEST_POWER_SEED", 1)?;
    let mut rig = Rig::start()?;
    let addresses = rig.cluster.addresses();
    let kept = Load::start(&addresses, Plan { callers: 3, streamers: 2, ..Plan::of("kept") })?;
    let worked = Plan { callers: 2, streamers: 1, unconfirmed: 64, consumers: 1, receivers: 1, ..Plan::of("worked") };
    let worked = Load::start(&addresses, worked)?;
    for round in 0..losses {
        kept.until_more(MESSAGES)?;
        worked.until_more(50)?;
        let before = rig.stats();
        let ways: Vec<Crash> = (0..3).map(|at| way(at, round, seed)).collect();
        rig.lose_power(|at| way(at, round, seed)).with_context(|| format!("round {round}"))?;
        let at_risk: Vec<u64> =
            rig.stats().iter().zip(&before).map(|(after, before)| after.bytes_at_risk - before.bytes_at_risk).collect();
        let lost = Instant::now();
        let leader = rig.cluster.start_all().with_context(|| format!("round {round}, seed {seed}, after {ways:?}"))?;
        println!(
            "round {round}: {ways:?}, {at_risk:?} bytes not durable; {} leads after {} ms in term {}",
            leader.at,
            lost.elapsed().as_millis(),
            leader.term
        );
        kept.until_more(100)?;
    }
    kept.until_more(MESSAGES)?;
    let (kept, worked) = (kept.stop()?, worked.stop()?);
    kept.check_no_error()?;
    worked.check_no_error()?;
    let drained = load::drain(&addresses, "kept")?;
    kept.check_drained(&drained).with_context(|| format!("seed {seed}"))?;
    worked.check_finished(load::queue_stats(&addresses, "worked")?.enqueued)?;

    rig.cluster.until_level()?;
    rig.cluster.stop_all()?;
    let agreed = replay::agree(&rig.cluster.data_dirs())?;
    let whole = replay::check_dir(&rig.cluster.node(0)?.server.data_dir())?;
    let at_risk: u64 = rig.stats().iter().map(|stats| stats.bytes_at_risk).sum();
    ensure!(at_risk >= losses * 3 * AT_RISK, "expected disks with something to lose, but {at_risk} bytes in all");
    for (at, stats) in rig.stats().iter().enumerate() {
        ensure!(stats.crashes == losses && stats.stale_calls == 0, "disk {at}: {stats}");
        println!("disk {at}: {stats}");
    }
    println!(
        "{losses} power losses of all three, {} acknowledged, {} of them drained, {} finished; lost 0, doubled 0; {} records \
         the same on all three, {} entries replayed to the hash {:016x}",
        kept.acknowledged() + worked.acknowledged(),
        drained.ids.len(),
        worked.finished.len(),
        agreed.records,
        whole.entries,
        agreed.clock.digest,
    );
    Ok(())
}

/// That the test above can fail: on disks that lie about fsync, messages are lost, or the nodes refuse to start.
#[test]
fn on_disks_that_lie_a_power_loss_is_noticed() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let _alone = turns::alone();
    let mut rig = Rig::start()?;
    let addresses = rig.cluster.addresses();
    let kept = Load::start(&addresses, Plan { callers: 2, streamers: 1, ..Plan::of("kept") })?;
    kept.until_more(200)?;
    for disk in &rig.disks {
        disk.run(&Command::Lie(true))?;
    }
    kept.until_more(MESSAGES)?;
    let kept = kept.stop()?;
    rig.lose_power(|_| Crash::Plain)?;
    for disk in &rig.disks {
        ensure!(disk.stats().lies > 0, "expected the disk to have lied: {}", disk.stats());
        disk.run(&Command::Lie(false))?;
    }
    for at in 0..3 {
        rig.cluster.spawn(at)?;
    }
    let mut refused = Vec::new();
    for node in &mut rig.cluster.nodes {
        if let Err(error) = node.server.until_ready() {
            refused.push(format!("{error:#}"));
        }
    }
    if let Some(first) = refused.first() {
        println!("{} of 3 refused to start: {first}", refused.len());
        ensure!(refused.iter().all(|why| why.contains("ended with")), "expected refusals, but {refused:#?}");
        return Ok(());
    }
    rig.cluster.leader()?;
    let drained = load::drain(&addresses, "kept")?;
    let lost = kept.check_drained(&drained).expect_err("disks that lie lose what was acknowledged");
    println!("noticed: {lost}");
    ensure!(lost.to_string().contains("acknowledged and lost"), "expected lost messages, but {lost:#}");
    Ok(())
}
