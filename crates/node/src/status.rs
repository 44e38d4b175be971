//! What a node tells of itself.

use std::sync::atomic::Ordering;

use crate::consensus::Role;
use crate::member::ClusterView;
use crate::shared::Shared;

/// What a node tells of itself, as of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its Raft id.
    pub node_id: u64,
    /// Its cluster.
    pub cluster_id: [u8; 16],
    /// What it is in its group.
    pub role: Role,
    /// The newest term it knows.
    pub term: u64,
    /// Who leads, where known.
    pub leader: Option<u64>,
    /// Whether it can serve clients: it leads and has applied the entries before its term, or it follows a known leader;
    /// and it is neither cut off nor shutting down nor broken.
    pub serving: bool,
    /// Whether it is cut off from those that it needs: no quorum has answered the leader that it is, or no leader was heard,
    /// for longer than an election takes.
    pub cut_off: bool,
    /// Whether it leads and has applied the entries before its term.
    pub leading: bool,
    /// The index of the last entry in its log.
    pub last_log_index: Option<u64>,
    /// The index of the last entry known to be committed.
    pub committed_index: Option<u64>,
    /// The index of the last entry applied.
    pub applied_index: Option<u64>,
    /// The index up to which the applied state is on the disk.
    pub flushed_index: Option<u64>,
    /// The index up to which the log is purged.
    pub purged_index: Option<u64>,
    /// Payload bytes that its log holds.
    pub log_held_bytes: u64,
    /// Whether it is shutting down.
    pub draining: bool,
    /// Why it is broken, where it is.
    pub broken: Option<String>,
    /// Whether its disk is nearly full, so that enqueues are refused.
    pub disk_low: bool,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Milliseconds since the scheduler looked last; `None`: it has not yet, or the node does not lead.
    pub scheduler_idle_ms: Option<u64>,
    /// Bytes of requests that wait to be proposed.
    pub queued_bytes: usize,
    /// Entries proposed whose outcome is not known.
    pub entries_in_flight: usize,
    /// Calls handed to the leader that have no answer yet.
    pub forwarded_calls: usize,
    /// Receives handed to the leader that have no answer yet.
    pub forwarded_receives: usize,
    /// Receives parked.
    pub parked_receives: usize,
    /// Leases that the leader watches.
    pub leases_watched: usize,
    /// Snapshots sent since the start.
    pub snapshots_sent: u64,
    /// Snapshots installed since the start.
    pub snapshots_installed: u64,
}

impl Shared {
    pub(crate) fn cluster(&self) -> ClusterView {
        match self.peering.node() {
            Ok(node) => node.view(self.config.node_id),
            // Only before the start is over.
            Err(_) => ClusterView { leader: None, term: 0, members: Vec::new(), changing: false },
        }
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let now = self.config.clock.now();
        let standing = *self.standing.borrow();
        let figures = self.consensus.figures();
        let since = |then| u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX);
        let leading = self.leads();
        NodeStatus {
            node_id: self.config.node_id,
            cluster_id: self.config.cluster_id,
            role: standing.role,
            term: standing.term,
            leader: standing.leader,
            serving: self.serves(),
            cut_off: self.is_cut_off(),
            leading,
            last_log_index: figures.last_log,
            committed_index: figures.committed,
            applied_index: self.state.applied().map(|id| id.index),
            flushed_index: self.state.flushed().map(|id| id.index),
            purged_index: figures.purged,
            log_held_bytes: self.consensus.held_bytes(),
            draining: self.is_draining(),
            broken: self.broken.reason(),
            disk_low: self.disk.is_low(),
            uptime_ms: since(self.started),
            scheduler_idle_ms: self.passes.last().filter(|_| leading).map(since),
            queued_bytes: self.queue.bytes(),
            entries_in_flight: self.progress.in_flight(),
            forwarded_calls: self.forwards.calls(),
            forwarded_receives: self.forwards.polls(),
            parked_receives: self.waiters.count(),
            leases_watched: self.signals.leases(),
            snapshots_sent: self.snapshots.sent.load(Ordering::Relaxed),
            snapshots_installed: self.snapshots.installed.load(Ordering::Relaxed),
        }
    }
}
