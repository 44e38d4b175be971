//! `Tick`: fires timers that are due, and works off what was left to do, in bounded pieces.

use bytes::Bytes;

use crate::keys::{self, Key, Timer};
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::queue::{dedup, done, expiry, failure, gate, group, sweep};
use crate::records::{Header, broken};
use crate::reply::{Answered, Effect, Fault, Ticked};
use crate::session;
use crate::time::Timestamp;
use crate::token;
use crate::txn::Txn;
use crate::view::View;

/// Sessions that one tick ends: each may have as many rows as it has outcomes.
const TICK_SESSIONS: usize = 100;

/// Carries out a `Tick`.
pub(crate) fn run(txn: &mut Txn<'_>) -> Result<Answered, Fault> {
    token::drop_old(txn);
    let sessions = fire_sessions(txn)?;
    let timers = fire_timers(txn)?;
    let swept = sweep::run(txn)?;
    let drains = group::drain(txn)?;
    if sessions.more || timers.more || swept || drains {
        txn.effects.push(Effect::TickAgain);
    }
    Ok(Answered::Ticked(Ticked { fired: timers.fired.saturating_add(sessions.fired) }))
}

struct Fired {
    fired: u32,
    more: bool,
}

fn fire_timers(txn: &mut Txn<'_>) -> Result<Fired, Fault> {
    let early_ms = if is_planted(Bug::EarlyTimer) { 1_500 } else { 0 };
    let (first, to) = keys::timers_until(txn.header.cluster_ms.saturating_add(early_ms));
    let from = start(&txn.header.timers_done, first);
    let due = txn.overlay.scan(&from, &to, limits::TICK_TIMERS)?;
    let mut fired = Fired { fired: 0, more: due.len() == limits::TICK_TIMERS };
    for (key, value) in due {
        if txn.is_nearly_full() {
            fired.more = true;
            break;
        }
        let timer = Timer::parse(&key).ok_or_else(|| broken("a timer", &key, "it does not parse"))?;
        txn.overlay.delete(key.to_vec());
        txn.header.timers_done = key;
        match timer {
            Timer::Message { due, place } => failure::fire_due(txn, place, due)?,
            Timer::Resume { due, queue } => gate::fire_resume(txn, queue, due)?,
            Timer::Expiry { due, place } => expiry::fire(txn, place, due)?,
            Timer::Dedup { place, .. } => {
                let id = std::str::from_utf8(&value);
                let id = id.map_err(|e| broken("a dedup id", &txn.header.timers_done, e.to_string()))?;
                dedup::fire(txn, place, id)?;
            }
            Timer::Done { place, .. } => done::fire(txn, place, &value)?,
        }
        fired.fired = fired.fired.saturating_add(1);
    }
    Ok(fired)
}

fn fire_sessions(txn: &mut Txn<'_>) -> Result<Fired, Fault> {
    let (first, to) = keys::session_timers_until(txn.header.lease_ms);
    let from = start(&txn.header.session_timers_done, first);
    let due = txn.overlay.scan(&from, &to, TICK_SESSIONS)?;
    let mut fired = Fired { fired: 0, more: due.len() == TICK_SESSIONS };
    for (key, _) in due {
        if txn.is_nearly_full() {
            fired.more = true;
            break;
        }
        let id = keys::last_number(&key).ok_or_else(|| broken("a session's timer", &key, "it does not parse"))?;
        txn.overlay.delete(key.to_vec());
        txn.header.session_timers_done = key;
        session::fire_timer(txn, id)?;
        fired.fired = fired.fired.saturating_add(1);
    }
    Ok(fired)
}

/// Scans start behind what has been fired, so that a dead key is walked at most once.
fn start(done: &Bytes, first: Key) -> Key {
    if done.is_empty() { first } else { keys::after(done) }
}

/// When the first timer is due, on cluster time. One on the lease clock is due when that clock would be there, did it
/// not stop.
pub(crate) fn next_timer(view: &dyn View, header: &Header) -> Result<Option<Timestamp>, Fault> {
    let first = |done: &Bytes, tag: u8| -> Result<Option<u64>, Fault> {
        let (from, to) = keys::space(tag);
        let found = view.scan(&start(done, from), &to, 1)?.into_iter().next();
        Ok(found.and_then(|(key, _)| keys::first_number(&key)))
    };
    let message = first(&header.timers_done, b't')?.map(Timestamp);
    let session =
        first(&header.session_timers_done, b'y')?.map(|due| header.now().plus(due.saturating_sub(header.lease_ms)));
    let tokens =
        token::next_drop(&header.token_buckets).map(|due| header.now().plus(due.saturating_sub(header.lease_ms)));
    Ok(message.into_iter().chain(session).chain(tokens).min())
}
