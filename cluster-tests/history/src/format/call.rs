//! What a client asks.

use serde::{Deserialize, Serialize};

use super::names::{Hash, MessageId, QueueName, Token};
use super::settings::Settings;

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
        /// Whether all or nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        all: bool,
    },
    /// To lease messages.
    Receive {
        /// The queue.
        q: QueueName,
        /// Further queues, in order of preference.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        then: Vec<QueueName>,
        /// How many at most.
        max: u32,
        /// How long to wait for the first, in milliseconds.
        wait: u64,
        /// The lease in milliseconds; 0: the queue's.
        lease: u64,
        /// Whether they are acked as they are received.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        auto: bool,
    },
    /// To take messages away before anybody receives them, each by itself.
    Cancel {
        /// The messages.
        c: Vec<Target>,
    },
    /// To make messages ready at another time, each by itself.
    Reschedule {
        /// The messages and their times.
        t: Vec<NewTime>,
    },
    /// To settle or extend leases, each by itself.
    Settle {
        /// The leases.
        s: Vec<Settle>,
    },
    /// To settle leases, cancel and reschedule messages, and put messages on queues: all or nothing.
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
        /// Whether each part stands alone after all.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
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
    /// To look at a message by a dedup id.
    Find {
        /// The queue.
        q: QueueName,
        /// The dedup id.
        dd: String,
    },
    /// To store a namespace's defaults.
    SetNamespace {
        /// The namespace.
        ns: String,
        /// What differs from the built-in defaults.
        set: Settings,
        /// Whether enqueues make queues; absent: they do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        auto: Option<bool>,
    },
    /// To take a namespace's defaults back.
    DeleteNamespace {
        /// The namespace.
        ns: String,
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
    Cancel,
    Reschedule,
    Find,
    SetNamespace,
    DeleteNamespace,
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
            Kind::Cancel => "cancel",
            Kind::Reschedule => "reschedule",
            Kind::Find => "find",
            Kind::SetNamespace => "set_namespace",
            Kind::DeleteNamespace => "delete_namespace",
        }
    }

    /// Whether it changes nothing and has no request id.
    pub fn is_read(self) -> bool {
        matches!(self, Kind::Stats | Kind::Get | Kind::Find)
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
            Call::Cancel { .. } => Kind::Cancel,
            Call::Reschedule { .. } => Kind::Reschedule,
            Call::Find { .. } => Kind::Find,
            Call::SetNamespace { .. } => Kind::SetNamespace,
            Call::DeleteNamespace { .. } => Kind::DeleteNamespace,
        }
    }
}

/// A message to enqueue: what of it a checker needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// What most messages do not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Box<More>>,
}

impl NewMessage {
    /// A plain message: `v` is the value that its body begins with, `h` the body's hash, `n` its size in bytes.
    pub fn plain(v: u64, h: Hash, n: u64) -> Self {
        Self { v, h, n, d: 0, at: 0, more: None }
    }

    /// Its group; empty: none.
    pub fn group(&self) -> &str {
        self.more.as_ref().map_or("", |more| &more.g)
    }

    /// Its dedup id; empty: none.
    pub fn dedup_id(&self) -> &str {
        self.more.as_ref().map_or("", |more| &more.dd)
    }

    /// Its priority.
    pub fn priority(&self) -> u8 {
        self.more.as_ref().and_then(|more| more.p).unwrap_or(4)
    }
}

/// What most messages do not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct More {
    /// Its group; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub g: String,
    /// Its priority, 0 to 9; absent: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<u8>,
    /// Its dedup id; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dd: String,
    /// Its time to live from when it is first ready, in milliseconds; 0: see `x`.
    #[serde(skip_serializing_if = "is_zero")]
    pub ttl: u64,
    /// When it expires, on cluster time; 0: by `ttl`.
    #[serde(skip_serializing_if = "is_zero")]
    pub x: u64,
    /// Failures until it is dead-lettered; 0: without limit; absent: as its queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// The backoff's base in milliseconds; absent: as its queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The backoff's cap in milliseconds; absent: as its queue says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// Its dead-letter queue, in its queue's namespace; empty: its queue's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dlq: String,
}

/// A message by its id, or by a queue and a dedup id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// By its id.
    Id(MessageId),
    /// By a dedup id.
    Dedup {
        /// The queue that knows it.
        q: QueueName,
        /// The dedup id.
        dd: String,
    },
}

/// A message, and when it is to be ready.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTime {
    /// Which.
    pub of: Target,
    /// The delay in milliseconds; 0: at once.
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
    /// Of an ack: what came of it; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<Output>,
}

/// The output of an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its hash ([`super::fingerprint`]).
    pub h: Hash,
    /// Its bytes.
    pub n: u64,
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

/// Whether a number need not be written.
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}
