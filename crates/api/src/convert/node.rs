//! What a node tells of itself.

use std::time::Duration;

use ticketrail_core::query::Clock;
use ticketrail_node::{NodeStatus, Role};
use ticketrail_proto::v1;

use super::field::{duration, timestamp_of_ms};
use crate::{About, Disk};

/// A node's status for the wire.
pub(crate) fn status(status: NodeStatus, about: &About, clock: Option<&Clock>) -> v1::GetStatusResponse {
    let disk = (about.disk)().map(|disk| {
        let Disk { free_bytes, total_bytes, low_watermark_bytes } = disk;
        v1::DiskStatus { free_bytes, total_bytes, low_watermark_bytes, low: status.disk_low }
    });
    v1::GetStatusResponse {
        version: about.version.to_owned(),
        cluster_id: super::field::page_token(&status.cluster_id),
        node: status.node_id,
        role: role(status.role).into(),
        term: status.term,
        leader: status.leader.unwrap_or(0),
        last_log_index: status.last_log_index.unwrap_or(0),
        applied_index: status.applied_index.unwrap_or(0),
        cluster_time: clock.map(|clock| timestamp_of_ms(clock.cluster.0)),
        disk,
        draining: status.draining,
        uptime: Some(duration(Duration::from_millis(status.uptime_ms))),
        unsafe_settings: Vec::new(),
        serving: status.serving,
        committed_index: status.committed_index.unwrap_or(0),
        flushed_index: status.flushed_index.unwrap_or(0),
        broken: status.broken.unwrap_or_default(),
        parked_receives: status.parked_receives as u64,
        queued_bytes: status.queued_bytes as u64,
    }
}

fn role(role: Role) -> v1::NodeRole {
    match role {
        Role::Learner => v1::NodeRole::Learner,
        Role::Follower => v1::NodeRole::Follower,
        Role::Candidate => v1::NodeRole::Candidate,
        Role::Leader => v1::NodeRole::Leader,
        Role::Stopped => v1::NodeRole::Unspecified,
    }
}
