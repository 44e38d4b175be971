//! Between the API's messages and a history's words.

use std::time::Duration;

use bytes::Bytes;
use ticketrail_history::format::{
    self, Answer, DeadLetter, Delivery, EnqueueOutcome, MessageId, QueueName, Refusal, Settings, SettleOutcome, Stats,
    Token, Told, Verdict, fingerprint,
};
use ticketrail_proto::v1;

use crate::caller::Part;

/// What a reply that makes no sense says.
pub(crate) fn nonsense(what: &str) -> Refusal {
    Refusal { text: what.to_owned(), ..Refusal::new("NONSENSE") }
}

pub(crate) fn duration(time: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: time.as_secs().cast_signed(), nanos: time.subsec_nanos().cast_signed() }
}

/// A duration of the API in milliseconds; 0 where there is none.
pub(crate) fn millis(time: Option<prost_types::Duration>) -> u64 {
    time.and_then(|time| Duration::try_from(time).ok())
        .map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// A time of the API in milliseconds since the Unix epoch; 0 where there is none.
pub(crate) fn timestamp(time: Option<prost_types::Timestamp>) -> u64 {
    time.map_or(0, |time| {
        u64::try_from(time.seconds).unwrap_or(0) * 1_000 + u64::try_from(time.nanos).unwrap_or(0) / 1_000_000
    })
}

/// A reply by its commit, if it has one, and else by who answered.
pub(crate) fn told(commit: Option<v1::Commit>, origin: Option<v1::Origin>, answer: Answer) -> Told {
    match commit {
        Some(commit) => Told {
            cp: Some(format::Position { index: commit.index, ordinal: commit.ordinal }),
            ts: timestamp(commit.cluster_time),
            node: commit.node,
            term: commit.term,
            replayed: commit.replayed,
            answer,
        },
        None => {
            let v1::Origin { node, term } = origin.unwrap_or_default();
            Told { cp: None, ts: 0, node, term, replayed: false, answer }
        }
    }
}

pub(crate) fn new_message(body: Bytes, message: &format::NewMessage) -> v1::NewMessage {
    let available =
        (message.d > 0).then(|| v1::new_message::Available::Delay(duration(Duration::from_millis(message.d))));
    v1::NewMessage { body, available, ..Default::default() }
}

fn item(error: v1::ItemError) -> Refusal {
    Refusal {
        rc: error.metadata.get("receive_count").and_then(|count| count.parse().ok()),
        why: error.reason,
        part: None,
        text: error.message,
    }
}

fn id(text: &str) -> Result<MessageId, Refusal> {
    text.parse().map_err(|error: format::NameError| nonsense(&error.to_string()))
}

pub(crate) fn enqueued(enqueued: v1::Enqueued) -> Result<EnqueueOutcome, Refusal> {
    let v1::Enqueued { message_id, sequence, available_at } = enqueued;
    Ok(EnqueueOutcome::In { id: id(&message_id)?, seq: sequence, at: timestamp(available_at) })
}

pub(crate) fn enqueue_result(result: v1::EnqueueResult) -> Result<EnqueueOutcome, Refusal> {
    match result.outcome {
        Some(v1::enqueue_result::Outcome::Enqueued(message)) => enqueued(message),
        Some(v1::enqueue_result::Outcome::Error(error)) => Ok(EnqueueOutcome::No(item(error))),
        None => Err(nonsense("a result of an enqueue without an outcome")),
    }
}

pub(crate) fn delivery(delivery: v1::Delivery) -> Result<(Delivery, Bytes), Refusal> {
    let v1::Delivery { message, lease_token, lease_remaining, receive_count, failures } = delivery;
    let message = message.ok_or_else(|| nonsense("a delivery without a message"))?;
    let dead = message.dead_letter.map(|dead| DeadLetter {
        q: QueueName::new(&dead.source_namespace, &dead.source_queue),
        why: match v1::DeadReason::try_from(dead.reason) {
            Ok(v1::DeadReason::Attempts) => "attempts".to_owned(),
            Ok(v1::DeadReason::Rejected) => "rejected".to_owned(),
            Ok(v1::DeadReason::Unspecified) | Err(_) => format!("{}", dead.reason),
        },
        rc: dead.receive_count,
        f: dead.failures,
    });
    let recorded = Delivery {
        id: id(&message.id)?,
        v: format::body::value(&message.body),
        h: fingerprint(&message.body),
        tok: Token::of(&lease_token),
        left: millis(lease_remaining),
        rc: receive_count,
        f: failures,
        dead,
    };
    Ok((recorded, lease_token))
}

pub(crate) fn settle_result(result: v1::SettleResult) -> Result<SettleOutcome, Refusal> {
    use v1::settle_result::Outcome;
    Ok(match result.outcome {
        Some(Outcome::Acked(v1::Acked {})) => SettleOutcome::Acked,
        Some(Outcome::DeadLettered(dead)) => SettleOutcome::Dead { seq: dead.sequence, q: dead.queue_id },
        Some(Outcome::Delayed(delayed)) => SettleOutcome::Delayed { due: timestamp(delayed.due_at) },
        Some(Outcome::Readied(v1::Readied {})) => SettleOutcome::Readied,
        Some(Outcome::Purged(v1::Purged {})) => SettleOutcome::Purged,
        Some(Outcome::Error(error)) => SettleOutcome::No(item(error)),
        None => return Err(nonsense("a result of a settlement without an outcome")),
    })
}

pub(crate) fn extend_result(result: v1::ExtendResult) -> Result<SettleOutcome, Refusal> {
    use v1::extend_result::Outcome;
    Ok(match result.outcome {
        Some(Outcome::Extended(extended)) => SettleOutcome::Extended { left: millis(extended.lease_remaining) },
        Some(Outcome::Error(error)) => SettleOutcome::No(item(error)),
        None => return Err(nonsense("a result of an extension without an outcome")),
    })
}

pub(crate) fn settled_part(part: v1::SettledPart) -> Result<SettleOutcome, Refusal> {
    use v1::settled_part::Outcome;
    Ok(match part.outcome {
        Some(Outcome::Acked(v1::Acked {})) => SettleOutcome::Acked,
        Some(Outcome::DeadLettered(dead)) => SettleOutcome::Dead { seq: dead.sequence, q: dead.queue_id },
        Some(Outcome::Delayed(delayed)) => SettleOutcome::Delayed { due: timestamp(delayed.due_at) },
        Some(Outcome::Readied(v1::Readied {})) => SettleOutcome::Readied,
        Some(Outcome::Extended(extended)) => SettleOutcome::Extended { left: millis(extended.lease_remaining) },
        Some(Outcome::Purged(v1::Purged {})) => SettleOutcome::Purged,
        None => return Err(nonsense("a settled part without an outcome")),
    })
}

pub(crate) fn stats(queue: v1::QueueInfo) -> Result<Stats, Refusal> {
    let s = queue.stats.ok_or_else(|| nonsense("a queue without its figures"))?;
    Ok(Stats {
        q: queue.id,
        ready: s.ready,
        delayed: s.delayed,
        blocked: s.blocked,
        leased: s.leased,
        bytes: s.bytes,
        enqueued: s.enqueued,
        moved_in: s.moved_in,
        acked: s.acked,
        moved_out: s.moved_out,
        expired_dropped: s.expired_dropped,
        cancelled: s.cancelled,
        purged: s.purged,
        dropped: s.dropped,
        received: s.received,
        redelivered: s.redelivered,
        failed: s.failed,
        lease_expired: s.lease_expired,
        over_bound: s.over_bound,
    })
}

/// The verdict of a settlement. There is none for an extension.
pub(crate) fn settlement(part: &Part) -> v1::Settlement {
    use v1::settlement::Verdict as Wire;
    let verdict = match part.verdict {
        Verdict::Ack => Some(Wire::Ack(v1::Ack {})),
        Verdict::Retry { d } => Some(Wire::Retry(retry(d))),
        Verdict::Reject => Some(Wire::Reject(reject())),
        Verdict::Release => Some(Wire::Release(v1::Release {})),
        Verdict::Extend { .. } => None,
    };
    v1::Settlement { lease_token: part.token.clone(), verdict }
}

pub(crate) fn settle_part(part: &Part) -> v1::SettlePart {
    use v1::settle_part::Verdict as Wire;
    let verdict = match part.verdict {
        Verdict::Ack => Wire::Ack(v1::Ack {}),
        Verdict::Retry { d } => Wire::Retry(retry(d)),
        Verdict::Reject => Wire::Reject(reject()),
        Verdict::Release => Wire::Release(v1::Release {}),
        Verdict::Extend { lease } => {
            Wire::Extend(v1::ExtendLease { lease: Some(duration(Duration::from_millis(lease))) })
        }
    };
    v1::SettlePart { lease_token: part.token.clone(), verdict: Some(verdict) }
}

fn retry(delay_ms: Option<u64>) -> v1::Retry {
    let delay = delay_ms.map(|ms| duration(Duration::from_millis(ms)));
    v1::Retry { code: "failed".to_owned(), text: String::new(), delay }
}

fn reject() -> v1::Reject {
    v1::Reject { code: "impossible".to_owned(), text: String::new() }
}

pub(crate) fn settings(settings: &Settings) -> v1::QueueSettings {
    let time = |ms: Option<u64>| ms.map(|ms| duration(Duration::from_millis(ms)));
    v1::QueueSettings {
        max_depth: settings.max_depth,
        max_bytes: settings.max_bytes,
        lease: time(settings.lease),
        max_attempts: settings.max_attempts,
        failure_window: time(settings.window),
        backoff_base: time(settings.base),
        backoff_cap: time(settings.cap),
        dead_letter_queue: settings.dlq.clone(),
    }
}
