//! The only place that writes or deletes a lane, timer or place key.

use crate::ids::{Place, QueueId, Space};
use crate::keys::{self, Timer};
use crate::limits;
use crate::records::{LeaseRecord, MessageRecord, ReturnRecord, StateRecord};
use crate::reply::{Effect, Fault, PlaceRecord};
use crate::txn::Txn;

/// Gives the next message of `queue` its place.
pub(crate) fn next_place(txn: &mut Txn<'_>, queue: QueueId, space: Space) -> Result<Place, Fault> {
    let record = &mut txn.queue_mut(queue)?.record;
    record.last_sequence = record.last_sequence.saturating_add(1);
    Ok(Place { queue, space, priority: limits::PRIORITY_DEFAULT, sequence: record.last_sequence })
}

/// Stores a message at its place: in the fresh lane, or held.
pub(crate) fn put_message(txn: &mut Txn<'_>, place: Place, message: &MessageRecord) {
    txn.put(keys::message(place), message);
}

/// Stores what changes of a message.
pub(crate) fn put_state(txn: &mut Txn<'_>, place: Place, state: &StateRecord) {
    let state = StateRecord { lane: place.lane_byte().into(), ..*state };
    txn.put(keys::state(place.queue, place.sequence), &state);
}

/// Puts a message at the end of the returned lane; `state` says so afterwards.
pub(crate) fn push_returned(txn: &mut Txn<'_>, place: Place, state: &mut StateRecord) -> Result<(), Fault> {
    let now = txn.header.cluster_ms;
    let record = &mut txn.queue_mut(place.queue)?.record;
    record.last_return = record.last_return.saturating_add(1);
    record.returned = record.returned.saturating_add(1);
    let number = record.last_return;
    state.due_ms = None;
    state.return_number = Some(number);
    let entry = ReturnRecord { lane: place.lane_byte().into(), sequence: place.sequence, since_ms: now };
    txn.put(keys::returned(place.queue, place.priority, number), &entry);
    put_state(txn, place, state);
    txn.wake(place.queue);
    Ok(())
}

/// Takes the place with this number out of the returned lane, whose head moves behind it.
pub(crate) fn take_returned(txn: &mut Txn<'_>, queue: QueueId, priority: u8, number: u64) -> Result<(), Fault> {
    txn.overlay.delete(keys::returned(queue, priority, number));
    let record = &mut txn.queue_mut(queue)?.record;
    record.returned = record.returned.saturating_sub(1);
    record.returned_head = number.saturating_add(1);
    Ok(())
}

/// Moves the head of the fresh lane behind this sequence; the record stays where it is.
pub(crate) fn take_fresh(txn: &mut Txn<'_>, queue: QueueId, sequence: u64) -> Result<(), Fault> {
    txn.queue_mut(queue)?.record.fresh_head = sequence.saturating_add(1);
    Ok(())
}

/// Sets a timer.
pub(crate) fn set_timer(txn: &mut Txn<'_>, timer: Timer) {
    txn.overlay.put(timer.key(), Vec::new());
    txn.effects.push(Effect::Due(timer.due()));
}

/// Deletes a timer that is far off. A near one is left to fire and find nothing: deleting it would leave a dead key
/// where the next scan walks.
pub(crate) fn drop_timer(txn: &mut Txn<'_>, timer: Timer) {
    if timer.due() > txn.header.cluster_ms.saturating_add(limits::TIMER_LAZY_MS) {
        txn.overlay.delete(timer.key());
    }
}

/// Stores a lease.
pub(crate) fn put_lease(txn: &mut Txn<'_>, place: Place, lease: &LeaseRecord) {
    txn.put(keys::lease(place.queue, place.sequence), lease);
}

/// Ends a lease.
pub(crate) fn delete_lease(txn: &mut Txn<'_>, place: Place, lease: &LeaseRecord) {
    txn.overlay.delete(keys::lease(place.queue, place.sequence));
    txn.effects.push(Effect::LeaseEnded {
        queue: place.queue,
        sequence: place.sequence,
        deadline_ms: lease.deadline_ms,
    });
}

/// Deletes all of a message but its lease and its body.
pub(crate) fn delete_message(
    txn: &mut Txn<'_>,
    place: Place,
    has_state: bool,
    history: u64,
    origin: Option<PlaceRecord>,
) {
    txn.overlay.delete(keys::message(place));
    if has_state {
        txn.overlay.delete(keys::state(place.queue, place.sequence));
    }
    for number in history.saturating_sub(limits::HISTORY)..history {
        txn.overlay.delete(keys::failure(place.queue, place.sequence, number));
    }
    if let Some(origin) = origin {
        txn.overlay.delete(keys::moved(QueueId(origin.queue), origin.sequence));
    }
}

/// Notes where a message that was born at `origin` is now.
pub(crate) fn put_moved(txn: &mut Txn<'_>, origin: PlaceRecord, place: Place) {
    txn.put(keys::moved(QueueId(origin.queue), origin.sequence), &PlaceRecord::from(place));
}
