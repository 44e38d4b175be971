//! `Receive`: leases the messages whose turn it is.
//!
//! Order: the returned lane by return, then the fresh lane by sequence; while both hold something, every fourth
//! delivery comes from the fresh lane, so that what comes back again and again cannot starve what is new.

use bytes::Bytes;

use super::{find, index, invalid};
use crate::command::Receive;
use crate::ids::{Place, QueueId, Space};
use crate::keys;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::query::MessageState;
use crate::queue::transition::{Cause, carry};
use crate::records::{LeaseRecord, MessageRecord, ReturnRecord, StateRecord, broken, decode};
use crate::reply::{Answered, Effect, Fault, Handle, Received, Rejection};
use crate::txn::Txn;

/// The next of the fresh lane's deliveries while the returned lane holds something too.
const FRESH_TURN: u64 = 4;

/// Carries out a `Receive`.
pub(crate) fn run(txn: &mut Txn<'_>, command: &Receive) -> Result<Result<Answered, Rejection>, Fault> {
    if let Err(rejection) = check(command) {
        return Ok(Err(rejection));
    }
    let id = match find(txn, command.queues.first())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let handles = match txn.queue(id)? {
        Some(queue) if queue.config.pause.is_none() && queue.record.ready > 0 => deliver(txn, id, command)?,
        Some(_) | None => Vec::new(),
    };
    Ok(Ok(Answered::Received(Received { handles })))
}

fn check(command: &Receive) -> Result<(), Rejection> {
    let max = usize::try_from(command.max).unwrap_or(usize::MAX);
    if !(1..=limits::BATCH).contains(&max) {
        return Err(invalid("max", format!("expected 1 to {}, but got {max}", limits::BATCH)));
    }
    if command.queues.len() != 1 {
        return Err(invalid("queue", format!("expected one queue, but got {}", command.queues.len())));
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

/// Which lane the next delivery comes from.
enum Lane {
    Returned,
    Fresh,
}

fn deliver(txn: &mut Txn<'_>, id: QueueId, command: &Receive) -> Result<Vec<Handle>, Fault> {
    let lease_ms = match command.lease_ms {
        0 => txn.queue_mut(id)?.config.lease_ms(),
        lease_ms => lease_ms,
    };
    let max_bytes = match command.max_bytes {
        0 => u64::try_from(limits::BATCH_BYTES).unwrap_or(u64::MAX),
        max_bytes => max_bytes,
    };
    let record = txn.queue_mut(id)?.record;
    let wanted = u64::from(command.max).min(record.ready);
    let wanted = usize::try_from(wanted).unwrap_or(limits::BATCH).min(limits::SCAN_KEYS);
    let mut returned = scan_returned(txn, id, record.returned_head, wanted.min(clamp(record.returned)))?.into_iter();
    let fresh_ready = record.ready.saturating_sub(record.returned);
    let mut fresh = scan_fresh(txn, id, record.fresh_head, wanted.min(clamp(fresh_ready)))?.into_iter();
    let mut handles = Vec::with_capacity(wanted);
    let mut bytes = 0u64;
    while handles.len() < wanted {
        let lane = match turn(txn, id)? {
            Some(lane) => lane,
            None => break,
        };
        let (place, number, value) = match lane {
            Lane::Returned => match returned.next() {
                Some((number, place)) => {
                    let key = keys::message(place);
                    let value = txn.overlay.get(&key)?;
                    let value = value.ok_or_else(|| broken("a message", &key, "there is none, but a lane has it"))?;
                    (place, Some(number), value)
                }
                None => return Err(lane_broken(id, "the returned lane")),
            },
            Lane::Fresh => match fresh.next() {
                Some((place, value)) => (place, None, value),
                None => return Err(lane_broken(id, "the fresh lane")),
            },
        };
        let message: MessageRecord = decode("a message", &keys::message(place), value)?;
        if !handles.is_empty() && bytes.saturating_add(message.size) > max_bytes {
            break;
        }
        bytes = bytes.saturating_add(message.size);
        match number {
            Some(number) => index::take_returned(txn, id, place.priority, number)?,
            None => index::take_fresh(txn, id, place.sequence)?,
        }
        count_turn(txn, id, number.is_some())?;
        handles.push(grant(txn, place, &message, number.is_some(), lease_ms, &command.worker)?);
    }
    Ok(handles)
}

fn clamp(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn lane_broken(id: QueueId, lane: &'static str) -> Fault {
    broken("as many places in a lane as are counted", &keys::queue(id), format!("{lane} ended early"))
}

/// The lane whose turn it is; `None` where both are empty.
fn turn(txn: &mut Txn<'_>, id: QueueId) -> Result<Option<Lane>, Fault> {
    let record = &txn.queue_mut(id)?.record;
    let fresh_turn = record.turn % FRESH_TURN == FRESH_TURN - 1;
    Ok(match (record.returned > 0, record.ready > record.returned) {
        (true, true) if fresh_turn => Some(Lane::Fresh),
        (true, true | false) => Some(Lane::Returned),
        (false, true) => Some(Lane::Fresh),
        (false, false) => None,
    })
}

/// Counts a delivery made while both lanes held something. Called when the place is out of its lane and the message
/// not yet counted as leased, so the lane it came from held one more.
fn count_turn(txn: &mut Txn<'_>, id: QueueId, from_returned: bool) -> Result<(), Fault> {
    let record = &mut txn.queue_mut(id)?.record;
    let returned = record.returned.saturating_add(from_returned.into());
    if returned > 0 && record.ready > returned {
        record.turn = record.turn.wrapping_add(1);
    }
    Ok(())
}

fn scan_returned(txn: &Txn<'_>, id: QueueId, head: u64, limit: usize) -> Result<Vec<(u64, Place)>, Fault> {
    let priority = limits::PRIORITY_DEFAULT;
    let (from, to) = (keys::returned(id, priority, head), keys::returned(id, priority, u64::MAX));
    let mut places = Vec::with_capacity(limit);
    for (key, value) in txn.overlay.scan(&from, &to, limit)? {
        let entry: ReturnRecord = decode("a place in the returned lane", &key, value)?;
        let place = u8::try_from(entry.lane).ok().and_then(|lane| Place::from_parts(id, lane, entry.sequence));
        let place = place.ok_or_else(|| broken("a place", &key, format!("its lane is {}", entry.lane)))?;
        let number = keys::last_number(&key).ok_or_else(|| broken("a return number", &key, "there is none"))?;
        places.push((number, place));
    }
    Ok(places)
}

fn scan_fresh(txn: &Txn<'_>, id: QueueId, head: u64, limit: usize) -> Result<Vec<(Place, Bytes)>, Fault> {
    let priority = limits::PRIORITY_DEFAULT;
    let (from, to) = (keys::fresh(id, priority, head), keys::fresh(id, priority, u64::MAX));
    let mut places = Vec::with_capacity(limit);
    for (key, value) in txn.overlay.scan(&from, &to, limit)? {
        let sequence = keys::last_number(&key).ok_or_else(|| broken("a sequence", &key, "there is none"))?;
        places.push((Place { queue: id, space: Space::Fresh, priority, sequence }, value));
    }
    Ok(places)
}

/// Grants a lease on a message that has just been taken out of its lane.
fn grant(
    txn: &mut Txn<'_>,
    place: Place,
    message: &MessageRecord,
    returned: bool,
    lease_ms: u64,
    worker: &str,
) -> Result<Handle, Fault> {
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
    };
    index::put_lease(txn, place, &lease);
    txn.effects.push(Effect::Leased { queue: place.queue, sequence: place.sequence, deadline_ms, granted_index });
    Ok(Handle { place: place.into(), receive_count, failures, granted_index, deadline_ms })
}
