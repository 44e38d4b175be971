//! The key of every record. One byte says the space; integers are big-endian, so that keys sort as numbers do.
//!
//! | key | value |
//! |---|---|
//! | `g` | [`Header`](crate::records::Header) |
//! | `k` | the cluster's secret |
//! | `n` namespace length, namespace, name | queue id |
//! | `c` queue | [`ConfigRecord`](crate::records::ConfigRecord) |
//! | `q` queue | [`QueueRecord`](crate::records::QueueRecord) |
//! | `m` queue, 9 - priority, sequence | [`MessageRecord`](crate::records::MessageRecord): its place in the fresh lane |
//! | `h` queue, sequence | `MessageRecord` of a message delayed at its enqueue |
//! | `r` queue, 9 - priority, return number | [`ReturnRecord`](crate::records::ReturnRecord): a place in the returned lane |
//! | `l` queue, sequence | [`LeaseRecord`](crate::records::LeaseRecord) |
//! | `s` queue, sequence | [`StateRecord`](crate::records::StateRecord): what changes later; a plain message has none |
//! | `f` queue, sequence, number | [`FailureRecord`](crate::records::FailureRecord) |
//! | `i` queue, sequence (of birth) | place of a message that has moved |
//! | `b` body id | a body over 4 KiB |
//! | `t` due, kind, queue, lane, sequence | a timer on cluster time |
//! | `y` due, session | a timer on the lease clock |
//! | `e` session | [`SessionRecord`](crate::records::SessionRecord) |
//! | `o` session, log index | [`OutcomesRecord`](crate::records::OutcomesRecord) |
//! | `w` queue | [`SweepRecord`](crate::records::SweepRecord): keys left to delete |
//! | `x` queue, group length (2 bytes), group | [`GroupRecord`](crate::records::GroupRecord): a line that is not empty |
//! | `j` queue, group length, group, line number | place of a message that waits in the line |
//! | `z` queue, parking number | [`ParkRecord`](crate::records::ParkRecord): a head that waits for its time |
//! | `a` number | [`DrainRecord`](crate::records::DrainRecord): a line that goes to the dead letters, in order of beginning |
//! | `d` queue, dedup id | [`DedupRecord`](crate::records::DedupRecord) |
//! | `p` queue, sequence (of birth) | [`DoneRecord`](crate::records::DoneRecord): what came of a message |
//! | `u` bucket, 16 bytes | an outcome of a request without a session |
//! | `v` namespace | [`NamespaceRecord`](crate::records::NamespaceRecord) |

use crate::ids::{Place, QueueId, Space};

/// One key.
pub(crate) type Key = Vec<u8>;

/// Builds a key piece by piece.
struct Builder(Key);

impl Builder {
    fn new(tag: u8) -> Self {
        let mut key = Vec::with_capacity(32);
        key.push(tag);
        Self(key)
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }
}

/// Priorities sort from 9 down.
fn rank(priority: u8) -> u8 {
    9u8.saturating_sub(priority)
}

/// The header.
pub(crate) fn header() -> Key {
    Builder::new(b'g').0
}

/// The cluster's secret.
pub(crate) fn secret() -> Key {
    Builder::new(b'k').0
}

/// A queue's name.
pub(crate) fn name(namespace: &str, name: &str) -> Key {
    Builder::new(b'n').byte(u8::try_from(namespace.len()).unwrap_or(u8::MAX)).text(namespace).text(name).0
}

/// A queue's settings.
pub(crate) fn config(queue: QueueId) -> Key {
    Builder::new(b'c').number(queue.0).0
}

/// A queue's heads and counters.
pub(crate) fn queue(queue: QueueId) -> Key {
    Builder::new(b'q').number(queue.0).0
}

/// A place in the fresh lane.
pub(crate) fn fresh(queue: QueueId, priority: u8, sequence: u64) -> Key {
    Builder::new(b'm').number(queue.0).byte(rank(priority)).number(sequence).0
}

/// A message delayed at its enqueue.
pub(crate) fn held(queue: QueueId, sequence: u64) -> Key {
    Builder::new(b'h').number(queue.0).number(sequence).0
}

/// A message's record, wherever it was born.
pub(crate) fn message(place: Place) -> Key {
    match place.space {
        Space::Fresh => fresh(place.queue, place.priority, place.sequence),
        Space::Held => held(place.queue, place.sequence),
    }
}

/// A place in the returned lane.
pub(crate) fn returned(queue: QueueId, priority: u8, number: u64) -> Key {
    Builder::new(b'r').number(queue.0).byte(rank(priority)).number(number).0
}

/// A lease.
pub(crate) fn lease(queue: QueueId, sequence: u64) -> Key {
    Builder::new(b'l').number(queue.0).number(sequence).0
}

/// What changes later of a message.
pub(crate) fn state(queue: QueueId, sequence: u64) -> Key {
    Builder::new(b's').number(queue.0).number(sequence).0
}

/// One failure of a message.
pub(crate) fn failure(queue: QueueId, sequence: u64, number: u64) -> Key {
    Builder::new(b'f').number(queue.0).number(sequence).number(number).0
}

/// Where a message that has moved is now, by its place at birth.
pub(crate) fn moved(queue: QueueId, sequence: u64) -> Key {
    Builder::new(b'i').number(queue.0).number(sequence).0
}

/// A large body.
pub(crate) fn body(id: u64) -> Key {
    Builder::new(crate::Family::BODY_TAG).number(id).0
}

fn grouped(tag: u8, queue: QueueId, group: &str) -> Builder {
    let length = u16::try_from(group.len()).unwrap_or(u16::MAX);
    let mut builder = Builder::new(tag).number(queue.0);
    builder.0.extend_from_slice(&length.to_be_bytes());
    builder.text(group)
}

/// A group's line.
pub(crate) fn group(queue: QueueId, group: &str) -> Key {
    grouped(b'x', queue, group).0
}

/// A message that waits in a line.
pub(crate) fn in_line(queue: QueueId, group: &str, line: u64) -> Key {
    grouped(b'j', queue, group).number(line).0
}

/// A line that goes to the dead letters: the nth that began.
pub(crate) fn drain(number: u64) -> Key {
    Builder::new(b'a').number(number).0
}

/// A parked head.
pub(crate) fn parked(queue: QueueId, number: u64) -> Key {
    Builder::new(b'z').number(queue.0).number(number).0
}

/// A dedup id.
pub(crate) fn dedup(queue: QueueId, id: &str) -> Key {
    Builder::new(b'd').number(queue.0).text(id).0
}

/// What came of the message that was born here.
pub(crate) fn done(queue: QueueId, sequence: u64) -> Key {
    Builder::new(b'p').number(queue.0).number(sequence).0
}

/// The outcome of a request without a session.
pub(crate) fn token(bucket: u64, high: u64, low: u64) -> Key {
    Builder::new(b'u').number(bucket).number(high).number(low).0
}

/// A namespace's defaults.
pub(crate) fn namespace(name: &str) -> Key {
    Builder::new(b'v').text(name).0
}

/// A session.
pub(crate) fn session(session: u64) -> Key {
    Builder::new(b'e').number(session).0
}

/// A session's outcomes of one entry.
pub(crate) fn outcomes(session: u64, index: u64) -> Key {
    Builder::new(b'o').number(session).number(index).0
}

/// When a session may have idled too long, on the lease clock.
pub(crate) fn session_timer(due: u64, session: u64) -> Key {
    Builder::new(b'y').number(due).number(session).0
}

/// What is left to delete of a queue.
pub(crate) fn sweep(queue: QueueId) -> Key {
    Builder::new(b'w').number(queue.0).0
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A delayed message is due.
    Message {
        /// When, on cluster time.
        due: u64,
        /// Which.
        place: Place,
    },
    /// A pause is over.
    Resume {
        /// When, on cluster time.
        due: u64,
        /// Of which queue.
        queue: QueueId,
    },
    /// A message's time to live is over.
    Expiry {
        /// When, on cluster time.
        due: u64,
        /// Which.
        place: Place,
    },
    /// The window of a dedup id is over; the timer's value is the id.
    Dedup {
        /// When, on cluster time.
        due: u64,
        /// The place of birth of its message.
        place: Place,
    },
    /// An outcome need not be kept any longer.
    Done {
        /// When, on cluster time.
        due: u64,
        /// The place in which its message was acked.
        place: Place,
    },
}

const TIMER_MESSAGE: u8 = 1;
const TIMER_RESUME: u8 = 2;
const TIMER_EXPIRY: u8 = 3;
const TIMER_DEDUP: u8 = 4;
const TIMER_DONE: u8 = 5;

impl Timer {
    /// When it fires, on cluster time.
    pub(crate) fn due(&self) -> u64 {
        match self {
            Timer::Message { due, .. }
            | Timer::Resume { due, .. }
            | Timer::Expiry { due, .. }
            | Timer::Dedup { due, .. }
            | Timer::Done { due, .. } => *due,
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> Key {
        let of = |due: u64, kind: u8, place: Place| {
            let key = Builder::new(b't').number(due).byte(kind).number(place.queue.0);
            key.byte(place.lane_byte()).number(place.sequence)
        };
        match *self {
            Timer::Message { due, place } => of(due, TIMER_MESSAGE, place),
            Timer::Resume { due, queue } => {
                Builder::new(b't').number(due).byte(TIMER_RESUME).number(queue.0).byte(0).number(0)
            }
            Timer::Expiry { due, place } => of(due, TIMER_EXPIRY, place),
            Timer::Dedup { due, place } => of(due, TIMER_DEDUP, place),
            Timer::Done { due, place } => of(due, TIMER_DONE, place),
        }
        .0
    }

    /// Reads a key; `None` where it is no timer of this version.
    pub(crate) fn parse(key: &[u8]) -> Option<Timer> {
        let (due, rest) = split(key.strip_prefix(b"t")?)?;
        let (kind, rest) = rest.split_first()?;
        let (queue, rest) = split(rest)?;
        let (lane, rest) = rest.split_first()?;
        let (sequence, rest) = split(rest)?;
        if !rest.is_empty() {
            return None;
        }
        let queue = QueueId(queue);
        match *kind {
            TIMER_MESSAGE => Some(Timer::Message { due, place: Place::from_parts(queue, *lane, sequence)? }),
            TIMER_RESUME => Some(Timer::Resume { due, queue }),
            TIMER_EXPIRY => Some(Timer::Expiry { due, place: Place::from_parts(queue, *lane, sequence)? }),
            TIMER_DEDUP => Some(Timer::Dedup { due, place: Place::from_parts(queue, *lane, sequence)? }),
            TIMER_DONE => Some(Timer::Done { due, place: Place::from_parts(queue, *lane, sequence)? }),
            _ => None,
        }
    }
}

fn split(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// The last number of a key: a sequence, a return number, a session.
pub(crate) fn last_number(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The first number of a key: a timer's due time, a queue.
pub(crate) fn first_number(key: &[u8]) -> Option<u64> {
    split(key.get(1..)?).map(|(number, _)| number)
}

/// The last two numbers of a key: queue and sequence of a lease.
pub(crate) fn last_two_numbers(key: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = key.last_chunk::<16>()?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*first), last_number(second)?))
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Key {
    let mut next = Vec::with_capacity(key.len().saturating_add(1));
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// All keys that begin with `prefix`, as a half-open range.
pub(crate) fn prefix(prefix: &[u8]) -> (Key, Key) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    (prefix.to_vec(), end)
}

/// All timers on cluster time up to and with `due`.
pub(crate) fn timers_until(due: u64) -> (Key, Key) {
    (Builder::new(b't').0, Builder::new(b't').number(due.saturating_add(1)).0)
}

/// All session timers up to and with `due` on the lease clock.
pub(crate) fn session_timers_until(due: u64) -> (Key, Key) {
    (Builder::new(b'y').0, Builder::new(b'y').number(due.saturating_add(1)).0)
}

/// All keys of one space that belong to a queue: `tag` is one of `m h r l s f x j z d p`.
pub(crate) fn of_queue(tag: u8, queue: QueueId) -> (Key, Key) {
    prefix(&Builder::new(tag).number(queue.0).0)
}

/// All keys of one space.
pub(crate) fn space(tag: u8) -> (Key, Key) {
    prefix(&[tag])
}
