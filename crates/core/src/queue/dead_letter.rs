//! The move to a dead-letter queue: one entry, the same id, nothing may stop it.

use super::lease::Held;
use super::{create, enqueue, index};
use crate::command::QueueRef;
use crate::ids::{QueueId, Space};
use crate::keys;
use crate::limits;
use crate::query::{DeadReason, MessageState};
use crate::queue::transition::{Cause, carry};
use crate::records::{DeadLetterRecord, MessageRecord, StateRecord};
use crate::reply::{DeadLettered, Fault, PlaceRecord, SettleOutcome};
use crate::txn::Txn;

/// The number of a reason in a record.
pub(crate) fn reason_number(reason: DeadReason) -> u32 {
    match reason {
        DeadReason::Attempts => 1,
        DeadReason::Rejected => 2,
    }
}

/// The reason of a record's number.
pub(crate) fn reason_of(number: u32) -> Option<DeadReason> {
    match number {
        1 => Some(DeadReason::Attempts),
        2 => Some(DeadReason::Rejected),
        _ => None,
    }
}

/// Where a message of this queue goes when it is given up. `None`: it stays, since it is a dead letter already.
pub(crate) fn target(txn: &mut Txn<'_>, held: &Held, message: &MessageRecord) -> Result<Option<QueueRef>, Fault> {
    if message.dead_letter.is_some() {
        return Ok(None);
    }
    Ok(txn.queue_mut(held.place.queue)?.config.dead_letter_queue())
}

/// Moves a leased message. Its bounds, a pause or a close do not stop it; what goes over is counted.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    held: &Held,
    message: MessageRecord,
    state: StateRecord,
    target: &QueueRef,
    reason: DeadReason,
) -> Result<SettleOutcome, Fault> {
    let Held { place, lease } = held;
    let now = txn.header.cluster_ms;
    let target = match txn.queue_id(target)? {
        Some(id) => id,
        None => create::by_move(txn, target),
    };
    let source = txn.queue_mut(place.queue)?;
    carry(&mut source.record, place.queue, Some(MessageState::Leased), Cause::MovedOut, lease.size)?;
    let source = source.config.name.clone();
    let queue = txn.queue_mut(target)?;
    if enqueue::full(&queue.config, &queue.record, 1, lease.size).is_some() {
        queue.record.over_bound = queue.record.over_bound.saturating_add(1);
    }
    carry(&mut queue.record, target, None, Cause::MovedIn, lease.size)?;
    let to = index::next_place(txn, target, Space::Fresh)?;
    let origin = message.origin.unwrap_or_else(|| PlaceRecord::from(*place));
    let dead_letter = DeadLetterRecord {
        source,
        reason: reason_number(reason),
        at_ms: now,
        receive_count: state.receive_count,
        failures: state.failures,
    };
    let history = copy_history(txn, held, &state, to.queue, to.sequence)?;
    index::delete_message(txn, *place, lease.has_state, state.history, None);
    index::delete_lease(txn, *place, lease);
    let message =
        MessageRecord { enqueued_at_ms: now, origin: Some(origin), dead_letter: Some(dead_letter), ..message };
    index::put_message(txn, to, &message);
    index::put_moved(txn, origin, to);
    index::put_state(txn, to, &StateRecord { history, ..StateRecord::default() });
    txn.wake(target);
    Ok(SettleOutcome::DeadLettered(DeadLettered { place: to.into() }))
}

/// Copies the failures under the new place; returns how many were recorded ever.
fn copy_history(txn: &mut Txn<'_>, held: &Held, state: &StateRecord, to: QueueId, sequence: u64) -> Result<u64, Fault> {
    for number in state.history.saturating_sub(limits::HISTORY)..state.history {
        let key = keys::failure(held.place.queue, held.place.sequence, number);
        if let Some(row) = txn.overlay.get(&key)? {
            txn.overlay.put(keys::failure(to, sequence, number), row);
        }
    }
    Ok(state.history)
}
