//! What `apply` answers: replies, rejections, effects and faults.
//!
//! Replies and rejections are prost messages because the outcomes of a session's requests are stored.

use crate::ids::{GroupId, MessageId, Place, QueueId};
use crate::view::ViewError;
use crate::writes::WriteSet;

/// All that one entry does.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The changes, to be committed together with the entry's position.
    pub writes: WriteSet,
    /// One result for each request, in order.
    pub replies: Vec<Result<Reply, Rejection>>,
    /// Hints for the leader. Followers drop them; all can be recomputed.
    pub effects: Vec<Effect>,
}

/// This replica's data is broken: the node stops. A user's mistake is never a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The store failed.
    #[error("{0}")]
    View(#[from] ViewError),
    /// A record does not decode, or breaks an invariant.
    #[error("expected {expected} under key {key}, but {found}")]
    Broken {
        /// What should have been there.
        expected: &'static str,
        /// The key, in hexadecimal.
        key: String,
        /// What was there.
        found: String,
    },
    /// An entry holds what this version does not know.
    #[error("expected an entry that this version knows, but {0}; upgrade this node")]
    Newer(String),
    /// The entry does not follow the one applied before.
    #[error("expected an entry after index {applied}, but got index {got}")]
    Order {
        /// The index applied last.
        applied: u64,
        /// The index that came.
        got: u64,
    },
}

/// Something the leader should look at; never needed for correctness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Messages of this queue became ready: serve its waiters.
    Wake(QueueId),
    /// A lease runs until `deadline` on the lease clock.
    Leased {
        /// The queue.
        queue: QueueId,
        /// The message.
        sequence: u64,
        /// When it ends on the lease clock, in milliseconds.
        deadline_ms: u64,
        /// The log index of its grant.
        granted_index: u64,
    },
    /// A lease that ran until `deadline_ms` is over or was moved.
    LeaseEnded {
        /// The queue.
        queue: QueueId,
        /// The message.
        sequence: u64,
        /// The deadline it had, on the lease clock.
        deadline_ms: u64,
    },
    /// A timer was set: something is due at this cluster time.
    Due(u64),
    /// Work is left: propose another `Tick` at once.
    TickAgain,
}

/// A request's answer, with whether it is the stored outcome of an earlier one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// True where an earlier request with the same id had this outcome.
    #[prost(bool, tag = "1")]
    pub replayed: bool,
    /// The log index at which it took effect.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// Which request of that entry it was, from 0.
    #[prost(uint32, tag = "3")]
    pub ordinal: u32,
    /// Cluster time at which it took effect, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub at_ms: u64,
    /// The answer.
    #[prost(oneof = "Answered", tags = "10, 11, 12, 13, 20, 21, 30, 32, 33, 36")]
    pub answered: Option<Answered>,
}

/// The answer to each command.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Answered {
    /// To `Commit`.
    #[prost(message, tag = "10")]
    Committed(Committed),
    /// To `Receive`.
    #[prost(message, tag = "11")]
    Received(Received),
    /// To `Expire`.
    #[prost(message, tag = "12")]
    Expired(Expired),
    /// To `Tick`.
    #[prost(message, tag = "13")]
    Ticked(Ticked),
    /// To `InitCluster`.
    #[prost(message, tag = "20")]
    Initialized(Initialized),
    /// To `OpenSession`.
    #[prost(message, tag = "21")]
    SessionOpened(SessionOpened),
    /// To `CreateQueue`, `UpdateQueue`, `PauseQueue` and `CloseQueue`.
    #[prost(message, tag = "30")]
    QueueChanged(QueueChanged),
    /// To `DeleteQueue`.
    #[prost(message, tag = "32")]
    QueueDeleted(Removed),
    /// To `PurgeQueue`.
    #[prost(message, tag = "33")]
    QueuePurged(Removed),
    /// To `SetNamespace` and `DeleteNamespace`.
    #[prost(message, tag = "36")]
    NamespaceChanged(Empty),
}

/// A place, as stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct PlaceRecord {
    /// The queue's id.
    #[prost(uint64, tag = "1")]
    pub queue: u64,
    /// Space and priority: [`Place::lane_byte`].
    #[prost(uint32, tag = "2")]
    pub lane: u32,
    /// The sequence.
    #[prost(uint64, tag = "3")]
    pub sequence: u64,
}

impl From<Place> for PlaceRecord {
    fn from(place: Place) -> Self {
        Self { queue: place.queue.0, lane: place.lane_byte().into(), sequence: place.sequence }
    }
}

/// Where a message was born; of one of another group, a place where none ever is.
impl From<MessageId> for PlaceRecord {
    fn from(id: MessageId) -> Self {
        let place = Self::from(id.origin);
        // No queue has the number 0.
        if id.group == GroupId::QUEUES { place } else { Self { queue: 0, ..place } }
    }
}

impl PlaceRecord {
    /// The place, or `None` where the lane means nothing.
    pub fn place(&self) -> Option<Place> {
        Place::from_parts(QueueId(self.queue), u8::try_from(self.lane).ok()?, self.sequence)
    }

    /// The id of the message born here.
    pub fn message_id(&self) -> Option<MessageId> {
        self.place().map(|origin| MessageId { group: GroupId::QUEUES, origin })
    }
}

/// The results of a commit's parts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Committed {
    /// One for each enqueue, in order.
    #[prost(message, repeated, tag = "1")]
    pub enqueued: Vec<EnqueueResult>,
    /// One for each settlement, in order.
    #[prost(message, repeated, tag = "2")]
    pub settled: Vec<SettleResult>,
    /// One for each cancel, in order.
    #[prost(message, repeated, tag = "3")]
    pub cancelled: Vec<CancelResult>,
    /// One for each reschedule, in order.
    #[prost(message, repeated, tag = "4")]
    pub rescheduled: Vec<RescheduleResult>,
}

/// What became of one cancel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CancelResult {
    /// The result.
    #[prost(oneof = "CancelOutcome", tags = "1, 2, 3")]
    pub outcome: Option<CancelOutcome>,
}

/// What became of one cancel.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum CancelOutcome {
    /// The message is gone. Its id, also where it was named by a dedup id.
    #[prost(message, tag = "1")]
    Cancelled(PlaceRecord),
    /// There was none: cancelled before, finished, or never enqueued.
    #[prost(message, tag = "2")]
    Gone(Empty),
    /// It could not be cancelled, and nothing happened.
    #[prost(message, tag = "3")]
    Rejected(RejectionRecord),
}

/// What became of one reschedule.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RescheduleResult {
    /// The result.
    #[prost(oneof = "RescheduleOutcome", tags = "1, 2")]
    pub outcome: Option<RescheduleOutcome>,
}

/// What became of one reschedule.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum RescheduleOutcome {
    /// It has a new time.
    #[prost(message, tag = "1")]
    Rescheduled(Enqueued),
    /// It has not, and nothing happened.
    #[prost(message, tag = "2")]
    Rejected(RejectionRecord),
}

/// What became of one enqueue.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EnqueueResult {
    /// The result.
    #[prost(oneof = "EnqueueOutcome", tags = "1, 2")]
    pub outcome: Option<EnqueueOutcome>,
}

/// What became of one enqueue.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum EnqueueOutcome {
    /// It is on the queue.
    #[prost(message, tag = "1")]
    Enqueued(Enqueued),
    /// It is not, and nothing happened.
    #[prost(message, tag = "2")]
    Rejected(RejectionRecord),
}

/// A message on a queue.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Enqueued {
    /// Where: also its id.
    #[prost(message, required, tag = "1")]
    pub place: PlaceRecord,
    /// When it is ready, on cluster time in milliseconds.
    #[prost(uint64, tag = "2")]
    pub available_at_ms: u64,
    /// Whether it was there already, under this dedup id.
    #[prost(bool, tag = "3")]
    pub duplicate: bool,
}

/// What became of one settlement.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleResult {
    /// The result.
    #[prost(oneof = "SettleOutcome", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub outcome: Option<SettleOutcome>,
}

/// What became of one settlement.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum SettleOutcome {
    /// Finished and deleted.
    #[prost(message, tag = "1")]
    Acked(Empty),
    /// In a dead-letter queue, under its old id.
    #[prost(message, tag = "2")]
    DeadLettered(DeadLettered),
    /// Waiting for its next attempt.
    #[prost(message, tag = "3")]
    Delayed(DelayedUntil),
    /// Ready again.
    #[prost(message, tag = "4")]
    Readied(Empty),
    /// The lease goes on.
    #[prost(message, tag = "5")]
    Extended(Extended),
    /// Nothing happened.
    #[prost(message, tag = "6")]
    Rejected(RejectionRecord),
    /// The queue was purged meanwhile: the message is gone.
    #[prost(message, tag = "7")]
    Purged(Empty),
    /// Its time to live is over: the message is gone.
    #[prost(message, tag = "8")]
    Expired(Empty),
    /// Its attempts are used up, and the queue drops such messages.
    #[prost(message, tag = "9")]
    Dropped(Empty),
}

/// No more to say.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Where a dead letter is now.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeadLettered {
    /// Its place in the dead-letter queue.
    #[prost(message, required, tag = "1")]
    pub place: PlaceRecord,
}

/// When the next attempt is.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DelayedUntil {
    /// On cluster time, in milliseconds.
    #[prost(uint64, tag = "1")]
    pub due_ms: u64,
}

/// A lease with a new end.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Extended {
    /// On the lease clock, in milliseconds.
    #[prost(uint64, tag = "1")]
    pub deadline_ms: u64,
    /// What is left of it at this entry, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub remaining_ms: u64,
}

/// Leases granted. Bodies are read afterwards.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Received {
    /// The leases, in order of delivery; may be none.
    #[prost(message, repeated, tag = "1")]
    pub handles: Vec<Handle>,
    /// Messages acked as they were received, in order of delivery. Not kept for a repeat.
    #[prost(message, repeated, tag = "2")]
    pub taken: Vec<Taken>,
}

/// A message received and acked in one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Taken {
    /// Where it was, and how often it was received; its lease is over.
    #[prost(message, required, tag = "1")]
    pub handle: Handle,
    /// Its id: its place of birth.
    #[prost(message, required, tag = "2")]
    pub id: PlaceRecord,
    /// The queue it was in.
    #[prost(message, required, tag = "3")]
    pub queue: QueueNamed,
    /// When it came to this queue, on cluster time in milliseconds.
    #[prost(uint64, tag = "4")]
    pub enqueued_at_ms: u64,
    /// Its group; empty: none.
    #[prost(string, tag = "5")]
    pub group: String,
    /// An encoded [`Content`](crate::command::Content), the body included.
    #[prost(bytes = "bytes", tag = "6")]
    pub content: bytes::Bytes,
}

/// One lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Handle {
    /// Where the message is.
    #[prost(message, required, tag = "1")]
    pub place: PlaceRecord,
    /// Leases ever granted on it, this one included.
    #[prost(uint32, tag = "2")]
    pub receive_count: u32,
    /// Failures counted in its window.
    #[prost(uint32, tag = "3")]
    pub failures: u32,
    /// The log index of the grant: with it and the secret, anyone in the cluster computes the token.
    #[prost(uint64, tag = "4")]
    pub granted_index: u64,
    /// The lease's end on the lease clock, in milliseconds.
    #[prost(uint64, tag = "5")]
    pub deadline_ms: u64,
}

/// Leases ended.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Expired {
    /// How many of those asked for had really run out.
    #[prost(uint32, tag = "1")]
    pub count: u32,
}

/// Timers fired.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Ticked {
    /// How many.
    #[prost(uint32, tag = "1")]
    pub fired: u32,
}

/// The cluster has a secret.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Initialized {
    /// Whether it was this command's.
    #[prost(bool, tag = "1")]
    pub first: bool,
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SessionOpened {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub session: u64,
}

/// A queue made or changed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct QueueChanged {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub queue: u64,
}

/// Messages removed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Removed {
    /// How many.
    #[prost(uint64, tag = "1")]
    pub count: u64,
}

/// A rejection, as stored.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RejectionRecord {
    /// The rejection.
    #[prost(oneof = "Rejection", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20")]
    pub rejection: Option<Rejection>,
}

/// A lawful no, the same on every replica. Nothing happened.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Rejection {
    /// The cluster has no secret yet.
    #[prost(message, tag = "1")]
    NotInitialized(Empty),
    /// A field is outside its limits.
    #[prost(message, tag = "2")]
    Invalid(Invalid),
    /// No such queue.
    #[prost(message, tag = "3")]
    QueueNotFound(QueueNamed),
    /// The queue is there already.
    #[prost(message, tag = "4")]
    QueueExists(QueueNamed),
    /// The queue refuses enqueues.
    #[prost(message, tag = "5")]
    QueueClosed(QueueNamed),
    /// A bound would be passed.
    #[prost(message, tag = "6")]
    Full(Full),
    /// The lease is over, or the token was never good.
    #[prost(message, tag = "7")]
    LeaseLost(LeaseLost),
    /// The outcome of this request is forgotten: the client said that it had seen it.
    #[prost(message, tag = "8")]
    RequestIdOld(RequestIdOld),
    /// Too many outcomes are stored; raise `acked_below` first.
    #[prost(message, tag = "9")]
    SessionWindow(LimitReached),
    /// Another request had this id.
    #[prost(message, tag = "10")]
    RequestIdReused(Empty),
    /// No such session: it idled too long, or never was.
    #[prost(message, tag = "11")]
    SessionExpired(Empty),
    /// Too many sessions.
    #[prost(message, tag = "12")]
    SessionsFull(LimitReached),
    /// Too many queues.
    #[prost(message, tag = "13")]
    QueuesFull(LimitReached),
    /// The entry was full; the proposer puts the request into the next. Never leaves the node.
    #[prost(message, tag = "14")]
    EntryFull(Empty),
    /// A part of an atomic commit was refused, and so the whole.
    #[prost(message, tag = "15")]
    PartRefused(PartRefused),
    /// The message is with a receiver, or has been: it can't be cancelled or rescheduled any more.
    #[prost(message, tag = "16")]
    TooLate(LeaseLost),
    /// No such message.
    #[prost(message, tag = "17")]
    MessageNotFound(Empty),
    /// Too many outcomes of requests without a session are kept.
    #[prost(message, tag = "18")]
    RequestIdsFull(LimitReached),
    /// No such namespace has defaults of its own.
    #[prost(message, tag = "19")]
    NamespaceNotFound(QueueNamed),
    /// Too many namespaces have defaults of their own.
    #[prost(message, tag = "20")]
    NamespacesFull(LimitReached),
}

/// Which part of an atomic commit was refused, and why: the first one, in the order in which they are carried out.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PartRefused {
    /// The part.
    #[prost(oneof = "Part", tags = "1, 2, 3, 4")]
    pub part: Option<Part>,
    // 5-9: the parts to come.
    /// Its own rejection.
    #[prost(message, optional, boxed, tag = "10")]
    pub why: Option<Box<RejectionRecord>>,
}

/// A part of a commit: its kind, and its number among those of its kind, from 0.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum Part {
    /// A settlement.
    #[prost(uint32, tag = "1")]
    Settle(u32),
    /// An enqueue.
    #[prost(uint32, tag = "2")]
    Enqueue(u32),
    /// A cancel.
    #[prost(uint32, tag = "3")]
    Cancel(u32),
    /// A reschedule.
    #[prost(uint32, tag = "4")]
    Reschedule(u32),
}

impl Rejection {
    /// The whole of an atomic commit is refused, since `part` is.
    pub fn of_part(part: Part, why: Rejection) -> Self {
        let why = Box::new(RejectionRecord { rejection: Some(why) });
        Rejection::PartRefused(PartRefused { part: Some(part), why: Some(why) })
    }
}

/// Which field, what was expected, what came.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Invalid {
    /// The field, as the API names it.
    #[prost(string, tag = "1")]
    pub field: String,
    /// "expected …, but …".
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// Which queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QueueNamed {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// Which bound of which queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Full {
    /// The queue.
    #[prost(message, required, tag = "1")]
    pub queue: QueueNamed,
    /// `max_depth`, `max_bytes`, `shed`, `max_wait` or `dedup_ids`.
    #[prost(string, tag = "2")]
    pub bound: String,
    /// Its value.
    #[prost(uint64, tag = "3")]
    pub limit: u64,
    /// What the queue holds; for `max_wait` the wait in milliseconds.
    #[prost(uint64, tag = "4")]
    pub held: u64,
    /// When to try again, in milliseconds from now.
    #[prost(uint64, tag = "5")]
    pub retry_after_ms: u64,
}

/// What became of the message instead.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseLost {
    /// The message's receive count now; absent where the message is gone.
    #[prost(uint32, optional, tag = "1")]
    pub receive_count: Option<u32>,
}

/// Which requests are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RequestIdOld {
    /// All below this number.
    #[prost(uint64, tag = "1")]
    pub acked_below: u64,
}

/// Which limit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LimitReached {
    /// Its value.
    #[prost(uint64, tag = "1")]
    pub limit: u64,
}
