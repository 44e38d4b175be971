//! What callers hand to a node, and what they get back.

use std::time::Duration;

use ticketrail_core::command::Receive;
use ticketrail_core::query::Delivery;
use ticketrail_core::{Command, Rejection, Reply, RequestId};

/// A command to put through the log.
#[derive(Debug, Clone)]
pub struct Call {
    /// The command; not a `Receive`.
    pub command: Command,
    /// The caller's request id. `None`: the node gives it one of its own, which covers a change of leader.
    pub id: Option<RequestId>,
    /// Whether an earlier attempt of this request may have been proposed.
    pub repeat: bool,
    /// How long the caller waits.
    pub timeout: Duration,
}

/// A long poll.
#[derive(Debug, Clone)]
pub struct ReceiveCall {
    /// What to receive.
    pub receive: Receive,
    /// The caller's request id, as in [`Call`].
    pub id: Option<RequestId>,
    /// As in [`Call`].
    pub repeat: bool,
    /// How long to wait for a first message, 0 to 60 s.
    pub wait: Duration,
    /// Whether a name without a queue waits for one to appear. Otherwise it is `QueueNotFound`.
    pub auto_create: bool,
}

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// The node that answered: the leader.
    pub node: u64,
    /// Its term.
    pub term: u64,
}

/// A command's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The answer, with its commit position and cluster time.
    pub reply: Reply,
    /// Who gave it.
    pub origin: Origin,
}

/// A receive's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Deliveries {
    /// The messages; none where the wait was over first.
    pub deliveries: Vec<Delivery>,
    /// The entry that granted them; `None` where nothing was proposed.
    pub reply: Option<Reply>,
    /// Who gave it.
    pub origin: Origin,
    /// How long the call had waited, at least, when the messages were granted to it.
    pub waited: Duration,
}

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Reflects every change acknowledged before the read began.
    Linearizable,
    /// Whatever this node has applied.
    StaleOk,
}

/// Why a call did not get its answer. Each says whether anything happened.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// `apply`, or the leader in its stead, said no. Nothing happened.
    #[error("rejected: {0:?}")]
    Rejected(Rejection),
    /// Nothing happened; worth another try elsewhere or later.
    #[error("expected a leader that takes calls, but {0}")]
    Unavailable(Unavailable),
    /// The disk is nearly full. Nothing happened.
    #[error("expected free disk space above the low mark, but the disk is nearly full; make room or wait")]
    DiskLow,
    /// Too many bytes wait to be proposed. Nothing happened.
    #[error("expected room in the proposal queue, but {queued_bytes} bytes wait there; retry later")]
    Overloaded {
        /// Bytes waiting.
        queued_bytes: usize,
    },
    /// The outcome is unknown: send it again with the same request id.
    #[error("expected an outcome in time, but there is none yet; send the request again with the same id")]
    Unknown,
    /// This replica is broken and stops. The outcome is unknown.
    #[error("expected a healthy replica, but {0}")]
    Broken(String),
}

/// Why nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Another node leads.
    #[error("this node does not lead")]
    NotLeader {
        /// Who does, where known.
        leader: Option<u64>,
    },
    /// There is no leader, or it has lost its quorum.
    #[error("there is no quorum")]
    NoQuorum,
    /// The node is shutting down.
    #[error("this node is draining")]
    Draining,
}
