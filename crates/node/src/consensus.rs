//! What the rest of the node knows of Raft and of the stores: two interfaces without type parameters, so that only
//! `raft` names openraft and only the caller of `Node::start` names the stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use ticketrail_core::command::QueueRef;
use ticketrail_core::query::{Clock, Delivery, LeaseInfo, QueueInfo};
use ticketrail_core::reply::Handle;
use ticketrail_core::{Answer, Fault, Query, QueueId, Rejection, Reply, RequestId, Timestamp};
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::state::{StateError, StateStore};

use crate::error::StartError;
use crate::member::Member;

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

/// What becomes of an entry, as soon as it is known.
pub(crate) struct Outcome(pub(crate) BoxFuture<'static, Proposed>);

/// Why there is no read index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadRefused {
    NotLeader { leader: Option<u64> },
    NoQuorum,
    Stopped,
}

/// A change of the membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds a member without a vote, or changes where one is reached.
    Set(u64, Member),
    /// Makes these the voters. Whoever voted and is not among them is no member any more.
    Voters(BTreeSet<u64>),
    /// Removes members that have no vote.
    Remove(BTreeSet<u64>),
}

/// Why a membership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotChanged {
    /// This node does not lead.
    #[error("this node does not lead")]
    NotLeader,
    /// Another change is under way, or it makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// It may have been done.
    #[error("its outcome is unknown")]
    Unknown,
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
    /// Puts an encoded entry into the log if `leader` still leads. Ends when the entry has its place in the order.
    fn propose(&self, leader: LeaderId, entry: Bytes) -> BoxFuture<'_, Outcome>;

    /// Waits until this node has applied all that was committed before the call, as a leader that a quorum confirms.
    fn read_index(&self) -> BoxFuture<'_, Result<(), ReadRefused>>;

    /// How long ago a quorum last acknowledged this node as the leader; `None` where it does not lead, or was not
    /// acknowledged yet.
    fn acknowledged_ago(&self) -> Option<Duration>;

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

/// Who belongs to a group, and who leads it.
pub(crate) trait Membership: Send + Sync + 'static {
    /// The index of the last entry in this node's log.
    fn last_log_index(&self) -> Option<u64>;

    /// The last entry known here to be committed.
    fn committed_index(&self) -> Option<u64>;

    /// Up to where each member has the log on its disk, as the leader knows; empty elsewhere.
    fn replicated(&self) -> BTreeMap<u64, Option<u64>>;

    /// Whether the newest membership is committed.
    fn membership_is_committed(&self) -> bool;

    /// Founds the group with these voters, unless the log holds anything; and campaigns.
    fn found(&self, members: BTreeMap<u64, Member>) -> BoxFuture<'_, Result<(), StartError>>;

    /// Campaigns at once.
    fn campaign(&self) -> BoxFuture<'_, ()>;

    /// Puts an entry without requests into the log and waits until it is committed: its index has never been used.
    fn mark(&self) -> BoxFuture<'_, Result<u64, NotChanged>>;

    /// Changes the membership, and waits until that is committed.
    fn change(&self, change: Change) -> BoxFuture<'_, Result<(), NotChanged>>;

    /// Asks `node` to take over, where this node leads.
    fn transfer_leader(&self, node: u64) -> BoxFuture<'_, ()>;

    /// Whether this node may campaign.
    fn allow_elections(&self, allowed: bool);
}

/// A group's applied state.
pub(crate) trait AppliedState: Send + Sync + 'static {
    /// Answers from the state as it is.
    fn answer(&self, query: &Query) -> Result<Answer, Fault>;

    /// When the leader must propose the next `Tick`.
    fn next_due(&self) -> Result<Option<Timestamp>, Fault>;

    /// The last entry applied.
    fn applied(&self) -> Option<LogId>;

    /// The last entry flushed.
    fn flushed(&self) -> Option<LogId>;

    /// Bytes of writes committed since the last flush.
    fn unflushed_bytes(&self) -> u64;

    /// Flushes. Blocks.
    fn flush(&self) -> Result<(), StateError>;

    /// Where the clocks stand.
    fn clock(&self) -> Result<Clock, Fault> {
        let answer = self.answer(&Query::Clock)?;
        if let Answer::Clock(clock) = answer { Ok(clock) } else { Err(mismatch("the clocks", &answer)) }
    }

    /// A queue by name.
    fn queue(&self, queue: &QueueRef) -> Result<Option<QueueInfo>, Fault> {
        let answer = self.answer(&Query::Queue(queue.clone()))?;
        if let Answer::Queue(info) = answer { Ok(info) } else { Err(mismatch("a queue", &answer)) }
    }

    /// A queue by id.
    fn queue_by_id(&self, queue: QueueId) -> Result<Option<QueueInfo>, Fault> {
        let answer = self.answer(&Query::QueueById(queue))?;
        if let Answer::Queue(info) = answer { Ok(info) } else { Err(mismatch("a queue", &answer)) }
    }

    /// The messages of leases.
    fn deliveries(&self, handles: Vec<Handle>) -> Result<Vec<Delivery>, Fault> {
        let answer = self.answer(&Query::Deliver(handles))?;
        if let Answer::Deliveries(found) = answer { Ok(found) } else { Err(mismatch("deliveries", &answer)) }
    }

    /// Live leases in order of queue and sequence.
    fn leases(&self, after: Option<(QueueId, u64)>, limit: usize) -> Result<Vec<LeaseInfo>, Fault> {
        let answer = self.answer(&Query::Leases { after, limit })?;
        if let Answer::Leases(leases) = answer { Ok(leases) } else { Err(mismatch("leases", &answer)) }
    }

    /// Whether the outcome of a request is stored, or forgotten.
    fn seen(&self, id: &RequestId) -> Result<bool, Fault> {
        let answer = self.answer(&match id.session {
            0 => Query::TokenSeen { high: id.token_high, low: id.token_low },
            session => Query::RequestSeen { session, seq: id.seq },
        })?;
        if let Answer::Seen(seen) = answer { Ok(seen) } else { Err(mismatch("whether a request was seen", &answer)) }
    }

    /// Whether a queue remembers a dedup id.
    fn remembers(&self, queue: &QueueRef, dedup_id: &str) -> Result<bool, Fault> {
        let answer = self.answer(&Query::DedupIdSeen { queue: queue.clone(), dedup_id: dedup_id.to_owned() })?;
        if let Answer::Seen(seen) = answer { Ok(seen) } else { Err(mismatch("whether an id is remembered", &answer)) }
    }
}

/// A store, seen through [`AppliedState`].
pub(crate) struct Stored<S>(pub(crate) Arc<S>);

impl<S: StateStore> AppliedState for Stored<S> {
    fn answer(&self, query: &Query) -> Result<Answer, Fault> {
        self.0.read(|view| ticketrail_core::answer(view, query))
    }

    fn next_due(&self) -> Result<Option<Timestamp>, Fault> {
        self.0.read(|view| ticketrail_core::next_due(view))
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
fn mismatch(expected: &'static str, answer: &Answer) -> Fault {
    let found = match answer {
        Answer::Clock(_) => "clocks",
        Answer::Queues(_) => "queues",
        Answer::Queue(_) => "a queue",
        Answer::Messages(_) => "messages",
        Answer::Message(_) => "a message",
        Answer::Deliveries(_) => "deliveries",
        Answer::Leases(_) => "leases",
        Answer::Outcome(_) => "an outcome",
        Answer::Namespaces(_) => "namespaces",
        Answer::Seen(_) => "whether a request was seen",
    };
    Fault::Broken { expected, key: String::new(), found: format!("the answer was {found}") }
}
