//! Snapshots under fire: who receives one is killed with -9 in the middle, again and again, and who sends it too.
//!
//! `TICKETRAIL_TEST_SNAPSHOT_KILLS` says how often the receiver is killed, 2 by default; `TICKETRAIL_TEST_SEED` where in the
//! snapshot, otherwise it is drawn and printed.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::size::size;

use crate::members::SHORT_LOG;
use crate::turns;

/// What the snapshot holds at least; it is sent at 1 MiB a second.
const MESSAGES: u64 = 1_200;
const BODY: usize = 4 << 10;
const SNAPSHOT: u64 = MESSAGES * BODY as u64;

/// The bytes of a snapshot that have arrived in a data directory and are not live yet.
fn arrived(data_dir: &Path) -> u64 {
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let incoming = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("incoming-"))
    };
    let groups = list(&data_dir.join("sm")).flat_map(|group| list(&group).collect::<Vec<_>>());
    let files = groups.filter(incoming).flat_map(|dir| list(&dir).collect::<Vec<_>>());
    files.filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

fn until_arrived(cluster: &Cluster, at: usize, bytes: u64) -> anyhow::Result<()> {
    let dir = cluster.node(at)?.server.data_dir();
    cluster.until("a part of the snapshot", |_| Ok((arrived(&dir) >= bytes).then_some(())))
}

#[test]
fn a_snapshot_survives_the_death_of_who_receives_it_and_of_who_sends_it() -> anyhow::Result<()> {
    let _turn = turns::together();
    let kills: u64 = size("TICKETRAIL_TEST_SNAPSHOT_KILLS", 2)?;
    let seed: u64 = size("TICKETRAIL_TEST_SEED", RandomState::new().hash_one(0))?;
    println!("TICKETRAIL_TEST_SEED={seed}");
    let mut cluster = Cluster::start(&[SHORT_LOG, &["--snapshot-rate", "1MiB"]].concat())?;
    let receiver = cluster.follower()?;
    let others: Vec<_> = (0..3).filter(|at| *at != receiver).collect();
    cluster.node_mut(receiver)?.server.kill_9()?;
    let addresses = cluster.addresses();
    load::fill(&addresses, "orders", MESSAGES, BODY)?;
    let leader = cluster.leader()?;
    let end = cluster.node(leader.at)?.figures().map_or(0, |figures| figures.or_0("ticketrail_raft_last_log_index"));
    for at in &others {
        cluster.until("a purged log", |cluster| {
            let purged = cluster.node(*at)?.figures().map(|figures| figures.or_0("ticketrail_raft_purged_index"));
            Ok(purged.filter(|purged| *purged > 0 && *purged + 200 > end))
        })?;
    }

    let mut state = seed;
    let mut killed_at = Vec::new();
    for kill in 0..kills {
        // Somewhere in its part of the snapshot, the last quarter left out: that may be live before it is killed.
        let part = SNAPSHOT * 3 / 4 / kills;
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = kill * part + (state >> 33) % part;
        cluster.spawn(receiver)?;
        until_arrived(&cluster, receiver, bytes.max(1))?;
        cluster.node_mut(receiver)?.server.kill_9()?;
        killed_at.push(arrived(&cluster.node(receiver)?.server.data_dir()));
    }
    // Now who sends.
    cluster.spawn(receiver)?;
    let sender = cluster.leader()?;
    until_arrived(&cluster, receiver, SNAPSHOT / 4)?;
    cluster.node_mut(sender.at)?.server.kill_9()?;
    let sent = arrived(&cluster.node(receiver)?.server.data_dir());
    let next = cluster.until("another leader", |cluster| {
        Ok(cluster.leader_now().filter(|next| next.at != sender.at && next.term > sender.term))
    })?;
    ensure!(next.at != receiver, "expected a leader with the whole state, but {next:?} leads");
    cluster.restart(sender.at)?;
    cluster.node_mut(receiver)?.server.until_ready()?;
    let installed = cluster.until("the snapshot to be installed", |cluster| {
        let figures = cluster.node(receiver)?.figures().context("expected figures")?;
        Ok(Some(figures.or_0("ticketrail_snapshots_installed_total")).filter(|installed| *installed >= 1))
    })?;
    load::one_message(&addresses, "another")?;
    cluster.until_level()?;
    let left = arrived(&cluster.node(receiver)?.server.data_dir());
    ensure!(left == 0, "expected nothing left of the snapshots that did not arrive, but {left} bytes are");
    let ready = load::queue_stats(&addresses, "orders")?.ready;
    ensure!(ready == MESSAGES, "expected {MESSAGES} waiting, but {ready}");
    cluster.stop_all()?;
    let agreed = replay::agree(&cluster.data_dirs())?;
    println!(
        "receiver killed {kills} times, at {killed_at:?} bytes; sender killed when {sent} bytes had arrived, {} sent anew in term \
         {}; {installed} installed; {} records the same on all three",
        next.at, next.term, agreed.records
    );
    Ok(())
}
