//! Lines of `audit.jsonl` and `chain-<node>.jsonl`: what a node's log holds and what came of it.

use serde::{Deserialize, Serialize};

use super::call::{EnqueuePart, Settings, Settle};
use super::names::{Hash, MessageId, Position, QueueName, Rid, Token};
use super::told::{EnqueueOutcome, Refusal, SettleOutcome};

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
    /// Settlements, then enqueues.
    Commit {
        /// The leases.
        s: Vec<Settle>,
        /// The messages.
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
        /// How many at most.
        max: u32,
        /// How many bytes at most; 0: 4 MiB.
        bytes: u64,
        /// The lease in milliseconds; 0: the queue's.
        lease: u64,
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
        /// What became of each message.
        e: Vec<EnqueueOutcome>,
    },
    /// Leases granted.
    Granted {
        /// The leases, in order of delivery.
        g: Vec<Grant>,
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
    /// Nothing happened.
    Refused(Refusal),
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

/// The rolling hash over a node's log and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainLine {
    /// Up to and with the entry at this index.
    pub index: u64,
    /// The hash.
    pub hash: Hash,
}
