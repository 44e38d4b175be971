//! What a client asks.

use serde::{Deserialize, Serialize};

use super::names::{Hash, MessageId, QueueName, Token};

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// To open a session, or with `renew` above 0 to renew that one.
    Open {
        /// The session to renew; 0: a new one.
        renew: u64,
    },
    /// To put messages on a queue, each by itself.
    Enqueue {
        /// The queue.
        q: QueueName,
        /// The messages.
        m: Vec<NewMessage>,
    },
    /// To lease messages.
    Receive {
        /// The queue.
        q: QueueName,
        /// How many at most.
        max: u32,
        /// How long to wait for the first, in milliseconds.
        wait: u64,
        /// The lease in milliseconds; 0: the queue's.
        lease: u64,
    },
    /// To settle or extend leases, each by itself.
    Settle {
        /// The leases.
        s: Vec<Settle>,
    },
    /// To settle leases and put messages on queues: all or nothing.
    Commit {
        /// The leases.
        s: Vec<Settle>,
        /// The messages.
        e: Vec<EnqueuePart>,
    },
    /// To look at a queue.
    Stats {
        /// The queue.
        q: QueueName,
    },
    /// To look at a message.
    Get {
        /// Its id.
        id: MessageId,
    },
    /// To make a queue.
    Create {
        /// The queue.
        q: QueueName,
        /// What differs from the defaults.
        set: Settings,
    },
    /// To change a queue.
    Update {
        /// The queue.
        q: QueueName,
        /// What changes.
        set: Settings,
    },
    /// To stop delivery.
    Pause {
        /// The queue.
        q: QueueName,
        /// Until when, on cluster time; 0: until it is resumed.
        until: u64,
    },
    /// To let delivery go on.
    Resume {
        /// The queue.
        q: QueueName,
    },
    /// To refuse enqueues.
    Close {
        /// The queue.
        q: QueueName,
    },
    /// To admit enqueues again.
    Reopen {
        /// The queue.
        q: QueueName,
    },
    /// To remove all messages that are not leased.
    Purge {
        /// The queue.
        q: QueueName,
    },
    /// To remove a queue.
    Delete {
        /// The queue.
        q: QueueName,
    },
}

/// The kind of a call, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Kind {
    Open,
    Enqueue,
    Receive,
    Settle,
    Commit,
    Stats,
    Get,
    Create,
    Update,
    Pause,
    Resume,
    Close,
    Reopen,
    Purge,
    Delete,
}

impl Kind {
    /// Its name, as it stands in a history.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Open => "open",
            Kind::Enqueue => "enqueue",
            Kind::Receive => "receive",
            Kind::Settle => "settle",
            Kind::Commit => "commit",
            Kind::Stats => "stats",
            Kind::Get => "get",
            Kind::Create => "create",
            Kind::Update => "update",
            Kind::Pause => "pause",
            Kind::Resume => "resume",
            Kind::Close => "close",
            Kind::Reopen => "reopen",
            Kind::Purge => "purge",
            Kind::Delete => "delete",
        }
    }

    /// Whether it changes nothing and has no request id.
    pub fn is_read(self) -> bool {
        matches!(self, Kind::Stats | Kind::Get)
    }
}

impl Call {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Call::Open { .. } => Kind::Open,
            Call::Enqueue { .. } => Kind::Enqueue,
            Call::Receive { .. } => Kind::Receive,
            Call::Settle { .. } => Kind::Settle,
            Call::Commit { .. } => Kind::Commit,
            Call::Stats { .. } => Kind::Stats,
            Call::Get { .. } => Kind::Get,
            Call::Create { .. } => Kind::Create,
            Call::Update { .. } => Kind::Update,
            Call::Pause { .. } => Kind::Pause,
            Call::Resume { .. } => Kind::Resume,
            Call::Close { .. } => Kind::Close,
            Call::Reopen { .. } => Kind::Reopen,
            Call::Purge { .. } => Kind::Purge,
            Call::Delete { .. } => Kind::Delete,
        }
    }
}

/// A message to enqueue: what of it a checker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The value that its body begins with ([`super::body`]): unique in the run, above 0.
    pub v: u64,
    /// The hash of its body ([`super::fingerprint`]).
    pub h: Hash,
    /// What it counts in byte bounds: body, fields, tags and headers, in bytes.
    pub n: u64,
    /// The delay in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub d: u64,
    /// When it is to be ready, on cluster time; 0: by the delay.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: u64,
}

/// A message to enqueue in a commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnqueuePart {
    /// The queue.
    pub q: QueueName,
    /// The message.
    pub m: NewMessage,
}

/// A lease to settle, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// Its token.
    pub tok: Token,
    /// What became of the delivery.
    pub how: Verdict,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// Done.
    Ack,
    /// Failed, worth another attempt.
    Retry {
        /// The time until then in milliseconds; absent: the queue's backoff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        d: Option<u64>,
    },
    /// Failed for good.
    Reject,
    /// Given back.
    Release,
    /// More time.
    Extend {
        /// The lease from now on in milliseconds; 0: the queue's.
        lease: u64,
    },
}

/// A queue's settings. Absent: the default, or in an update as it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Messages at most; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u64>,
    /// Bytes at most; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The lease in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// Failures until a message is dead-lettered; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The window in which failures are counted, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The backoff's base in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The backoff's cap in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The dead-letter queue in the same namespace; empty: `<queue>.dlq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dlq: Option<String>,
}

/// Whether a number need not be written.
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}
