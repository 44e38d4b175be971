//! What stands in the log: entries of requests, encoded by prost. Field numbers are for ever.
//!
//! The data commands are four: [`Commit`], [`Receive`], [`Expire`] and [`Tick`]. The others configure.

use std::collections::BTreeMap;
use std::hash::Hasher;

use bytes::Bytes;
use prost::Message as _;
use siphasher::sip::SipHasher13;

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
    #[prost(oneof = "Command", tags = "10, 11, 12, 13, 20, 21, 30, 31, 32, 33, 34, 35")]
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

/// Settlements and enqueues: first the settlements, then the enqueues, so that an enqueue may take the place that a
/// settlement frees. Each part has its own result, or with `atomic` they stand or fall together.
///
/// Numbers 4-8 are kept for publish, schedule, cancel, saga and fences.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Commit {
    /// The queues that the enqueues speak of, each once.
    #[prost(message, repeated, tag = "1")]
    pub queues: Vec<QueueRef>,
    /// Messages to enqueue, in order.
    #[prost(message, repeated, tag = "2")]
    pub enqueue: Vec<Enqueue>,
    /// Leases to settle, in order, before the enqueues.
    #[prost(message, repeated, tag = "3")]
    pub settle: Vec<Settle>,
    /// Whether one part's refusal refuses the whole: then it is [`crate::Rejection::PartRefused`], and nothing happened.
    /// All that such a commit touches is in one namespace.
    #[prost(bool, tag = "9")]
    pub atomic: bool,
    /// Whether an enqueue makes a queue that is not there.
    #[prost(bool, tag = "10")]
    pub auto_create: bool,
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
    // 5-12: group, priority, dedup id, ttl, expires_at, retry, dead_letter.
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
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Ack {
    // 1: output, read where a queue retains outcomes.
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

/// Leases messages of a queue.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Receive {
    /// The queues, in order of preference; one for now.
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
    // 6: auto_ack.
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
    // 9-20: max_wait, expected_rate, groups, sheds, ttl, retain_done, owner, runbook_url, age_slo.
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
