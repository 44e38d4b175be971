//! Compares what the model expects with what the machine answers. What the design leaves open is let pass: texts, as long
//! as they say what was expected; the receive count of what was never received.

use ticketrail_core::Reply;
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Invalid, LeaseLost, PartRefused, Received, Rejection,
    RejectionRecord, RescheduleOutcome, SettleOutcome,
};

use super::ANY_FIELD;

type Shown = Result<Reply, Rejection>;

/// Whether the answers are the same; if not, both of them as they were compared.
pub(super) fn agree(mut expected: Shown, actual: &Shown) -> Result<(), Box<(Shown, Shown)>> {
    match (&mut expected, actual) {
        (Err(expected), Err(actual)) => rejection(expected, actual),
        (Ok(expected), Ok(actual)) => match (&mut expected.answered, &actual.answered) {
            (Some(Answered::Committed(expected)), Some(Answered::Committed(actual))) => committed(expected, actual),
            (Some(Answered::Received(expected)), Some(Answered::Received(actual))) => received(expected, actual),
            _ => {}
        },
        _ => {}
    }
    if expected == *actual { Ok(()) } else { Err(Box::new((expected, actual.clone()))) }
}

fn committed(expected: &mut Committed, actual: &Committed) {
    for (expected, actual) in expected.enqueued.iter_mut().zip(&actual.enqueued) {
        if let (Some(EnqueueOutcome::Rejected(expected)), Some(EnqueueOutcome::Rejected(actual))) =
            (&mut expected.outcome, &actual.outcome)
        {
            record(expected, actual);
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
