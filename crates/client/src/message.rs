//! Messages: to send, received, looked at.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ticketrail_proto::v1;

use crate::{Error, wire};

/// A message to send: a body and what goes with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewMessage {
    wire: v1::NewMessage,
}

impl NewMessage {
    /// A message of `body`, 0 bytes to 1 MiB.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { wire: v1::NewMessage { body: body.into(), ..Default::default() } }
    }

    /// A message with `body` as JSON, and the content type `application/json`.
    ///
    /// # Errors
    /// [`Error::Config`] where `body` cannot be written as JSON.
    pub fn json<T: serde::Serialize>(body: &T) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::Config {
            expected: "a body that can be written as JSON",
            got: error.to_string(),
        })?;
        Ok(Self::new(body).content_type("application/json"))
    }

    /// The body's media type, such as `application/json`; at most 256 bytes.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.wire.content_type = content_type.into();
        self
    }

    /// The message's type in your words, such as `order.placed`; at most 256 bytes.
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.wire.r#type = message_type.into();
        self
    }

    /// A tag to find it by: at most 64, each side at most 256 bytes.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.wire.tags.insert(key.into(), value.into());
        self
    }

    /// A header, passed through, such as `traceparent`; all together at most 16 KiB.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.wire.headers.insert(name.into(), value.into());
        self
    }

    /// Ties a reply to its request; at most 256 bytes.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.wire.correlation_id = id.into();
        self
    }

    /// The queue where replies go; at most 256 bytes.
    pub fn reply_to(mut self, queue: impl Into<String>) -> Self {
        self.wire.reply_to = queue.into();
        self
    }

    /// Ready so long after it is enqueued, at most 366 days. Takes the place of `deliver_at`.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.wire.available = Some(v1::new_message::Available::Delay(wire::to_duration(delay)));
        self
    }

    /// Ready at this time, at most 366 days ahead; a past time is now. Takes the place of `delay`.
    pub fn deliver_at(mut self, at: SystemTime) -> Self {
        self.wire.available = Some(v1::new_message::Available::DeliverAt(at.into()));
        self
    }

    /// Its group, at most 256 bytes: of the unfinished messages of one group only the first is received.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.wire.group = group.into();
        self
    }

    /// 0 to 9, 9 first. Default 4. Within a group the order of the group counts.
    pub fn priority(mut self, priority: u8) -> Self {
        self.wire.priority = Some(priority.into());
        self
    }

    /// Your own key of what this is about, at most 256 bytes: while the queue remembers it, another message with it adds
    /// nothing, and its sender gets the first one's id with [`Sent::duplicate`](crate::Sent::duplicate).
    pub fn dedup(mut self, dedup_id: impl Into<String>) -> Self {
        self.wire.dedup_id = dedup_id.into();
        self
    }

    /// It expires so long after it is first ready, 1 ms to 366 days. With `expires_at` too, the earlier counts. Default: the
    /// queue's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.wire.ttl = Some(wire::to_duration(ttl));
        self
    }

    /// It expires at this time, which lies after the one when it is first ready.
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.wire.expires_at = Some(at.into());
        self
    }

    /// Failures until it is dead-lettered, 1 to 100; 0: without limit. Default: the queue's.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.wire.retry.get_or_insert_default().max_attempts = Some(attempts);
        self
    }

    /// Its backoff in place of the queue's: the n-th failure waits between 0 and min(cap, base * 2^n), 1 ms to 1 day.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        let retry = self.wire.retry.get_or_insert_default();
        retry.backoff_base = Some(wire::to_duration(base));
        retry.backoff_cap = Some(wire::to_duration(cap));
        self
    }

    /// Its dead-letter queue, in the same namespace. Default: the queue's.
    pub fn dead_letter_queue(mut self, queue: impl Into<String>) -> Self {
        self.wire.dead_letter_queue = queue.into();
        self
    }

    pub(crate) fn into_wire(self) -> v1::NewMessage {
        self.wire
    }
}

impl From<Bytes> for NewMessage {
    fn from(body: Bytes) -> Self {
        Self::new(body)
    }
}

impl From<Vec<u8>> for NewMessage {
    fn from(body: Vec<u8>) -> Self {
        Self::new(body)
    }
}

impl From<String> for NewMessage {
    fn from(body: String) -> Self {
        Self::new(body)
    }
}

impl From<&str> for NewMessage {
    fn from(body: &str) -> Self {
        Self::new(Bytes::copy_from_slice(body.as_bytes()))
    }
}

/// A message on a queue: what its producer said, and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its id for ever, also after it has moved: such as `1.17.m4.1043`.
    pub id: String,
    /// The namespace where it is now.
    pub namespace: String,
    /// The queue where it is now, or where it was received from.
    pub queue: String,
    /// When it came to that queue.
    pub enqueued_at: SystemTime,
    /// The body.
    pub body: Bytes,
    /// The body's media type.
    pub content_type: String,
    /// Its type, in the producer's words.
    pub message_type: String,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Headers.
    pub headers: BTreeMap<String, String>,
    /// Ties a reply to its request.
    pub correlation_id: String,
    /// The queue where replies go.
    pub reply_to: String,
    /// Why it is a dead letter; `None` where it is none.
    pub dead_letter: Option<DeadLetter>,
    /// Its group; empty: none.
    pub group: String,
    /// Its priority, 0 to 9, 9 first.
    pub priority: u32,
}

impl Message {
    pub(crate) fn from_wire(message: Option<v1::Message>) -> Self {
        let message = message.unwrap_or_default();
        Self {
            id: message.id,
            namespace: message.namespace,
            queue: message.queue,
            enqueued_at: wire::some_time(message.enqueued_at),
            body: message.body,
            content_type: message.content_type,
            message_type: message.r#type,
            tags: message.tags,
            headers: message.headers,
            correlation_id: message.correlation_id,
            reply_to: message.reply_to,
            dead_letter: message.dead_letter.map(DeadLetter::from_wire),
            group: message.group,
            priority: message.priority,
        }
    }
}

/// Where a dead letter comes from, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The namespace of the queue it was in.
    pub source_namespace: String,
    /// The queue it was in.
    pub source_queue: String,
    /// Why it was moved.
    pub reason: DeadReason,
    /// When it was moved.
    pub at: SystemTime,
    /// Leases granted there.
    pub receive_count: u32,
    /// Failures counted there.
    pub failures: u32,
}

impl DeadLetter {
    fn from_wire(dead: v1::DeadLetter) -> Self {
        let reason = match dead.reason() {
            v1::DeadReason::Unspecified => DeadReason::Other,
            v1::DeadReason::Attempts => DeadReason::Attempts,
            v1::DeadReason::Rejected => DeadReason::Rejected,
            v1::DeadReason::Expired => DeadReason::Expired,
            v1::DeadReason::Group => DeadReason::Group,
        };
        Self {
            source_namespace: dead.source_namespace,
            source_queue: dead.source_queue,
            reason,
            at: wire::some_time(dead.dead_at),
            receive_count: dead.receive_count,
            failures: dead.failures,
        }
    }
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
    /// A reason of a newer server.
    Other,
}

impl DeadReason {
    /// The reason's name.
    pub fn as_str(self) -> &'static str {
        match self {
            DeadReason::Attempts => "attempts",
            DeadReason::Rejected => "rejected",
            DeadReason::Expired => "expired",
            DeadReason::Group => "group",
            DeadReason::Other => "other",
        }
    }
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

impl MessageState {
    /// All states.
    pub const ALL: [MessageState; 4] =
        [MessageState::Ready, MessageState::Delayed, MessageState::Blocked, MessageState::Leased];

    /// The state's name.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageState::Delayed => "delayed",
            MessageState::Ready => "ready",
            MessageState::Blocked => "blocked",
            MessageState::Leased => "leased",
        }
    }

    pub(crate) fn to_wire(self) -> v1::MessageState {
        match self {
            MessageState::Delayed => v1::MessageState::Delayed,
            MessageState::Ready => v1::MessageState::Ready,
            MessageState::Blocked => v1::MessageState::Blocked,
            MessageState::Leased => v1::MessageState::Leased,
        }
    }

    fn from_wire(state: v1::MessageState) -> Option<Self> {
        match state {
            v1::MessageState::Unspecified => None,
            v1::MessageState::Delayed => Some(MessageState::Delayed),
            v1::MessageState::Ready => Some(MessageState::Ready),
            v1::MessageState::Blocked => Some(MessageState::Blocked),
            v1::MessageState::Leased => Some(MessageState::Leased),
        }
    }
}

/// All there is to know of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageInfo {
    /// The message; its body is empty where bodies were left out.
    pub message: Message,
    /// What it is doing; `None`: a state of a newer server.
    pub state: Option<MessageState>,
    /// Its sequence within the queue where it is now, from 1.
    pub sequence: u64,
    /// What it counts in byte bounds, in bytes.
    pub size_bytes: u64,
    /// Leases ever granted.
    pub receive_count: u32,
    /// Failures counted so far in the current window.
    pub failures: u32,
    /// When it becomes ready; only where it is delayed.
    pub due_at: Option<SystemTime>,
    /// Its lease; only where it is leased.
    pub lease: Option<LeaseRecord>,
    /// Its failures, oldest first, the last 16.
    pub history: Vec<FailureRecord>,
    /// Its number in the line of its group; `None`: it has not joined yet, or has no group.
    pub line: Option<u64>,
    /// Its dedup id; empty: none.
    pub dedup_id: String,
    /// When it expires; `None`: never.
    pub expires_at: Option<SystemTime>,
    /// Its own retry policy; `None`: its queue's.
    pub retry: Option<MessageRetry>,
    /// Its own dead-letter queue; empty: its queue's.
    pub dead_letter_queue: String,
}

impl MessageInfo {
    pub(crate) fn from_wire(info: v1::MessageInfo) -> Self {
        let state = MessageState::from_wire(info.state());
        Self {
            message: Message::from_wire(info.message),
            state,
            sequence: info.sequence,
            size_bytes: info.size_bytes,
            receive_count: info.receive_count,
            failures: info.failures,
            due_at: wire::maybe_time(info.due_at),
            lease: info.lease.map(LeaseRecord::from_wire),
            history: info.history.into_iter().map(FailureRecord::from_wire).collect(),
            line: (info.line != 0).then_some(info.line),
            dedup_id: info.dedup_id,
            expires_at: wire::maybe_time(info.expires_at),
            retry: info.retry.map(MessageRetry::from_wire),
            dead_letter_queue: info.dead_letter_queue,
        }
    }
}

/// How one message is tried again, in place of what its queue says. `None`: as its queue says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageRetry {
    /// Failures until it is dead-lettered, 1 to 100; 0: without limit.
    pub max_attempts: Option<u32>,
    /// The backoff's base, 1 ms to 1 day.
    pub backoff_base: Option<Duration>,
    /// The backoff's cap, from the base to 1 day.
    pub backoff_cap: Option<Duration>,
}

impl MessageRetry {
    fn from_wire(retry: v1::RetryPolicy) -> Self {
        Self {
            max_attempts: retry.max_attempts,
            backoff_base: retry.backoff_base.and_then(wire::duration),
            backoff_cap: retry.backoff_cap.and_then(wire::duration),
        }
    }
}

/// What came of a message that was acked, where its queue retains outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The message's id.
    pub message_id: String,
    /// The namespace of the queue it was acked in.
    pub namespace: String,
    /// The queue it was acked in.
    pub queue: String,
    /// When it was acked.
    pub finished_at: SystemTime,
    /// Until when this can be read.
    pub kept_until: SystemTime,
    /// What the worker gave back with its ack.
    pub output: Bytes,
    /// Leases ever granted on it.
    pub receive_count: u32,
    /// Who acked it, as the receiver named itself.
    pub worker: String,
}

impl Outcome {
    fn from_wire(outcome: v1::Outcome) -> Self {
        Self {
            message_id: outcome.message_id,
            namespace: outcome.namespace,
            queue: outcome.queue,
            finished_at: wire::some_time(outcome.finished_at),
            kept_until: wire::some_time(outcome.kept_until),
            output: outcome.output,
            receive_count: outcome.receive_count,
            worker: outcome.worker,
        }
    }
}

/// What is known of a message: that it is there, or what came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It is on a queue.
    Message(Box<MessageInfo>),
    /// It has been acked.
    Done(Outcome),
}

impl Found {
    /// The message, where it is on a queue.
    pub fn message(&self) -> Option<&MessageInfo> {
        match self {
            Found::Message(info) => Some(info),
            Found::Done(_) => None,
        }
    }

    /// What came of it, where it has been acked.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Found::Message(_) => None,
            Found::Done(outcome) => Some(outcome),
        }
    }

    pub(crate) fn from_wire(response: v1::GetResponse) -> Option<Self> {
        match (response.message, response.outcome) {
            (Some(info), _) => Some(Found::Message(Box::new(MessageInfo::from_wire(info)))),
            (None, Some(outcome)) => Some(Found::Done(Outcome::from_wire(outcome))),
            (None, None) => None,
        }
    }
}

/// A live lease, without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who holds it, as the receiver named itself.
    pub worker: String,
    /// When it was granted.
    pub granted_at: SystemTime,
    /// What was left of it.
    pub remaining: Duration,
}

impl LeaseRecord {
    fn from_wire(lease: v1::Lease) -> Self {
        Self {
            worker: lease.worker,
            granted_at: wire::some_time(lease.granted_at),
            remaining: lease.remaining.and_then(wire::duration).unwrap_or_default(),
        }
    }
}

/// One failure of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// Who had it.
    pub worker: String,
    /// When the lease began.
    pub started_at: SystemTime,
    /// When it failed.
    pub failed_at: SystemTime,
    /// How it failed.
    pub class: FailureClass,
    /// The worker's code.
    pub code: String,
    /// The worker's text.
    pub text: String,
}

impl FailureRecord {
    fn from_wire(failure: v1::Failure) -> Self {
        let class = match failure.class() {
            v1::FailureClass::Unspecified => FailureClass::Other,
            v1::FailureClass::Transient => FailureClass::Transient,
            v1::FailureClass::Permanent => FailureClass::Permanent,
            v1::FailureClass::LeaseExpired => FailureClass::LeaseExpired,
        };
        Self {
            worker: failure.worker,
            started_at: wire::some_time(failure.started_at),
            failed_at: wire::some_time(failure.failed_at),
            class,
            code: failure.code,
            text: failure.text,
        }
    }
}

/// How a delivery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// The worker said so, and that another attempt is worth it.
    Transient,
    /// The worker said so, for good.
    Permanent,
    /// The lease ran out.
    LeaseExpired,
    /// A class of a newer server.
    Other,
}

impl FailureClass {
    /// The class's name.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Permanent => "permanent",
            FailureClass::LeaseExpired => "lease_expired",
            FailureClass::Other => "other",
        }
    }
}
