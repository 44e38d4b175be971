//! What a node can be told at its start. The defaults are those of a node that is its own cluster.

use crate::clock::Clock;
use crate::peering::Peering;
use crate::random::Random;
use crate::work::Work;

/// What a node can be told at its start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's Raft id.
    pub node_id: u64,
    /// The cluster that it belongs to.
    pub cluster_id: [u8; 16],
    /// How often a leader shows itself, in milliseconds. Must exceed the p99.9 of an fsync.
    pub heartbeat_ms: u64,
    /// The shortest silence after which a follower campaigns, in milliseconds.
    pub election_min_ms: u64,
    /// The longest, and the leader's lease, in milliseconds.
    pub election_max_ms: u64,
    /// How long a leader without a quorum goes on trying before it lets others, in milliseconds; at least twice
    /// `election_max_ms`.
    pub quorum_loss_probe_ms: u64,
    /// Log bytes kept for followers that come back.
    pub log_retention_bytes: u64,
    /// How long log is kept for followers that come back, in milliseconds.
    pub log_retention_age_ms: u64,
    /// Bytes of requests that may wait to be proposed; more are refused.
    pub proposal_queue_bytes: usize,
    /// Bytes of writes not yet flushed at which the applied state is flushed: they bound the replay after a crash.
    pub flush_bytes: u64,
    /// Age of the oldest write not yet flushed at which the applied state is flushed, in milliseconds.
    pub flush_age_ms: u64,
    /// Receives that may be parked at one time; more are refused.
    pub parked_receives: usize,
    /// How long an orderly stop waits for what is in flight, in milliseconds.
    pub drain_ms: u64,
    /// The fastest that a snapshot is sent, in bytes a second.
    pub snapshot_bytes_per_second: u64,
    /// Its place among its peers; `None`: a cluster of its own.
    pub peering: Option<Peering>,
    /// Where blocking work runs.
    pub work: Work,
    /// Where time comes from.
    pub clock: Clock,
    /// Where random bytes come from.
    pub random: Random,
}

impl NodeConfig {
    /// A node with the default settings.
    pub fn new(node_id: u64, cluster_id: [u8; 16]) -> Self {
        Self {
            node_id,
            cluster_id,
            heartbeat_ms: 150,
            election_min_ms: 400,
            election_max_ms: 800,
            quorum_loss_probe_ms: 5_000,
            log_retention_bytes: 2 << 30,
            log_retention_age_ms: 10 * 60_000,
            proposal_queue_bytes: 32 << 20,
            flush_bytes: 64 << 20,
            flush_age_ms: 30_000,
            parked_receives: 100_000,
            drain_ms: 5_000,
            snapshot_bytes_per_second: 256 << 20,
            peering: None,
            work: Work::default(),
            clock: Clock::default(),
            random: Random::default(),
        }
    }
}

impl Default for NodeConfig {
    /// Node 1 of a cluster without a name, for tests and trials.
    fn default() -> Self {
        Self::new(1, [0; 16])
    }
}
