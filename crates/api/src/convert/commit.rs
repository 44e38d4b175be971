//! Parts that stand or fall together, or alone.

use ticketrail_core::command::{Commit, Content, Enqueue, Extend, QueueRef, Settle, Verdict};
use ticketrail_core::limits;
use ticketrail_core::reply::{EnqueueOutcome, EnqueueResult, Part, SettleOutcome, SettleResult};
use ticketrail_proto::v1;

use super::field::{self, at_most, duration_of_ms, timestamp_of_ms};
use super::receive::lease;
use super::{cancel, message, settle};
use crate::Settings;
use crate::status::{self, FieldError, Refusal, part_field};

/// A commit, atomic unless its parts are independent. What is wrong with a part is refused in its name, as `apply` would; that
/// refuses the whole also where parts are independent.
pub(crate) fn commit(settings: &Settings, request: v1::CommitRequest) -> Result<Commit, Refusal> {
    let v1::CommitRequest { request_id: _, namespace, settle, enqueue, cancel, independent, reschedule } = request;
    let namespace = field::namespace(namespace)?;
    if settle.is_empty() && cancel.is_empty() && reschedule.is_empty() && enqueue.is_empty() {
        let reason = "expected parts in settle, cancel, reschedule or enqueue, but got none";
        return Err(FieldError::new("settle", reason).into());
    }
    at_most("settle", "items", settle.len(), limits::BATCH)?;
    at_most("cancel", "items", cancel.len(), limits::BATCH)?;
    at_most("reschedule", "items", reschedule.len(), limits::BATCH)?;
    at_most("enqueue", "items", enqueue.len(), limits::BATCH)?;
    let mut commit = Commit { atomic: !independent, auto_create: settings.auto_create, ..Commit::default() };
    for (number, wire) in (0u32..).zip(settle) {
        let part = Part::Settle(number);
        commit.settle.push(settle_part(&part_field(part), wire).map_err(|e| Refusal::from(e).of_part(part))?);
    }
    settle::outputs("settle", &commit.settle)?;
    for (number, wire) in (0u32..).zip(cancel) {
        let part = Part::Cancel(number);
        let target = cancel::target(&namespace, &part_field(part), wire).map_err(|e| Refusal::from(e).of_part(part))?;
        commit.cancel.push(target);
    }
    for (number, wire) in (0u32..).zip(reschedule) {
        let part = Part::Reschedule(number);
        let new_time = cancel::new_time(&namespace, &part_field(part), wire);
        commit.reschedule.push(new_time.map_err(|e| Refusal::from(e).of_part(part))?);
    }
    let single = enqueue.len() == 1;
    let mut bytes = 0;
    for (number, wire) in (0u32..).zip(enqueue) {
        let part = Part::Enqueue(number);
        let (queue, mut enqueue) =
            enqueue_part(settings, &part_field(part), wire).map_err(|e| Refusal::from(e).of_part(part))?;
        bytes += enqueue.message.as_ref().map_or(0, Content::size);
        enqueue.queue = number_of(&mut commit.queues, QueueRef { namespace: namespace.clone(), name: queue });
        commit.enqueue.push(enqueue);
    }
    if !single {
        at_most("enqueue", "bytes together", bytes, limits::BATCH_BYTES as u64)?;
    }
    Ok(commit)
}

fn settle_part(at: &str, part: v1::SettlePart) -> Result<Settle, FieldError> {
    use v1::settle_part::Verdict as Wire;
    let v1::SettlePart { lease_token, verdict } = part;
    let verdict = match verdict {
        Some(Wire::Ack(ack)) => v1::settlement::Verdict::Ack(ack),
        Some(Wire::Retry(retry)) => v1::settlement::Verdict::Retry(retry),
        Some(Wire::Reject(reject)) => v1::settlement::Verdict::Reject(reject),
        Some(Wire::Release(release)) => v1::settlement::Verdict::Release(release),
        Some(Wire::Extend(extend)) => {
            let token = field::lease_token(&format!("{at}.lease_token"), lease_token)?;
            let lease_ms = lease(&format!("{at}.extend.lease"), extend.lease)?;
            return Ok(Settle { token, verdict: Some(Verdict::Extend(Extend { lease_ms })) });
        }
        None => {
            let expected = "expected one of ack, retry, reject, release, extend, but got none that is known";
            return Err(FieldError::new(at, expected));
        }
    };
    settle::settlement(at, v1::Settlement { lease_token, verdict: Some(verdict) })
}

/// The queue's name and the message for it.
fn enqueue_part(settings: &Settings, at: &str, part: v1::EnqueuePart) -> Result<(String, Enqueue), FieldError> {
    let queue = field::queue_name(&format!("{at}.queue"), part.queue)?;
    let at = format!("{at}.message");
    let message = part.message.ok_or_else(|| FieldError::new(&at, "expected a message, but there is none"))?;
    Ok((queue, message::new_message(settings, &at, message)?))
}

/// The number of a queue in the commit's list, where each stands once.
fn number_of(queues: &mut Vec<QueueRef>, queue: QueueRef) -> u32 {
    let number = queues.iter().position(|known| *known == queue).unwrap_or_else(|| {
        queues.push(queue);
        queues.len() - 1
    });
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What became of one settlement of a commit that happened. Only where parts are independent it may be refused.
pub(crate) fn settled_part(result: &SettleResult) -> Result<v1::SettledPart, Refusal> {
    use v1::settled_part::Outcome;
    let outcome = match &result.outcome {
        Some(SettleOutcome::Acked(_)) => Outcome::Acked(v1::Acked {}),
        Some(SettleOutcome::DeadLettered(dead)) => {
            Outcome::DeadLettered(v1::DeadLettered { sequence: dead.place.sequence, queue_id: dead.place.queue })
        }
        Some(SettleOutcome::Delayed(delayed)) => {
            Outcome::Delayed(v1::Delayed { due_at: Some(timestamp_of_ms(delayed.due_ms)) })
        }
        Some(SettleOutcome::Readied(_)) => Outcome::Readied(v1::Readied {}),
        Some(SettleOutcome::Extended(extended)) => {
            Outcome::Extended(v1::Extended { lease_remaining: Some(duration_of_ms(extended.remaining_ms)) })
        }
        Some(SettleOutcome::Purged(_)) => Outcome::Purged(v1::Purged {}),
        Some(SettleOutcome::Expired(_)) => Outcome::Expired(v1::Expired {}),
        Some(SettleOutcome::Dropped(_)) => Outcome::Dropped(v1::Dropped {}),
        Some(SettleOutcome::Rejected(record)) => Outcome::Error(status::item(record)),
        None => return Err(Refusal::mismatch("the result of a settled part")),
    };
    Ok(v1::SettledPart { outcome: Some(outcome) })
}

/// Where a message of a commit that happened is.
pub(crate) fn enqueued_part(result: &EnqueueResult) -> Result<v1::Enqueued, Refusal> {
    match &result.outcome {
        Some(EnqueueOutcome::Enqueued(enqueued)) => message::enqueued(enqueued),
        Some(EnqueueOutcome::Rejected(_)) | None => Err(Refusal::mismatch("the result of an enqueued part")),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ticketrail_core::command::{Ack, Failure, Release, Retry};
    use ticketrail_core::{GroupId, LeaseToken, QueueId};
    use v1::settle_part::Verdict as Wire;

    use super::*;

    fn settle(verdict: Option<Wire>) -> v1::SettlePart {
        let token = LeaseToken { group: GroupId::QUEUES, queue: QueueId(1), sequence: 2, hash: [3; 16] };
        v1::SettlePart { lease_token: token.to_bytes().into(), verdict }
    }

    fn ack() -> v1::SettlePart {
        settle(Some(Wire::Ack(v1::Ack::default())))
    }

    fn enqueue(queue: &str, bytes: usize) -> v1::EnqueuePart {
        let message = v1::NewMessage { body: vec![0; bytes].into(), ..Default::default() };
        v1::EnqueuePart { queue: queue.into(), message: Some(message) }
    }

    fn parsed(settle: Vec<v1::SettlePart>, enqueue: Vec<v1::EnqueuePart>) -> Result<Commit, Refusal> {
        commit(&Settings::default(), v1::CommitRequest { settle, enqueue, ..Default::default() })
    }

    fn target(dedup_id: &str) -> v1::Target {
        let key = v1::DedupKey { queue: "orders".into(), dedup_id: dedup_id.into() };
        v1::Target { which: Some(v1::target::Which::Dedup(key)) }
    }

    #[test]
    fn cancels_and_reschedules_are_parts_too() {
        let new_time = |dedup_id| v1::NewTime { target: Some(target(dedup_id)), available: None };
        let request = v1::CommitRequest {
            namespace: "shop".into(),
            cancel: vec![target("a"), target("b")],
            reschedule: vec![new_time("c")],
            independent: true,
            ..Default::default()
        };
        let parsed = commit(&Settings::default(), request).unwrap();
        assert!(!parsed.atomic);
        assert_eq!((parsed.cancel.len(), parsed.reschedule.len()), (2, 1));
        assert_eq!(parsed.cancel[0].queue.as_ref().map(|queue| queue.namespace.as_str()), Some("shop"));
        let wrong = v1::CommitRequest { cancel: vec![target("a"), target("")], ..Default::default() };
        let refusal = commit(&Settings::default(), wrong).unwrap_err();
        assert_eq!(named(&refusal), ["cancel[1].dedup.dedup_id", "cancel", "1"]);
        let wrong = v1::CommitRequest { reschedule: vec![new_time("")], ..Default::default() };
        let refusal = commit(&Settings::default(), wrong).unwrap_err();
        assert_eq!(named(&refusal), ["reschedule[0].target.dedup.dedup_id", "reschedule", "0"]);
    }

    /// The field, the part and its number that a refusal names.
    fn named(refusal: &Refusal) -> [&str; 3] {
        let text = |name| refusal.metadata.get(name).map_or("", String::as_str);
        [text("field"), text("part"), text("index")]
    }

    #[test]
    fn parts_go_in_and_each_queue_stands_once() {
        let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let settles = vec![
            ack(),
            settle(Some(Wire::Retry(v1::Retry { code: "c".into(), text: "t".into(), delay: second }))),
            settle(Some(Wire::Reject(v1::Reject { code: "c".into(), text: "t".into() }))),
            settle(Some(Wire::Release(v1::Release {}))),
            settle(Some(Wire::Extend(v1::ExtendLease { lease: second }))),
            settle(Some(Wire::Extend(v1::ExtendLease { lease: None }))),
        ];
        let commit = parsed(settles, vec![enqueue("payment", 1), enqueue("mail", 2), enqueue("payment", 3)]).unwrap();
        assert!(commit.atomic && commit.auto_create);
        let failure = Failure { code: "c".into(), text: "t".into() };
        let verdicts: Vec<_> = commit.settle.iter().filter_map(|part| part.verdict.clone()).collect();
        let expected = [
            Verdict::Ack(Ack::default()),
            Verdict::Retry(Retry { failure: Some(failure.clone()), delay_ms: Some(1_000) }),
            Verdict::Reject(failure),
            Verdict::Release(Release {}),
            Verdict::Extend(Extend { lease_ms: 1_000 }),
            Verdict::Extend(Extend { lease_ms: 0 }),
        ];
        assert_eq!(verdicts, expected);
        let names: Vec<_> = commit.queues.iter().map(|queue| (&*queue.namespace, &*queue.name)).collect();
        assert_eq!(names, [("default", "payment"), ("default", "mail")]);
        assert_eq!(commit.enqueue.iter().map(|part| part.queue).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn a_part_outside_its_limits_is_named() {
        let short = v1::SettlePart { lease_token: Bytes::from_static(b"short"), ..ack() };
        let lease = Some(prost_types::Duration { seconds: 0, nanos: 1 });
        let extend = settle(Some(Wire::Extend(v1::ExtendLease { lease })));
        let reject = settle(Some(Wire::Reject(v1::Reject { code: "c".repeat(257), text: String::new() })));
        let rows = [
            (vec![ack(), short], vec![], ["settle[1].lease_token", "settle", "1"]),
            (vec![ack(), settle(None)], vec![], ["settle[1]", "settle", "1"]),
            (vec![extend], vec![], ["settle[0].extend.lease", "settle", "0"]),
            (vec![reject], vec![], ["settle[0].reject.code", "settle", "0"]),
            (vec![], vec![enqueue("a", 1), enqueue("a b", 1)], ["enqueue[1].queue", "enqueue", "1"]),
            (vec![ack()], vec![enqueue("a", (1 << 20) + 1)], ["enqueue[0].message.body", "enqueue", "0"]),
            (
                vec![],
                vec![v1::EnqueuePart { queue: "a".into(), message: None }],
                ["enqueue[0].message", "enqueue", "0"],
            ),
        ];
        for (settle, enqueue, expected) in rows {
            let refusal = parsed(settle, enqueue).unwrap_err();
            assert_eq!(named(&refusal), expected);
            assert!(refusal.message.starts_with(expected[0]), "{}", refusal.message);
        }
    }

    #[test]
    fn the_whole_has_limits_too() {
        let rows = [
            parsed(vec![], vec![]),
            parsed(vec![ack(); 1_001], vec![]),
            parsed(vec![], vec![enqueue("a", 0); 1_001]),
            parsed(vec![], vec![enqueue("a", 1 << 20); 5]),
            commit(
                &Settings::default(),
                v1::CommitRequest { namespace: "no namespace".into(), settle: vec![ack()], ..Default::default() },
            ),
            commit(&Settings::default(), v1::CommitRequest { cancel: vec![target("a"); 1_001], ..Default::default() }),
        ];
        let fields = rows.map(|row| named(&row.unwrap_err()).map(str::to_owned));
        let of = |field: &str| [field.to_owned(), String::new(), String::new()];
        assert_eq!(fields, [of("settle"), of("settle"), of("enqueue"), of("enqueue"), of("namespace"), of("cancel")]);
        assert!(parsed(vec![ack(); 1_000], vec![enqueue("a", 0); 1_000]).is_ok());
    }
}
