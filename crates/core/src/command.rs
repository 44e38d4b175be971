//! What stands in the log: entries of requests, encoded by prost. Field numbers are for ever.
//!
//! The data commands are four: [`Commit`], [`Receive`], [`Expire`] and [`Tick`]. The others configure.

use std::collections::BTreeMap;
use std::hash::Hasher;

use bytes::Bytes;
use prost::Message as _;
use siphasher::sip::SipHasher13;

use crate::reply::PlaceRecord;
use crate::time::Timestamp;

/// The version of the entry format written here.
pub const ENTRY_FORMAT: u32 = 1;

/// A batch of requests: one log entry, one fsync.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// The format's version, [`ENTRY_FORMAT`].
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The leader's stamp, in milliseconds since the Unix epoch.
    #[prost(uint64, tag = "2")]
    pub proposed_at_ms: u64,
    /// The requests, applied in order.
    #[prost(message, repeated, tag = "3")]
    pub requests: Vec<Request>,
}

/// Bytes that are no entry of this format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not protobuf, or not this message.
    #[error("expected a log entry, but it does not decode: {0}")]
    Decode(String),
    /// Written by a newer version.
    #[error("expected a log entry of format {ENTRY_FORMAT}, but it has format {0}; upgrade this node")]
    Format(u32),
}

impl Entry {
    /// An entry of `requests`, stamped with `proposed_at`.
    pub fn new(proposed_at: Timestamp, requests: Vec<Request>) -> Self {
        Self { format: ENTRY_FORMAT, proposed_at_ms: proposed_at.0, requests }
    }

    /// The bytes for the log.
    pub fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// Reads what `to_bytes` wrote, without copying bodies.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, EntryError> {
        let entry = Self::decode(bytes).map_err(|e| EntryError::Decode(e.to_string()))?;
        if entry.format != ENTRY_FORMAT {
            return Err(EntryError::Format(entry.format));
        }
        Ok(entry)
    }
}

/// One command and who asks for it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Which request of which session this is; none for the leader's own commands.
    #[prost(message, optional, tag = "1")]
    pub id: Option<RequestId>,
    // 2: principal, kept for authentication.
    /// What to do. `None`: a command of a newer version.
    #[prost(oneof = "Command", tags = "10, 11, 12, 13, 20, 21, 30, 31, 32, 33, 34, 35, 36, 37")]
    pub command: Option<Command>,
}

impl Request {
    /// A request that nobody repeats.
    pub fn anonymous(command: Command) -> Self {
        Self { id: None, command: Some(command) }
    }

    /// A request of a session.
    pub fn of(id: RequestId, command: Command) -> Self {
        let mut request = Self { id: None, command: Some(command) };
        let mut hasher = SipHasher13::new();
        hasher.write(&request.encode_to_vec());
        request.id = Some(RequestId { fingerprint: hasher.finish(), ..id });
        request
    }
}

/// Names a request for ever, so that a repeat has no second effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct RequestId {
    /// The session, as `OpenSession` gave it.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// The request's number within the session, from 1, in any order.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// The client has seen the outcomes of all requests below this number: they can be forgotten.
    #[prost(uint64, tag = "3")]
    pub acked_below: u64,
    /// A hash of the command, set by [`Request::of`]: another command under the same id is refused.
    #[prost(fixed64, tag = "4")]
    pub fingerprint: u64,
    /// In place of a session, session and seq being 0: the first 8 of 16 bytes that nobody uses twice, big-endian.
    #[prost(fixed64, tag = "5")]
    pub token_high: u64,
    /// The last 8 of them.
    #[prost(fixed64, tag = "6")]
    pub token_low: u64,
}

/// What a request asks for.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Command {
    /// Changes data: enqueues and settlements.
    #[prost(message, tag = "10")]
    Commit(Commit),
    /// Leases messages.
    #[prost(message, tag = "11")]
    Receive(Receive),
    /// Ends leases that ran out; proposed by the leader.
    #[prost(message, tag = "12")]
    Expire(Expire),
    /// Fires timers and works off what was left; proposed by the leader.
    #[prost(message, tag = "13")]
    Tick(Tick),
    /// Gives the cluster its secret; the first leader proposes it before anything else.
    #[prost(message, tag = "20")]
    InitCluster(InitCluster),
    /// Opens or renews a session.
    #[prost(message, tag = "21")]
    OpenSession(OpenSession),
    /// Makes a queue.
    #[prost(message, tag = "30")]
    CreateQueue(CreateQueue),
    /// Changes a queue's settings.
    #[prost(message, tag = "31")]
    UpdateQueue(UpdateQueue),
    /// Removes a queue and all it holds.
    #[prost(message, tag = "32")]
    DeleteQueue(DeleteQueue),
    /// Removes all of a queue's messages that are not leased.
    #[prost(message, tag = "33")]
    PurgeQueue(PurgeQueue),
    /// Stops or restarts delivery.
    #[prost(message, tag = "34")]
    PauseQueue(PauseQueue),
    /// Refuses or admits enqueues.
    #[prost(message, tag = "35")]
    CloseQueue(CloseQueue),
    /// Stores a namespace's defaults.
    #[prost(message, tag = "36")]
    SetNamespace(SetNamespace),
    /// Takes a namespace's defaults back.
    #[prost(message, tag = "37")]
    DeleteNamespace(DeleteNamespace),
}

/// A queue by name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct QueueRef {
    /// The namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// The queue's name.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// Changes of data, carried out kind by kind: settlements, cancels, reschedules, enqueues. So an enqueue may take the
/// place that a settlement frees, and the dedup id that a cancel frees. Each part has its own result, or with `atomic`
/// they stand or fall together.
///
/// Numbers 4, 5, 7 and 8 are kept for publish, schedule, saga and fences.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Commit {
    /// The queues that the enqueues speak of, each once.
    #[prost(message, repeated, tag = "1")]
    pub queues: Vec<QueueRef>,
    /// Messages to enqueue, in order.
    #[prost(message, repeated, tag = "2")]
    pub enqueue: Vec<Enqueue>,
    /// Leases to settle, in order.
    #[prost(message, repeated, tag = "3")]
    pub settle: Vec<Settle>,
    /// Messages to take away before anybody receives them, in order.
    #[prost(message, repeated, tag = "6")]
    pub cancel: Vec<Target>,
    /// Whether one part's refusal refuses the whole: then it is [`crate::Rejection::PartRefused`], and nothing happened.
    /// All that such a commit touches is in one namespace.
    #[prost(bool, tag = "9")]
    pub atomic: bool,
    /// Whether an enqueue makes a queue that is not there.
    #[prost(bool, tag = "10")]
    pub auto_create: bool,
    /// Messages to make ready at another time, in order.
    #[prost(message, repeated, tag = "11")]
    pub reschedule: Vec<Reschedule>,
}

/// A message by its id, or by a queue and a dedup id.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Target {
    /// Its place of birth, which is its id.
    #[prost(message, optional, tag = "1")]
    pub id: Option<PlaceRecord>,
    /// The queue that knows the dedup id, where there is no id.
    #[prost(message, optional, tag = "2")]
    pub queue: Option<QueueRef>,
    /// The dedup id.
    #[prost(string, tag = "3")]
    pub dedup_id: String,
}

/// A message, and when it is to be ready.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Reschedule {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub target: Option<Target>,
    /// Milliseconds until it is ready; 0: at once.
    #[prost(uint64, tag = "2")]
    pub delay_ms: u64,
    /// When it is ready, on cluster time; 0: by the delay. The later of the two counts.
    #[prost(uint64, tag = "3")]
    pub deliver_at_ms: u64,
}

/// One message to enqueue.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Enqueue {
    /// Which of the commit's queues.
    #[prost(uint32, tag = "1")]
    pub queue: u32,
    /// The message.
    #[prost(message, optional, tag = "2")]
    pub message: Option<Content>,
    /// Milliseconds until it is ready; 0: at once.
    #[prost(uint64, tag = "3")]
    pub delay_ms: u64,
    /// When it is ready, on cluster time; 0: by the delay. The later of the two counts.
    #[prost(uint64, tag = "4")]
    pub deliver_at_ms: u64,
    /// The group, of which only the first unfinished message can be received; empty: none.
    #[prost(string, tag = "5")]
    pub group: String,
    /// 0 to 9, 9 first; absent: 4.
    #[prost(uint32, optional, tag = "6")]
    pub priority: Option<u32>,
    /// The producer's business key; empty: none.
    #[prost(string, tag = "7")]
    pub dedup_id: String,
    /// Milliseconds from when it is first ready until it expires; 0: see `expires_at_ms`.
    #[prost(uint64, tag = "8")]
    pub ttl_ms: u64,
    /// When it expires, on cluster time; 0: by `ttl_ms`. The earlier of the two counts; neither: the queue's.
    #[prost(uint64, tag = "9")]
    pub expires_at_ms: u64,
    /// A retry policy of its own, in place of the queue's.
    #[prost(message, optional, tag = "10")]
    pub retry: Option<RetryPolicy>,
    /// A dead-letter queue of its own, in the queue's namespace; empty: the queue's.
    #[prost(string, tag = "11")]
    pub dead_letter_queue: String,
}

/// How a message is tried again. Absent: as its queue does.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RetryPolicy {
    /// Failures until it is dead-lettered, 1 to 100; 0: without limit.
    #[prost(uint32, optional, tag = "1")]
    pub max_attempts: Option<u32>,
    /// The backoff's base in milliseconds, 1 to 1 day.
    #[prost(uint64, optional, tag = "2")]
    pub backoff_base_ms: Option<u64>,
    /// The backoff's cap in milliseconds, from the base to 1 day.
    #[prost(uint64, optional, tag = "3")]
    pub backoff_cap_ms: Option<u64>,
}

/// What a producer says: the part of a message that never changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Content {
    /// The body.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// The body's media type.
    #[prost(string, tag = "2")]
    pub content_type: String,
    /// The message's type, in the user's words.
    #[prost(string, tag = "3")]
    pub r#type: String,
    /// Tags to find it by.
    #[prost(btree_map = "string, string", tag = "4")]
    pub tags: BTreeMap<String, String>,
    /// Headers, passed through.
    #[prost(btree_map = "string, string", tag = "5")]
    pub headers: BTreeMap<String, String>,
    /// Ties a reply to its request.
    #[prost(string, tag = "6")]
    pub correlation_id: String,
    /// Where replies go.
    #[prost(string, tag = "7")]
    pub reply_to: String,
}

impl Content {
    /// What the message counts in byte bounds: body, names, tags and headers.
    pub fn size(&self) -> u64 {
        let texts = [&self.content_type, &self.r#type, &self.correlation_id, &self.reply_to];
        let pairs = self.tags.iter().chain(&self.headers).flat_map(|(name, value)| [name, value]);
        let texts = texts.into_iter().chain(pairs).map(String::len);
        let bytes = texts.fold(self.body.len(), usize::saturating_add);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// One lease to settle.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Settle {
    /// The token of the delivery, as [`crate::LeaseToken::to_bytes`] wrote it.
    #[prost(bytes = "bytes", tag = "1")]
    pub token: Bytes,
    /// What became of it.
    #[prost(oneof = "Verdict", tags = "10, 11, 12, 14, 15")]
    pub verdict: Option<Verdict>,
}

/// What became of a delivery.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Verdict {
    /// Done: deleted for good.
    #[prost(message, tag = "10")]
    Ack(Ack),
    /// Failed, worth another attempt.
    #[prost(message, tag = "11")]
    Retry(Retry),
    /// Failed for good: dead-lettered at once.
    #[prost(message, tag = "12")]
    Reject(Failure),
    // 13: dependency unavailable.
    /// Given back unfinished; nothing is counted.
    #[prost(message, tag = "14")]
    Release(Release),
    /// More time.
    #[prost(message, tag = "15")]
    Extend(Extend),
}

/// Done.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ack {
    /// What came of it, at most 64 KiB; kept where the queue retains outcomes.
    #[prost(bytes = "bytes", tag = "1")]
    pub output: Bytes,
}

/// A transient failure.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Retry {
    /// Why.
    #[prost(message, optional, tag = "1")]
    pub failure: Option<Failure>,
    /// Milliseconds until the next attempt, in place of the queue's backoff.
    #[prost(uint64, optional, tag = "2")]
    pub delay_ms: Option<u64>,
}

/// Why an attempt failed, in the worker's words.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Failure {
    /// A short code to group failures by.
    #[prost(string, tag = "1")]
    pub code: String,
    /// A text for a person.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// Given back.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Release {}

/// More time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Extend {
    /// The lease ends this many milliseconds from now, but at most 12 h after its grant; 0: the queue's lease.
    #[prost(uint64, tag = "1")]
    pub lease_ms: u64,
}

/// Leases messages.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Receive {
    /// The queues, in order of preference: 1 to 16 of one namespace.
    #[prost(message, repeated, tag = "1")]
    pub queues: Vec<QueueRef>,
    /// How many messages at most, 1 to 1,000.
    #[prost(uint32, tag = "2")]
    pub max: u32,
    /// How many bytes at most; one message always fits. 0: 4 MiB.
    #[prost(uint64, tag = "3")]
    pub max_bytes: u64,
    /// The lease in milliseconds; 0: the queue's.
    #[prost(uint64, tag = "4")]
    pub lease_ms: u64,
    /// Who receives, for the history.
    #[prost(string, tag = "5")]
    pub worker: String,
    /// Whether the messages are acked as they are received: at most once.
    #[prost(bool, tag = "6")]
    pub auto_ack: bool,
}

/// Leases that ran out, as the leader sees it; `apply` checks each.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Expire {
    /// The leases, at most 1,000.
    #[prost(message, repeated, tag = "1")]
    pub leases: Vec<ExpiredLease>,
}

/// One lease that ran out.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExpiredLease {
    /// The queue's id.
    #[prost(uint64, tag = "1")]
    pub queue: u64,
    /// The message's sequence.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// The log index of the grant, so that a newer lease is left alone.
    #[prost(uint64, tag = "3")]
    pub granted_index: u64,
}

/// Fires what is due and works off what was left. Also carries the clock where nothing else does.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Tick {}

/// The secret under which tokens and jitter are hashed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InitCluster {
    /// 32 random bytes. Only the first such command counts.
    #[prost(bytes = "bytes", tag = "1")]
    pub secret: Bytes,
}

/// Opens a session, or renews one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OpenSession {
    /// The session to renew; 0 opens a new one.
    #[prost(uint64, tag = "1")]
    pub renew: u64,
}

/// Makes a queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
    /// What differs from the defaults.
    #[prost(message, optional, tag = "2")]
    pub settings: Option<QueueSettings>,
}

/// Changes a queue's settings; what is absent stays.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
    /// What to change.
    #[prost(message, optional, tag = "2")]
    pub settings: Option<QueueSettings>,
}

/// A queue's settings. Absent: the default, or in an update, as it was.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QueueSettings {
    /// Messages at most; 0: without limit.
    #[prost(uint64, optional, tag = "1")]
    pub max_depth: Option<u64>,
    /// Bytes at most; 0: without limit.
    #[prost(uint64, optional, tag = "2")]
    pub max_bytes: Option<u64>,
    /// The lease in milliseconds, 1 s to 12 h.
    #[prost(uint64, optional, tag = "3")]
    pub lease_ms: Option<u64>,
    /// Failures until a message is dead-lettered, 1 to 100; 0: without limit.
    #[prost(uint32, optional, tag = "4")]
    pub max_attempts: Option<u32>,
    /// The window in which failures are counted, in milliseconds, 1 s to 366 days.
    #[prost(uint64, optional, tag = "5")]
    pub failure_window_ms: Option<u64>,
    /// The backoff's base in milliseconds, 1 to 1 day.
    #[prost(uint64, optional, tag = "6")]
    pub backoff_base_ms: Option<u64>,
    /// The backoff's cap in milliseconds, from the base to 1 day.
    #[prost(uint64, optional, tag = "7")]
    pub backoff_cap_ms: Option<u64>,
    /// The dead-letter queue; empty: `<queue>.dlq`.
    #[prost(string, optional, tag = "8")]
    pub dead_letter_queue: Option<String>,
    /// How long a message may have to wait for a receiver, in milliseconds, up to 366 days; 0: without limit.
    #[prost(uint64, optional, tag = "9")]
    pub max_wait_ms: Option<u64>,
    /// What the queue's workers finish, in thousandths of a message a second, until it has been measured; 0: unknown.
    #[prost(uint64, optional, tag = "10")]
    pub expected_rate_milli: Option<u64>,
    /// What a dead-lettered head does to its group.
    #[prost(enumeration = "OnGroupFailure", optional, tag = "11")]
    pub on_group_failure: Option<i32>,
    /// Which messages are refused as the queue fills.
    #[prost(message, optional, tag = "12")]
    pub shed: Option<Shed>,
    /// The time to live of messages that have none of their own, in milliseconds, up to 366 days; 0: none.
    #[prost(uint64, optional, tag = "13")]
    pub ttl_ms: Option<u64>,
    /// How long outcomes of acks can be read, in milliseconds, up to 7 days; 0: not at all.
    #[prost(uint64, optional, tag = "14")]
    pub retain_done_ms: Option<u64>,
    /// Whose queue it is.
    #[prost(string, optional, tag = "15")]
    pub owner: Option<String>,
    /// What to do when it alarms.
    #[prost(string, optional, tag = "16")]
    pub runbook_url: Option<String>,
    /// How old its oldest ready message may be, in milliseconds; 0: nothing said.
    #[prost(uint64, optional, tag = "17")]
    pub age_slo_ms: Option<u64>,
    /// For how long dedup ids are remembered, in milliseconds, 1 s to 30 days.
    #[prost(uint64, optional, tag = "18")]
    pub dedup_window_ms: Option<u64>,
    /// What becomes of expired messages.
    #[prost(enumeration = "OnExpired", optional, tag = "19")]
    pub on_expired: Option<i32>,
    /// What becomes of messages whose attempts are used up.
    #[prost(enumeration = "OnExhausted", optional, tag = "20")]
    pub on_exhausted: Option<i32>,
}

/// What a dead-lettered head does to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum OnGroupFailure {
    /// The next of the line is the head.
    Continue = 0,
    /// All wait until the dead letter is gone.
    Block = 1,
    /// All that are in the line are dead letters too.
    DeadLetterGroup = 2,
}

/// What becomes of expired messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum OnExpired {
    /// They are gone, and counted.
    Drop = 0,
    /// They are dead letters.
    DeadLetter = 1,
}

/// What becomes of messages whose attempts are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum OnExhausted {
    /// They are dead letters.
    DeadLetter = 0,
    /// They are gone, and counted.
    Drop = 1,
}

/// Which messages are refused as a queue fills: at most 10 rules.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Shed {
    /// The rules; each stands alone.
    #[prost(message, repeated, tag = "1")]
    pub rules: Vec<ShedRule>,
}

/// Above a share of `max_depth`, messages below a priority are refused.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ShedRule {
    /// The share in percent, 0 to 99.
    #[prost(uint32, tag = "1")]
    pub above_percent: u32,
    /// 1 to 9.
    #[prost(uint32, tag = "2")]
    pub below_priority: u32,
}

/// Removes a queue and all it holds; its leases are void.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
}

/// Removes all messages that are not leased; leased ones are let finish.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PurgeQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
}

/// Stops delivery, or lets it go on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PauseQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
    /// The pause; absent: delivery goes on.
    #[prost(message, optional, tag = "2")]
    pub pause: Option<Pause>,
}

/// Why delivery is stopped, by whom, until when.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Pause {
    /// Why.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Who.
    #[prost(string, tag = "2")]
    pub author: String,
    /// Until when, on cluster time in milliseconds; 0: until resumed.
    #[prost(uint64, tag = "3")]
    pub until_ms: u64,
}

/// Refuses enqueues, or admits them again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CloseQueue {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub queue: Option<QueueRef>,
    /// Whether enqueues are refused.
    #[prost(bool, tag = "2")]
    pub closed: bool,
}

/// Stores what queues of a namespace get that are made from now on.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetNamespace {
    /// The namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// What differs from the built-in defaults.
    #[prost(message, optional, tag = "2")]
    pub defaults: Option<QueueSettings>,
    /// Whether enqueues make queues; absent: they do.
    #[prost(bool, optional, tag = "3")]
    pub auto_create: Option<bool>,
}

/// Takes a namespace's defaults back. Its queues stay.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteNamespace {
    /// The namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
}
