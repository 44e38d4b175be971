//! The settle parts of a commit: what becomes of a lease, and who may say so.

use super::failure::{self, Failed};
use super::lease::{self, Held};
use super::message::Found;
use super::{dead_letter, done, expiry, finish, index, invalid};
use crate::command::{Ack, Failure, Settle, Verdict};
use crate::keys;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::query::{DeadReason, FailureClass, MessageState};
use crate::queue::group::Left;
use crate::queue::transition::{Cause, carry};
use crate::records::{LeaseRecord, MessageRecord, StateRecord, broken};
use crate::reply::{Empty, Extended, Fault, Rejection, SettleOutcome};
use crate::txn::Txn;

/// Carries out one settlement. Checks come in this order: the verdict, the token, the lease.
pub(crate) fn run(txn: &mut Txn<'_>, part: &Settle) -> Result<Result<SettleOutcome, Rejection>, Fault> {
    let verdict = match check(part) {
        Ok(verdict) => verdict,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let held = match lease::prove(txn, &part.token)? {
        Ok(held) => held,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let outcome = match verdict {
        Verdict::Ack(told) => ack(txn, &held, told)?,
        Verdict::Extend(extend) => self::extend(txn, held, extend.lease_ms)?,
        Verdict::Retry(_) | Verdict::Reject(_) | Verdict::Release(_) if is_purged(txn, &held)? => {
            finish_purged(txn, &held)?
        }
        Verdict::Release(_) => release(txn, &held)?,
        Verdict::Retry(retry) => {
            let failed = Failed::told(FailureClass::Transient, retry.failure.as_ref());
            failure::back_off(txn, &held, failed, retry.delay_ms)?
        }
        Verdict::Reject(failure) => {
            let failed = Failed::told(FailureClass::Permanent, Some(failure));
            reject(txn, &held, failed)?
        }
    };
    Ok(Ok(outcome))
}

fn check(part: &Settle) -> Result<&Verdict, Rejection> {
    let Some(verdict) = &part.verdict else {
        return Err(invalid("verdict", "expected what became of the delivery, but there is nothing"));
    };
    match verdict {
        Verdict::Ack(ack) if ack.output.len() > limits::OUTPUT_BYTES => {
            let reason = format!("expected at most {} bytes, but got {}", limits::OUTPUT_BYTES, ack.output.len());
            return Err(invalid("output", reason));
        }
        Verdict::Ack(_) | Verdict::Release(_) => {}
        Verdict::Retry(retry) => {
            check_failure(retry.failure.as_ref())?;
            let delay = retry.delay_ms.unwrap_or(0);
            if delay > limits::DELAY_MAX_MS {
                let reason = format!("expected at most {} ms, but got {delay}", limits::DELAY_MAX_MS);
                return Err(invalid("delay", reason));
            }
        }
        Verdict::Reject(failure) => check_failure(Some(failure))?,
        Verdict::Extend(extend) => {
            let (low, high, lease) = (limits::LEASE_MIN_MS, limits::LEASE_MAX_MS, extend.lease_ms);
            if lease != 0 && !(low..=high).contains(&lease) {
                return Err(invalid("lease", format!("expected {low} to {high} ms, but got {lease}")));
            }
        }
    }
    Ok(verdict)
}

fn check_failure(failure: Option<&Failure>) -> Result<(), Rejection> {
    let Some(failure) = failure else { return Ok(()) };
    for (field, limit, len) in
        [("code", limits::FIELD_BYTES, failure.code.len()), ("text", limits::FAILURE_TEXT_BYTES, failure.text.len())]
    {
        if len > limit {
            return Err(invalid(field, format!("expected at most {limit} bytes, but got {len}")));
        }
    }
    Ok(())
}

fn ack(txn: &mut Txn<'_>, held: &Held, told: &Ack) -> Result<SettleOutcome, Fault> {
    if is_planted(Bug::AckUndone) && held.lease.receive_count > 1 {
        release(txn, held)?;
        return Ok(SettleOutcome::Acked(Empty {}));
    }
    done::keep(txn, held, told)?;
    finish(txn, held, Cause::Acked)?;
    Ok(SettleOutcome::Acked(Empty {}))
}

/// Whether the message's queue was purged while it was leased: any end but an ack is a purge.
pub(crate) fn is_purged(txn: &mut Txn<'_>, held: &Held) -> Result<bool, Fault> {
    Ok(held.place.sequence < txn.queue_there(held.place.queue)?.record.purged_below)
}

/// Ends a message whose queue was purged while it was leased.
pub(crate) fn finish_purged(txn: &mut Txn<'_>, held: &Held) -> Result<SettleOutcome, Fault> {
    finish(txn, held, Cause::Purged)?;
    Ok(SettleOutcome::Purged(Empty {}))
}

/// Ends a message for good: nothing of it stays. That of a plain one is not read: its lease says all there is.
pub(crate) fn finish(txn: &mut Txn<'_>, held: &Held, cause: Cause) -> Result<(), Fault> {
    let Held { place, lease } = held;
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(MessageState::Leased), cause, lease.size)?;
    let message = if lease.moved || lease.keyed { Some(message(txn, held)?) } else { None };
    let origin = message.as_ref().and_then(|message| message.origin);
    index::delete_message(txn, *place, lease.has_state, lease.history, origin);
    index::delete_lease(txn, *place, lease);
    if lease.body != 0 {
        txn.overlay.delete(keys::body(lease.body));
    }
    if let Some(message) = message {
        finish::follow_up(txn, *place, &message, cause, Left::Next)?;
    }
    Ok(())
}

/// A leased message with all there is of it.
pub(crate) fn found(held: &Held, message: MessageRecord, state: StateRecord) -> Found {
    let Held { place, lease } = held;
    Found { place: *place, message, state: Some(state), lease: Some(lease.clone()), is: MessageState::Leased }
}

/// The record of a leased message.
pub(crate) fn message(txn: &Txn<'_>, held: &Held) -> Result<MessageRecord, Fault> {
    let key = keys::message(held.place);
    txn.record("a message", &key)?.ok_or_else(|| broken("a message", &key, "there is none, but it is leased"))
}

/// What has changed of a leased message so far.
pub(crate) fn state(txn: &Txn<'_>, held: &Held) -> Result<StateRecord, Fault> {
    let stored: Option<StateRecord> =
        txn.record("a message's state", &keys::state(held.place.queue, held.place.sequence))?;
    let mut state = StateRecord { receive_count: held.lease.receive_count, ..stored.unwrap_or_default() };
    // One that joined its line as it came has said so in its record alone.
    if held.lease.keyed && !state.grouped {
        let message = message(txn, held)?;
        state.grouped = !message.group.is_empty();
        state.line = message.line;
    }
    Ok(state)
}

/// Ends a leased message whose time to live is over; `None`: it is not.
pub(crate) fn end_expired(txn: &mut Txn<'_>, held: &Held, state: StateRecord) -> Result<Option<SettleOutcome>, Fault> {
    if !held.lease.keyed {
        return Ok(None);
    }
    let message = message(txn, held)?;
    if !message.is_expired(txn.header.cluster_ms) {
        return Ok(None);
    }
    let found = found(held, message, state);
    expiry::end(txn, found).map(Some)
}

/// Ends a lease and makes its message ready again at once.
pub(crate) fn give_back(txn: &mut Txn<'_>, held: &Held, mut state: StateRecord) -> Result<SettleOutcome, Fault> {
    let Held { place, lease } = held;
    let record = &mut txn.queue_mut(place.queue)?.record;
    carry(record, place.queue, Some(MessageState::Leased), Cause::Returned, lease.size)?;
    index::delete_lease(txn, *place, lease);
    index::push_returned(txn, *place, &mut state)?;
    Ok(SettleOutcome::Readied(Empty {}))
}

fn release(txn: &mut Txn<'_>, held: &Held) -> Result<SettleOutcome, Fault> {
    if is_planted(Bug::ReleaseCounts) {
        let state = failure::count(txn, held, &Failed::told(FailureClass::Transient, None))?;
        return give_back(txn, held, state);
    }
    let state = StateRecord { expiries: 0, ..state(txn, held)? };
    match end_expired(txn, held, state)? {
        Some(outcome) => Ok(outcome),
        None => give_back(txn, held, state),
    }
}

fn reject(txn: &mut Txn<'_>, held: &Held, failed: Failed) -> Result<SettleOutcome, Fault> {
    let message = message(txn, held)?;
    let state = failure::count(txn, held, &failed)?;
    match dead_letter::target(txn, held.place.queue, &message)? {
        Some(target) => dead_letter::run(txn, found(held, message, state), &target, DeadReason::Rejected),
        None => failure::hold_at_cap(txn, held, state),
    }
}

fn extend(txn: &mut Txn<'_>, held: Held, lease_ms: u64) -> Result<SettleOutcome, Fault> {
    let Held { place, lease } = held;
    let lease_ms = match lease_ms {
        0 => txn.queue_there(place.queue)?.config.lease_ms(),
        lease_ms => lease_ms,
    };
    let now = txn.header.lease_ms;
    let last = lease.granted_lease_ms.saturating_add(limits::LEASE_MAX_MS);
    let deadline_ms = now.saturating_add(lease_ms).min(last);
    let told_ms = deadline_ms;
    let deadline_ms = if is_planted(Bug::ExtensionForgotten) { lease.deadline_ms } else { deadline_ms };
    index::delete_lease(txn, place, &lease);
    let granted_index = lease.granted_index;
    index::put_lease(txn, place, &LeaseRecord { deadline_ms, ..lease });
    txn.effects.push(crate::reply::Effect::Leased {
        queue: place.queue,
        sequence: place.sequence,
        deadline_ms,
        granted_index,
    });
    Ok(SettleOutcome::Extended(Extended { deadline_ms: told_ms, remaining_ms: told_ms.saturating_sub(now) }))
}
