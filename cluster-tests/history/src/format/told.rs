//! What a client is told.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::call::is_zero;
use super::names::{Hash, MessageId, Position, QueueName, Token};

/// A reply: where it stands, and the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where the change stands in the log; absent for reads, and where nothing went into the log.
    pub cp: Option<Position>,
    /// Cluster time there, in milliseconds; 0 where `cp` is absent.
    pub ts: u64,
    /// The node that answered; 0 where it did not say.
    pub node: u64,
    /// Its term; 0 where it did not say.
    pub term: u64,
    /// Whether an earlier attempt of this request had this outcome.
    pub replayed: bool,
    /// The answer.
    pub answer: Answer,
}

/// An answer; the variant belongs to the call's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// To `open`.
    Session {
        /// Its id.
        s: u64,
    },
    /// To `enqueue`: one for each message, in order.
    Enqueued {
        /// What became of each.
        e: Vec<EnqueueOutcome>,
    },
    /// To `receive`: in order of delivery.
    Received {
        /// The deliveries.
        d: Vec<Delivery>,
    },
    /// To `receive` where messages are acked as they are received: in order of delivery.
    Taken {
        /// The messages.
        d: Vec<Taken>,
    },
    /// To `cancel`: one for each target, in order.
    Cancelled {
        /// What became of each.
        c: Vec<CancelOutcome>,
    },
    /// To `reschedule`: one for each message, in order.
    Rescheduled {
        /// What became of each.
        t: Vec<TimeOutcome>,
    },
    /// To `settle`: one for each lease, in order.
    Settled {
        /// What became of each.
        s: Vec<SettleOutcome>,
    },
    /// To `commit`: one for each part, in order; none of them refused, unless each stands alone.
    Committed {
        /// What became of each lease.
        s: Vec<SettleOutcome>,
        /// What became of each cancel.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        c: Vec<CancelOutcome>,
        /// What became of each reschedule.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        t: Vec<TimeOutcome>,
        /// What became of each message.
        e: Vec<EnqueueOutcome>,
    },
    /// To `stats`; absent: no such queue.
    Stats(Option<Stats>),
    /// To `get` and `find`; absent: no such message.
    Got(Option<Info>),
    /// To `get` and `find`: the message was acked, and this came of it.
    Done(Done),
    /// To `create`, `update`, `pause`, `resume`, `close` and `reopen`.
    Changed {
        /// The queue's id; 0 where the reply did not say.
        #[serde(default, skip_serializing_if = "is_zero")]
        q: u64,
    },
    /// To `purge` and `delete`.
    Removed {
        /// How many messages.
        n: u64,
    },
}

/// Why nothing happened, or why the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The stable reason, such as `LEASE_LOST`; for unknown outcomes what came instead of an answer.
    pub why: String,
    /// `LEASE_LOST`: the message's receive count; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rc: Option<u32>,
    /// A commit's part that was refused: `s0` for the first lease, `c0` for the first cancel, `t0` for the first new time,
    /// `e0` for the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// `FULL`: which bound, such as `max_depth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// `FULL`: when to try again, in milliseconds; absent where it was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<u64>,
    /// For a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Refusal {
    /// A refusal for `why`, with nothing beside it.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), rc: None, part: None, bound: None, again: None, text: String::new() }
    }

    /// A refusal of a lease or a message that has this receive count; `None`: it is gone.
    pub fn counted(why: &str, rc: Option<u32>) -> Self {
        Self { rc, ..Self::new(why) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        if let Some(bound) = &self.bound {
            write!(f, " by {bound}")?;
        }
        if let Some(part) = &self.part {
            write!(f, " at {part}")?;
        }
        if let Some(rc) = self.rc {
            write!(f, " (receive count {rc})")?;
        }
        Ok(())
    }
}

/// What became of one message to enqueue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EnqueueOutcome {
    /// It is on the queue.
    In {
        /// Its id.
        id: MessageId,
        /// Its sequence in the queue.
        seq: u64,
        /// When it is ready.
        at: u64,
        /// Whether it was there before, under its dedup id.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dup: bool,
    },
    /// It is not.
    No(Refusal),
}

/// What became of one cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CancelOutcome {
    /// The message is gone.
    Cancelled {
        /// Its id.
        id: MessageId,
    },
    /// There was none.
    Gone,
    /// Nothing happened.
    No(Refusal),
}

/// What became of one reschedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeOutcome {
    /// It has its new time.
    Moved {
        /// Its id.
        id: MessageId,
        /// When it is ready.
        at: u64,
    },
    /// Nothing happened.
    No(Refusal),
}

/// A message with a lease on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// The message's id.
    pub id: MessageId,
    /// The value its body begins with.
    pub v: u64,
    /// The hash of its body.
    pub h: Hash,
    /// The lease's token.
    pub tok: Token,
    /// What was left of the lease, in milliseconds.
    pub left: u64,
    /// Leases ever granted on it in this queue, this one included.
    pub rc: u32,
    /// Failures counted in its window.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub f: u32,
    /// Why it is a dead letter; absent where it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<DeadLetter>,
    /// The queue it came from; absent where the receive names one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<QueueName>,
    /// Its group; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub g: Option<Box<str>>,
}

/// A message that was acked as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The message's id.
    pub id: MessageId,
    /// The value its body begins with.
    pub v: u64,
    /// The hash of its body.
    pub h: Hash,
    /// Leases ever granted on it in this queue, this delivery included.
    pub rc: u32,
    /// Failures counted in its window.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub f: u32,
    /// Why it is a dead letter; absent where it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<DeadLetter>,
    /// The queue it came from; absent where the receive names one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<QueueName>,
    /// Its group; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub g: Option<Box<str>>,
}

/// Where a dead letter comes from, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// The queue it was in.
    pub q: QueueName,
    /// `attempts`, `rejected`, `expired` or `group`.
    pub why: String,
    /// Leases granted there.
    pub rc: u32,
    /// Failures counted there.
    pub f: u32,
}

/// What became of one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SettleOutcome {
    /// Finished and deleted.
    Acked,
    /// In a dead-letter queue.
    Dead {
        /// Its sequence there.
        seq: u64,
        /// That queue's id.
        q: u64,
    },
    /// Waiting for its next attempt.
    Delayed {
        /// Until when.
        due: u64,
    },
    /// Ready again.
    Readied,
    /// The lease goes on.
    Extended {
        /// What is left of it, in milliseconds.
        left: u64,
    },
    /// Gone with a purge.
    Purged,
    /// Gone, or a dead letter, for its time to live is over.
    Expired,
    /// Gone, for its attempts are used up and its queue drops such messages.
    Dropped,
    /// Of a lease that ran out: the message is not there after the entry; why, the log does not tell.
    Gone,
    /// Of a lease that ran out: the message is there, but the rest of the entry put it at another time.
    Unseen,
    /// Nothing happened.
    No(Refusal),
}

/// Figures of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Stats {
    /// The queue's id.
    pub q: u64,
    pub ready: u64,
    pub delayed: u64,
    pub blocked: u64,
    pub leased: u64,
    pub bytes: u64,
    pub enqueued: u64,
    pub moved_in: u64,
    pub acked: u64,
    pub moved_out: u64,
    pub expired_dropped: u64,
    pub cancelled: u64,
    pub purged: u64,
    pub dropped: u64,
    pub received: u64,
    pub redelivered: u64,
    pub failed: u64,
    pub lease_expired: u64,
    pub over_bound: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub outcomes_dropped: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub dedup_ids: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub retained: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub groups_blocked: u64,
}

/// What a look at a message shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    /// The value its body begins with.
    pub v: u64,
    /// The hash of its body.
    pub h: Hash,
    /// The queue where it is now.
    pub q: QueueName,
    /// Its sequence there.
    pub seq: u64,
    /// What it is doing.
    pub state: MessageState,
    /// Leases ever granted in this queue.
    pub rc: u32,
    /// Failures counted in its window.
    pub f: u32,
    /// Its number in the line of its group; 0: it has not joined, or has no group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: u64,
    /// When it expires, on cluster time; 0: never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub x: u64,
}

/// What came of a message that was acked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// Its id.
    pub id: MessageId,
    /// The queue it was acked in.
    pub q: QueueName,
    /// When it was acked, on cluster time.
    pub at: u64,
    /// Until when this can be read, on cluster time.
    pub until: u64,
    /// Leases ever granted on it.
    pub rc: u32,
    /// What the worker gave back: its hash.
    pub h: Hash,
}

/// What a message is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum MessageState {
    Delayed,
    Ready,
    Blocked,
    Leased,
}

fn is_zero_u32(number: &u32) -> bool {
    *number == 0
}
