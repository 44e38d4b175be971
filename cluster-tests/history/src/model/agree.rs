//! Whether an outcome is the one that the model gives.

use super::{Step, same, wrong};
use crate::format::{Applied, CancelOutcome, EnqueueOutcome, Refusal, SettleOutcome, TimeOutcome};

/// Compares two refusals; texts for people may differ.
pub(crate) fn refusal(expected: &Refusal, got: &Refusal) -> Step {
    let both = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
    let equal = expected.why == got.why
        && expected.rc == got.rc
        && expected.part == got.part
        && both(&expected.bound, &got.bound)
        && expected.again.zip(got.again).is_none_or(|(a, b)| a == b);
    if equal { Ok(()) } else { wrong("a refusal says why", format!("expected {expected:?}, but it is {got:?}")) }
}

/// Compares two outcomes of a request.
pub(crate) fn applied(expected: &Applied, got: &Applied) -> Step {
    match (expected, got) {
        (Applied::Refused(expected), Applied::Refused(got)) => refusal(expected, got),
        (Applied::Refused(expected), got) => {
            wrong("what must be refused is refused", format!("expected {expected}, but the outcome is {got:?}"))
        }
        (Applied::Committed { s, c, t, e }, Applied::Committed { s: s2, c: c2, t: t2, e: e2 }) => {
            let lens = (s.len(), c.len(), t.len(), e.len());
            same("each part has a result", "the numbers of results", lens, (s2.len(), c2.len(), t2.len(), e2.len()))?;
            s.iter().zip(s2).try_for_each(|(a, b)| settled(a, b))?;
            c.iter().zip(c2).try_for_each(|(a, b)| cancelled(a, b))?;
            t.iter().zip(t2).try_for_each(|(a, b)| moved(a, b))?;
            e.iter().zip(e2).try_for_each(|(a, b)| enqueued(a, b))
        }
        (Applied::Removed { .. }, _) => {
            same("a purge removes all that is not leased, and a delete all", "the outcome", expected, got)
        }
        (Applied::Changed { .. }, _) => same("a change is of the queue that was named", "the outcome", expected, got),
        (
            Applied::Nothing
            | Applied::Committed { .. }
            | Applied::Granted { .. }
            | Applied::Taken { .. }
            | Applied::Expired { .. }
            | Applied::Ticked { .. }
            | Applied::Initialized { .. }
            | Applied::Session { .. }
            | Applied::Namespace,
            _,
        ) => same("a lawful request takes effect", "the outcome", expected, got),
    }
}

fn settled(expected: &SettleOutcome, got: &SettleOutcome) -> Step {
    match (expected, got) {
        (SettleOutcome::No(expected), SettleOutcome::No(got)) => refusal(expected, got),
        (SettleOutcome::No(expected), got) => {
            let text = format!("expected {expected}, but the settlement took effect: {got:?}");
            wrong("a lease that is over settles nothing", text)
        }
        (expected, SettleOutcome::No(got)) => {
            let text = format!("expected the live lease to be settled ({expected:?}), but it was refused: {got}");
            wrong("a live lease can be settled", text)
        }
        (
            SettleOutcome::Acked
            | SettleOutcome::Dead { .. }
            | SettleOutcome::Delayed { .. }
            | SettleOutcome::Readied
            | SettleOutcome::Extended { .. }
            | SettleOutcome::Purged
            | SettleOutcome::Expired
            | SettleOutcome::Dropped
            | SettleOutcome::Gone
            | SettleOutcome::Unseen,
            _,
        ) => same("a verdict has its consequence", "the outcome", expected, got),
    }
}

fn cancelled(expected: &CancelOutcome, got: &CancelOutcome) -> Step {
    match (expected, got) {
        (CancelOutcome::No(expected), CancelOutcome::No(got)) => refusal(expected, got),
        (CancelOutcome::Cancelled { .. } | CancelOutcome::Gone | CancelOutcome::No(_), _) => {
            same("a cancel takes what nobody has, and nothing else", "the outcome", expected, got)
        }
    }
}

fn moved(expected: &TimeOutcome, got: &TimeOutcome) -> Step {
    match (expected, got) {
        (TimeOutcome::No(expected), TimeOutcome::No(got)) => refusal(expected, got),
        (TimeOutcome::Moved { .. } | TimeOutcome::No(_), _) => {
            same("a reschedule moves what nobody has, and nothing else", "the outcome", expected, got)
        }
    }
}

fn enqueued(expected: &EnqueueOutcome, got: &EnqueueOutcome) -> Step {
    match (expected, got) {
        (EnqueueOutcome::No(expected), EnqueueOutcome::No(got)) => refusal(expected, got),
        (EnqueueOutcome::No(expected), got) => {
            wrong("what must be refused is refused", format!("expected {expected}, but it was taken in: {got:?}"))
        }
        (expected, EnqueueOutcome::No(got)) => {
            let text = format!("expected the message to be taken in ({expected:?}), but it was refused: {got}");
            wrong("a lawful request takes effect", text)
        }
        (EnqueueOutcome::In { dup: true, .. }, EnqueueOutcome::In { .. })
        | (EnqueueOutcome::In { .. }, EnqueueOutcome::In { dup: true, .. }) => {
            same("a dedup id that is remembered adds nothing, and no other does", "the outcome", expected, got)
        }
        (EnqueueOutcome::In { .. }, EnqueueOutcome::In { .. }) => {
            same("sequences follow each other, and a delay is kept", "the outcome", expected, got)
        }
    }
}
