//! The cancel and reschedule parts of a commit: a message that nobody has received is taken away, or made ready at
//! another time.

use super::message::{self, Found};
use super::{dedup, enqueue, failure, find, finish, group, index, invalid};
use crate::command::{Reschedule, Target};
use crate::ids::{Place, QueueId, Space};
use crate::keys::{self, Timer};
use crate::planted::{Bug, is_planted};
use crate::query::MessageState;
use crate::queue::transition::{Cause, carry};
use crate::records::StateRecord;
use crate::reply::{CancelOutcome, Empty, Enqueued, Fault, LeaseLost, PlaceRecord, Rejection};
use crate::txn::Txn;

/// What a target names.
enum Named {
    Missing,
    /// It has finished, and only its dedup id is remembered.
    Finished,
    There(Box<Found>),
}

fn resolve(txn: &mut Txn<'_>, target: Option<&Target>) -> Result<Result<Named, Rejection>, Fault> {
    let none = || invalid("target", "expected a message's id, or a queue and a dedup id, but there is neither");
    let Some(target) = target else { return Ok(Err(none())) };
    let birth = match (&target.id, target.dedup_id.as_str()) {
        (Some(_), dedup_id) if !dedup_id.is_empty() || target.queue.is_some() => {
            return Ok(Err(invalid("target", "expected a message's id or a dedup id, but there are both")));
        }
        (Some(id), _) => match id.place() {
            Some(place) => place,
            None => return Ok(Err(invalid("message_id", format!("expected a lane, but got {}", id.lane)))),
        },
        (None, "") => return Ok(Err(none())),
        (None, dedup_id) => {
            let queue = match find(txn, target.queue.as_ref())? {
                Ok(queue) => queue,
                Err(Rejection::QueueNotFound(_)) => return Ok(Ok(Named::Missing)),
                Err(rejection) => return Ok(Err(rejection)),
            };
            match dedup::find(txn, queue, dedup_id)? {
                Some(record) if record.finished => return Ok(Ok(Named::Finished)),
                Some(record) => message::place(&record.place, &keys::dedup(queue, dedup_id))?,
                None => return Ok(Ok(Named::Missing)),
            }
        }
    };
    Ok(Ok(message::born_at(txn, birth)?.map_or(Named::Missing, |found| Named::There(Box::new(found)))))
}

fn too_late(found: Option<&Found>) -> Rejection {
    let receive_count = found.and_then(|found| found.lease.as_ref()).map(|lease| lease.receive_count);
    Rejection::TooLate(LeaseLost { receive_count })
}

/// Carries out one cancel. Also returns the queue that it touched.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    target: &Target,
) -> Result<Result<(CancelOutcome, Option<QueueId>), Rejection>, Fault> {
    let found = match resolve(txn, Some(target))? {
        Ok(Named::There(found)) if found.is == MessageState::Leased => return Ok(Err(too_late(Some(&found)))),
        Ok(Named::There(found)) => found,
        Ok(Named::Finished) => return Ok(Err(too_late(None))),
        Ok(Named::Missing) => return Ok(Ok((CancelOutcome::Gone(Empty {}), None))),
        Err(rejection) => return Ok(Err(rejection)),
    };
    let queue = found.place.queue;
    let id = found.message.birth(found.place);
    if !is_planted(Bug::CancelUndone) || found.is != MessageState::Delayed {
        finish::run(txn, &found, Cause::Cancelled)?;
    }
    Ok(Ok((CancelOutcome::Cancelled(id), Some(queue))))
}

/// Carries out one reschedule. Also returns the queue that it touched.
pub(crate) fn reschedule(
    txn: &mut Txn<'_>,
    part: &Reschedule,
) -> Result<Result<(Enqueued, QueueId), Rejection>, Fault> {
    let now = txn.header.cluster_ms;
    if let Err(rejection) = enqueue::check_times(part.delay_ms, part.deliver_at_ms, now) {
        return Ok(Err(rejection));
    }
    let found = match resolve(txn, part.target.as_ref())? {
        Ok(Named::There(found)) if found.is == MessageState::Leased => return Ok(Err(too_late(Some(&found)))),
        Ok(Named::There(found)) => found,
        Ok(Named::Finished) => return Ok(Err(too_late(None))),
        Ok(Named::Missing) => return Ok(Err(Rejection::MessageNotFound(Empty {}))),
        Err(rejection) => return Ok(Err(rejection)),
    };
    let due = now.saturating_add(part.delay_ms).max(part.deliver_at_ms);
    if found.message.is_expired(due) {
        let expires = found.message.expires_at_ms;
        let reason = format!("expected a time before the message expires, at {expires}, but got {due}");
        return Ok(Err(invalid("deliver_at", reason)));
    }
    let queue = found.place.queue;
    let id = found.message.birth(found.place);
    if due > now {
        put_off(txn, *found, due)?;
    } else {
        ready_now(txn, &found)?;
    }
    Ok(Ok((Enqueued { place: id, available_at_ms: due, duplicate: false }, queue)))
}

fn ready_now(txn: &mut Txn<'_>, found: &Found) -> Result<(), Fault> {
    let state = found.state.unwrap_or_default();
    match found.is {
        MessageState::Ready | MessageState::Leased => Ok(()),
        MessageState::Blocked => {
            index::put_state(txn, found.place, &StateRecord { not_before_ms: 0, ..state });
            Ok(())
        }
        MessageState::Delayed => {
            if let Some(due) = state.due_ms {
                index::drop_timer(txn, Timer::Message { due, place: found.place });
            }
            failure::ready(txn, found.place, state)
        }
    }
}

fn put_off(txn: &mut Txn<'_>, found: Found, due: u64) -> Result<(), Fault> {
    let state = found.state.unwrap_or_default();
    match found.is {
        MessageState::Leased => Ok(()),
        MessageState::Blocked => {
            index::put_state(txn, found.place, &StateRecord { not_before_ms: due, ..state });
            Ok(())
        }
        MessageState::Delayed => {
            if let Some(before) = state.due_ms {
                index::drop_timer(txn, Timer::Message { due: before, place: found.place });
            }
            index::put_state(txn, found.place, &StateRecord { due_ms: Some(due), ..state });
            index::set_timer(txn, Timer::Message { due, place: found.place });
            Ok(())
        }
        MessageState::Ready => {
            index::leave(txn, &found)?;
            let place = hold(txn, &found)?;
            let queue = place.queue;
            let record = &mut txn.queue_mut(queue)?.record;
            carry(record, queue, Some(MessageState::Ready), Cause::Deferred, 0)?;
            let line = found.line();
            let grouped = !found.message.group.is_empty();
            let state = StateRecord { due_ms: Some(due), return_number: None, line, grouped, ..state };
            if grouped {
                return group::delay_head(txn, place, state, due);
            }
            index::put_state(txn, place, &state);
            index::set_timer(txn, Timer::Message { due, place });
            Ok(())
        }
    }
}

/// Writes a message anew where no receive scans it, if it stands in the fresh lane: there its key is its place.
fn hold(txn: &mut Txn<'_>, found: &Found) -> Result<Place, Fault> {
    let before = found.place;
    if found.state.is_some_and(|state| state.return_number.is_some()) {
        return Ok(before);
    }
    let place = Place { space: Space::Held, ..before };
    let birth = found.message.birth(before);
    let message = crate::records::MessageRecord { origin: Some(birth), ..found.message.clone() };
    txn.overlay.delete(keys::message(before));
    index::put_message(txn, place, &message)?;
    index::put_moved(txn, birth, place);
    if !message.group.is_empty() {
        group::replace_head(txn, PlaceRecord::from(before), place, &message.group)?;
    }
    Ok(place)
}
