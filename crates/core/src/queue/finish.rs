//! How a message ends in its queue, and what follows from it: for its dedup id, for its group, for a line that waited.

use super::message::{self, Found};
use super::{dedup, group, index};
use crate::ids::Place;
use crate::keys::{self, Timer};
use crate::queue::group::Left;
use crate::queue::transition::{Cause, carry};
use crate::records::{MessageRecord, StateRecord};
use crate::reply::Fault;
use crate::txn::Txn;

/// Ends a message for good: nothing of it stays.
pub(crate) fn run(txn: &mut Txn<'_>, found: &Found, cause: Cause) -> Result<(), Fault> {
    let place = found.place;
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(found.is), cause, found.message.size)?;
    remove(txn, found)?;
    if found.message.body != 0 {
        txn.overlay.delete(keys::body(found.message.body));
    }
    follow_up(txn, place, &found.message, cause, Left::Next)?;
    Ok(())
}

/// Takes a message out of its queue: where it waits or its lease, and its rows. The body stays.
pub(crate) fn remove(txn: &mut Txn<'_>, found: &Found) -> Result<(), Fault> {
    let place = found.place;
    let has_state = found.lease.as_ref().map_or(found.state.is_some(), |lease| lease.has_state);
    index::leave(txn, found)?;
    index::delete_message(txn, place, has_state, found.history(), found.message.origin);
    if let Some(lease) = &found.lease {
        index::delete_lease(txn, place, lease);
    }
    Ok(())
}

/// What follows where a message has ended in its queue. Returns whether the line of its group waits until it is gone
/// from where it went.
pub(crate) fn follow_up(
    txn: &mut Txn<'_>,
    place: Place,
    message: &MessageRecord,
    cause: Cause,
    left: Left,
) -> Result<bool, Fault> {
    let birth = message.birth(place);
    if message.expires_at_ms != 0 {
        let place = message::place(&birth, &keys::message(place))?;
        index::drop_timer(txn, Timer::Expiry { due: message.expires_at_ms, place });
    }
    if !message.dedup_id.is_empty() && birth.queue == place.queue.0 {
        match cause {
            Cause::Cancelled | Cause::Purged => dedup::free(txn, place.queue, &message.dedup_id, birth)?,
            Cause::Enqueued
            | Cause::EnqueuedLater
            | Cause::EnqueuedBehind
            | Cause::MovedIn
            | Cause::MovedInBehind
            | Cause::Due
            | Cause::DueBehind
            | Cause::Granted
            | Cause::Acked
            | Cause::MovedOut
            | Cause::BackedOff
            | Cause::Returned
            | Cause::Unblocked
            | Cause::UnblockedLater
            | Cause::Deferred
            | Cause::Expired
            | Cause::Dropped => dedup::finish(txn, place.queue, &message.dedup_id, birth)?,
        }
    }
    if let Some(dead) = &message.dead_letter {
        group::unblock(txn, dead, &message.group)?;
    }
    if message.group.is_empty() { Ok(false) } else { group::end(txn, place, &message.group, left) }
}

/// What follows where a message is swept that a purge took, or that went with its queue. Lines and lanes jumped when
/// that happened.
pub(crate) fn follow_up_swept(
    txn: &mut Txn<'_>,
    place: Place,
    message: &MessageRecord,
    state: Option<StateRecord>,
) -> Result<(), Fault> {
    let birth = message.birth(place);
    if message.expires_at_ms != 0 {
        let place = message::place(&birth, &keys::message(place))?;
        index::drop_timer(txn, Timer::Expiry { due: message.expires_at_ms, place });
    }
    if let Some(dead) = &message.dead_letter {
        group::unblock(txn, dead, &message.group)?;
    }
    if txn.queue(place.queue)?.is_none() {
        return Ok(());
    }
    if !message.dedup_id.is_empty() && birth.queue == place.queue.0 {
        dedup::free(txn, place.queue, &message.dedup_id, birth)?;
    }
    if !message.group.is_empty() {
        group::forget(txn, place, &message.group)?;
        if let Some(state) = state.filter(|state| state.blocked) {
            index::leave_line(txn, place.queue, &message.group, message::line(message, Some(&state)));
        }
    }
    Ok(())
}
