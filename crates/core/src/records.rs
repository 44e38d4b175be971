//! What stands under the keys, encoded by prost. Field numbers are for ever.

use bytes::Bytes;
use prost::Message;

use crate::command::{Pause, QueueRef, QueueSettings, RetryPolicy};
use crate::reply::{Fault, PlaceRecord, Reply};

/// Reads a record; `Fault` where the bytes are none.
pub(crate) fn decode<R: Message + Default>(what: &'static str, key: &[u8], bytes: Bytes) -> Result<R, Fault> {
    R::decode(bytes).map_err(|e| broken(what, key, e.to_string()))
}

/// A fault about the record under `key`.
pub(crate) fn broken(expected: &'static str, key: &[u8], found: impl Into<String>) -> Fault {
    let key = key.iter().map(|b| format!("{b:02x}")).collect();
    Fault::Broken { expected, key, found: found.into() }
}

/// The state's own figures: clocks, counters, positions. Written by every entry.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Header {
    /// The format of the whole state, [`STATE_FORMAT`].
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// Cluster time, in milliseconds since the Unix epoch.
    #[prost(uint64, tag = "2")]
    pub cluster_ms: u64,
    /// The lease clock, in milliseconds.
    #[prost(uint64, tag = "3")]
    pub lease_ms: u64,
    /// The term of the last entry.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// The index of the last entry.
    #[prost(uint64, tag = "5")]
    pub index: u64,
    /// The rolling hash of all writes so far.
    #[prost(fixed64, tag = "6")]
    pub digest: u64,
    /// Queues made ever: the last id given.
    #[prost(uint64, tag = "7")]
    pub last_queue: u64,
    /// Queues now.
    #[prost(uint64, tag = "8")]
    pub queues: u64,
    /// Large bodies stored ever: the last id given.
    #[prost(uint64, tag = "9")]
    pub last_body: u64,
    /// Sessions now.
    #[prost(uint64, tag = "10")]
    pub sessions: u64,
    /// The last timer key fired.
    #[prost(bytes = "bytes", tag = "11")]
    pub timers_done: Bytes,
    /// The last session timer key fired.
    #[prost(bytes = "bytes", tag = "12")]
    pub session_timers_done: Bytes,
    /// How many outcomes of requests without a session stand in which bucket, oldest first.
    #[prost(message, repeated, tag = "14")]
    pub token_buckets: Vec<TokenBucket>,
    /// Namespaces with defaults of their own.
    #[prost(uint64, tag = "15")]
    pub namespaces: u64,
    /// Lines that ever went to the dead letters: the last number given.
    #[prost(uint64, tag = "16")]
    pub last_drain: u64,
    /// All of them below this number are gone.
    #[prost(uint64, tag = "17")]
    pub drains_from: u64,
}

/// A line that goes to the dead letters.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DrainRecord {
    /// The queue's id.
    #[prost(uint64, tag = "1")]
    pub queue: u64,
    /// The group.
    #[prost(string, tag = "2")]
    pub group: String,
}

/// Outcomes of requests without a session, of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct TokenBucket {
    /// The bucket: the lease clock by [`crate::limits::TOKEN_BUCKET_MS`].
    #[prost(uint64, tag = "1")]
    pub bucket: u64,
    /// How many.
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

/// A namespace's defaults.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct NamespaceRecord {
    /// What differs from the built-in defaults.
    #[prost(message, required, tag = "1")]
    pub defaults: QueueSettings,
    /// Whether enqueues make queues.
    #[prost(bool, tag = "2")]
    pub auto_create: bool,
}

/// The format of the applied state written here.
pub(crate) const STATE_FORMAT: u32 = 2;

/// A queue's name and settings.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConfigRecord {
    /// Its name.
    #[prost(message, required, tag = "1")]
    pub name: QueueRef,
    /// When it was made, on cluster time.
    #[prost(uint64, tag = "2")]
    pub created_at_ms: u64,
    /// All settings, none absent.
    #[prost(message, required, tag = "3")]
    pub settings: QueueSettings,
    /// The pause, where delivery is stopped.
    #[prost(message, optional, tag = "4")]
    pub pause: Option<Pause>,
    /// Whether enqueues are refused.
    #[prost(bool, tag = "5")]
    pub closed: bool,
}

/// A queue's heads and counters. Written once by every entry that touches the queue.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct QueueRecord {
    /// The last sequence given.
    #[prost(uint64, tag = "1")]
    pub last_sequence: u64,
    // 2, 3, 5, 6: heads and counts of lanes in state format 1.
    /// The last return number given.
    #[prost(uint64, tag = "4")]
    pub last_return: u64,
    /// Messages below this sequence that are not leased are purged.
    #[prost(uint64, tag = "7")]
    pub purged_below: u64,
    /// Ready now.
    #[prost(uint64, tag = "10")]
    pub ready: u64,
    /// Delayed now.
    #[prost(uint64, tag = "11")]
    pub delayed: u64,
    /// Blocked now.
    #[prost(uint64, tag = "12")]
    pub blocked: u64,
    /// Leased now.
    #[prost(uint64, tag = "13")]
    pub leased: u64,
    /// Bytes of all messages here.
    #[prost(uint64, tag = "14")]
    pub bytes: u64,
    /// Bytes of the leased ones.
    #[prost(uint64, tag = "15")]
    pub leased_bytes: u64,
    /// Enqueued ever.
    #[prost(uint64, tag = "20")]
    pub enqueued: u64,
    /// Moved in ever.
    #[prost(uint64, tag = "21")]
    pub moved_in: u64,
    /// Acked ever.
    #[prost(uint64, tag = "22")]
    pub acked: u64,
    /// Moved out ever.
    #[prost(uint64, tag = "23")]
    pub moved_out: u64,
    /// Expired and dropped ever.
    #[prost(uint64, tag = "24")]
    pub expired_dropped: u64,
    /// Cancelled ever.
    #[prost(uint64, tag = "25")]
    pub cancelled: u64,
    /// Purged ever.
    #[prost(uint64, tag = "26")]
    pub purged: u64,
    /// Dropped at the end of their attempts ever.
    #[prost(uint64, tag = "27")]
    pub dropped: u64,
    /// Leases granted ever.
    #[prost(uint64, tag = "30")]
    pub received: u64,
    /// Leases granted ever on messages leased before.
    #[prost(uint64, tag = "31")]
    pub redelivered: u64,
    /// Failures counted ever.
    #[prost(uint64, tag = "32")]
    pub failed: u64,
    /// Leases that ran out ever.
    #[prost(uint64, tag = "33")]
    pub lease_expired: u64,
    /// Messages moved in over a bound.
    #[prost(uint64, tag = "34")]
    pub over_bound: u64,
    /// Enqueues ever whose dedup id was remembered.
    #[prost(uint64, tag = "35")]
    pub duplicates: u64,
    /// Outcomes ever that were not kept.
    #[prost(uint64, tag = "36")]
    pub outcomes_dropped: u64,
    /// The lanes of each priority that was ever used, the highest first.
    #[prost(message, repeated, tag = "40")]
    pub lanes: Vec<LaneRecord>,
    /// The last line number given.
    #[prost(uint64, tag = "41")]
    pub last_line: u64,
    /// Line numbers below this are purged, unless their message is leased.
    #[prost(uint64, tag = "42")]
    pub lines_from: u64,
    /// The last parking number given.
    #[prost(uint64, tag = "43")]
    pub last_park: u64,
    /// Parking numbers below this are purged.
    #[prost(uint64, tag = "44")]
    pub parks_from: u64,
    /// Groups that wait for a dead letter to be gone.
    #[prost(uint64, tag = "45")]
    pub groups_blocked: u64,
    /// Dedup ids remembered.
    #[prost(uint64, tag = "46")]
    pub dedup_ids: u64,
    /// Outcomes kept.
    #[prost(uint64, tag = "47")]
    pub retained: u64,
    /// How fast its workers are.
    #[prost(message, optional, tag = "48")]
    pub rate: Option<RateRecord>,
}

/// The two lanes of one priority.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LaneRecord {
    /// The priority.
    #[prost(uint32, tag = "1")]
    pub priority: u32,
    /// The fresh lane starts here: all before it has been leased or purged, or is gone.
    #[prost(uint64, tag = "2")]
    pub fresh_head: u64,
    /// Messages in the fresh lane now.
    #[prost(uint64, tag = "3")]
    pub fresh: u64,
    /// The returned lane starts here.
    #[prost(uint64, tag = "4")]
    pub returned_head: u64,
    /// Messages in the returned lane now.
    #[prost(uint64, tag = "5")]
    pub returned: u64,
    /// Deliveries made while both lanes held something; every fourth is from the fresh lane.
    #[prost(uint64, tag = "6")]
    pub turn: u64,
    /// Whether something behind the fresh lane's head was taken out since the lane was last empty: then dead keys may lie
    /// between those that are there.
    #[prost(bool, tag = "7")]
    pub fresh_holed: bool,
    /// The same of the returned lane.
    #[prost(bool, tag = "8")]
    pub returned_holed: bool,
}

/// How fast a queue's workers are: what was finished in how much busy time.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RateRecord {
    /// Up to when busy time is reckoned, on cluster time.
    #[prost(uint64, tag = "1")]
    pub until_ms: u64,
    /// The last six buckets of 10 s, oldest first; none that is empty.
    #[prost(message, repeated, tag = "2")]
    pub buckets: Vec<RateBucket>,
    /// The rate last measured, as finished by busy; 0 by 0: never.
    #[prost(uint64, tag = "3")]
    pub finished: u64,
    /// In milliseconds.
    #[prost(uint64, tag = "4")]
    pub busy_ms: u64,
}

/// Ten seconds of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct RateBucket {
    /// Cluster time by [`crate::limits::RATE_BUCKET_MS`].
    #[prost(uint64, tag = "1")]
    pub bucket: u64,
    /// Messages finished.
    #[prost(uint64, tag = "2")]
    pub finished: u64,
    /// Busy time, in milliseconds.
    #[prost(uint64, tag = "3")]
    pub busy_ms: u64,
}

/// A message, as it is stored.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MessageRecord {
    /// When it came to this queue, on cluster time.
    #[prost(uint64, tag = "1")]
    pub enqueued_at_ms: u64,
    /// What it counts in byte bounds.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// Where its body stands, if not in the content; 0: in the content.
    #[prost(uint64, tag = "3")]
    pub body: u64,
    /// Where it was born, if it has moved.
    #[prost(message, optional, tag = "4")]
    pub origin: Option<PlaceRecord>,
    /// Why it is a dead letter, if it is one.
    #[prost(message, optional, tag = "5")]
    pub dead_letter: Option<DeadLetterRecord>,
    /// Its group; empty: none.
    #[prost(string, tag = "6")]
    pub group: String,
    /// Its number in the line of its group, where it joined as it came; 0: see its state.
    #[prost(uint64, tag = "7")]
    pub line: u64,
    /// Its dedup id, in the queue where it was enqueued; empty: none.
    #[prost(string, tag = "8")]
    pub dedup_id: String,
    /// When it expires, on cluster time; 0: never.
    #[prost(uint64, tag = "9")]
    pub expires_at_ms: u64,
    /// Its own retry policy.
    #[prost(message, optional, tag = "10")]
    pub retry: Option<RetryPolicy>,
    /// Its own dead-letter queue; empty: the queue's.
    #[prost(string, tag = "11")]
    pub dead_letter_queue: String,
    /// An encoded [`Content`](crate::command::Content), decoded only where somebody looks at it.
    #[prost(bytes = "bytes", tag = "15")]
    pub content: Bytes,
}

/// Where a dead letter comes from, and why.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DeadLetterRecord {
    /// The queue it was in.
    #[prost(message, required, tag = "1")]
    pub source: QueueRef,
    /// 1: attempts used up, 2: refused for good, 3: expired, 4: of a group whose head was dead-lettered.
    #[prost(uint32, tag = "2")]
    pub reason: u32,
    /// When it was moved, on cluster time.
    #[prost(uint64, tag = "3")]
    pub at_ms: u64,
    /// Leases granted in the source.
    #[prost(uint32, tag = "4")]
    pub receive_count: u32,
    /// Failures counted in the source.
    #[prost(uint32, tag = "5")]
    pub failures: u32,
    // 6: redrive count.
    /// The id of the queue whose group waits until this message is gone; 0: none does.
    #[prost(uint64, tag = "7")]
    pub blocks: u64,
}

/// A line: the messages of a group in the order in which they were ready first.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct GroupRecord {
    /// The first of the line, which alone can be received; none: the line waits.
    #[prost(message, optional, tag = "1")]
    pub head: Option<PlaceRecord>,
    /// The head's number, or that of the last one.
    #[prost(uint64, tag = "2")]
    pub line: u64,
    /// Whether the line waits until a dead letter is gone.
    #[prost(bool, tag = "3")]
    pub blocked: bool,
    /// All up to this number follow the head to the dead-letter queue; 0: none does.
    #[prost(uint64, tag = "4")]
    pub drains_to: u64,
    /// The last number of those that was looked at.
    #[prost(uint64, tag = "5")]
    pub drained: u64,
}

/// A head that waits for its time, and its group with it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ParkRecord {
    /// Since when, on cluster time.
    #[prost(uint64, tag = "1")]
    pub since_ms: u64,
}

/// A dedup id that its queue remembers.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct DedupRecord {
    /// The message's place of birth.
    #[prost(message, required, tag = "1")]
    pub place: PlaceRecord,
    /// Whether the message has finished here.
    #[prost(bool, tag = "2")]
    pub finished: bool,
    /// Whether the window is over.
    #[prost(bool, tag = "3")]
    pub over: bool,
    /// When the window is over, on cluster time.
    #[prost(uint64, tag = "4")]
    pub until_ms: u64,
}

/// What came of a message.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct DoneRecord {
    /// Its place of birth.
    #[prost(message, required, tag = "1")]
    pub id: PlaceRecord,
    /// When it was acked, on cluster time.
    #[prost(uint64, tag = "2")]
    pub finished_at_ms: u64,
    /// Until when this is kept, on cluster time.
    #[prost(uint64, tag = "3")]
    pub until_ms: u64,
    /// What the worker gave back.
    #[prost(bytes = "bytes", tag = "4")]
    pub output: Bytes,
    /// Leases ever granted on it.
    #[prost(uint32, tag = "5")]
    pub receive_count: u32,
    /// Who acked it.
    #[prost(string, tag = "6")]
    pub worker: String,
    /// The queue it was acked in.
    #[prost(message, required, tag = "7")]
    pub queue: QueueRef,
    /// That queue's id: what came of a message goes with it.
    #[prost(uint64, tag = "8")]
    pub queue_id: u64,
}

/// A place in the returned lane.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ReturnRecord {
    /// Space and priority of the message's place.
    #[prost(uint32, tag = "1")]
    pub lane: u32,
    /// Its sequence.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// Since when it is ready, on cluster time.
    #[prost(uint64, tag = "3")]
    pub since_ms: u64,
}

/// A lease, with all that an ack needs.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseRecord {
    /// Space and priority of the message's place.
    #[prost(uint32, tag = "1")]
    pub lane: u32,
    /// The log index of the grant.
    #[prost(uint64, tag = "2")]
    pub granted_index: u64,
    /// Leases ever granted, this one included.
    #[prost(uint32, tag = "3")]
    pub receive_count: u32,
    /// When it ends, on the lease clock.
    #[prost(uint64, tag = "4")]
    pub deadline_ms: u64,
    /// When it began, on the lease clock.
    #[prost(uint64, tag = "5")]
    pub granted_lease_ms: u64,
    /// When it began, on cluster time.
    #[prost(uint64, tag = "6")]
    pub granted_at_ms: u64,
    /// What the message counts in byte bounds.
    #[prost(uint64, tag = "7")]
    pub size: u64,
    /// Where its large body stands; 0: it has none.
    #[prost(uint64, tag = "8")]
    pub body: u64,
    /// Whether the message has a state record.
    #[prost(bool, tag = "9")]
    pub has_state: bool,
    /// Whether the message was born elsewhere.
    #[prost(bool, tag = "10")]
    pub moved: bool,
    /// Failures recorded ever of it.
    #[prost(uint64, tag = "11")]
    pub history: u64,
    /// Who holds it.
    #[prost(string, tag = "12")]
    pub worker: String,
    /// Whether the message has a group, a dedup id, an end or a policy of its own, or blocks a group: its record says
    /// more than the lease copies.
    #[prost(bool, tag = "13")]
    pub keyed: bool,
}

/// What changes of a message. A plain one has none.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StateRecord {
    /// Leases ever granted.
    #[prost(uint32, tag = "1")]
    pub receive_count: u32,
    /// Failures counted in the window.
    #[prost(uint32, tag = "2")]
    pub failures: u32,
    /// When the window opened, on cluster time.
    #[prost(uint64, tag = "3")]
    pub window_ms: u64,
    /// Leases that ran out one after the other, up to now.
    #[prost(uint32, tag = "4")]
    pub expiries: u32,
    /// When it is ready, on cluster time, where it is delayed.
    #[prost(uint64, optional, tag = "5")]
    pub due_ms: Option<u64>,
    /// Its number in the returned lane, where it is there.
    #[prost(uint64, optional, tag = "6")]
    pub return_number: Option<u64>,
    /// Failures recorded ever.
    #[prost(uint64, tag = "7")]
    pub history: u64,
    /// Space and priority of the message's place.
    #[prost(uint32, tag = "8")]
    pub lane: u32,
    /// Its number in the line of its group, where it joined after it came.
    #[prost(uint64, tag = "9")]
    pub line: u64,
    /// Whether it waits behind an earlier one of its group.
    #[prost(bool, tag = "10")]
    pub blocked: bool,
    /// When it is ready at the earliest, on cluster time, where it was rescheduled while it was blocked.
    #[prost(uint64, tag = "11")]
    pub not_before_ms: u64,
    /// Its parking number, where it is the head of its group and delayed.
    #[prost(uint64, tag = "12")]
    pub park: u64,
    /// Whether it has a group.
    #[prost(bool, tag = "13")]
    pub grouped: bool,
}

/// One failure.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct FailureRecord {
    /// Who had it.
    #[prost(string, tag = "1")]
    pub worker: String,
    /// When the lease began, on cluster time.
    #[prost(uint64, tag = "2")]
    pub started_at_ms: u64,
    /// When it failed, on cluster time.
    #[prost(uint64, tag = "3")]
    pub failed_at_ms: u64,
    /// 1: transient, 2: permanent, 3: the lease ran out.
    #[prost(uint32, tag = "4")]
    pub class: u32,
    /// The worker's code.
    #[prost(string, tag = "5")]
    pub code: String,
    /// The worker's text.
    #[prost(string, tag = "6")]
    pub text: String,
}

/// A session. Written once by every entry that touches it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SessionRecord {
    /// When it was last used, on the lease clock.
    #[prost(uint64, tag = "1")]
    pub active_ms: u64,
    /// Outcomes below this number are forgotten.
    #[prost(uint64, tag = "2")]
    pub acked_below: u64,
    /// Outcomes stored.
    #[prost(uint64, tag = "3")]
    pub stored: u64,
    /// Where they stand, oldest first.
    #[prost(message, repeated, tag = "4")]
    pub rows: Vec<OutcomesRow>,
}

/// Which outcomes one record holds.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct OutcomesRow {
    /// The entry's index.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// The lowest request number in it.
    #[prost(uint64, tag = "2")]
    pub lowest: u64,
    /// The highest.
    #[prost(uint64, tag = "3")]
    pub highest: u64,
    /// How many.
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

/// A session's outcomes of one entry.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OutcomesRecord {
    /// The outcomes, in order of application.
    #[prost(message, repeated, tag = "1")]
    pub outcomes: Vec<OutcomeRecord>,
}

/// One outcome.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OutcomeRecord {
    /// The request's number.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// A hash of its command.
    #[prost(fixed64, tag = "2")]
    pub fingerprint: u64,
    /// The answer that was given.
    #[prost(message, required, tag = "3")]
    pub reply: Reply,
}

/// Keys of a queue that are dead and wait to be deleted.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SweepRecord {
    /// Whether the queue itself is gone.
    #[prost(bool, tag = "1")]
    pub deleted: bool,
    /// Messages below this sequence.
    #[prost(uint64, tag = "2")]
    pub below: u64,
    /// Returned-lane keys below this number.
    #[prost(uint64, tag = "3")]
    pub returns_below: u64,
    /// The last key looked at in this space; empty: none yet.
    #[prost(bytes = "bytes", tag = "4")]
    pub cursor: Bytes,
    /// Messages from this sequence on.
    #[prost(uint64, tag = "5")]
    pub from: u64,
    /// Parking numbers below this.
    #[prost(uint64, tag = "6")]
    pub parks_below: u64,
    /// Which space of keys is next: 0 to 9 the fresh lanes from priority 9 down, 10 those held.
    #[prost(uint32, tag = "7")]
    pub space: u32,
}
