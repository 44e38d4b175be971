//! Sweeping: deletes what a purge or a delete has left, a bounded piece with each tick.

use bytes::Bytes;

use super::{finish, index, lanes, lease};
use crate::ids::{Place, QueueId};
use crate::keys::{self, Timer};
use crate::limits;
use crate::records::{MessageRecord, StateRecord, SweepRecord, broken, decode};
use crate::reply::{Effect, Fault};
use crate::txn::Txn;

/// Notes what is dead: messages from `from` on, as all below were swept before. A sweep under way takes the new bounds
/// and begins again.
pub(crate) fn start(txn: &mut Txn<'_>, queue: QueueId, sweep: SweepRecord) -> Result<(), Fault> {
    let key = keys::sweep(queue);
    let under_way: Option<SweepRecord> = txn.record("a sweep", &key)?;
    let from = under_way.map_or(sweep.from, |s| s.from.min(sweep.from));
    txn.put(key, &SweepRecord { from, ..sweep });
    txn.effects.push(Effect::TickAgain);
    Ok(())
}

/// Goes on with the first sweep; returns whether there is more to do.
pub(crate) fn run(txn: &mut Txn<'_>) -> Result<bool, Fault> {
    let (from, to) = keys::space(b'w');
    let Some((key, value)) = txn.overlay.scan(&from, &to, 1)?.into_iter().next() else { return Ok(false) };
    let mut sweep: SweepRecord = decode("a sweep", &key, value)?;
    let queue = QueueId(keys::last_number(&key).ok_or_else(|| broken("a queue's id", &key, "there is none"))?);
    if piece(txn, queue, &mut sweep)? {
        txn.put(keys::sweep(queue), &sweep);
        return Ok(true);
    }
    clear_ranges(txn, queue, &sweep);
    txn.overlay.delete(keys::sweep(queue));
    Ok(!txn.overlay.scan(&from, &to, 1)?.is_empty())
}

/// Deletes the next messages: first those of each priority's fresh lane, then those held. Looks at a bounded number of
/// keys, and returns whether there are more.
fn piece(txn: &mut Txn<'_>, queue: QueueId, sweep: &mut SweepRecord) -> Result<bool, Fault> {
    let mut looks = limits::SCAN_KEYS;
    while let Some((priority, from, to)) = space(queue, sweep) {
        let from = if sweep.cursor.is_empty() { from } else { keys::after(&sweep.cursor) };
        let found = txn.overlay.scan(&from, &to, looks)?;
        let exhausted = found.len() < looks;
        looks = looks.saturating_sub(found.len());
        for (key, value) in found {
            if txn.is_nearly_full() {
                return Ok(true);
            }
            let sequence = keys::last_number(&key).ok_or_else(|| broken("a sequence", &key, "there is none"))?;
            if sweep.deleted || lease::find(txn, queue, sequence)?.is_none() {
                delete(txn, queue, sequence, priority, &key, value)?;
            }
            sweep.cursor = key;
        }
        if !exhausted {
            return Ok(true);
        }
        sweep.cursor = Bytes::new();
        sweep.space = sweep.space.saturating_add(1);
    }
    Ok(false)
}

/// The space of keys that a sweep is at: its priority, or `None` for those held, and its range. `None`: all are swept.
fn space(queue: QueueId, sweep: &SweepRecord) -> Option<(Option<u8>, keys::Key, keys::Key)> {
    let (from, below) = (sweep.from, sweep.below);
    let at = u8::try_from(sweep.space).ok()?;
    match limits::PRIORITY_MAX.checked_sub(at) {
        Some(priority) => {
            Some((Some(priority), keys::fresh(queue, priority, from), keys::fresh(queue, priority, below)))
        }
        None if at == limits::PRIORITY_MAX.saturating_add(1) => {
            Some((None, keys::held(queue, from), keys::held(queue, below)))
        }
        None => None,
    }
}

fn delete(
    txn: &mut Txn<'_>,
    queue: QueueId,
    sequence: u64,
    priority: Option<u8>,
    key: &[u8],
    value: Bytes,
) -> Result<(), Fault> {
    let message: MessageRecord = decode("a message", key, value)?;
    let state: Option<StateRecord> = txn.record("a message's state", &keys::state(queue, sequence))?;
    let place = match priority {
        Some(priority) => lanes::fresh_place(queue, priority, sequence),
        None => state
            .and_then(|state| Place::from_parts(queue, u8::try_from(state.lane).ok()?, sequence))
            .ok_or_else(|| broken("the state of a held message", key, format!("it is {state:?}")))?,
    };
    if let Some(due) = state.and_then(|s| s.due_ms) {
        index::drop_timer(txn, Timer::Message { due, place });
    }
    index::delete_message(txn, place, state.is_some(), state.map_or(0, |s| s.history), message.origin);
    if message.body != 0 {
        txn.overlay.delete(keys::body(message.body));
    }
    if message.is_keyed() {
        finish::follow_up_swept(txn, place, &message, state)?;
    }
    Ok(())
}

/// What point deletes have not reached: places in the returned lanes, parkings, and all of a queue that is gone. Nothing
/// live is left in these ranges, and nothing will be written into them.
fn clear_ranges(txn: &mut Txn<'_>, queue: QueueId, sweep: &SweepRecord) {
    if sweep.deleted {
        for tag in *b"lsrfxjzdp" {
            let (from, to) = keys::of_queue(tag, queue);
            txn.overlay.delete_range(from, to);
        }
        return;
    }
    for priority in 0..=limits::PRIORITY_MAX {
        let key = |number| keys::returned(queue, priority, number);
        txn.overlay.delete_range(key(0), key(sweep.returns_below));
    }
    txn.overlay.delete_range(keys::parked(queue, 0), keys::parked(queue, sweep.parks_below));
}
