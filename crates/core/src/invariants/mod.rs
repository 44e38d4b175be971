//! What must always hold, one property a file. Run after every step of a test; nothing here shares code with `apply`
//! but the records and keys.

mod bodies;
mod conservation;
mod counters;
mod dedup;
mod groups;
mod lanes;
mod leases;
mod rows;
mod sessions;
mod timers;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use crate::records::{
    ConfigRecord, DedupRecord, DoneRecord, GroupRecord, Header, LeaseRecord, MessageRecord, QueueRecord, ReturnRecord,
    StateRecord,
};
use crate::view::MemView;

/// Checks every property; `Err` names the first that does not hold, and where.
pub fn check_all(view: &MemView) -> Result<(), String> {
    let image = Image::read(view)?;
    conservation::check(&image)?;
    counters::check(&image)?;
    lanes::check(&image)?;
    leases::check(&image)?;
    timers::check(&image)?;
    rows::check(&image)?;
    bodies::check(&image)?;
    groups::check(&image)?;
    dedup::check(&image)?;
    sessions::check(&image)
}

/// Where a message is: the space's tag, its queue, its sequence.
type At = (u64, u64);

/// A whole state, decoded space by space.
struct Image {
    header: Header,
    queues: BTreeMap<u64, QueueRecord>,
    configs: BTreeMap<u64, ConfigRecord>,
    names: BTreeMap<Bytes, u64>,
    /// Messages by (queue, sequence), with the tag of their space, `m` or `h`.
    messages: BTreeMap<At, (u8, MessageRecord)>,
    states: BTreeMap<At, StateRecord>,
    leases: BTreeMap<At, LeaseRecord>,
    /// Priorities of messages, by (queue, sequence).
    priorities: BTreeMap<At, u8>,
    /// Returned lanes by (queue, priority, return number).
    returned: BTreeMap<(u64, u8, u64), ReturnRecord>,
    /// Lines by (queue, group).
    groups: BTreeMap<(u64, String), GroupRecord>,
    /// Who waits in a line: (queue, group, number, sequence).
    lines: Vec<(u64, String, u64, u64)>,
    /// Parked heads by (queue, parking number).
    parks: BTreeSet<At>,
    /// Lines that go to the dead letters, by (queue, group).
    drains: BTreeSet<(u64, String)>,
    /// Dedup ids by (queue, id).
    dedups: BTreeMap<(u64, String), DedupRecord>,
    /// Outcomes by place of birth.
    dones: BTreeMap<At, DoneRecord>,
    /// Outcomes of requests without a session, by bucket.
    tokens: BTreeMap<u64, u64>,
    namespaces: usize,
    /// Failures by (queue, sequence): their numbers.
    failures: BTreeMap<At, Vec<u64>>,
    moved: BTreeMap<At, crate::reply::PlaceRecord>,
    bodies: BTreeMap<u64, usize>,
    /// Timers by key.
    timers: Vec<Bytes>,
    session_timers: BTreeMap<u64, Vec<u64>>,
    sessions: BTreeMap<u64, crate::records::SessionRecord>,
    outcomes: BTreeMap<At, crate::records::OutcomesRecord>,
    sweeps: BTreeMap<u64, crate::records::SweepRecord>,
}

fn read<R: Message + Default>(key: &Bytes, value: &Bytes) -> Result<R, String> {
    R::decode(value.clone()).map_err(|e| format!("the record under {key:?} does not decode: {e}"))
}

fn number(key: &[u8], nth_from_end: usize) -> Result<u64, String> {
    let end = key.len().checked_sub(nth_from_end.saturating_mul(8));
    let bytes = end.and_then(|end| key.get(..end)).and_then(|key| key.last_chunk::<8>());
    bytes.map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(|| format!("the key {key:?} is too short"))
}

/// The queue and the group of a key that ends with `rest` more bytes.
fn group(key: &[u8], rest: usize) -> Result<(u64, String), String> {
    let short = || format!("the key {key:?} is too short");
    let (queue, name) = key.get(1..).and_then(|key| key.split_first_chunk::<8>()).ok_or_else(short)?;
    let end = name.len().checked_sub(rest).ok_or_else(short)?;
    let name = name.get(2..end).ok_or_else(short)?;
    Ok((u64::from_be_bytes(*queue), String::from_utf8_lossy(name).into_owned()))
}

impl Image {
    fn read(view: &MemView) -> Result<Self, String> {
        let mut image = Self {
            header: Header::default(),
            queues: BTreeMap::new(),
            configs: BTreeMap::new(),
            names: BTreeMap::new(),
            messages: BTreeMap::new(),
            states: BTreeMap::new(),
            leases: BTreeMap::new(),
            priorities: BTreeMap::new(),
            returned: BTreeMap::new(),
            groups: BTreeMap::new(),
            lines: Vec::new(),
            parks: BTreeSet::new(),
            drains: BTreeSet::new(),
            dedups: BTreeMap::new(),
            dones: BTreeMap::new(),
            tokens: BTreeMap::new(),
            namespaces: 0,
            failures: BTreeMap::new(),
            moved: BTreeMap::new(),
            bodies: BTreeMap::new(),
            timers: Vec::new(),
            session_timers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            sweeps: BTreeMap::new(),
        };
        for (key, value) in view.iter() {
            let tag = key.first().copied().unwrap_or(0);
            match tag {
                b'g' => image.header = read(key, value)?,
                b'k' => {}
                b'n' => {
                    image.names.insert(key.clone(), number(value, 0)?);
                }
                b'c' => {
                    image.configs.insert(number(key, 0)?, read(key, value)?);
                }
                b'q' => {
                    image.queues.insert(number(key, 0)?, read(key, value)?);
                }
                b'm' | b'h' => {
                    let queue = key.get(1..9).map(|k| number(k, 0)).unwrap_or_else(|| Err("a short key".into()))?;
                    if tag == b'm' {
                        let rank = key.get(9).copied().unwrap_or_default();
                        image.priorities.insert((queue, number(key, 0)?), 9u8.saturating_sub(rank));
                    }
                    let before = image.messages.insert((queue, number(key, 0)?), (tag, read(key, value)?));
                    if before.is_some() {
                        return Err(format!("two messages of queue {queue} have the sequence of {key:?}"));
                    }
                }
                b's' => {
                    let state: StateRecord = read(key, value)?;
                    let priority = u8::try_from(state.lane & 0x0f).unwrap_or_default();
                    image.priorities.insert((number(key, 1)?, number(key, 0)?), priority);
                    image.states.insert((number(key, 1)?, number(key, 0)?), read(key, value)?);
                }
                b'l' => {
                    image.leases.insert((number(key, 1)?, number(key, 0)?), read(key, value)?);
                }
                b'r' => {
                    let queue = key.get(1..9).map(|k| number(k, 0)).unwrap_or_else(|| Err("a short key".into()))?;
                    let priority = 9u8.saturating_sub(key.get(9).copied().unwrap_or_default());
                    image.returned.insert((queue, priority, number(key, 0)?), read(key, value)?);
                }
                b'f' => image.failures.entry((number(key, 2)?, number(key, 1)?)).or_default().push(number(key, 0)?),
                b'i' => {
                    image.moved.insert((number(key, 1)?, number(key, 0)?), read(key, value)?);
                }
                b'b' => {
                    image.bodies.insert(number(key, 0)?, value.len());
                }
                b't' => image.timers.push(key.clone()),
                b'y' => image.session_timers.entry(number(key, 0)?).or_default().push(number(key, 1)?),
                b'e' => {
                    image.sessions.insert(number(key, 0)?, read(key, value)?);
                }
                b'o' => {
                    image.outcomes.insert((number(key, 1)?, number(key, 0)?), read(key, value)?);
                }
                b'x' => {
                    image.groups.insert(group(key, 0)?, read(key, value)?);
                }
                b'j' => {
                    let (queue, group) = group(key, 8)?;
                    let place: crate::reply::PlaceRecord = read(key, value)?;
                    image.lines.push((queue, group, number(key, 0)?, place.sequence));
                }
                b'z' => {
                    image.parks.insert((number(key, 1)?, number(key, 0)?));
                }
                b'a' => {
                    let drain: crate::records::DrainRecord = read(key, value)?;
                    image.drains.insert((drain.queue, drain.group));
                }
                b'd' => {
                    let (queue, id) = key.get(1..).and_then(|key| key.split_first_chunk::<8>()).ok_or("a short key")?;
                    let id = String::from_utf8_lossy(id).into_owned();
                    image.dedups.insert((u64::from_be_bytes(*queue), id), read(key, value)?);
                }
                b'p' => {
                    image.dones.insert((number(key, 1)?, number(key, 0)?), read(key, value)?);
                }
                b'u' => *image.tokens.entry(number(key, 2)?).or_default() += 1,
                b'v' => image.namespaces += 1,
                b'w' => {
                    image.sweeps.insert(number(key, 0)?, read(key, value)?);
                }
                _ => return Err(format!("the key {key:?} belongs to no space")),
            }
        }
        Ok(image)
    }

    /// Whether a message waits to be swept: its queue is gone, or was purged while it was not leased.
    fn is_dead(&self, at: &At) -> bool {
        match self.queues.get(&at.0) {
            Some(record) => at.1 < record.purged_below && !self.leases.contains_key(at),
            None => true,
        }
    }

    /// Messages that are not dead.
    fn live(&self) -> impl Iterator<Item = (&At, &(u8, MessageRecord))> {
        self.messages.iter().filter(|(at, _)| !self.is_dead(at))
    }

    /// Live leases: those of queues that are there.
    fn live_leases(&self) -> impl Iterator<Item = (&At, &LeaseRecord)> {
        self.leases.iter().filter(|(at, _)| self.queues.contains_key(&at.0))
    }
}
