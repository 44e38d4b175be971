//! `Receive`: leases the messages whose turn it is.
//!
//! Order: priority, then the returned lane by return, then the fresh lane by sequence; while both hold something, every
//! fourth delivery comes from the fresh lane, so that what comes back again and again cannot starve what is new.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use prost::Message;

use super::lanes::{self, Lane, Side};
use super::message;
use super::{check_name, done, expiry, find, index, invalid, settle};
use crate::answer;
use crate::command::{Ack, Receive};
use crate::ids::{Place, QueueId};
use crate::keys;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::query::MessageState;
use crate::queue::lease::Held;
use crate::queue::transition::{Cause, carry};
use crate::records::{LeaseRecord, MessageRecord, ReturnRecord, StateRecord, broken, decode};
use crate::reply::{Answered, Effect, Fault, Handle, Received, Rejection, Taken};
use crate::txn::Txn;

/// Carries out a `Receive`: what the first queue has to give, then the second, and so on.
pub(crate) fn run(txn: &mut Txn<'_>, command: &Receive) -> Result<Result<Answered, Rejection>, Fault> {
    if let Err(rejection) = check(command) {
        return Ok(Err(rejection));
    }
    let mut missing = None;
    let mut queues = Vec::with_capacity(command.queues.len());
    for name in &command.queues {
        match find(txn, Some(name))? {
            Ok(id) => queues.push(id),
            Err(Rejection::QueueNotFound(named)) => missing = missing.or(Some(Rejection::QueueNotFound(named))),
            Err(rejection) => return Ok(Err(rejection)),
        }
    }
    if let Some(rejection) = missing.filter(|_| queues.is_empty()) {
        return Ok(Err(rejection));
    }
    let mut delivered = Delivered::new(command);
    for id in queues {
        let serves = txn.queue(id)?.is_some_and(|q| q.config.pause.is_none() && q.record.ready > 0);
        if serves && !deliver(txn, id, command, &mut delivered)? {
            break;
        }
    }
    Ok(Ok(Answered::Received(delivered.received)))
}

/// What a receive has got so far, and what it may still take.
struct Delivered {
    received: Received,
    count: usize,
    max: usize,
    bytes: u64,
    max_bytes: u64,
    expired: usize,
}

impl Delivered {
    fn new(command: &Receive) -> Self {
        let max_bytes = match command.max_bytes {
            0 => u64::try_from(limits::BATCH_BYTES).unwrap_or(u64::MAX),
            max_bytes => max_bytes,
        };
        let max = usize::try_from(command.max).unwrap_or(limits::BATCH).min(limits::BATCH);
        Self { received: Received::default(), count: 0, max, bytes: 0, max_bytes, expired: 0 }
    }

    /// Whether a message of `size` fits. The first always does.
    fn fits(&self, size: u64) -> bool {
        self.count == 0 || self.bytes.saturating_add(size) <= self.max_bytes
    }
}

fn check(command: &Receive) -> Result<(), Rejection> {
    let max = usize::try_from(command.max).unwrap_or(usize::MAX);
    if !(1..=limits::BATCH).contains(&max) {
        return Err(invalid("max", format!("expected 1 to {}, but got {max}", limits::BATCH)));
    }
    if !(1..=limits::RECEIVE_QUEUES).contains(&command.queues.len()) {
        let reason = format!("expected 1 to {} queues, but got {}", limits::RECEIVE_QUEUES, command.queues.len());
        return Err(invalid("queue", reason));
    }
    let namespace = command.queues.first().map(|queue| &queue.namespace);
    if let Some(other) = command.queues.iter().find(|queue| Some(&queue.namespace) != namespace) {
        check_name(Some(other))?;
        let reason = format!("expected queues of one namespace, but {:?} is not of the first's", other.namespace);
        return Err(invalid("namespace", reason));
    }
    let lease = command.lease_ms;
    if lease != 0 && !(limits::LEASE_MIN_MS..=limits::LEASE_MAX_MS).contains(&lease) {
        let (low, high) = (limits::LEASE_MIN_MS, limits::LEASE_MAX_MS);
        return Err(invalid("lease", format!("expected {low} to {high} ms, but got {lease}")));
    }
    if command.worker.len() > limits::FIELD_BYTES {
        let reason = format!("expected at most {} bytes, but got {}", limits::FIELD_BYTES, command.worker.len());
        return Err(invalid("worker", reason));
    }
    Ok(())
}

/// A place in a lane: the message, and its number where the lane is the returned one.
struct Placed {
    place: Place,
    number: Option<u64>,
    /// The message's record, which a fresh lane's key holds.
    message: Option<Bytes>,
}

impl Placed {
    fn number_in_lane(&self) -> u64 {
        self.number.unwrap_or(self.place.sequence)
    }
}

/// Lanes read ahead. What joins a lane meanwhile joins it at its end, so what was read stays the front.
struct Ahead {
    queue: QueueId,
    lanes: BTreeMap<Lane, VecDeque<Placed>>,
}

impl Ahead {
    /// The first place of a lane that is not empty.
    fn next(&mut self, txn: &mut Txn<'_>, lane: Lane, wanted: usize) -> Result<Placed, Fault> {
        let read = self.lanes.entry(lane).or_default();
        if read.is_empty() {
            let record = &txn.queue_there(self.queue)?.record;
            let (from, to) = lanes::range(self.queue, record, lane);
            let limit = record.lane(lane.0).reads(lane.1, wanted);
            for (key, value) in txn.overlay.scan(&from, &to, limit)? {
                read.push_back(placed(self.queue, lane, &key, value)?);
            }
        }
        let next = read.pop_front().ok_or_else(|| lanes::ended_early(self.queue, lane))?;
        // Whatever comes of it, nobody walks again what was deleted before it.
        txn.queue_mut(self.queue)?.record.move_head(lane, next.number_in_lane());
        Ok(next)
    }
}

fn placed(queue: QueueId, (priority, side): Lane, key: &Bytes, value: Bytes) -> Result<Placed, Fault> {
    let last = keys::last_number(key).ok_or_else(|| broken("a number", key, "there is none"))?;
    Ok(match side {
        Side::Fresh => Placed { place: lanes::fresh_place(queue, priority, last), number: None, message: Some(value) },
        Side::Returned => {
            let entry: ReturnRecord = decode("a place in the returned lane", key, value)?;
            let place = u8::try_from(entry.lane).ok().and_then(|lane| Place::from_parts(queue, lane, entry.sequence));
            let place = place.ok_or_else(|| broken("a place", key, format!("its lane is {}", entry.lane)))?;
            Placed { place, number: Some(last), message: None }
        }
    })
}

/// Delivers what one queue has to give. Returns false where the receive has all that it may have.
fn deliver(txn: &mut Txn<'_>, id: QueueId, command: &Receive, delivered: &mut Delivered) -> Result<bool, Fault> {
    let lease_ms = match command.lease_ms {
        0 => txn.queue_there(id)?.config.lease_ms(),
        lease_ms => lease_ms,
    };
    let mut ahead = Ahead { queue: id, lanes: BTreeMap::new() };
    while delivered.count < delivered.max {
        let Some(lane) = txn.queue_there(id)?.record.next_lane() else { return Ok(true) };
        let wanted = delivered.max.saturating_sub(delivered.count);
        let Placed { place, number, message } = ahead.next(txn, lane, wanted)?;
        let key = keys::message(place);
        let value = match message {
            Some(value) => value,
            None => {
                txn.overlay.get(&key)?.ok_or_else(|| broken("a message", &key, "there is none, but a lane has it"))?
            }
        };
        let message: MessageRecord = decode("a message", &key, value)?;
        if message.is_expired(txn.header.cluster_ms) && !is_planted(Bug::ExpiredDelivered) {
            if delivered.expired >= limits::RECEIVE_EXPIRED || (delivered.expired > 0 && txn.is_nearly_full()) {
                txn.wake(id);
                return Ok(false);
            }
            delivered.expired = delivered.expired.saturating_add(1);
            let found = message::at(txn, place)?.ok_or_else(|| broken("a message", &key, "a lane has a purged one"))?;
            expiry::end(txn, found)?;
            continue;
        }
        if !delivered.fits(message.size) {
            return Ok(false);
        }
        delivered.bytes = delivered.bytes.saturating_add(message.size);
        delivered.count = delivered.count.saturating_add(1);
        txn.queue_mut(id)?.record.count_turn(place.priority);
        index::take(txn, place, number)?;
        let (handle, lease) = grant(txn, place, &message, number.is_some(), lease_ms, &command.worker)?;
        if command.auto_ack {
            let taken = take(txn, place, lease, message, handle)?;
            delivered.received.taken.push(taken);
        } else {
            delivered.received.handles.push(handle);
        }
    }
    Ok(false)
}

/// Acks a message as it is received: at most once.
fn take(
    txn: &mut Txn<'_>,
    place: Place,
    lease: LeaseRecord,
    message: MessageRecord,
    handle: Handle,
) -> Result<Taken, Fault> {
    let content = answer::content(txn, &message)?.encode_to_vec().into();
    let queue = (&txn.queue_there(place.queue)?.config.name).into();
    let id = message.birth(place);
    if !is_planted(Bug::AutoAckKept) {
        let held = Held { place, lease };
        done::keep(txn, &held, &Ack::default())?;
        settle::finish(txn, &held, Cause::Acked)?;
    }
    let (enqueued_at_ms, group) = (message.enqueued_at_ms, message.group);
    Ok(Taken { handle, id, queue, enqueued_at_ms, group, content })
}

/// Grants a lease on a message that has just been taken out of its lane.
fn grant(
    txn: &mut Txn<'_>,
    place: Place,
    message: &MessageRecord,
    returned: bool,
    lease_ms: u64,
    worker: &str,
) -> Result<(Handle, LeaseRecord), Fault> {
    let mut state: Option<StateRecord> = None;
    if returned || message.origin.is_some() {
        let key = keys::state(place.queue, place.sequence);
        let record: StateRecord =
            txn.record("a message's state", &key)?.ok_or_else(|| broken("a message's state", &key, "there is none"))?;
        state = Some(record);
    }
    let history = state.map_or(0, |s| s.history);
    let kept = is_planted(Bug::KeepReceiveCount) && state.is_some_and(|s| s.expiries > 0);
    let receive_count = state.map_or(0, |s| s.receive_count).saturating_add(u32::from(!kept));
    let failures = state.map_or(0, |s| s.failures);
    let (now, lease_now) = (txn.header.cluster_ms, txn.header.lease_ms);
    let deadline_ms = lease_now.saturating_add(lease_ms);
    let granted_index = txn.at.index;
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(MessageState::Ready), Cause::Granted, message.size)?;
    if receive_count > 1 {
        record.redelivered = record.redelivered.saturating_add(1);
    }
    if let Some(state) = state.filter(|s| s.return_number.is_some()) {
        index::put_state(txn, place, &StateRecord { return_number: None, ..state });
    }
    let lease = LeaseRecord {
        lane: place.lane_byte().into(),
        granted_index,
        receive_count,
        deadline_ms,
        granted_lease_ms: lease_now,
        granted_at_ms: now,
        size: message.size,
        body: message.body,
        has_state: state.is_some(),
        moved: message.origin.is_some(),
        history,
        worker: worker.to_owned(),
        keyed: message.is_keyed(),
    };
    index::put_lease(txn, place, &lease);
    txn.effects.push(Effect::Leased { queue: place.queue, sequence: place.sequence, deadline_ms, granted_index });
    Ok((Handle { place: place.into(), receive_count, failures, granted_index, deadline_ms }, lease))
}
