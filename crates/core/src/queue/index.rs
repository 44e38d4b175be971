//! The only place that writes or deletes a lane, line, timer or place key.

use crate::ids::{Place, QueueId, Space};
use crate::keys::{self, Timer};
use crate::limits;
use crate::query::MessageState;
use crate::queue::lanes::Side;
use crate::queue::message::Found;
use crate::records::{LeaseRecord, MessageRecord, ParkRecord, ReturnRecord, StateRecord};
use crate::reply::{Effect, Fault, PlaceRecord};
use crate::txn::Txn;

/// Gives the next message of `queue` its place.
pub(crate) fn next_place(txn: &mut Txn<'_>, queue: QueueId, space: Space, priority: u8) -> Result<Place, Fault> {
    let record = &mut txn.queue_mut(queue)?.record;
    record.last_sequence = record.last_sequence.saturating_add(1);
    Ok(Place { queue, space, priority, sequence: record.last_sequence })
}

/// Stores a message at its place. In the fresh space, that is its place in the fresh lane too.
pub(crate) fn put_message(txn: &mut Txn<'_>, place: Place, message: &MessageRecord) -> Result<(), Fault> {
    txn.put(keys::message(place), message);
    match place.space {
        Space::Fresh => {
            let record = &mut txn.queue_mut(place.queue)?.record;
            record.change_lane(place.priority, |lane| lane.fresh = lane.fresh.saturating_add(1));
            txn.wake(place.queue);
        }
        Space::Held => {}
    }
    Ok(())
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
    let number = record.last_return;
    record.change_lane(place.priority, |lane| lane.returned = lane.returned.saturating_add(1));
    state.due_ms = None;
    state.return_number = Some(number);
    let entry = ReturnRecord { lane: place.lane_byte().into(), sequence: place.sequence, since_ms: now };
    txn.put(keys::returned(place.queue, place.priority, number), &entry);
    put_state(txn, place, state);
    txn.wake(place.queue);
    Ok(())
}

/// Takes the first place out of a lane, whose head moves behind it. A record in the fresh space stays where it is.
pub(crate) fn take(txn: &mut Txn<'_>, place: Place, number: Option<u64>) -> Result<(), Fault> {
    if let Some(number) = number {
        txn.overlay.delete(keys::returned(place.queue, place.priority, number));
    }
    let record = &mut txn.queue_mut(place.queue)?.record;
    let (side, number) = number.map_or((Side::Fresh, place.sequence), |number| (Side::Returned, number));
    record.change_lane(place.priority, |lane| lane.take_first(side, number));
    Ok(())
}

/// Takes a message that is not leased out of where it waits: a lane, the timers, a line. Its rows stay.
pub(crate) fn leave(txn: &mut Txn<'_>, found: &Found) -> Result<(), Fault> {
    let place = found.place;
    let state = found.state.unwrap_or_default();
    match found.is {
        MessageState::Ready => {
            let (side, number) =
                state.return_number.map_or((Side::Fresh, place.sequence), |number| (Side::Returned, number));
            if side == Side::Returned {
                txn.overlay.delete(keys::returned(place.queue, place.priority, number));
            }
            let record = &mut txn.queue_mut(place.queue)?.record;
            record.change_lane(place.priority, |lane| lane.take_out(side, number));
        }
        MessageState::Delayed => {
            if let Some(due) = state.due_ms {
                drop_timer(txn, Timer::Message { due, place });
            }
            unpark(txn, place, state.park);
        }
        MessageState::Blocked => leave_line(txn, place.queue, &found.message.group, found.line()),
        MessageState::Leased => {}
    }
    Ok(())
}

/// Puts a message into the line of its group.
pub(crate) fn enter_line(txn: &mut Txn<'_>, place: Place, group: &str, line: u64) {
    txn.put(keys::in_line(place.queue, group, line), &PlaceRecord::from(place));
}

/// Takes a message out of the line of its group.
pub(crate) fn leave_line(txn: &mut Txn<'_>, queue: QueueId, group: &str, line: u64) {
    txn.overlay.delete(keys::in_line(queue, group, line));
}

/// Notes that a head waits for its time, and its group with it; `state` says so afterwards.
pub(crate) fn park(txn: &mut Txn<'_>, queue: QueueId, state: &mut StateRecord) -> Result<(), Fault> {
    let since_ms = txn.header.cluster_ms;
    let record = &mut txn.queue_mut(queue)?.record;
    record.last_park = record.last_park.saturating_add(1);
    state.park = record.last_park;
    txn.put(keys::parked(queue, state.park), &ParkRecord { since_ms });
    Ok(())
}

/// A head waits no longer.
pub(crate) fn unpark(txn: &mut Txn<'_>, place: Place, park: u64) {
    if park != 0 {
        txn.overlay.delete(keys::parked(place.queue, park));
    }
}

/// Sets a timer.
pub(crate) fn set_timer(txn: &mut Txn<'_>, timer: Timer) {
    set_timer_for(txn, timer, Vec::new());
}

/// Sets a timer that carries something.
pub(crate) fn set_timer_for(txn: &mut Txn<'_>, timer: Timer, what: Vec<u8>) {
    txn.overlay.put(timer.key(), what);
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
