//! Compares what the model expects with what the machine answers. What the design leaves open is let pass: texts, as long
//! as they say what was expected; the receive count of what was never received; how a quotient is rounded.

use ticketrail_core::Reply;
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Enqueued, Full, Invalid, LeaseLost, PartRefused, Received,
    Rejection, RejectionRecord, RescheduleOutcome, SettleOutcome,
};

use super::ANY_FIELD;

type Shown = Result<Reply, Rejection>;

/// Whether the answers are the same; if not, both of them as they were compared.
pub(super) fn agree(now: u64, mut expected: Shown, actual: &Shown) -> Result<(), Box<(Shown, Shown)>> {
    match (&mut expected, actual) {
        (Err(expected), Err(actual)) => rejection(expected, actual),
        (Ok(expected), Ok(actual)) => match (&mut expected.answered, &actual.answered) {
            (Some(Answered::Committed(expected)), Some(Answered::Committed(actual))) => {
                committed(now, expected, actual)
            }
            (Some(Answered::Received(expected)), Some(Answered::Received(actual))) => received(expected, actual),
            _ => {}
        },
        _ => {}
    }
    if expected == *actual { Ok(()) } else { Err(Box::new((expected, actual.clone()))) }
}

fn committed(now: u64, expected: &mut Committed, actual: &Committed) {
    for (expected, actual) in expected.enqueued.iter_mut().zip(&actual.enqueued) {
        match (&mut expected.outcome, &actual.outcome) {
            (Some(EnqueueOutcome::Enqueued(expected)), Some(EnqueueOutcome::Enqueued(actual))) => {
                duplicate(now, expected, actual);
            }
            (Some(EnqueueOutcome::Rejected(expected)), Some(EnqueueOutcome::Rejected(actual))) => {
                record(expected, actual);
            }
            _ => {}
        }
    }
    for (expected, actual) in expected.settled.iter_mut().zip(&actual.settled) {
        if let (Some(SettleOutcome::Rejected(expected)), Some(SettleOutcome::Rejected(actual))) =
            (&mut expected.outcome, &actual.outcome)
        {
            record(expected, actual);
        }
    }
    for (expected, actual) in expected.cancelled.iter_mut().zip(&actual.cancelled) {
        if let (Some(CancelOutcome::Rejected(expected)), Some(CancelOutcome::Rejected(actual))) =
            (&mut expected.outcome, &actual.outcome)
        {
            record(expected, actual);
        }
    }
    for (expected, actual) in expected.rescheduled.iter_mut().zip(&actual.rescheduled) {
        if let (Some(RescheduleOutcome::Rejected(expected)), Some(RescheduleOutcome::Rejected(actual))) =
            (&mut expected.outcome, &actual.outcome)
        {
            record(expected, actual);
        }
    }
}

/// When a message that is not delayed was available: some time that is over.
fn duplicate(now: u64, expected: &mut Enqueued, actual: &Enqueued) {
    let is_over = expected.available_at_ms <= now && actual.available_at_ms <= now;
    if expected.duplicate && actual.duplicate && is_over {
        expected.available_at_ms = actual.available_at_ms;
    }
}

/// A lease that is over has no end worth telling.
fn received(expected: &mut Received, actual: &Received) {
    for (expected, actual) in expected.taken.iter_mut().zip(&actual.taken) {
        expected.handle.deadline_ms = actual.handle.deadline_ms;
        expected.handle.granted_index = actual.handle.granted_index;
    }
}

fn record(expected: &mut RejectionRecord, actual: &RejectionRecord) {
    if let (Some(expected), Some(actual)) = (&mut expected.rejection, &actual.rejection) {
        rejection(expected, actual);
    }
}

fn rejection(expected: &mut Rejection, actual: &Rejection) {
    match (expected, actual) {
        (
            Rejection::PartRefused(PartRefused { why: Some(expected), .. }),
            Rejection::PartRefused(PartRefused { why: Some(actual), .. }),
        ) => record(expected, actual),
        (Rejection::Invalid(expected), Rejection::Invalid(actual)) => invalid(expected, actual),
        (Rejection::Full(expected), Rejection::Full(actual)) => full(expected, actual),
        (Rejection::LeaseLost(expected), Rejection::LeaseLost(actual)) => never_received(expected, actual),
        _ => {}
    }
}

/// The field may be named with its unit or its message; the text must say what was expected and what came.
fn invalid(expected: &mut Invalid, actual: &Invalid) {
    let short = |field: &str| field.rsplit('.').next().unwrap_or(field).trim_end_matches("_ms").to_owned();
    let says = actual.reason.starts_with("expected ") && actual.reason.contains(", but ");
    if says && (expected.field == ANY_FIELD || short(&expected.field) == short(&actual.field)) {
        *expected = actual.clone();
    }
}

/// A message that was never received has no count to tell.
fn never_received(expected: &mut LeaseLost, actual: &LeaseLost) {
    if expected.receive_count == Some(0) && actual.receive_count.is_none() {
        expected.receive_count = None;
    }
}

/// Quotients: give or take two, or a fiftieth.
fn full(expected: &mut Full, actual: &Full) {
    let close = |one: u64, other: u64| one.abs_diff(other) <= 2 + one / 50;
    // How many messages a number of bytes is, is rounded too.
    let is_of_bytes = expected.bound == "max_bytes" && (100..=60_000).contains(&actual.retry_after_ms);
    if is_of_bytes || close(expected.retry_after_ms, actual.retry_after_ms) {
        expected.retry_after_ms = actual.retry_after_ms;
    }
    if expected.bound == "max_wait" && close(expected.held, actual.held) {
        expected.held = actual.held;
    }
}
