//! Disks that must not be used: each is refused with a message that says what to do, and harms nobody.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::faults::copy_dir;
use ticketrail_cluster_tests::load;
use ticketrail_cluster_tests::server::{Refusal, Server};

use crate::turns;

/// The place that gets a wrong disk. It does not lead, so that a change of leader would be its doing.
const WRONG: usize = 2;

/// Three nodes of which the first or the second one leads, with messages.
fn cluster() -> anyhow::Result<Cluster> {
    let cluster = Cluster::start(&[])?;
    cluster
        .until_members("three voters", |members| members.len() == 3 && members.iter().all(|m| m.votes() && m.alive))?;
    if cluster.leader()?.at == WRONG {
        let moved = cluster.rail(WRONG, &["cluster", "transfer-leader"])?;
        ensure!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
        cluster.until("another leader", |cluster| Ok(cluster.leader_now().filter(|leader| leader.at != WRONG)))?;
    }
    load::one_message(&cluster.addresses(), "orders")?;
    cluster.until_level()?;
    Ok(cluster)
}

/// Starts the wrong disk, and sees that it is refused and that the others do not notice.
fn check_refused(cluster: &mut Cluster, says: &[&str]) -> anyhow::Result<()> {
    let before = cluster.leader()?;
    let refused = cluster.refused(WRONG)?;
    refused.check(says)?;
    let after = cluster.leader()?;
    ensure!(before == after, "expected {before:?} to lead on, but {after:?} leads");
    load::one_message(&cluster.addresses()[..WRONG], "orders")
}

/// As each message says.
fn check_that_it_joins_anew(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.node(WRONG)?.wipe()?;
    cluster.restart(WRONG)?;
    let id = cluster.node(WRONG)?.id();
    cluster.until_members("three voters", |members| {
        members.len() == 3
            && members.iter().all(|member| member.votes() && member.alive)
            && members.iter().any(|member| Some(member.node) == id)
    })?;
    Ok(())
}

/// A disk of another cluster of three, and one of a node that is a cluster of its own and needs nobody to lead.
fn foreign_disks(cluster: &Cluster) -> anyhow::Result<[PathBuf; 2]> {
    let mut foreign = Cluster::start(&[])?;
    foreign.stop_all()?;
    let of_three = cluster.beside("of-three");
    copy_dir(&foreign.node(WRONG)?.server.data_dir(), &of_three)?;
    let home = cluster.beside("alone");
    fs::create_dir(&home)?;
    let mut alone = Server::start(&home, &[])?;
    ensure!(alone.stop()?.success(), "expected a clean stop");
    Ok([of_three, alone.data_dir()])
}

const FOREIGN: &[&str] = &["expected a disk of cluster", "mount the disk of this node, or empty the data directory"];

#[test]
fn a_foreign_disk() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    for disk in foreign_disks(&cluster)? {
        if cluster.node(WRONG)?.server.is_started() {
            cluster.node_mut(WRONG)?.server.kill_9()?;
        }
        cluster.node(WRONG)?.wipe()?;
        copy_dir(&disk, &cluster.node(WRONG)?.server.data_dir())?;
        check_refused(&mut cluster, FOREIGN)?;
        let log = cluster.node(WRONG)?.server.log_of_this_life();
        ensure!(!log.contains("\"serving\""), "expected it to serve nobody before it was refused:\n{log}");
    }
    check_that_it_joins_anew(&mut cluster)
}

#[test]
fn a_foreign_disk_that_comes_up_first() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    for disk in foreign_disks(&cluster)? {
        cluster.kill_all()?;
        cluster.node(WRONG)?.wipe()?;
        copy_dir(&disk, &cluster.node(WRONG)?.server.data_dir())?;
        cluster.spawn(WRONG)?;
        cluster.until("the foreign disk to be in use", |cluster| {
            Ok(cluster.node(WRONG)?.server.log_of_this_life().contains("raft runs").then_some(()))
        })?;
        for at in 0..WRONG {
            cluster.spawn(at)?;
        }
        let server = &mut cluster.node_mut(WRONG)?.server;
        Refusal { status: server.wait()?, log: server.log_of_this_life() }.check(FOREIGN)?;
        cluster.leader()?;
        load::one_message(&cluster.addresses()[..WRONG], "orders")?;
        for at in 0..WRONG {
            ensure!(cluster.node_mut(at)?.server.is_ready()?, "expected those whose disks are right to go on");
        }
    }
    check_that_it_joins_anew(&mut cluster)
}

#[test]
fn swapped_disks() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    let other = 1 - cluster.leader()?.at;
    for at in [other, WRONG] {
        cluster.node_mut(at)?.server.kill_9()?;
    }
    cluster.swap_disks(other, WRONG)?;
    for at in [other, WRONG] {
        cluster.refused(at)?.check(&["it is the one of", "mount each disk where it belongs"])?;
    }
    cluster.swap_disks(other, WRONG)?;
    cluster.start_all()?;
    load::one_message(&cluster.addresses(), "orders")?;
    cluster.until_level()?;
    Ok(())
}

#[test]
fn a_disk_that_was_rolled_back() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    let backup = cluster.beside("backup");
    cluster.node_mut(WRONG)?.server.kill_9()?;
    copy_dir(&cluster.node(WRONG)?.server.data_dir(), &backup)?;
    cluster.restart(WRONG)?;
    load::one_message(&cluster.addresses(), "orders")?;
    cluster.until_level()?;
    let status = cluster.node_mut(WRONG)?.server.stop()?;
    ensure!(status.success(), "expected a clean stop, but {status}");
    cluster.node(WRONG)?.wipe()?;
    fs::rename(&backup, cluster.node(WRONG)?.server.data_dir())?;
    check_refused(&mut cluster, &["rolled back", "empty the data directory"])?;
    check_that_it_joins_anew(&mut cluster)
}

#[test]
fn a_disk_that_two_use() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    let leader = cluster.leader()?;
    // The same directory.
    let holder = cluster.node_mut(WRONG)?.server.child()?.id().to_string();
    let home = cluster.node(WRONG)?.server.data_dir().parent().context("expected a parent")?.to_owned();
    let twin = cluster.add_place("c", "twin-home")?;
    std::os::unix::fs::symlink(home.join("data"), cluster.node(twin)?.server.data_dir())?;
    cluster.refused(twin)?.check(&["the only user of", &format!("process {holder} holds it: stop that process")])?;
    fs::remove_file(cluster.node(twin)?.server.data_dir())?;
    // A copy of it, under the same name and under another one, while the node itself runs.
    cluster.node_mut(WRONG)?.server.kill_9()?;
    let copied = cluster.node(twin)?.server.data_dir();
    copy_dir(&cluster.node(WRONG)?.server.data_dir(), &copied)?;
    cluster.restart(WRONG)?;
    cluster.until_level()?;
    cluster.refused(twin)?.check(&["copy", "empty the data directory"])?;
    let other_name = cluster.add_place("d", "other-name")?;
    fs::rename(&copied, cluster.node(other_name)?.server.data_dir())?;
    cluster.refused(other_name)?.check(&["it is the one of", "mount each disk where it belongs"])?;
    // Whose disk it is goes on.
    ensure!(cluster.node_mut(WRONG)?.server.is_ready()?, "expected the node itself to go on");
    ensure!(cluster.leader()? == leader, "expected {leader:?} to lead on, but {:?} leads", cluster.leader()?);
    load::one_message(&cluster.addresses()[..3], "orders")
}

#[test]
fn a_disk_that_lost_its_log() -> anyhow::Result<()> {
    let _turn = turns::together();
    let mut cluster = cluster()?;
    cluster.node_mut(WRONG)?.server.kill_9()?;
    fs::remove_dir_all(cluster.node(WRONG)?.server.data_dir().join("raft"))?;
    check_refused(
        &mut cluster,
        &["there is no log at all", "remove the member from the cluster, empty the data directory"],
    )?;
    check_that_it_joins_anew(&mut cluster)
}
