//! Failures: the history, the attempt budget and the backoff.

use super::lease::Held;
use super::settle::{self, give_back, message, state};
use super::{dead_letter, finish, group, index};
use crate::command::{Failure, OnExhausted};
use crate::keys::{self, Timer};
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::query::{DeadReason, FailureClass, MessageState};
use crate::queue::transition::{Cause, carry};
use crate::records::{FailureRecord, MessageRecord, StateRecord};
use crate::reply::{DelayedUntil, Empty, Fault, SettleOutcome};
use crate::txn::Txn;

/// How an attempt failed, and what the worker said.
pub(crate) struct Failed {
    class: FailureClass,
    code: String,
    text: String,
}

impl Failed {
    /// A failure that a worker told of.
    pub(crate) fn told(class: FailureClass, failure: Option<&Failure>) -> Self {
        let Failure { code, text } = failure.cloned().unwrap_or_default();
        Self { class, code, text }
    }

    /// A lease that ran out.
    pub(crate) fn expired() -> Self {
        Self { class: FailureClass::LeaseExpired, code: String::new(), text: String::new() }
    }
}

/// The number of a class in a record.
pub(crate) fn class_number(class: FailureClass) -> u32 {
    match class {
        FailureClass::Transient => 1,
        FailureClass::Permanent => 2,
        FailureClass::LeaseExpired => 3,
    }
}

/// The class of a record's number.
pub(crate) fn class_of(number: u32) -> Option<FailureClass> {
    match number {
        1 => Some(FailureClass::Transient),
        2 => Some(FailureClass::Permanent),
        3 => Some(FailureClass::LeaseExpired),
        _ => None,
    }
}

/// Counts a failure within its window and writes the history; returns the state to go on with.
pub(crate) fn count(txn: &mut Txn<'_>, held: &Held, failed: &Failed) -> Result<StateRecord, Fault> {
    let Held { place, lease } = held;
    let mut state = state(txn, held)?;
    let now = txn.header.cluster_ms;
    let queue = txn.queue_mut(place.queue)?;
    queue.record.failed = queue.record.failed.saturating_add(1);
    if failed.class == FailureClass::LeaseExpired {
        queue.record.lease_expired = queue.record.lease_expired.saturating_add(1);
        state.expiries = state.expiries.saturating_add(1);
    } else {
        state.expiries = 0;
    }
    // A tumbling window: the first failure opens it, and when it is over the count starts anew.
    if state.failures == 0 || now.saturating_sub(state.window_ms) >= queue.config.failure_window_ms() {
        state.failures = 0;
        state.window_ms = now;
    }
    state.failures = state.failures.saturating_add(1);
    let record = FailureRecord {
        worker: lease.worker.clone(),
        started_at_ms: lease.granted_at_ms,
        failed_at_ms: now,
        class: class_number(failed.class),
        code: failed.code.clone(),
        text: failed.text.clone(),
    };
    txn.put(keys::failure(place.queue, place.sequence, state.history), &record);
    if let Some(oldest) = state.history.checked_sub(limits::HISTORY) {
        txn.overlay.delete(keys::failure(place.queue, place.sequence, oldest));
    }
    state.history = state.history.saturating_add(1);
    Ok(state)
}

/// A failure that may be tried again: dead-lettered where the budget is used up, else delayed by `delay_ms` or by the
/// queue's backoff.
pub(crate) fn back_off(
    txn: &mut Txn<'_>,
    held: &Held,
    failed: Failed,
    delay_ms: Option<u64>,
) -> Result<SettleOutcome, Fault> {
    let state = count(txn, held, &failed)?;
    let place = held.place;
    let config = txn.queue_there(place.queue)?.config.clone();
    let message = if held.lease.keyed { Some(message(txn, held)?) } else { None };
    let retry = message.as_ref().and_then(|message| message.retry).unwrap_or_default();
    let policy = config.retry_policy(&retry);
    let budget = policy.max_attempts.map(|max| max.saturating_add(is_planted(Bug::DeadLetterLate).into()));
    if budget.is_some_and(|max| state.failures >= max) {
        return exhaust(txn, held, message, state);
    }
    if let Some(outcome) = settle::end_expired(txn, held, state)? {
        return Ok(outcome);
    }
    let first_expiry = failed.class == FailureClass::LeaseExpired && state.expiries == 1;
    let delay_ms = match delay_ms {
        Some(delay_ms) => delay_ms,
        None if first_expiry => 0,
        None => {
            let ceiling = policy.backoff_ceiling_ms(state.failures);
            txn.secret().map_or(ceiling, |s| s.jitter(place.queue, place.sequence, state.failures, ceiling))
        }
    };
    delay(txn, held, state, delay_ms)
}

/// A message whose attempts are used up goes to the dead letters, or is dropped where its queue says so.
fn exhaust(
    txn: &mut Txn<'_>,
    held: &Held,
    message: Option<MessageRecord>,
    state: StateRecord,
) -> Result<SettleOutcome, Fault> {
    let message = match message {
        Some(message) => message,
        None => settle::message(txn, held)?,
    };
    match txn.queue_there(held.place.queue)?.config.on_exhausted() {
        OnExhausted::Drop => {
            finish::run(txn, &settle::found(held, message, state), Cause::Dropped)?;
            return Ok(SettleOutcome::Dropped(Empty {}));
        }
        OnExhausted::DeadLetter => {}
    }
    match dead_letter::target(txn, held.place.queue, &message)? {
        Some(target) => dead_letter::run(txn, settle::found(held, message, state), &target, DeadReason::Attempts),
        None => hold_at_cap(txn, held, state),
    }
}

/// A dead letter that failed again: it stays, backed off at the cap.
pub(crate) fn hold_at_cap(txn: &mut Txn<'_>, held: &Held, state: StateRecord) -> Result<SettleOutcome, Fault> {
    let cap = txn.queue_there(held.place.queue)?.config.backoff_cap_ms();
    delay(txn, held, state, cap)
}

/// Ends a lease and makes its message ready in `delay_ms`.
fn delay(txn: &mut Txn<'_>, held: &Held, mut state: StateRecord, delay_ms: u64) -> Result<SettleOutcome, Fault> {
    if delay_ms == 0 {
        return give_back(txn, held, state);
    }
    let Held { place, lease } = held;
    let due = txn.header.cluster_ms.saturating_add(delay_ms);
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(MessageState::Leased), Cause::BackedOff, lease.size)?;
    index::delete_lease(txn, *place, lease);
    if state.grouped {
        group::delay_head(txn, *place, state, due)?;
        return Ok(SettleOutcome::Delayed(DelayedUntil { due_ms: due }));
    }
    state.due_ms = Some(due);
    state.return_number = None;
    index::put_state(txn, *place, &state);
    index::set_timer(txn, Timer::Message { due, place: *place });
    Ok(SettleOutcome::Delayed(DelayedUntil { due_ms: due }))
}

/// Makes a delayed message ready whose time has come. A timer whose message has left that state, or is due at another
/// time, finds nothing to do.
pub(crate) fn fire_due(txn: &mut Txn<'_>, place: crate::ids::Place, due: u64) -> Result<(), Fault> {
    let Some(queue) = txn.queue(place.queue)? else { return Ok(()) };
    if place.sequence < queue.record.purged_below {
        return Ok(());
    }
    let state: Option<StateRecord> = txn.record("a message's state", &keys::state(place.queue, place.sequence))?;
    match state.filter(|s| s.due_ms == Some(due)) {
        Some(state) => ready(txn, place, state),
        None => Ok(()),
    }
}

/// Makes a delayed message ready, or has it wait in the line of its group.
pub(crate) fn ready(txn: &mut Txn<'_>, place: crate::ids::Place, mut state: StateRecord) -> Result<(), Fault> {
    if state.grouped {
        return group::due(txn, place, state);
    }
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(MessageState::Delayed), Cause::Due, 0)?;
    index::push_returned(txn, place, &mut state)
}
