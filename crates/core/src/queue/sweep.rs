//! Sweeping: deletes what a purge or a delete has left, a bounded piece with each tick.

use bytes::Bytes;

use super::{index, lease};
use crate::ids::{Place, QueueId, Space};
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
    finish(txn, queue, &sweep);
    txn.overlay.delete(keys::sweep(queue));
    Ok(!txn.overlay.scan(&from, &to, 1)?.is_empty())
}

/// Deletes the next messages: first those of the fresh lane, then those held. Returns whether there are more.
fn piece(txn: &mut Txn<'_>, queue: QueueId, sweep: &mut SweepRecord) -> Result<bool, Fault> {
    let priority = limits::PRIORITY_DEFAULT;
    let spaces = [
        (Space::Fresh, keys::fresh(queue, priority, sweep.from), keys::fresh(queue, priority, sweep.below)),
        (Space::Held, keys::held(queue, sweep.from), keys::held(queue, sweep.below)),
    ];
    // `h` sorts before `m`: the cursor may only be compared within a space.
    let cursor = sweep.cursor.clone();
    let mut spaces = spaces.into_iter().skip_while(|(_, from, _)| !cursor.is_empty() && from.first() != cursor.first());
    let Some((space, from, to)) = spaces.next() else { return Ok(false) };
    let from = if sweep.cursor.is_empty() { from } else { keys::after(&sweep.cursor).max(from) };
    let found = txn.overlay.scan(&from, &to, limits::SCAN_KEYS)?;
    let exhausted = found.len() < limits::SCAN_KEYS;
    for (key, value) in found {
        if txn.is_nearly_full() {
            return Ok(true);
        }
        let sequence = keys::last_number(&key).ok_or_else(|| broken("a sequence", &key, "there is none"))?;
        let place = Place { queue, space, priority, sequence };
        if sweep.deleted || lease::find(txn, queue, sequence)?.is_none() {
            delete(txn, place, &key, value)?;
        }
        sweep.cursor = key;
    }
    if !exhausted {
        return Ok(true);
    }
    match spaces.next() {
        Some((_, from, _)) => {
            // Just before the first key of the next space: `after` brings the scan to it.
            sweep.cursor = from.get(..1).map(Bytes::copy_from_slice).unwrap_or_default();
            Ok(true)
        }
        None => Ok(false),
    }
}

fn delete(txn: &mut Txn<'_>, place: Place, key: &[u8], value: Bytes) -> Result<(), Fault> {
    let message: MessageRecord = decode("a message", key, value)?;
    let state: Option<StateRecord> = txn.record("a message's state", &keys::state(place.queue, place.sequence))?;
    if let Some(due) = state.and_then(|s| s.due_ms) {
        index::drop_timer(txn, Timer::Message { due, place });
    }
    index::delete_message(txn, place, state.is_some(), state.map_or(0, |s| s.history), message.origin);
    if message.body != 0 {
        txn.overlay.delete(keys::body(message.body));
    }
    Ok(())
}

/// What point deletes have not reached: places in the returned lane, and all of a queue that is gone. Nothing live is
/// left in these ranges, and nothing will be written into them.
fn finish(txn: &mut Txn<'_>, queue: QueueId, sweep: &SweepRecord) {
    let priority = limits::PRIORITY_DEFAULT;
    if sweep.deleted {
        for tag in [b'l', b's', b'r', b'f'] {
            let (from, to) = keys::of_queue(tag, queue);
            txn.overlay.delete_range(from, to);
        }
    } else {
        let (from, to) = (keys::returned(queue, priority, 0), keys::returned(queue, priority, sweep.returns_below));
        txn.overlay.delete_range(from, to);
    }
}
