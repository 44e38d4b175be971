//! What can be asked of a state without a log entry.

use bytes::Bytes;

use crate::command::{Content, Pause, QueueRef, QueueSettings, RetryPolicy};
use crate::ids::{MessageId, Place, QueueId};
use crate::reply::Handle;
use crate::time::{LeaseTime, Timestamp};

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Where the clocks stand in the state; a leader tells cluster time as it would stamp it now.
    Clock,
    /// The queues of a namespace, by name.
    Queues {
        /// The namespace.
        namespace: String,
        /// Only names after this one; empty: from the first.
        after: String,
        /// How many at most, 1 to [`crate::limits::PAGE`].
        limit: usize,
    },
    /// The queues of all namespaces, by id: in the order in which they were made.
    AllQueues {
        /// Only queues after this one.
        after: Option<QueueId>,
        /// How many at most, 1 to [`crate::limits::PAGE`].
        limit: usize,
    },
    /// One queue by name.
    Queue(QueueRef),
    /// One queue by id.
    QueueById(QueueId),
    /// Messages of a queue in one state, without consuming them.
    Peek {
        /// The queue.
        queue: QueueRef,
        /// The state.
        state: MessageState,
        /// Only messages after this cursor, as an earlier answer gave it; empty: from the first.
        after: Bytes,
        /// How many at most, 1 to [`crate::limits::PAGE`].
        limit: usize,
        /// Which of them.
        filter: Filter,
    },
    /// One message by id, wherever it is now, with its history.
    Get(MessageId),
    /// One message by the dedup id that its queue remembers.
    GetByDedupId {
        /// The queue.
        queue: QueueRef,
        /// The dedup id.
        dedup_id: String,
    },
    /// What came of a message that was acked where outcomes are retained.
    Outcome(MessageId),
    /// The same, by the dedup id that its queue remembers.
    OutcomeByDedupId {
        /// The queue.
        queue: QueueRef,
        /// The dedup id.
        dedup_id: String,
    },
    /// Whether a queue remembers a dedup id, so that only `apply` may answer an enqueue with it.
    DedupIdSeen {
        /// The queue.
        queue: QueueRef,
        /// The dedup id.
        dedup_id: String,
    },
    /// One namespace, if it has defaults of its own.
    Namespace(String),
    /// The namespaces that have defaults of their own, by name.
    Namespaces {
        /// Only names after this one; empty: from the first.
        after: String,
        /// How many at most, 1 to [`crate::limits::PAGE`].
        limit: usize,
    },
    /// The messages of leases just granted. Leases that are no longer live are left out.
    Deliver(Vec<Handle>),
    /// Leases in order of (queue, sequence), to rebuild the leader's heap. Those of a queue that is gone, or past their
    /// deadline, may be among them.
    Leases {
        /// Only leases after this one.
        after: Option<(QueueId, u64)>,
        /// How many at most.
        limit: usize,
    },
    /// Whether a session still holds the outcome of a request, or has forgotten it.
    RequestSeen {
        /// The session.
        session: u64,
        /// The request's number.
        seq: u64,
    },
    /// The same for a request without a session.
    TokenSeen {
        /// The first 8 of its 16 bytes, big-endian.
        high: u64,
        /// The last 8.
        low: u64,
    },
}

/// Which messages a peek shows. All that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Of this group; empty: any.
    pub group: String,
    /// Of this type; empty: any.
    pub r#type: String,
    /// With these tags.
    pub tags: std::collections::BTreeMap<String, String>,
    /// Of this priority.
    pub priority: Option<u8>,
    /// Enqueued at or before this cluster time.
    pub enqueued_until: Option<Timestamp>,
    /// Failed at least so often.
    pub min_failures: u32,
}

/// An answer; the variant matches the question's.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To `Clock`.
    Clock(Clock),
    /// To `Queues` and `AllQueues`.
    Queues(Vec<QueueInfo>),
    /// To `Queue` and `QueueById`.
    Queue(Option<QueueInfo>),
    /// To `Peek`; `None`: no such queue.
    Messages(Option<Page>),
    /// To `Get` and `GetByDedupId`.
    Message(Option<MessageInfo>),
    /// To `Outcome` and `OutcomeByDedupId`.
    Outcome(Option<DoneInfo>),
    /// To `Namespace` and `Namespaces`.
    Namespaces(Vec<NamespaceInfo>),
    /// To `Deliver`.
    Deliveries(Vec<Delivery>),
    /// To `Leases`.
    Leases(Vec<LeaseInfo>),
    /// To `RequestSeen`, `TokenSeen` and `DedupIdSeen`.
    Seen(bool),
}

/// A namespace's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The namespace.
    pub name: String,
    /// What differs from the built-in defaults.
    pub defaults: QueueSettings,
    /// Whether enqueues make queues.
    pub auto_create: bool,
}

/// What came of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneInfo {
    /// Its id.
    pub id: MessageId,
    /// The queue it was acked in.
    pub queue: QueueRef,
    /// When it was acked.
    pub finished_at: Timestamp,
    /// Until when this can be read.
    pub kept_until: Timestamp,
    /// What the worker gave back.
    pub output: Bytes,
    /// Leases ever granted on it.
    pub receive_count: u32,
    /// Who acked it.
    pub worker: String,
}

/// Where the clocks stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// Cluster time.
    pub cluster: Timestamp,
    /// The lease clock.
    pub lease: LeaseTime,
    /// The term of the last entry.
    pub term: u64,
    /// The index of the last entry.
    pub index: u64,
    /// Whether the cluster has its secret.
    pub initialized: bool,
    /// The rolling hash of all writes up to that entry: equal on replicas that agree.
    pub digest: u64,
}

/// What a message is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageState {
    /// Waiting for its time.
    Delayed,
    /// Waiting for a receiver.
    Ready,
    /// Waiting for an earlier message of its group.
    Blocked,
    /// With a receiver.
    Leased,
}

/// A queue's settings and figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its id.
    pub id: QueueId,
    /// Its name.
    pub name: QueueRef,
    /// When it was made.
    pub created_at: Timestamp,
    /// All settings, none absent.
    pub settings: QueueSettings,
    /// The pause, where delivery is stopped.
    pub paused: Option<Pause>,
    /// Whether enqueues are refused.
    pub closed: bool,
    /// Figures.
    pub stats: Stats,
}

/// Figures of one queue. Conservation: enqueued + moved_in = ready + delayed + blocked + leased + acked + moved_out +
/// expired_dropped + cancelled + purged + dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Messages ready now.
    pub ready: u64,
    /// Messages delayed now.
    pub delayed: u64,
    /// Messages blocked now.
    pub blocked: u64,
    /// Messages leased now.
    pub leased: u64,
    /// Bytes of the messages ready, delayed, blocked and leased.
    pub bytes: u64,
    /// Messages enqueued ever.
    pub enqueued: u64,
    /// Messages moved here ever.
    pub moved_in: u64,
    /// Messages finished ever.
    pub acked: u64,
    /// Messages moved away ever.
    pub moved_out: u64,
    /// Messages whose time to live ran out, dropped ever.
    pub expired_dropped: u64,
    /// Messages cancelled ever.
    pub cancelled: u64,
    /// Messages purged ever.
    pub purged: u64,
    /// Messages dropped at the end of their attempts ever.
    pub dropped: u64,
    /// Leases granted ever.
    pub received: u64,
    /// Leases granted ever on messages that had been leased before.
    pub redelivered: u64,
    /// Failures counted ever.
    pub failed: u64,
    /// Leases that ran out ever.
    pub lease_expired: u64,
    /// Messages taken in over a bound, by a move.
    pub over_bound: u64,
    /// Enqueues ever that found their dedup id remembered.
    pub duplicates: u64,
    /// Outcomes ever that were not kept, as too many were.
    pub outcomes_dropped: u64,
    /// Dedup ids remembered now.
    pub dedup_ids: u64,
    /// Outcomes kept now.
    pub retained: u64,
    /// Groups now that wait for a dead letter to be gone.
    pub groups_blocked: u64,
    /// What the queue's workers finish, in thousandths of a message a second; absent where nothing says.
    pub rate_milli: Option<u64>,
    /// Since when the oldest parked head of a group has been parked.
    pub oldest_parked_at: Option<Timestamp>,
    /// Since when the oldest ready message has been ready.
    pub oldest_ready_at: Option<Timestamp>,
}

impl Stats {
    /// Messages here now.
    pub fn depth(&self) -> u64 {
        self.ready.saturating_add(self.delayed).saturating_add(self.blocked).saturating_add(self.leased)
    }
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The messages.
    pub messages: Vec<MessageInfo>,
    /// Where the next page starts; empty: this was the last.
    pub next: Bytes,
}

/// All there is to know of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageInfo {
    /// Its id.
    pub id: MessageId,
    /// Where it is now.
    pub place: Place,
    /// The queue where it is now.
    pub queue: QueueRef,
    /// What the producer said.
    pub content: Content,
    /// When it came to this queue.
    pub enqueued_at: Timestamp,
    /// What it is doing.
    pub state: MessageState,
    /// Leases ever granted.
    pub receive_count: u32,
    /// Failures counted in its window.
    pub failures: u32,
    /// When it is ready, where it is delayed.
    pub due: Option<Timestamp>,
    /// Its lease, where it has one.
    pub lease: Option<LeaseInfo>,
    /// Why it is a dead letter, where it is one.
    pub dead_letter: Option<DeadLetter>,
    /// Its failures, oldest first, the last 16.
    pub history: Vec<FailureInfo>,
    /// Its group; empty: none.
    pub group: String,
    /// Its number in the line of its group; 0: it has not joined, or has none.
    pub line: u64,
    /// Its dedup id; empty: none.
    pub dedup_id: String,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Its own retry policy.
    pub retry: Option<RetryPolicy>,
    /// Its own dead-letter queue; empty: its queue's.
    pub dead_letter_queue: String,
}

/// A live lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The queue.
    pub queue: QueueId,
    /// The message.
    pub sequence: u64,
    /// When it ends on the lease clock.
    pub deadline: LeaseTime,
    /// The log index of its grant.
    pub granted_index: u64,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// Who holds it.
    pub worker: String,
}

/// Where a dead letter comes from, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue it was in.
    pub source: QueueRef,
    /// Why it was moved.
    pub reason: DeadReason,
    /// When it was moved.
    pub at: Timestamp,
    /// Leases granted in the source.
    pub receive_count: u32,
    /// Failures counted in the source.
    pub failures: u32,
}

/// Why a message was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadReason {
    /// The attempts were used up.
    Attempts,
    /// A worker refused it for good.
    Rejected,
    /// Its time to live was over.
    Expired,
    /// An earlier message of its group was dead-lettered.
    Group,
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureInfo {
    /// Who had it.
    pub worker: String,
    /// When the lease began.
    pub started_at: Timestamp,
    /// When it failed.
    pub failed_at: Timestamp,
    /// How it failed.
    pub class: FailureClass,
    /// The worker's code.
    pub code: String,
    /// The worker's text.
    pub text: String,
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// The worker said so, and that another attempt is worth it.
    Transient,
    /// The worker said so, for good.
    Permanent,
    /// The lease ran out.
    LeaseExpired,
}

/// A message with its lease, as a receiver gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The message's id.
    pub id: MessageId,
    /// The queue it was received from.
    pub queue: QueueRef,
    /// What the producer said.
    pub content: Content,
    /// When it came to this queue.
    pub enqueued_at: Timestamp,
    /// Proof of the lease: [`crate::LeaseToken::to_bytes`].
    pub token: Bytes,
    /// What is left of the lease, in milliseconds.
    pub remaining_ms: u64,
    /// Leases ever granted, this one included.
    pub receive_count: u32,
    /// Failures counted in its window.
    pub failures: u32,
    /// Why it is a dead letter, where it is one.
    pub dead_letter: Option<DeadLetter>,
    /// Its group; empty: none.
    pub group: String,
    /// 0 to 9.
    pub priority: u8,
}
