//! The one table of what may become of a message, and the counters that follow from it.

use crate::ids::QueueId;
use crate::keys;
use crate::query::MessageState;
use crate::records::{QueueRecord, broken};
use crate::reply::Fault;

/// Why a message changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A producer put it here, ready at once.
    Enqueued,
    /// A producer put it here, for later.
    EnqueuedLater,
    /// A producer put it here, behind others of its group.
    EnqueuedBehind,
    /// It came from another queue.
    MovedIn,
    /// It came from another queue, behind others of its group.
    MovedInBehind,
    /// Its time has come.
    Due,
    /// Its time has come, but others of its group are before it.
    DueBehind,
    /// The one before it in its group is gone.
    Unblocked,
    /// The same, but it was rescheduled meanwhile.
    UnblockedLater,
    /// It was rescheduled.
    Deferred,
    /// A receiver got it.
    Granted,
    /// Its worker is done.
    Acked,
    /// It went to another queue.
    MovedOut,
    /// It failed and waits for its next attempt.
    BackedOff,
    /// It is given back and ready at once.
    Returned,
    /// Its lease ended after its queue was purged.
    Purged,
    /// It was cancelled.
    Cancelled,
    /// Its time to live is over.
    Expired,
    /// Its attempts are used up, and its queue drops such messages.
    Dropped,
}

/// The state after `cause`: `Err` where the table has no such line, `Ok(None)` where the message is gone.
pub(crate) fn next(from: Option<MessageState>, cause: Cause) -> Result<Option<MessageState>, ()> {
    use MessageState::{Blocked, Delayed, Leased, Ready};
    match (from, cause) {
        (None, Cause::Enqueued | Cause::MovedIn) => Ok(Some(Ready)),
        (None, Cause::EnqueuedLater) => Ok(Some(Delayed)),
        (None, Cause::EnqueuedBehind | Cause::MovedInBehind) => Ok(Some(Blocked)),
        (Some(Delayed), Cause::Due) => Ok(Some(Ready)),
        (Some(Delayed), Cause::DueBehind) => Ok(Some(Blocked)),
        (Some(Blocked), Cause::Unblocked) => Ok(Some(Ready)),
        (Some(Blocked), Cause::UnblockedLater) => Ok(Some(Delayed)),
        (Some(Ready), Cause::Deferred) => Ok(Some(Delayed)),
        (Some(Ready), Cause::Granted) => Ok(Some(Leased)),
        (Some(Leased), Cause::BackedOff) => Ok(Some(Delayed)),
        (Some(Leased), Cause::Returned) => Ok(Some(Ready)),
        (Some(Leased), Cause::Acked | Cause::Purged | Cause::Dropped) => Ok(None),
        (Some(Delayed | Ready | Blocked), Cause::Cancelled) => Ok(None),
        (Some(Delayed | Ready | Blocked | Leased), Cause::MovedOut | Cause::Expired) => Ok(None),
        (None | Some(Delayed | Ready | Blocked | Leased), _) => Err(()),
    }
}

/// Carries a message of `size` bytes from one state to the next, and counts it.
pub(crate) fn carry(
    record: &mut QueueRecord,
    queue: QueueId,
    from: Option<MessageState>,
    cause: Cause,
    size: u64,
) -> Result<(), Fault> {
    let fault = |found: String| broken("a message in a state that allows this", &keys::queue(queue), found);
    let to = next(from, cause).map_err(|()| fault(format!("{cause:?} came in state {from:?}")))?;
    let count = |counter: &mut u64, by: Option<u64>| match by {
        Some(sum) => {
            *counter = sum;
            Ok(())
        }
        None => Err(fault(format!("{cause:?} would take a counter of state {from:?} below 0"))),
    };
    if let Some(from) = from {
        let counter = counter(record, from);
        let less = counter.checked_sub(1);
        count(counter, less)?;
    }
    if let Some(to) = to {
        let counter = counter(record, to);
        let more = counter.checked_add(1);
        count(counter, more)?;
    }
    let leased = Some(MessageState::Leased);
    let bytes = match (from.is_some(), to.is_some()) {
        (false, true) => record.bytes.checked_add(size),
        (true, false) => record.bytes.checked_sub(size),
        (true, true) | (false, false) => Some(record.bytes),
    };
    count(&mut record.bytes, bytes)?;
    let leased_bytes = match (from == leased, to == leased) {
        (false, true) => record.leased_bytes.checked_add(size),
        (true, false) => record.leased_bytes.checked_sub(size),
        (true, true) | (false, false) => Some(record.leased_bytes),
    };
    count(&mut record.leased_bytes, leased_bytes)?;
    if from == leased && matches!(cause, Cause::Acked | Cause::MovedOut | Cause::Expired | Cause::Dropped) {
        record.count_finished();
    }
    let ever = match cause {
        Cause::Enqueued | Cause::EnqueuedLater | Cause::EnqueuedBehind => &mut record.enqueued,
        Cause::MovedIn | Cause::MovedInBehind => &mut record.moved_in,
        Cause::Granted => &mut record.received,
        Cause::Acked => &mut record.acked,
        Cause::MovedOut => &mut record.moved_out,
        Cause::Purged => &mut record.purged,
        Cause::Cancelled => &mut record.cancelled,
        Cause::Expired => &mut record.expired_dropped,
        Cause::Dropped => &mut record.dropped,
        Cause::Due
        | Cause::DueBehind
        | Cause::Unblocked
        | Cause::UnblockedLater
        | Cause::Deferred
        | Cause::BackedOff
        | Cause::Returned => return Ok(()),
    };
    *ever = ever.saturating_add(1);
    Ok(())
}

fn counter(record: &mut QueueRecord, state: MessageState) -> &mut u64 {
    match state {
        MessageState::Ready => &mut record.ready,
        MessageState::Delayed => &mut record.delayed,
        MessageState::Blocked => &mut record.blocked,
        MessageState::Leased => &mut record.leased,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_follow_a_message_through_its_life() {
        let mut record = QueueRecord::default();
        let mut state = None;
        for cause in [Cause::EnqueuedLater, Cause::Due, Cause::Granted, Cause::BackedOff, Cause::Due, Cause::Granted] {
            carry(&mut record, QueueId(1), state, cause, 10).unwrap();
            state = next(state, cause).unwrap();
        }
        assert_eq!((record.ready, record.delayed, record.leased, record.bytes, record.leased_bytes), (0, 0, 1, 10, 10));
        carry(&mut record, QueueId(1), state, Cause::Acked, 10).unwrap();
        let gone = QueueRecord { enqueued: 1, received: 2, acked: 1, ..QueueRecord::default() };
        assert_eq!(record, gone);
    }

    #[test]
    fn what_the_table_does_not_allow_is_a_fault() {
        let mut record = QueueRecord { ready: 1, ..QueueRecord::default() };
        assert!(carry(&mut record, QueueId(1), Some(MessageState::Ready), Cause::Acked, 0).is_err());
        assert!(carry(&mut record, QueueId(1), Some(MessageState::Delayed), Cause::Due, 0).is_err());
        assert!(carry(&mut record, QueueId(1), None, Cause::Granted, 0).is_err());
    }
}
