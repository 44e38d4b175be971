//! The move to a dead-letter queue: one entry, the same id, nothing may stop it.

use bytes::Bytes;

use super::message::Found;
use super::{bounds, create, enqueue, finish, index};
use crate::command::QueueRef;
use crate::ids::{Place, QueueId};
use crate::keys;
use crate::limits;
use crate::query::DeadReason;
use crate::queue::group::Left;
use crate::queue::transition::{Cause, carry};
use crate::records::{DeadLetterRecord, MessageRecord, StateRecord};
use crate::reply::{DeadLettered, Fault, SettleOutcome};
use crate::txn::Txn;

/// The number of a reason in a record.
pub(crate) fn reason_number(reason: DeadReason) -> u32 {
    match reason {
        DeadReason::Attempts => 1,
        DeadReason::Rejected => 2,
        DeadReason::Expired => 3,
        DeadReason::Group => 4,
    }
}

/// The reason of a record's number.
pub(crate) fn reason_of(number: u32) -> Option<DeadReason> {
    match number {
        1 => Some(DeadReason::Attempts),
        2 => Some(DeadReason::Rejected),
        3 => Some(DeadReason::Expired),
        4 => Some(DeadReason::Group),
        _ => None,
    }
}

/// Where a message of `queue` goes when it is given up. `None`: it stays, since it is a dead letter already.
pub(crate) fn target(txn: &mut Txn<'_>, queue: QueueId, message: &MessageRecord) -> Result<Option<QueueRef>, Fault> {
    if message.dead_letter.is_some() {
        return Ok(None);
    }
    let config = &txn.queue_there(queue)?.config;
    if message.dead_letter_queue.is_empty() {
        return Ok(config.dead_letter_queue());
    }
    Ok(Some(QueueRef { namespace: config.name.namespace.clone(), name: message.dead_letter_queue.clone() }))
}

/// Moves a message. The target's bounds, a pause or a close do not stop it; what goes over is counted.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    found: Found,
    target: &QueueRef,
    reason: DeadReason,
) -> Result<SettleOutcome, Fault> {
    let Found { place, is, .. } = found;
    let size = found.message.size;
    let now = txn.header.cluster_ms;
    let target = match txn.queue_id(target)? {
        Some(id) => id,
        None => create::by_move(txn, target),
    };
    let source = txn.queue_mut(place.queue)?;
    carry(&mut source.record, place.queue, Some(is), Cause::MovedOut, size)?;
    let source = source.config.name.clone();
    let queue = txn.queue_mut(target)?;
    if bounds::over(&queue.config, &queue.record, 1, size).is_some() {
        queue.record.over_bound = queue.record.over_bound.saturating_add(1);
    }
    // The failures are copied before the rows go.
    let state = found.state.unwrap_or_default();
    let rows = history_rows(txn, place, &state)?;
    finish::remove(txn, &found)?;
    let left = match reason {
        DeadReason::Attempts | DeadReason::Rejected => Left::Failed,
        DeadReason::Expired | DeadReason::Group => Left::Next,
    };
    let waits = finish::follow_up(txn, place, &found.message, Cause::MovedOut, left)?;
    let origin = found.message.birth(place);
    let dead_letter = DeadLetterRecord {
        source,
        reason: reason_number(reason),
        at_ms: now,
        receive_count: state.receive_count,
        failures: state.failures,
        blocks: if waits { place.queue.0 } else { 0 },
    };
    let message = MessageRecord {
        enqueued_at_ms: now,
        origin: Some(origin),
        dead_letter: Some(dead_letter),
        line: 0,
        dedup_id: String::new(),
        expires_at_ms: 0,
        retry: None,
        dead_letter_queue: String::new(),
        ..found.message
    };
    let state = StateRecord { history: state.history, ..StateRecord::default() };
    let causes = [Cause::MovedIn, Cause::MovedInBehind];
    let to = enqueue::put_ready(txn, target, place.priority, message, causes, Some(state))?;
    index::put_moved(txn, origin, to);
    for (number, row) in rows {
        txn.overlay.put(keys::failure(to.queue, to.sequence, number), row);
    }
    Ok(SettleOutcome::DeadLettered(DeadLettered { place: to.into() }))
}

/// The failures recorded of a message, by their numbers.
fn history_rows(txn: &Txn<'_>, place: Place, state: &StateRecord) -> Result<Vec<(u64, Bytes)>, Fault> {
    let mut rows = Vec::new();
    for number in state.history.saturating_sub(limits::HISTORY)..state.history {
        if let Some(row) = txn.overlay.get(&keys::failure(place.queue, place.sequence, number))? {
            rows.push((number, row));
        }
    }
    Ok(rows)
}
