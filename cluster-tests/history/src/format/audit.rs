//! Lines of `audit.jsonl` and `chain-<node>.jsonl`: what a node's log holds and what came of it.

use serde::{Deserialize, Serialize};

use super::call::{EnqueuePart, NewTime, Settle, Target};
use super::names::{Hash, MessageId, Position, QueueName, Rid, Token};
use super::settings::Settings;
use super::told::{CancelOutcome, EnqueueOutcome, Refusal, SettleOutcome, TimeOutcome};

/// A request that was applied, in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditLine {
    /// Where it stands.
    pub cp: Position,
    /// The entry's term.
    pub term: u64,
    /// The leader's stamp on the entry, in milliseconds since the Unix epoch.
    pub st: u64,
    /// Cluster time with the entry, in milliseconds.
    pub ts: u64,
    /// The lease clock with the entry, in milliseconds.
    pub lc: u64,
    /// The request's id; absent for the system's own requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rid: Option<Rid>,
    /// `acked_below` of its id.
    #[serde(default, skip_serializing_if = "super::call::is_zero")]
    pub ab: u64,
    /// What it asks for.
    pub c: Command,
    /// What came of it.
    pub r: Applied,
    /// Where it was carried out first, if this is a repeat of a request that had an effect: `r` is the first outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Position>,
}

/// What stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Nothing: an entry without a request, which moves the clock alone.
    Nothing,
    /// Settlements, then cancels, then reschedules, then enqueues.
    Commit {
        /// The leases.
        s: Vec<Settle>,
        /// The messages to cancel.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        c: Vec<Target>,
        /// The messages to reschedule.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        t: Vec<NewTime>,
        /// The messages to enqueue.
        e: Vec<EnqueuePart>,
        /// Whether all or nothing.
        atomic: bool,
        /// Whether an enqueue makes a queue that is not there.
        auto: bool,
    },
    /// Leases messages.
    Receive {
        /// The queue.
        q: QueueName,
        /// Further queues, in order of preference.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        then: Vec<QueueName>,
        /// How many at most.
        max: u32,
        /// How many bytes at most; 0: 4 MiB.
        bytes: u64,
        /// The lease in milliseconds; 0: the queue's.
        lease: u64,
        /// Whether they are acked as they are received.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        auto: bool,
    },
    /// Ends leases that ran out.
    Expire {
        /// The leases.
        l: Vec<ExpiredLease>,
    },
    /// Fires what is due.
    Tick,
    /// Gives the cluster its secret.
    Init,
    /// Opens or renews a session.
    Open {
        /// The session to renew; 0: a new one.
        renew: u64,
    },
    /// Makes a queue.
    Create {
        /// The queue.
        q: QueueName,
        /// What differs from the defaults.
        set: Settings,
    },
    /// Changes a queue.
    Update {
        /// The queue.
        q: QueueName,
        /// What changes.
        set: Settings,
    },
    /// Stops delivery.
    Pause {
        /// The queue.
        q: QueueName,
        /// Until when, on cluster time; 0: until it is resumed.
        until: u64,
    },
    /// Lets delivery go on.
    Resume {
        /// The queue.
        q: QueueName,
    },
    /// Refuses enqueues.
    Close {
        /// The queue.
        q: QueueName,
    },
    /// Admits enqueues.
    Reopen {
        /// The queue.
        q: QueueName,
    },
    /// Removes what is not leased.
    Purge {
        /// The queue.
        q: QueueName,
    },
    /// Removes a queue.
    Delete {
        /// The queue.
        q: QueueName,
    },
    /// Stores a namespace's defaults.
    SetNamespace {
        /// The namespace.
        ns: String,
        /// What differs from the built-in defaults.
        set: Settings,
        /// Whether enqueues make queues; absent: they do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        auto: Option<bool>,
    },
    /// Takes a namespace's defaults back.
    DeleteNamespace {
        /// The namespace.
        ns: String,
    },
}

/// A lease that ran out, as the leader named it: `[queue id, sequence, log index of the grant]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct ExpiredLease {
    /// The queue's id.
    pub queue: u64,
    /// The message's sequence.
    pub sequence: u64,
    /// The log index of the grant.
    pub granted: u64,
}

impl From<(u64, u64, u64)> for ExpiredLease {
    fn from((queue, sequence, granted): (u64, u64, u64)) -> Self {
        Self { queue, sequence, granted }
    }
}

impl From<ExpiredLease> for (u64, u64, u64) {
    fn from(lease: ExpiredLease) -> Self {
        (lease.queue, lease.sequence, lease.granted)
    }
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Applied {
    /// Nothing was asked.
    Nothing,
    /// The parts of a commit.
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
    /// Leases granted.
    Granted {
        /// The leases, in order of delivery.
        g: Vec<Grant>,
    },
    /// Messages acked as they were received.
    Taken {
        /// The messages, in order of delivery; none where this is a repeat.
        d: Vec<TakenOut>,
    },
    /// Leases ended.
    Expired {
        /// Those that had really run out: the number in the command's list, from 0, and what became of the message.
        l: Vec<(u32, SettleOutcome)>,
    },
    /// Timers fired.
    Ticked {
        /// How many.
        n: u32,
        /// Whether work is left for another tick.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// The cluster has a secret.
    Initialized {
        /// Whether it is this one.
        first: bool,
    },
    /// A session.
    Session {
        /// Its id.
        s: u64,
    },
    /// A queue made or changed.
    Changed {
        /// Its id.
        q: u64,
    },
    /// Messages removed.
    Removed {
        /// How many.
        n: u64,
    },
    /// A namespace has defaults, or has them no more.
    Namespace,
    /// Nothing happened.
    Refused(Refusal),
}

impl Applied {
    /// The messages given to a receiver, leased or taken: the queue's id, the sequence there, the receive count.
    pub fn given(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let (g, d): (&[Grant], &[TakenOut]) = match self {
            Applied::Granted { g } => (g, &[]),
            Applied::Taken { d } => (&[], d),
            Applied::Nothing
            | Applied::Committed { .. }
            | Applied::Expired { .. }
            | Applied::Ticked { .. }
            | Applied::Initialized { .. }
            | Applied::Session { .. }
            | Applied::Changed { .. }
            | Applied::Removed { .. }
            | Applied::Namespace
            | Applied::Refused(_) => (&[], &[]),
        };
        let leased = g.iter().map(|grant| (grant.q, grant.seq, grant.rc));
        leased.chain(d.iter().map(|taken| (taken.q, taken.seq, taken.rc)))
    }
}

/// A lease granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The queue's id.
    pub q: u64,
    /// The message's sequence there.
    pub seq: u64,
    /// The message's id, and the lease's token; absent where the lease did not outlive its entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tok: Option<(MessageId, Token)>,
    /// Leases ever granted on it in this queue, this one included.
    pub rc: u32,
    /// Failures counted in its window.
    #[serde(default)]
    pub f: u32,
    /// The lease's end on the lease clock, in milliseconds.
    pub end: u64,
}

/// A message acked as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenOut {
    /// The queue's id.
    pub q: u64,
    /// The message's sequence there.
    pub seq: u64,
    /// Its id.
    pub id: MessageId,
    /// Leases ever granted on it in this queue, this delivery included.
    pub rc: u32,
    /// Failures counted in its window.
    #[serde(default)]
    pub f: u32,
}

/// The rolling hash over a node's log and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainLine {
    /// Up to and with the entry at this index.
    pub index: u64,
    /// The hash.
    pub hash: Hash,
}
