//! Messages that nobody has received: taken away, or made ready at another time.

use ticketrail_core::command::{Commit, QueueRef, Reschedule, Target};
use ticketrail_core::limits;
use ticketrail_core::reply::{CancelOutcome, CancelResult, PlaceRecord, RescheduleOutcome, RescheduleResult};
use ticketrail_proto::v1;

use super::field::{self, timestamp_of_ms};
use super::message;
use crate::status::{self, FieldError, Refusal};

/// Cancels as a commit of its parts.
pub(crate) fn cancel(namespace: String, targets: Vec<v1::Target>) -> Result<Commit, FieldError> {
    let namespace = field::namespace(namespace)?;
    field::batch("targets", targets.len())?;
    let targets = targets.into_iter().enumerate();
    let parts = targets.map(|(at, wire)| target(&namespace, &format!("targets[{at}]"), wire));
    Ok(Commit { cancel: parts.collect::<Result<_, _>>()?, ..Commit::default() })
}

/// Reschedules as a commit of its parts.
pub(crate) fn reschedule(namespace: String, messages: Vec<v1::NewTime>) -> Result<Commit, FieldError> {
    let namespace = field::namespace(namespace)?;
    field::batch("messages", messages.len())?;
    let messages = messages.into_iter().enumerate();
    let parts = messages.map(|(at, wire)| new_time(&namespace, &format!("messages[{at}]"), wire));
    Ok(Commit { reschedule: parts.collect::<Result<_, _>>()?, ..Commit::default() })
}

/// A message found in the field `at`: by its id, or by a queue and a dedup id.
pub(crate) fn target(namespace: &str, at: &str, wire: v1::Target) -> Result<Target, FieldError> {
    match wire.which {
        Some(v1::target::Which::MessageId(id)) => {
            let id = id.parse::<ticketrail_core::MessageId>();
            let id = id.map_err(|e| FieldError::new(format!("{at}.message_id"), e.to_string()))?;
            Ok(Target { id: Some(PlaceRecord::from(id)), ..Target::default() })
        }
        Some(v1::target::Which::Dedup(v1::DedupKey { queue, dedup_id })) => {
            let name = field::queue_name(&format!("{at}.dedup.queue"), queue)?;
            let dedup_id = self::dedup_id(&format!("{at}.dedup.dedup_id"), dedup_id)?;
            Ok(Target { id: None, queue: Some(QueueRef { namespace: namespace.to_owned(), name }), dedup_id })
        }
        None => Err(FieldError::new(at, "expected a message_id, or a dedup key, but got none that is known")),
    }
}

/// A dedup id that names something.
pub(crate) fn dedup_id(field: &str, text: String) -> Result<String, FieldError> {
    if text.is_empty() {
        return Err(FieldError::new(field, "expected a dedup id, but got none"));
    }
    field::text(field, text, limits::ID_BYTES)
}

/// A message and its new time, found in the field `at`.
pub(crate) fn new_time(namespace: &str, at: &str, wire: v1::NewTime) -> Result<Reschedule, FieldError> {
    let v1::NewTime { target, available } = wire;
    let target = self::target(namespace, &format!("{at}.target"), target.unwrap_or_default())?;
    let (delay_ms, deliver_at_ms) = match available {
        None => (0, 0),
        Some(v1::new_time::Available::Delay(delay)) => (message::delay(at, &delay)?, 0),
        Some(v1::new_time::Available::DeliverAt(time)) => (0, message::deliver_at(at, &time)?),
    };
    Ok(Reschedule { target: Some(target), delay_ms, deliver_at_ms })
}

fn id_text(place: PlaceRecord) -> Result<String, Refusal> {
    Ok(place.message_id().ok_or_else(|| Refusal::mismatch("a message's place"))?.to_string())
}

/// What became of one cancel.
pub(crate) fn cancel_result(result: &CancelResult) -> Result<v1::CancelResult, Refusal> {
    use v1::cancel_result::Outcome;
    let outcome = match &result.outcome {
        Some(CancelOutcome::Cancelled(place)) => Outcome::Cancelled(v1::Cancelled { message_id: id_text(*place)? }),
        Some(CancelOutcome::Gone(_)) => Outcome::Gone(v1::Gone {}),
        Some(CancelOutcome::Rejected(record)) => Outcome::Error(status::item(record)),
        None => return Err(Refusal::mismatch("a cancel's result")),
    };
    Ok(v1::CancelResult { outcome: Some(outcome) })
}

/// What became of one reschedule.
pub(crate) fn reschedule_result(result: &RescheduleResult) -> Result<v1::RescheduleResult, Refusal> {
    use v1::reschedule_result::Outcome;
    let outcome = match &result.outcome {
        Some(RescheduleOutcome::Rescheduled(enqueued)) => Outcome::Rescheduled(v1::Rescheduled {
            message_id: id_text(enqueued.place)?,
            available_at: Some(timestamp_of_ms(enqueued.available_at_ms)),
        }),
        Some(RescheduleOutcome::Rejected(record)) => Outcome::Error(status::item(record)),
        None => return Err(Refusal::mismatch("a reschedule's result")),
    };
    Ok(v1::RescheduleResult { outcome: Some(outcome) })
}

#[cfg(test)]
mod tests {
    use ticketrail_core::Rejection;
    use ticketrail_core::reply::{Empty, Enqueued, LeaseLost, RejectionRecord};
    use v1::target::Which;

    use super::*;

    fn by_id(id: &str) -> v1::Target {
        v1::Target { which: Some(Which::MessageId(id.into())) }
    }

    fn by_dedup(queue: &str, dedup_id: &str) -> v1::Target {
        v1::Target { which: Some(Which::Dedup(v1::DedupKey { queue: queue.into(), dedup_id: dedup_id.into() })) }
    }

    #[test]
    fn targets_are_ids_or_dedup_ids() {
        let commit = cancel("shop".into(), vec![by_id("1.17.m4.1043"), by_dedup("orders", "o-1")]).unwrap();
        let [first, second] = &commit.cancel[..] else { panic!("two targets") };
        assert_eq!(first.id.map(|place| (place.queue, place.sequence)), Some((17, 1_043)));
        assert_eq!((first.queue.clone(), first.dedup_id.as_str()), (None, ""));
        let queue = QueueRef { namespace: "shop".into(), name: "orders".into() };
        assert_eq!((second.id, second.queue.clone(), second.dedup_id.as_str()), (None, Some(queue), "o-1"));
        assert!(!commit.atomic);
        // Of another group: nothing is there, and it is not mistaken for what is here.
        let elsewhere = cancel(String::new(), vec![by_id("2.17.m4.1043")]).unwrap();
        assert_eq!(elsewhere.cancel[0].id.map(|place| (place.queue, place.sequence)), Some((0, 1_043)));
    }

    #[test]
    fn what_names_nothing_is_refused_by_field() {
        let none = v1::Target { which: None };
        for (wire, field) in [
            (none, "targets[1]"),
            (by_id("nonsense"), "targets[1].message_id"),
            (by_id(""), "targets[1].message_id"),
            (by_dedup("", "o-1"), "targets[1].dedup.queue"),
            (by_dedup("orders", ""), "targets[1].dedup.dedup_id"),
            (by_dedup("orders", &"x".repeat(257)), "targets[1].dedup.dedup_id"),
        ] {
            assert_eq!(cancel(String::new(), vec![by_id("1.1.m4.1"), wire]).unwrap_err().field, field);
        }
        assert_eq!(cancel(String::new(), vec![]).unwrap_err().field, "targets");
        assert_eq!(cancel("a b".into(), vec![by_id("1.1.m4.1")]).unwrap_err().field, "namespace");
        assert_eq!(cancel(String::new(), vec![by_id("1.1.m4.1"); 1_001]).unwrap_err().field, "targets");
    }

    #[test]
    fn a_new_time_is_now_or_later_or_a_point() {
        use v1::new_time::Available;
        let with = |available| v1::NewTime { target: Some(by_id("1.1.m4.1")), available };
        let times = |available| {
            let commit = reschedule(String::new(), vec![with(available)])?;
            Ok::<_, FieldError>((commit.reschedule[0].delay_ms, commit.reschedule[0].deliver_at_ms))
        };
        assert_eq!(times(None), Ok((0, 0)));
        let delay = |seconds| Some(Available::Delay(prost_types::Duration { seconds, nanos: 0 }));
        let at = |seconds| Some(Available::DeliverAt(prost_types::Timestamp { seconds, nanos: 0 }));
        assert_eq!(times(delay(5)), Ok((5_000, 0)));
        assert_eq!(times(at(5)), Ok((0, 5_000)));
        assert_eq!(times(delay(366 * 86_400 + 1)).unwrap_err().field, "messages[0].delay");
        assert_eq!(times(at(-1)).unwrap_err().field, "messages[0].deliver_at");
        let none = v1::NewTime { target: None, available: None };
        assert_eq!(reschedule(String::new(), vec![none]).unwrap_err().field, "messages[0].target");
        assert_eq!(reschedule(String::new(), vec![]).unwrap_err().field, "messages");
    }

    #[test]
    fn results_go_out() {
        let place = PlaceRecord { queue: 7, lane: 4, sequence: 9 };
        let record = |rejection| RejectionRecord { rejection: Some(rejection) };
        let cancelled = |outcome| cancel_result(&CancelResult { outcome: Some(outcome) }).unwrap().outcome.unwrap();
        let expected = v1::Cancelled { message_id: "1.7.m4.9".into() };
        assert_eq!(cancelled(CancelOutcome::Cancelled(place)), v1::cancel_result::Outcome::Cancelled(expected));
        assert_eq!(cancelled(CancelOutcome::Gone(Empty {})), v1::cancel_result::Outcome::Gone(v1::Gone {}));
        let late = record(Rejection::TooLate(LeaseLost { receive_count: Some(2) }));
        let v1::cancel_result::Outcome::Error(error) = cancelled(CancelOutcome::Rejected(late)) else {
            panic!("an error")
        };
        assert_eq!((error.reason.as_str(), error.metadata["receive_count"].as_str()), ("TOO_LATE", "2"));
        assert!(cancel_result(&CancelResult { outcome: None }).is_err());

        let moved = RescheduleOutcome::Rescheduled(Enqueued { place, available_at_ms: 5_000, duplicate: false });
        let result = reschedule_result(&RescheduleResult { outcome: Some(moved) }).unwrap();
        let Some(v1::reschedule_result::Outcome::Rescheduled(moved)) = result.outcome else { panic!("a new time") };
        assert_eq!(moved.message_id, "1.7.m4.9");
        assert_eq!(moved.available_at, Some(prost_types::Timestamp { seconds: 5, nanos: 0 }));
        let missing = RescheduleOutcome::Rejected(record(Rejection::MessageNotFound(Empty {})));
        let result = reschedule_result(&RescheduleResult { outcome: Some(missing) }).unwrap();
        let Some(v1::reschedule_result::Outcome::Error(error)) = result.outcome else { panic!("an error") };
        assert_eq!(error.reason, "MESSAGE_NOT_FOUND");
        assert!(reschedule_result(&RescheduleResult { outcome: None }).is_err());
    }
}
