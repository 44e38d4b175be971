//! What the node is, where its log is, what waits in it.

use ticketrail_core::GroupId;
use ticketrail_node::{NodeStatus, Role};

use super::page::{Family, Figure, Labels};

const ROLES: [(Role, &str); 5] = [
    (Role::Leader, "leader"),
    (Role::Follower, "follower"),
    (Role::Candidate, "candidate"),
    (Role::Learner, "learner"),
    (Role::Stopped, "stopped"),
];

/// The node's own figures; `first_term` is the term that it knew of at its start.
pub(super) fn families(status: &NodeStatus, first_term: u64) -> Vec<Family> {
    let roles = ROLES.map(|(role, name)| {
        let mut labels = group();
        labels.push(("role", name.to_owned()));
        (labels, status.role == role)
    });
    vec![
        Family::gauge("ticketrail_node_id", "This node's Raft id.", status.node_id),
        Family::gauge("ticketrail_node_uptime_seconds", "Time since the node started.", seconds(status.uptime_ms)),
        Family::gauge("ticketrail_node_draining", "1 while the node stops and takes no calls.", status.draining),
        Family::gauge(
            "ticketrail_node_broken",
            "1 once the node can't go on; its process ends.",
            status.broken.is_some(),
        ),
        Family::gauge("ticketrail_node_serving", "1 while the node serves its clients.", status.serving),
        Family::gauge(
            "ticketrail_node_cut_off",
            "1 while the node hears nothing of the quorum or leader that it needs, and refuses its callers.",
            status.cut_off,
        ),
        Family::gauges("ticketrail_raft_role", "1 for what the node is, 0 for what it is not.", roles),
        of_group(
            "ticketrail_raft_leading",
            "1 while the node leads and has applied what came before its term.",
            status.leading,
        ),
        of_group("ticketrail_raft_term", "The newest term that the node knows.", status.term),
        of_group("ticketrail_raft_has_leader", "1 while the node knows who leads.", status.leader.is_some()),
        of_group("ticketrail_raft_leader_id", "Who leads; absent where unknown.", status.leader),
        Family::counters(
            "ticketrail_raft_elections",
            "Terms that began since the process started, as far as the node has heard: elections, won or not.",
            [(group(), status.term.saturating_sub(first_term))],
        ),
        of_group("ticketrail_raft_last_log_index", "The last entry in the log.", status.last_log_index),
        of_group("ticketrail_raft_committed_index", "The last entry known to be committed.", status.committed_index),
        of_group("ticketrail_raft_applied_index", "The last entry applied.", status.applied_index),
        of_group(
            "ticketrail_raft_flushed_index",
            "The entry up to which the applied state is on the disk; what lies behind it is replayed after a crash.",
            status.flushed_index,
        ),
        of_group("ticketrail_raft_purged_index", "The entry up to which the log is purged.", status.purged_index),
        of_group("ticketrail_raft_log_held_bytes", "Payload that the log holds.", status.log_held_bytes),
        of_group(
            "ticketrail_proposals_in_flight",
            "Entries proposed whose outcome is not known.",
            status.entries_in_flight,
        ),
        of_group("ticketrail_proposal_queue_bytes", "Requests that wait to be proposed.", status.queued_bytes),
        of_group("ticketrail_parked_receives", "Receives that wait for messages.", status.parked_receives),
        of_group("ticketrail_leases_watched", "Leases that the leader watches.", status.leases_watched),
        of_group(
            "ticketrail_scheduler_idle_seconds",
            "Time since the scheduler looked last; absent where the node does not lead.",
            status.scheduler_idle_ms.map(seconds),
        ),
        Family::counter("ticketrail_snapshots_sent", "Snapshots sent to other nodes.", status.snapshots_sent),
        Family::counter("ticketrail_snapshots_installed", "Snapshots installed here.", status.snapshots_installed),
        Family::gauge("ticketrail_disk_low", "1 while the disk is so full that enqueues are refused.", status.disk_low),
    ]
}

/// The label of the Raft group: today the one of all queues.
fn group() -> Labels {
    vec![("group", GroupId::QUEUES.0.to_string())]
}

/// One figure of the group that goes up and down.
fn of_group(name: &'static str, help: &'static str, value: impl Figure) -> Family {
    Family::gauges(name, help, [(group(), value)])
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
