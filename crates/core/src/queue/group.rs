//! Groups: the messages of one stand in a line, and only its head can be received (SEMANTICS "Groups").

use bytes::Bytes;

use super::message::{self, Found};
use super::{dead_letter, index};
use crate::command::OnGroupFailure;
use crate::ids::{Place, QueueId};
use crate::keys::{self, Timer};
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::query::{DeadReason, MessageState};
use crate::queue::transition::{Cause, carry};
use crate::records::{DeadLetterRecord, DrainRecord, GroupRecord, Header, MessageRecord, StateRecord, broken, decode};
use crate::reply::{Effect, Fault, PlaceRecord};
use crate::txn::Txn;

/// Where a message stands that has joined its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is the first, and can be received.
    Head,
    /// It waits behind others.
    Behind,
}

/// Whether a message that joined now would be the head.
pub(crate) fn is_free(txn: &mut Txn<'_>, queue: QueueId, group: &str) -> Result<bool, Fault> {
    Ok(is_planted(Bug::GroupForgotten) || line_of(txn, queue, group)?.is_none())
}

/// Gives the next message that joins a line of `queue` its number.
pub(crate) fn next_line(txn: &mut Txn<'_>, queue: QueueId) -> Result<u64, Fault> {
    let record = &mut txn.queue_mut(queue)?.record;
    record.last_line = record.last_line.saturating_add(1);
    Ok(record.last_line)
}

/// Puts a message at the end of the line of its group.
pub(crate) fn join(txn: &mut Txn<'_>, place: Place, group: &str, line: u64) -> Result<Joined, Fault> {
    if is_free(txn, place.queue, group)? {
        let head = Some(PlaceRecord::from(place));
        txn.put(keys::group(place.queue, group), &GroupRecord { head, line, ..GroupRecord::default() });
        return Ok(Joined::Head);
    }
    index::enter_line(txn, place, group, line);
    Ok(Joined::Behind)
}

/// The line of a group, unless it is empty. One whose head was purged is.
fn line_of(txn: &mut Txn<'_>, queue: QueueId, group: &str) -> Result<Option<GroupRecord>, Fault> {
    let Some(record) = stored(txn, queue, group)? else { return Ok(None) };
    match record.head {
        Some(head) if message::is_purged_away(txn, queue, head.sequence)? => Ok(None),
        Some(_) | None => Ok(Some(record)),
    }
}

fn stored(txn: &Txn<'_>, queue: QueueId, group: &str) -> Result<Option<GroupRecord>, Fault> {
    txn.record("a group's line", &keys::group(queue, group))
}

/// What a head leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The next is the head.
    Next,
    /// It is a dead letter since it failed: its queue says what becomes of the line.
    Failed,
}

/// A message of a group is gone from its queue. Where it was the head, the line goes on without it. Returns whether the
/// line waits until that message is gone from where it went.
pub(crate) fn end(txn: &mut Txn<'_>, place: Place, group: &str, left: Left) -> Result<bool, Fault> {
    let queue = place.queue;
    let Some(record) = stored(txn, queue, group)? else { return Ok(false) };
    if record.head != Some(PlaceRecord::from(place)) {
        return Ok(false);
    }
    let policy = match left {
        Left::Next => OnGroupFailure::Continue,
        Left::Failed => txn.queue_there(queue)?.config.on_group_failure(),
    };
    match policy {
        OnGroupFailure::Continue => advance(txn, queue, group, record.line)?,
        OnGroupFailure::Block => {
            txn.put(keys::group(queue, group), &GroupRecord { head: None, blocked: true, ..record });
            let counted = &mut txn.queue_mut(queue)?.record.groups_blocked;
            *counted = counted.saturating_add(1);
            return Ok(true);
        }
        OnGroupFailure::DeadLetterGroup => {
            let Some((next, _)) = next_in_line(txn, queue, group, record.line, u64::MAX)? else {
                txn.overlay.delete(keys::group(queue, group));
                return Ok(false);
            };
            let drains_to = txn.queue_there(queue)?.record.last_line;
            // Nobody is left before the next, and nobody walks there again.
            let line = next.saturating_sub(1);
            let drains = GroupRecord { head: None, line, drains_to, drained: line, ..record };
            txn.put(keys::group(queue, group), &drains);
            txn.header.last_drain = txn.header.last_drain.saturating_add(1);
            let drain = DrainRecord { queue: queue.0, group: group.to_owned() };
            txn.put(keys::drain(txn.header.last_drain), &drain);
            txn.effects.push(Effect::TickAgain);
        }
    }
    Ok(false)
}

/// Makes the next of a line after `line` its head. An empty line is forgotten.
fn advance(txn: &mut Txn<'_>, queue: QueueId, group: &str, line: u64) -> Result<(), Fault> {
    let Some((line, place)) = next_in_line(txn, queue, group, line, u64::MAX)? else {
        txn.overlay.delete(keys::group(queue, group));
        return Ok(());
    };
    index::leave_line(txn, queue, group, line);
    let head = Some(PlaceRecord::from(place));
    txn.put(keys::group(queue, group), &GroupRecord { head, line, ..GroupRecord::default() });
    let key = keys::state(queue, place.sequence);
    let state: Option<StateRecord> = txn.record("a message's state", &key)?;
    let state = state.ok_or_else(|| broken("the state of a message in a line", &key, "there is none"))?;
    let due = state.not_before_ms;
    let mut state = StateRecord { blocked: false, not_before_ms: 0, ..state };
    let now = txn.header.cluster_ms;
    let record = &mut txn.queue_mut(queue)?.record;
    if due > now {
        carry(record, queue, Some(MessageState::Blocked), Cause::UnblockedLater, 0)?;
        return delay_head(txn, place, state, due);
    }
    carry(record, queue, Some(MessageState::Blocked), Cause::Unblocked, 0)?;
    index::push_returned(txn, place, &mut state)
}

/// A head waits until `due`, and its group with it.
pub(crate) fn delay_head(txn: &mut Txn<'_>, place: Place, mut state: StateRecord, due: u64) -> Result<(), Fault> {
    index::park(txn, place.queue, &mut state)?;
    state.due_ms = Some(due);
    state.return_number = None;
    index::put_state(txn, place, &state);
    index::set_timer(txn, Timer::Message { due, place });
    Ok(())
}

/// The first after `line` in a line, up to and with `to`.
fn next_in_line(
    txn: &mut Txn<'_>,
    queue: QueueId,
    group: &str,
    line: u64,
    to: u64,
) -> Result<Option<(u64, Place)>, Fault> {
    // What a purge took is dead, and is walked by nobody but the sweep.
    let first = line.saturating_add(1).max(txn.queue_there(queue)?.record.lines_from);
    let (from, to) = (keys::in_line(queue, group, first), keys::after(&keys::in_line(queue, group, to)));
    let Some((key, value)) = txn.overlay.scan(&from, &to, 1)?.into_iter().next() else { return Ok(None) };
    let line = keys::last_number(&key).ok_or_else(|| broken("a line number", &key, "there is none"))?;
    let place: PlaceRecord = decode("a place in a line", &key, value)?;
    Ok(Some((line, message::place(&place, &key)?)))
}

/// A dead letter is gone for which a line waited: the line goes on.
pub(crate) fn unblock(txn: &mut Txn<'_>, dead: &DeadLetterRecord, group: &str) -> Result<(), Fault> {
    let queue = QueueId(dead.blocks);
    if dead.blocks == 0 || txn.queue(queue)?.is_none() {
        return Ok(());
    }
    let Some(record) = stored(txn, queue, group)?.filter(|record| record.blocked) else { return Ok(()) };
    let counted = &mut txn.queue_mut(queue)?.record.groups_blocked;
    *counted = counted.saturating_sub(1);
    advance(txn, queue, group, record.line)
}

/// A delayed message of a group is due. Whoever has joined its line already is the head.
pub(crate) fn due(txn: &mut Txn<'_>, place: Place, mut state: StateRecord) -> Result<(), Fault> {
    let queue = place.queue;
    if state.line != 0 {
        index::unpark(txn, place, state.park);
        state.park = 0;
    } else {
        let key = keys::message(place);
        let message: Option<MessageRecord> = txn.record("a message", &key)?;
        let message = message.ok_or_else(|| broken("a message", &key, "there is none, but it is delayed"))?;
        state.line = next_line(txn, queue)?;
        match join(txn, place, &message.group, state.line)? {
            Joined::Head => {}
            Joined::Behind => {
                let record = &mut txn.queue_mut(queue)?.record;
                carry(record, queue, Some(MessageState::Delayed), Cause::DueBehind, 0)?;
                index::put_state(txn, place, &StateRecord { due_ms: None, blocked: true, ..state });
                return Ok(());
            }
        }
    }
    let record = &mut txn.queue_mut(queue)?.record;
    carry(record, queue, Some(MessageState::Delayed), Cause::Due, 0)?;
    index::push_returned(txn, place, &mut state)
}

/// Goes on with the lines that go to the dead letters. Returns whether there is more to do.
pub(crate) fn drain(txn: &mut Txn<'_>) -> Result<bool, Fault> {
    let mut budget = limits::TICK_DRAINED;
    while let Some((key, value)) = next_drain(|from, to| txn.overlay.scan(from, to, 1), &txn.header)? {
        let DrainRecord { queue, group } = decode("a line that goes to the dead letters", &key, value)?;
        if drain_line(txn, QueueId(queue), &group, &mut budget)? {
            return Ok(true);
        }
        let number = keys::last_number(&key).ok_or_else(|| broken("a number", &key, "there is none"))?;
        txn.overlay.delete(key.to_vec());
        txn.header.drains_from = number.saturating_add(1);
    }
    Ok(false)
}

/// The line that is next to go to the dead letters. What has gone is walked no more.
pub(crate) fn next_drain<E>(
    scan: impl FnOnce(&[u8], &[u8]) -> Result<Vec<(Bytes, Bytes)>, E>,
    header: &Header,
) -> Result<Option<(Bytes, Bytes)>, E> {
    let (from, to) = (keys::drain(header.drains_from), keys::drain(header.last_drain.saturating_add(1)));
    if header.drains_from > header.last_drain {
        return Ok(None);
    }
    Ok(scan(&from, &to)?.into_iter().next())
}

/// Moves what follows a head, as far as the budget goes. Returns whether there is more to do.
fn drain_line(txn: &mut Txn<'_>, queue: QueueId, group: &str, budget: &mut usize) -> Result<bool, Fault> {
    if txn.queue(queue)?.is_none() {
        return Ok(false);
    }
    let Some(mut record) = stored(txn, queue, group)?.filter(|record| record.drains_to != 0) else {
        return Ok(false);
    };
    while let Some((line, place)) = next_in_line(txn, queue, group, record.drained, record.drains_to)? {
        if *budget == 0 || txn.is_nearly_full() {
            return Ok(true);
        }
        *budget = budget.saturating_sub(1);
        let found = message::at(txn, place)?
            .ok_or_else(|| broken("a message in a line", &keys::message(place), "there is none"))?;
        let all_moved = record.line == record.drained;
        if follow(txn, found)? && all_moved {
            record.line = line;
        }
        record.drained = line;
        txn.put(keys::group(queue, group), &record);
    }
    // Where all have moved, nobody is left up to there.
    let after = if record.line == record.drained { record.drains_to } else { record.line };
    advance(txn, queue, group, after)?;
    Ok(false)
}

/// Moves one of a line after its head. Returns false where it stays: dead letters of other queues may stand in a line
/// too, and never move again.
fn follow(txn: &mut Txn<'_>, found: Found) -> Result<bool, Fault> {
    let Some(target) = dead_letter::target(txn, found.place.queue, &found.message)? else { return Ok(false) };
    dead_letter::run(txn, found, &target, DeadReason::Group)?;
    Ok(true)
}

/// A head that was purged is swept: its line, if nobody has begun it anew, is forgotten.
pub(crate) fn forget(txn: &mut Txn<'_>, place: Place, group: &str) -> Result<(), Fault> {
    if stored(txn, place.queue, group)?.is_some_and(|record| record.head == Some(PlaceRecord::from(place))) {
        txn.overlay.delete(keys::group(place.queue, group));
    }
    Ok(())
}

/// The head of a line has another place.
pub(crate) fn replace_head(txn: &mut Txn<'_>, before: PlaceRecord, place: Place, group: &str) -> Result<(), Fault> {
    if let Some(record) = stored(txn, place.queue, group)?.filter(|record| record.head == Some(before)) {
        txn.put(keys::group(place.queue, group), &GroupRecord { head: Some(place.into()), ..record });
    }
    Ok(())
}
