//! A message wherever it is: its record, what has changed of it, its lease, and so what it is doing.

use super::lease;
use crate::ids::{Place, QueueId};
use crate::keys;
use crate::query::MessageState;
use crate::records::{LeaseRecord, MessageRecord, StateRecord, broken};
use crate::reply::{Fault, PlaceRecord};
use crate::txn::Txn;

/// A message that is there.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Where it is.
    pub place: Place,
    /// Its record.
    pub message: MessageRecord,
    /// What has changed of it.
    pub state: Option<StateRecord>,
    /// Its lease, live or run out and not ended yet.
    pub lease: Option<LeaseRecord>,
    /// What it is doing.
    pub is: MessageState,
}

impl Found {
    /// Its number in the line of its group; 0: it is in none.
    pub(crate) fn line(&self) -> u64 {
        line(&self.message, self.state.as_ref())
    }

    /// When it is ready, where it is delayed.
    pub(crate) fn due(&self) -> Option<u64> {
        self.state.and_then(|state| state.due_ms).filter(|_| self.is == MessageState::Delayed)
    }

    /// Failures recorded ever of it.
    pub(crate) fn history(&self) -> u64 {
        self.state.map_or(0, |state| state.history)
    }
}

/// A message's number in the line of its group; 0: it is in none.
pub(crate) fn line(message: &MessageRecord, state: Option<&StateRecord>) -> u64 {
    state.map(|state| state.line).filter(|line| *line != 0).unwrap_or(message.line)
}

impl MessageRecord {
    /// Where it was born: its id.
    pub(crate) fn birth(&self, place: Place) -> PlaceRecord {
        self.origin.unwrap_or_else(|| PlaceRecord::from(place))
    }

    /// Whether a lease does not copy all that its end needs.
    pub(crate) fn is_keyed(&self) -> bool {
        let blocks = self.dead_letter.as_ref().is_some_and(|dead| dead.blocks != 0);
        let policy = self.retry.is_some() || !self.dead_letter_queue.is_empty();
        !self.group.is_empty() || !self.dedup_id.is_empty() || self.expires_at_ms != 0 || policy || blocks
    }

    /// Whether its time to live is over.
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires_at_ms != 0 && now >= self.expires_at_ms
    }
}

/// The message at a place, unless there is none, or it was purged.
pub(crate) fn at(txn: &mut Txn<'_>, place: Place) -> Result<Option<Found>, Fault> {
    let Some(purged_below) = txn.queue(place.queue)?.map(|queue| queue.record.purged_below) else { return Ok(None) };
    let Some(message) = txn.record::<MessageRecord>("a message", &keys::message(place))? else { return Ok(None) };
    let lease = lease::find(txn, place.queue, place.sequence)?;
    if lease.is_none() && place.sequence < purged_below {
        return Ok(None);
    }
    let state: Option<StateRecord> = txn.record("a message's state", &keys::state(place.queue, place.sequence))?;
    // The key of a held message does not say its priority; its state does.
    if state.is_some_and(|state| state.lane != u32::from(place.lane_byte())) {
        return Ok(None);
    }
    let is = match (&lease, state) {
        (Some(_), _) => MessageState::Leased,
        (None, Some(state)) if state.blocked => MessageState::Blocked,
        (None, Some(state)) if state.due_ms.is_some() => MessageState::Delayed,
        (None, Some(_) | None) => MessageState::Ready,
    };
    Ok(Some(Found { place, message, state, lease, is }))
}

/// The message that was born at `birth`, wherever it is now.
pub(crate) fn born_at(txn: &mut Txn<'_>, birth: Place) -> Result<Option<Found>, Fault> {
    let key = keys::moved(birth.queue, birth.sequence);
    let place = match txn.record::<PlaceRecord>("where a message is now", &key)? {
        Some(moved) => moved.place().ok_or_else(|| broken("a place", &key, format!("its lane is {}", moved.lane)))?,
        None => birth,
    };
    // A place that another message moved to is not the id of that message.
    Ok(at(txn, place)?.filter(|found| found.message.birth(place) == PlaceRecord::from(birth)))
}

/// The place that a record names, which stands under `key`.
pub(crate) fn place(record: &PlaceRecord, key: &[u8]) -> Result<Place, Fault> {
    record.place().ok_or_else(|| broken("a place", key, format!("its lane is {}", record.lane)))
}

/// Whether a message of `queue` that is not leased was purged.
pub(crate) fn is_purged_away(txn: &mut Txn<'_>, queue: QueueId, sequence: u64) -> Result<bool, Fault> {
    let below = txn.queue(queue)?.is_none_or(|queue| sequence < queue.record.purged_below);
    Ok(below && lease::find(txn, queue, sequence)?.is_none())
}
