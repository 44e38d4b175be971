//! What the rest of the node knows of Raft and of the stores: two interfaces without type parameters, so that only
//! `raft` names openraft and only the caller of `Node::start` names the stores.

use bytes::Bytes;
use futures::future::BoxFuture;
use ticketrail_core::query::Clock;
use ticketrail_core::{Answer, Fault, Query, Rejection, Reply, Timestamp};
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::state::{StateError, StateStore};

/// What this node is in its group, as of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    /// What it is.
    pub(crate) role: Role,
    /// The newest term it knows.
    pub(crate) term: u64,
    /// Who leads, where known.
    pub(crate) leader: Option<u64>,
    /// Its own leadership, where it leads.
    pub(crate) leading: Option<LeaderId>,
}

/// What a node is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Role {
    /// It receives the log and does not vote.
    Learner,
    /// It follows a leader, or waits for one.
    #[default]
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
    /// It is stopped.
    Stopped,
}

/// What became of an entry.
#[derive(Debug)]
pub(crate) enum Proposed {
    /// It is committed and applied.
    Applied { replies: Vec<Result<Reply, Rejection>> },
    /// It never was in the log: this node does not lead in that term, or its lease is in doubt.
    NotLeader,
    /// It never was in the log: Raft has stopped.
    Stopped,
    /// It may be committed or not, now or later.
    Unknown,
}

/// Why there is no read index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadRefused {
    NotLeader { leader: Option<u64> },
    NoQuorum,
    Stopped,
}

/// Where the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Figures {
    pub(crate) last_log: Option<u64>,
    pub(crate) committed: Option<u64>,
    pub(crate) snapshot: Option<u64>,
    pub(crate) purged: Option<u64>,
}

/// A group's Raft.
pub(crate) trait Consensus: Send + Sync + 'static {
    /// Puts an encoded entry into the log if `leader` still leads. The outer future ends when the entry has its place
    /// in the order, the inner one when its outcome is known.
    fn propose(&self, leader: LeaderId, entry: Bytes) -> BoxFuture<'_, BoxFuture<'static, Proposed>>;

    /// Waits until this node has applied all that was committed before the call, as a leader that a quorum confirms.
    fn read_index(&self) -> BoxFuture<'_, Result<(), ReadRefused>>;

    /// Where the log is.
    fn figures(&self) -> Figures;

    /// Payload bytes appended since the start.
    fn appended_bytes(&self) -> u64;

    /// Payload bytes that the log holds.
    fn held_bytes(&self) -> u64;

    /// Has the state flushed and noted as a snapshot, in the background.
    fn take_snapshot(&self) -> BoxFuture<'_, ()>;

    /// Removes log entries up to and with `index`, as far as a snapshot covers them.
    fn purge(&self, index: u64) -> BoxFuture<'_, ()>;

    /// Stops, and waits for it.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// A group's applied state.
pub(crate) trait AppliedState: Send + Sync + 'static {
    /// Answers from the state as it is.
    fn answer(&self, query: &Query) -> Result<Answer, Fault>;

    /// When the leader must propose the next `Tick`.
    fn next_due(&self) -> Result<Option<Timestamp>, Fault>;

    /// Where the clocks stand.
    fn clock(&self) -> Result<Clock, Fault>;

    /// The last entry applied.
    fn applied(&self) -> Option<LogId>;

    /// The last entry flushed.
    fn flushed(&self) -> Option<LogId>;

    /// Bytes of writes committed since the last flush.
    fn unflushed_bytes(&self) -> u64;

    /// Flushes. Blocks.
    fn flush(&self) -> Result<(), StateError>;
}

/// A store, seen through [`AppliedState`].
pub(crate) struct Stored<S>(pub(crate) std::sync::Arc<S>);

impl<S: StateStore> AppliedState for Stored<S> {
    fn answer(&self, query: &Query) -> Result<Answer, Fault> {
        self.0.read(|view| ticketrail_core::answer(view, query))
    }

    fn next_due(&self) -> Result<Option<Timestamp>, Fault> {
        self.0.read(|view| ticketrail_core::next_due(view))
    }

    fn clock(&self) -> Result<Clock, Fault> {
        match self.answer(&Query::Clock)? {
            Answer::Clock(clock) => Ok(clock),
            other => Err(mismatch("the clocks", &other)),
        }
    }

    fn applied(&self) -> Option<LogId> {
        self.0.applied().last
    }

    fn flushed(&self) -> Option<LogId> {
        self.0.flushed().last
    }

    fn unflushed_bytes(&self) -> u64 {
        self.0.unflushed_bytes()
    }

    fn flush(&self) -> Result<(), StateError> {
        self.0.flush().map(drop)
    }
}

/// An answer that does not match its question: a bug, told as a broken replica.
pub(crate) fn mismatch(expected: &'static str, answer: &Answer) -> Fault {
    let found = match answer {
        Answer::Clock(_) => "clocks",
        Answer::Queues(_) => "queues",
        Answer::Queue(_) => "a queue",
        Answer::Messages(_) => "messages",
        Answer::Message(_) => "a message",
        Answer::Deliveries(_) => "deliveries",
        Answer::Leases(_) => "leases",
        Answer::Seen(_) => "whether a request was seen",
    };
    Fault::Broken { expected, key: String::new(), found: format!("the answer was {found}") }
}
