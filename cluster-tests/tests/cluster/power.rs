//! Power loss: all nodes are killed with -9 under load and their disks forget what was not fsynced, again and again.
//!
//! `TICKETRAIL_TEST_POWER_LOSSES` says how often, 2 by default; `TICKETRAIL_TEST_POWER_SEED` is the first seed.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::faults::needs_root;
use ticketrail_cluster_tests::load::{self, Load, Plan};
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::server::{DEADLINE, Refusal};
use ticketrail_cluster_tests::size::size;
use ticketrail_disk::{Command, Crash, LossyDisk, Stats};

use crate::turns;

/// Messages acknowledged before and after each power loss, at least.
const MESSAGES: u64 = 1_000;

/// A disk that is fast has everything fsynced whenever one looks.
const SLOW: &str = "delay fsync 1..15";
/// Bytes that a power loss must find not durable, on all disks.
const AT_RISK: u64 = 1_500;

/// Three nodes, each with its data on a disk that forgets.
struct Rig {
    cluster: Cluster,
    disks: Vec<LossyDisk>,
}

impl Rig {
    fn new() -> anyhow::Result<Self> {
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

    /// Starts all nodes. Whoever refuses its disk, as only those that `may` are allowed to, joins with an empty one; returns
    /// who did.
    fn start(&mut self, may: impl Fn(usize) -> bool) -> anyhow::Result<Vec<usize>> {
        let mut refused = Vec::new();
        for at in 0..self.cluster.nodes.len() {
            self.cluster.spawn(at)?;
        }
        for at in 0..self.cluster.nodes.len() {
            let server = &mut self.cluster.node_mut(at)?.server;
            let Err(error) = server.until_ready() else { continue };
            ensure!(may(at), "node {at}: {error:#}");
            Refusal { status: server.wait()?, log: server.log_of_this_life() }.check(HOLE)?;
            refused.push(at);
        }
        self.cluster.leader()?;
        for at in &refused {
            empty(&self.cluster.node(*at)?.server.data_dir())?;
            self.cluster.restart(*at)?;
            let id = self.cluster.node(*at)?.id();
            self.cluster.until_members("three voters", |members| {
                members.len() == 3
                    && members.iter().all(|member| member.votes() && member.alive)
                    && members.iter().any(|member| Some(member.node) == id)
            })?;
        }
        Ok(refused)
    }

    /// Waits until there is something to lose.
    fn until_at_risk(&self) -> anyhow::Result<()> {
        let dirty = || self.stats().iter().map(|stats| stats.dirty_bytes).sum::<u64>();
        poll(DEADLINE, || Ok((dirty() >= AT_RISK).then_some(()))).context("wait for bytes that are not durable")
    }

    fn stats(&self) -> Vec<Stats> {
        self.disks.iter().map(LossyDisk::stats).collect()
    }
}

/// Empties a directory that is a mount.
fn empty(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Nobody may be on a disk when it is unmounted, and each must be before its directory is removed.
        let _ = self.cluster.kill_all();
        self.disks.clear();
    }
}

/// One disk has written its pages in any order, the others in theirs; each disk is the one now and then.
fn way(at: usize, round: u64, seed: u64) -> Crash {
    let turn = at as u64 + round;
    let seed = seed + 3 * round + at as u64;
    match (turn % 3, round % 2) {
        (0, _) => Crash::Reordered { seed },
        (1, 0) | (2, 1) => Crash::Torn { seed },
        (1, _) => Crash::NoDir,
        _ => Crash::Plain,
    }
}

/// A disk that wrote its pages in any order may have a hole in what was not fsynced of its log. That looks like damage,
/// and the node refuses it: decision 0003. Its peers replace it.
const HOLE: &[&str] = &["RocksDB says: Corruption", "empty the data directory and let the node join again"];

#[test]
fn power_losses_of_all_nodes_lose_nothing_acknowledged() -> anyhow::Result<()> {
    if !needs_root() {
        return Ok(());
    }
    let _alone = turns::alone();
    let losses: u64 = size("TICKETRAIL_TEST_POWER_LOSSES", 2)?;
    let seed: u64 = size("TICKETRAIL_TEST_POWER_SEED", 1)?;
    let mut rig = Rig::new()?;
    let addresses = rig.cluster.addresses();
    let kept = Load::start(&addresses, Plan { callers: 3, streamers: 2, ..Plan::of("kept") })?;
    let worked = Plan { callers: 2, streamers: 1, unconfirmed: 64, consumers: 1, receivers: 1, ..Plan::of("worked") };
    let worked = Load::start(&addresses, worked)?;
    let mut replaced = Vec::new();
    for round in 0..losses {
        kept.until_more(MESSAGES)?;
        worked.until_more(50)?;
        let before = rig.stats();
        rig.until_at_risk()?;
        let ways: Vec<Crash> = (0..3).map(|at| way(at, round, seed)).collect();
        rig.lose_power(|at| way(at, round, seed)).with_context(|| format!("round {round}"))?;
        let at_risk: Vec<u64> =
            rig.stats().iter().zip(&before).map(|(after, before)| after.bytes_at_risk - before.bytes_at_risk).collect();
        let lost = Instant::now();
        let may = |at: usize| matches!(way(at, round, seed), Crash::Reordered { .. });
        replaced.extend(rig.start(may).with_context(|| format!("round {round}, seed {seed}, after {ways:?}"))?);
        let leader = rig.cluster.leader()?;
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
    // One whose log goes back to its first entry.
    let whole = (0..3).find(|at| !replaced.contains(at));
    let whole = whole.map(|at| replay::check_dir(&rig.cluster.node(at)?.server.data_dir())).transpose()?;
    let at_risk: u64 = rig.stats().iter().map(|stats| stats.bytes_at_risk).sum();
    // An fsync may have ended between the look and the cut, but not each time.
    ensure!(at_risk >= losses * AT_RISK / 2, "expected disks with something to lose, but {at_risk} bytes in all");
    for (at, stats) in rig.stats().iter().enumerate() {
        ensure!(stats.crashes == losses && stats.stale_calls == 0, "disk {at}: {stats}");
        println!("disk {at}: {stats}");
    }
    println!(
        "{losses} power losses of all three, {} disks refused for a hole and replaced, {} acknowledged, {} of them drained, {} finished; lost 0, doubled 0; {} records \
         the same on all three, {} entries replayed to the hash {:016x}",
        replaced.len(),
        kept.acknowledged() + worked.acknowledged(),
        drained.ids.len(),
        worked.finished.len(),
        agreed.records,
        whole.map_or(0, |whole| whole.entries),
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
    let mut rig = Rig::new()?;
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
        println!("{} of 3 did not start: {first}", refused.len());
        // Where two refuse, the third one waits for them.
        let ended = refused.iter().filter(|why| why.contains("ended with")).count();
        ensure!(ended == refused.len() || ended == 2, "expected refusals, but {refused:#?}");
        return Ok(());
    }
    rig.cluster.leader()?;
    let drained = load::drain(&addresses, "kept")?;
    let lost = kept.check_drained(&drained).expect_err("disks that lie lose what was acknowledged");
    println!("noticed: {lost}");
    ensure!(lost.to_string().contains("acknowledged and lost"), "expected lost messages, but {lost:#}");
    Ok(())
}
