//! Between the API's messages and a history's words.

use std::time::Duration;

use bytes::Bytes;
use ticketrail_history::format::{
    self, Answer, CancelOutcome, DeadLetter, Delivery, EnqueueOutcome, MessageId, More, NewTime, OnGroup, QueueName,
    Refusal, Remains, Settings, SettleOutcome, Stats, Taken, Target, TimeOutcome, Token, Told, Verdict, fingerprint,
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
    let time = |ms: u64| duration(Duration::from_millis(ms));
    let available = (message.d > 0).then(|| v1::new_message::Available::Delay(time(message.d)));
    let More { g, p, dd, ttl, x, tries, base, cap, dlq } = message.more.as_deref().cloned().unwrap_or_default();
    let retry = (tries.is_some() || base.is_some() || cap.is_some()).then(|| v1::RetryPolicy {
        max_attempts: tries,
        backoff_base: base.map(time),
        backoff_cap: cap.map(time),
    });
    v1::NewMessage {
        body,
        available,
        group: g,
        priority: p.map(u32::from),
        dedup_id: dd,
        ttl: (ttl > 0).then(|| time(ttl)),
        expires_at: (x > 0).then(|| at(x)),
        retry,
        dead_letter_queue: dlq,
        ..Default::default()
    }
}

/// A time of the API, of milliseconds since the Unix epoch.
fn at(ms: u64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: (ms / 1_000).cast_signed(),
        nanos: i32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000,
    }
}

/// A message of the queue it was enqueued to.
pub(crate) fn target(target: &Target) -> v1::Target {
    use v1::target::Which;
    let which = match target {
        Target::Id(id) => Which::MessageId(id.to_string()),
        Target::Dedup { q, dd } => Which::Dedup(v1::DedupKey { queue: q.name().to_owned(), dedup_id: dd.clone() }),
    };
    v1::Target { which: Some(which) }
}

pub(crate) fn new_time(time: &NewTime) -> v1::NewTime {
    use v1::new_time::Available;
    let available = match (time.d, time.at) {
        (0, 0) => None,
        (d, 0) => Some(Available::Delay(duration(Duration::from_millis(d)))),
        (_, ms) => Some(Available::DeliverAt(at(ms))),
    };
    v1::NewTime { target: Some(target(&time.of)), available }
}

pub(crate) fn cancel_result(result: v1::CancelResult) -> Result<CancelOutcome, Refusal> {
    use v1::cancel_result::Outcome;
    Ok(match result.outcome {
        Some(Outcome::Cancelled(cancelled)) => CancelOutcome::Cancelled { id: id(&cancelled.message_id)? },
        Some(Outcome::Gone(v1::Gone {})) => CancelOutcome::Gone,
        Some(Outcome::Error(error)) => CancelOutcome::No(item(error)),
        None => return Err(nonsense("a result of a cancel without an outcome")),
    })
}

pub(crate) fn reschedule_result(result: v1::RescheduleResult) -> Result<TimeOutcome, Refusal> {
    use v1::reschedule_result::Outcome;
    Ok(match result.outcome {
        Some(Outcome::Rescheduled(moved)) => {
            TimeOutcome::Moved { id: id(&moved.message_id)?, at: timestamp(moved.available_at) }
        }
        Some(Outcome::Error(error)) => TimeOutcome::No(item(error)),
        None => return Err(nonsense("a result of a reschedule without an outcome")),
    })
}

fn item(error: v1::ItemError) -> Refusal {
    Refusal {
        rc: error.metadata.get("receive_count").and_then(|count| count.parse().ok()),
        why: error.reason,
        part: None,
        bound: error.metadata.get("bound").cloned(),
        again: None,
        text: error.message,
    }
}

fn id(text: &str) -> Result<MessageId, Refusal> {
    text.parse().map_err(|error: format::NameError| nonsense(&error.to_string()))
}

pub(crate) fn enqueued(enqueued: v1::Enqueued) -> Result<EnqueueOutcome, Refusal> {
    let v1::Enqueued { message_id, sequence, available_at, duplicate } = enqueued;
    Ok(EnqueueOutcome::In { id: id(&message_id)?, seq: sequence, at: timestamp(available_at), dup: duplicate })
}

pub(crate) fn enqueue_result(result: v1::EnqueueResult) -> Result<EnqueueOutcome, Refusal> {
    match result.outcome {
        Some(v1::enqueue_result::Outcome::Enqueued(message)) => enqueued(message),
        Some(v1::enqueue_result::Outcome::Error(error)) => Ok(EnqueueOutcome::No(item(error))),
        None => Err(nonsense("a result of an enqueue without an outcome")),
    }
}

/// A delivery; `several`: of a receive that names several queues.
pub(crate) fn delivery(delivery: v1::Delivery, several: bool) -> Result<(Delivery, Bytes), Refusal> {
    let v1::Delivery { message, lease_token, lease_remaining, receive_count, failures } = delivery;
    let message = message.ok_or_else(|| nonsense("a delivery without a message"))?;
    let dead = message.dead_letter.map(|dead| DeadLetter {
        q: QueueName::new(&dead.source_namespace, &dead.source_queue),
        why: match v1::DeadReason::try_from(dead.reason) {
            Ok(v1::DeadReason::Attempts) => "attempts".to_owned(),
            Ok(v1::DeadReason::Rejected) => "rejected".to_owned(),
            Ok(v1::DeadReason::Expired) => "expired".to_owned(),
            Ok(v1::DeadReason::Group) => "group".to_owned(),
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
        q: several.then(|| QueueName::new(&message.namespace, &message.queue)),
        g: (!message.group.is_empty()).then(|| message.group.as_str().into()),
    };
    Ok((recorded, lease_token))
}

/// A message that was acked as it was received.
pub(crate) fn taken(message: v1::Delivery, several: bool) -> Result<Taken, Refusal> {
    let Delivery { id, v, h, rc, f, dead, q, g, .. } = delivery(message, several)?.0;
    Ok(Taken { id, v, h, rc, f, dead, q, g })
}

pub(crate) fn settle_result(result: v1::SettleResult) -> Result<SettleOutcome, Refusal> {
    use v1::settle_result::Outcome;
    Ok(match result.outcome {
        Some(Outcome::Acked(v1::Acked {})) => SettleOutcome::Acked,
        Some(Outcome::DeadLettered(dead)) => SettleOutcome::Dead { seq: dead.sequence, q: dead.queue_id },
        Some(Outcome::Delayed(delayed)) => SettleOutcome::Delayed { due: timestamp(delayed.due_at) },
        Some(Outcome::Readied(v1::Readied {})) => SettleOutcome::Readied,
        Some(Outcome::Purged(v1::Purged {})) => SettleOutcome::Purged,
        Some(Outcome::Expired(v1::Expired {})) => SettleOutcome::Expired,
        Some(Outcome::Dropped(v1::Dropped {})) => SettleOutcome::Dropped,
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
        Some(Outcome::Expired(v1::Expired {})) => SettleOutcome::Expired,
        Some(Outcome::Dropped(v1::Dropped {})) => SettleOutcome::Dropped,
        Some(Outcome::Error(error)) => SettleOutcome::No(item(error)),
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
        duplicates: s.duplicates,
        outcomes_dropped: s.outcomes_dropped,
        dedup_ids: s.dedup_ids,
        retained: s.retained,
        groups_blocked: s.groups_blocked,
    })
}

/// The verdict of a settlement. There is none for an extension.
pub(crate) fn settlement(part: &Part) -> v1::Settlement {
    use v1::settlement::Verdict as Wire;
    let verdict = match part.verdict {
        Verdict::Ack => Some(Wire::Ack(v1::Ack { output: part.output.clone() })),
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
        Verdict::Ack => Wire::Ack(v1::Ack { output: part.output.clone() }),
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
        max_wait: time(settings.max_wait),
        expected_rate: settings.expected_rate.map(|milli| milli as f64 / 1_000.0),
        on_group_failure: settings
            .on_group
            .map_or(v1::OnGroupFailure::Unspecified, |policy| match policy {
                OnGroup::Continue => v1::OnGroupFailure::Continue,
                OnGroup::Block => v1::OnGroupFailure::Block,
                OnGroup::Follow => v1::OnGroupFailure::DeadLetterGroup,
            })
            .into(),
        shed: settings.shed.as_ref().map(|rules| v1::Shed {
            rules: rules
                .iter()
                .map(|(above, below)| v1::ShedRule { above_percent: *above, below_priority: *below })
                .collect(),
        }),
        ttl: time(settings.ttl),
        retain_done: time(settings.retain),
        dedup_window: time(settings.dedup),
        on_expired: settings
            .on_expired
            .map_or(v1::OnExpired::Unspecified, |policy| match policy {
                Remains::Nothing => v1::OnExpired::Drop,
                Remains::DeadLetter => v1::OnExpired::DeadLetter,
            })
            .into(),
        on_exhausted: settings
            .on_exhausted
            .map_or(v1::OnExhausted::Unspecified, |policy| match policy {
                Remains::Nothing => v1::OnExhausted::Drop,
                Remains::DeadLetter => v1::OnExhausted::DeadLetter,
            })
            .into(),
        ..Default::default()
    }
}
