//! Founding, failover, joining and leaving; and the disks that are refused.

use ticketrail_node::{ChangeError, MemberChange, NodeConfig, StartError};
use ticketrail_storage::home::Home as _;
use ticketrail_storage::{ClusterId, Identity};

use crate::cluster::{Cluster, Contents};
use crate::poll::{until, until_it};

/// Waits until a running node gives up, and says why.
async fn refusal(cluster: &Cluster, at: usize) -> String {
    let running = cluster.try_start(at).await.expect("a start");
    let reason = tokio::time::timeout(crate::rig::SOON, running.node.failed()).await.expect("a refusal in time");
    running.kill();
    reason
}

#[tokio::test]
async fn three_nodes_found_a_cluster_and_outlive_their_leader() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let ids: Vec<u64> = cluster.places.iter().map(|place| place.disk.identity().node).collect();
    assert_eq!(ids, [1, 2, 3]);
    let handle = cluster.running[&cluster.leader().await].node.handle();
    until("three voters alive", || {
        handle.cluster().members.iter().filter(|member| member.voter && member.alive).count() == 3
    })
    .await;
    let view = handle.cluster();
    assert_eq!(view.members[1].member.client_address, "clients.rail-1:50000");
    cluster.enqueue("orders", &["a", "b", "c"]).await;

    let old = cluster.leader().await;
    cluster.kill(old);
    let new = cluster.leader().await;
    assert_ne!(new, old);
    cluster.enqueue("orders", &["d"]).await;
    cluster.start(old).await;
    cluster.agree().await;
    cluster.enqueue("orders", &["e"]).await;
    assert!(cluster.agree().await.iter().count() > 5);
}

#[tokio::test]
async fn all_killed_at_once_lose_nothing() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a", "b", "c"]).await;
    let before = cluster.running[&cluster.leader().await].status().committed_index;
    for at in 0..3 {
        cluster.kill(at);
    }
    cluster.start_all().await;
    let after = cluster.running[&cluster.leader().await].status().committed_index;
    assert!(after > before, "{after:?} after {before:?}");
    let ready = || async {
        let handle = cluster.running[&cluster.leader().await].node.handle();
        let query = ticketrail_core::Query::Queue(crate::rig::queue("orders"));
        let (answer, _) = handle.query(query, ticketrail_node::call::Freshness::Linearizable).await.expect("an answer");
        let ticketrail_core::Answer::Queue(Some(info)) = answer else {
            panic!("expected the queue, but got {answer:?}")
        };
        info.stats.ready
    };
    assert_eq!(ready().await, 3);
}

#[tokio::test]
async fn a_node_that_was_away_for_long_comes_back_by_snapshot() {
    let config = NodeConfig { log_retention_bytes: 256 << 10, log_retention_age_ms: 60_000, ..NodeConfig::default() };
    let mut cluster = Cluster::with(3, config).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["first"]).await;
    let away = (cluster.leader().await + 1) % 3;
    cluster.stop(away).await;
    let body = "x".repeat(64 << 10);
    for _ in 0..40 {
        cluster.enqueue("orders", &[&body]).await;
    }
    let behind = cluster.places[away].disk.log_end();
    let leader = cluster.leader().await;
    until("the log to be purged", || cluster.running[&leader].status().purged_index > behind).await;
    cluster.start(away).await;
    cluster.agree().await;
    assert_eq!(cluster.running[&away].status().snapshots_installed, 1);
    assert_eq!(cluster.running[&leader].status().snapshots_sent, 1);
    cluster.enqueue("orders", &["last"]).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_fourth_node_joins_by_itself_and_an_old_one_leaves() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a"]).await;
    let fourth = cluster.add_place();
    cluster.start(fourth).await;
    let id = cluster.places[fourth].disk.identity().node;
    assert!(id >= 100, "an id of its own: {id}");
    let leader = cluster.running[&cluster.leader().await].node.handle();
    until("its vote", || leader.cluster().members.iter().any(|member| member.node == id && member.voter)).await;
    until("to be known as a member", || cluster.places[fourth].disk.identity().was_member).await;

    let leaves = (cluster.leader().await + 1) % 3;
    let leaves_id = cluster.places[leaves].disk.identity().node;
    assert_eq!(leader.change_members(MemberChange::Remove(leaves_id)).await, Ok(leaves_id));
    assert_eq!(leader.change_members(MemberChange::Remove(leaves_id)).await, Err(ChangeError::NotFound(leaves_id)));
    assert_eq!(leader.cluster().members.len(), 3);
    cluster.running.remove(&leaves).expect("a running node").kill();
    cluster.enqueue("orders", &["b"]).await;
    cluster.agree().await;
    assert!(refusal(&cluster, leaves).await.contains("was removed"));
}

#[tokio::test]
async fn a_newcomer_that_was_not_told_of_the_leader_joins() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let fourth = cluster.add_place();
    cluster.start(fourth).await;
    let leader = cluster.running[&cluster.leader().await].node.handle();
    let id = cluster.places[fourth].disk.identity().node;
    until("its vote", || leader.cluster().members.iter().any(|member| member.node == id && member.voter)).await;
    until_it("the fourth to lead", async || {
        let _ = leader.change_members(MemberChange::TransferLeader(Some(id))).await;
        cluster.leader().await == fourth
    })
    .await;
    // Its list has the first three alone, and its log is empty.
    let fifth = cluster.add_place();
    cluster.start(fifth).await;
    let id = cluster.places[fifth].disk.identity().node;
    let leader = cluster.running[&fourth].node.handle();
    until("its vote", || leader.cluster().members.iter().any(|member| member.node == id && member.voter)).await;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_node_that_knows_nobody_follows_an_invitation() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a"]).await;
    let guest = cluster.add_place();
    let address = cluster.places[guest].address.clone();
    let leader = cluster.running[&cluster.leader().await].node.handle();
    let nobody = leader.change_members(MemberChange::Add(address.clone())).await;
    assert!(matches!(nobody, Err(ChangeError::Precondition(_))), "{nobody:?}");
    let coming = cluster.starting_alone(guest);
    let inviting = async {
        let mut invited = None;
        until_it("the guest to accept", async || {
            invited = leader.change_members(MemberChange::Add(address.clone())).await.ok();
            invited.is_some()
        })
        .await;
        invited
    };
    let (running, invited) = futures::future::join(coming, inviting).await;
    cluster.running.insert(guest, running.expect("a node"));
    assert_eq!(invited, Some(cluster.places[guest].disk.identity().node));
    cluster.agree().await;
    // Again changes nothing.
    assert_eq!(leader.change_members(MemberChange::Add(address)).await.ok(), invited);
}

#[tokio::test]
async fn a_wiped_node_comes_back_under_a_new_id_without_a_hand_on_it() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a", "b"]).await;
    let wiped = (cluster.leader().await + 1) % 3;
    let old = cluster.places[wiped].disk.identity().node;
    cluster.wipe(wiped);
    cluster.start(wiped).await;
    let new = cluster.places[wiped].disk.identity().node;
    assert_ne!(new, old);
    let leader = cluster.running[&cluster.leader().await].node.handle();
    until("the new one in place of the old one", || {
        let members = leader.cluster().members;
        let ids: Vec<u64> = members.iter().map(|member| member.node).collect();
        ids.contains(&new) && !ids.contains(&old) && members.iter().all(|member| member.voter)
    })
    .await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_node_that_was_away_while_most_others_were_replaced_comes_back() {
    let mut cluster = Cluster::of(5).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
    let away = (cluster.leader().await + 1) % 5;
    cluster.stop(away).await;
    // Of those that it knows, one is left.
    for wiped in (1..4).map(|n| (away + n) % 5) {
        let old = cluster.places[wiped].disk.identity().node;
        cluster.wipe(wiped);
        cluster.start(wiped).await;
        until_it("the new one in place of the old one", async || {
            let leader = cluster.running[&cluster.leader().await].node.handle();
            let members = leader.cluster().members;
            members.iter().all(|member| member.voter && member.node != old) && members.len() == 5
        })
        .await;
    }
    cluster.start(away).await;
    cluster.enqueue("orders", &["b"]).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_wiped_founder_joins_and_does_not_found_again() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let founded = cluster.places[1].disk.identity().cluster;
    cluster.wipe(0);
    cluster.start(0).await;
    let identity = cluster.places[0].disk.identity();
    assert_eq!(identity.cluster, founded);
    assert!(identity.node >= 100, "{identity}");
    cluster.agree().await;
}

#[tokio::test]
async fn a_member_that_moves_is_found_at_its_new_address() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let moves = (cluster.leader().await + 1) % 3;
    cluster.stop(moves).await;
    let spare = cluster.add_place();
    cluster.places[moves].address = cluster.places[spare].address.clone();
    cluster.start(moves).await;
    let leader = cluster.running[&cluster.leader().await].node.handle();
    let address = cluster.places[moves].address.clone();
    until("the new address", || {
        leader.cluster().members.iter().any(|member| member.member.peer_address == address && member.alive)
    })
    .await;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
}

#[tokio::test]
async fn leadership_moves_where_it_is_sent_and_before_a_stop() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a"]).await;
    let old = cluster.leader().await;
    let to = (old + 1) % 3;
    let to_id = cluster.places[to].disk.identity().node;
    // Asked of a follower, which passes it on.
    let asked = cluster.running[&((old + 2) % 3)].node.handle();
    assert_eq!(asked.change_members(MemberChange::TransferLeader(Some(to_id))).await, Ok(to_id));
    until_it("the new leader to serve", async || cluster.leader().await == to).await;
    assert_eq!(asked.change_members(MemberChange::TransferLeader(Some(77))).await, Err(ChangeError::NotFound(77)));
    let term = cluster.running[&to].status().term;
    cluster.stop(to).await;
    let next = cluster.leader().await;
    assert_ne!(next, to);
    assert!(cluster.running[&next].status().term > term);
}

#[tokio::test]
async fn a_majority_cannot_be_removed_away() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let leader = cluster.leader().await;
    let handle = cluster.running[&leader].node.handle();
    let (dead, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(dead);
    let dead_id = cluster.places[dead].disk.identity().node;
    let other_id = cluster.places[other].disk.identity().node;
    until("the dead one to be silent", || {
        handle.cluster().members.iter().any(|member| member.node == dead_id && !member.alive)
    })
    .await;
    let refused = handle.change_members(MemberChange::Remove(other_id)).await;
    assert!(matches!(refused, Err(ChangeError::Precondition(_))), "{refused:?}");
    assert_eq!(handle.change_members(MemberChange::Remove(dead_id)).await, Ok(dead_id));
}

#[tokio::test]
async fn a_foreign_disk_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let at = (cluster.leader().await + 1) % 3;
    let identity = cluster.places[at].disk.identity();
    let foreign = Identity { cluster: ClusterId([7; 16]), was_member: false, ..identity };
    cluster.wipe(at);
    cluster.places[at].disk.home.set_identity(foreign).expect("an empty home");
    let reason = refusal(&cluster, at).await;
    assert!(reason.contains("expected a disk of cluster") && reason.contains("0707"), "{reason}");
}

#[tokio::test]
async fn swapped_disks_are_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
    let leader = cluster.leader().await;
    let (one, other) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.kill(one);
    let name = cluster.places[other].name.clone();
    let refused = cluster.start_as(one, &name).await.err();
    assert!(matches!(&refused, Some(StartError::Disk(why)) if why.contains("mount each disk")), "{refused:?}");
}

#[tokio::test]
async fn a_disk_rolled_back_over_a_start_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let at = (cluster.leader().await + 1) % 3;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
    cluster.stop(at).await;
    let backup = cluster.places[at].disk.copy();
    cluster.start(at).await;
    cluster.enqueue("orders", &["b"]).await;
    cluster.agree().await;
    cluster.stop(at).await;
    cluster.places[at].disk = backup;
    let reason = refusal(&cluster, at).await;
    assert!(reason.contains("was rolled back"), "{reason}");
}

#[tokio::test]
async fn a_disk_rolled_back_within_one_life_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let at = (cluster.leader().await + 1) % 3;
    cluster.enqueue("orders", &["a"]).await;
    cluster.agree().await;
    until("it to know that it is a member", || cluster.places[at].disk.identity().was_member).await;
    // Taken from under the running node.
    let backup = cluster.places[at].disk.copy();
    for _ in 0..5 {
        cluster.enqueue("orders", &["b"]).await;
    }
    cluster.agree().await;
    cluster.stop(at).await;
    cluster.places[at].disk = backup;
    let reason = refusal(&cluster, at).await;
    assert!(reason.contains("which it has acknowledged"), "{reason}");
    // The leader has taken no harm.
    cluster.enqueue("orders", &["c"]).await;
}

#[tokio::test]
async fn a_disk_that_lost_its_log_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let at = (cluster.leader().await + 1) % 3;
    until("it to know that it is a member", || cluster.places[at].disk.identity().was_member).await;
    cluster.kill(at);
    let home = cluster.places[at].disk.home.clone();
    cluster.places[at].disk = Contents { home, ..Contents::default() };
    let refused = cluster.try_start(at).await.err();
    assert!(matches!(&refused, Some(StartError::Disk(why)) if why.contains("has lost it")), "{refused:?}");
}
