//! Messages in, messages out.

use std::collections::BTreeMap;

use ticketrail_core::command::{Commit, Content, Enqueue, RetryPolicy};
use ticketrail_core::query::{Clock, MessageState};
use ticketrail_core::query::{
    DeadLetter, DeadReason, Delivery, DoneInfo, FailureClass, FailureInfo, Filter, LeaseInfo, MessageInfo,
};
use ticketrail_core::reply::{EnqueueOutcome, EnqueueResult, Enqueued};
use ticketrail_core::{MessageId, Timestamp, limits};
use ticketrail_proto::v1;

use super::field::{self, at_most, duration_of_ms, timestamp_of_ms};
use crate::Settings;
use crate::status::{self, FieldError, Refusal};

/// An enqueue as a commit of its parts.
pub(crate) fn enqueue(
    settings: &Settings,
    namespace: String,
    queue: String,
    messages: Vec<v1::NewMessage>,
) -> Result<Commit, FieldError> {
    let queue = field::queue(namespace, queue)?;
    field::batch("messages", messages.len())?;
    let single = messages.len() == 1;
    let mut bytes = 0;
    let mut parts = Vec::with_capacity(messages.len());
    for (at, message) in messages.into_iter().enumerate() {
        let part = new_message(settings, &format!("messages[{at}]"), message)?;
        bytes += part.message.as_ref().map_or(0, Content::size);
        parts.push(part);
    }
    if !single {
        at_most("messages", "bytes together", bytes, limits::BATCH_BYTES as u64)?;
    }
    Ok(Commit { queues: vec![queue], enqueue: parts, auto_create: settings.auto_create, ..Commit::default() })
}

/// A message to enqueue, found in the field `at`.
pub(crate) fn new_message(settings: &Settings, at: &str, message: v1::NewMessage) -> Result<Enqueue, FieldError> {
    let v1::NewMessage {
        body,
        content_type,
        r#type,
        tags,
        headers,
        correlation_id,
        reply_to,
        available,
        group,
        priority,
        dedup_id,
        ttl,
        expires_at,
        retry,
        dead_letter_queue,
    } = message;
    at_most(&format!("{at}.body"), "bytes", body.len(), settings.max_body_bytes)?;
    let short = |name: &str, text: String| field::text(&format!("{at}.{name}"), text, limits::FIELD_BYTES);
    let key = |name: &str, text: String| field::text(&format!("{at}.{name}"), text, limits::ID_BYTES);
    let (delay_ms, deliver_at_ms) = match available {
        None => (0, 0),
        Some(v1::new_message::Available::Delay(delay)) => (self::delay(at, &delay)?, 0),
        Some(v1::new_message::Available::DeliverAt(time)) => (0, deliver_at(at, &time)?),
    };
    let ttl_ms = match ttl {
        Some(ttl) => field::duration_ms(&format!("{at}.ttl"), &ttl, 1, limits::TTL_MAX_MS)?,
        None => 0,
    };
    let expires_at_ms = match expires_at {
        // The first moment of 1970 stands for never.
        Some(time) => field::timestamp_ms(&format!("{at}.expires_at"), &time)?.max(1),
        None => 0,
    };
    let priority = priority.map(|priority| field::priority(&format!("{at}.priority"), priority)).transpose()?;
    let dead_letter_queue = match dead_letter_queue {
        none if none.is_empty() => none,
        name => field::queue_name(&format!("{at}.dead_letter_queue"), name)?,
    };
    let content = Content {
        body,
        content_type: short("content_type", content_type)?,
        r#type: short("type", r#type)?,
        tags: checked_tags(&format!("{at}.tags"), tags)?,
        headers: checked_headers(&format!("{at}.headers"), headers)?,
        correlation_id: short("correlation_id", correlation_id)?,
        reply_to: short("reply_to", reply_to)?,
    };
    Ok(Enqueue {
        queue: 0,
        message: Some(content),
        delay_ms,
        deliver_at_ms,
        group: key("group", group)?,
        priority: priority.map(u32::from),
        dedup_id: key("dedup_id", dedup_id)?,
        ttl_ms,
        expires_at_ms,
        retry: retry.map(|retry| self::retry(&format!("{at}.retry"), &retry)).transpose()?,
        dead_letter_queue,
    })
}

/// The delay of what stands in the field `at`.
pub(crate) fn delay(at: &str, wire: &prost_types::Duration) -> Result<u64, FieldError> {
    field::duration_ms(&format!("{at}.delay"), wire, 0, limits::DELAY_MAX_MS)
}

/// The time of what stands in the field `at`.
pub(crate) fn deliver_at(at: &str, wire: &prost_types::Timestamp) -> Result<u64, FieldError> {
    field::timestamp_ms(&format!("{at}.deliver_at"), wire)
}

fn retry(at: &str, wire: &v1::RetryPolicy) -> Result<RetryPolicy, FieldError> {
    let v1::RetryPolicy { max_attempts, backoff_base, backoff_cap } = wire;
    if let Some(attempts) = *max_attempts {
        at_most(&format!("{at}.max_attempts"), "attempts", attempts, limits::ATTEMPTS_MAX)?;
    }
    let duration = |name: &str, wire: &Option<prost_types::Duration>| {
        let at = format!("{at}.{name}");
        wire.as_ref().map(|wire| field::duration_ms(&at, wire, 1, limits::BACKOFF_MAX_MS)).transpose()
    };
    let backoff_base_ms = duration("backoff_base", backoff_base)?;
    let backoff_cap_ms = duration("backoff_cap", backoff_cap)?;
    if let (Some(base), Some(cap)) = (backoff_base_ms, backoff_cap_ms)
        && cap < base
    {
        let reason = format!("expected at least backoff_base, {base} ms, but got {cap} ms");
        return Err(FieldError::new(format!("{at}.backoff_cap"), reason));
    }
    Ok(RetryPolicy { max_attempts: *max_attempts, backoff_base_ms, backoff_cap_ms })
}

fn retry_to_wire(retry: RetryPolicy) -> v1::RetryPolicy {
    let RetryPolicy { max_attempts, backoff_base_ms, backoff_cap_ms } = retry;
    v1::RetryPolicy {
        max_attempts,
        backoff_base: backoff_base_ms.map(duration_of_ms),
        backoff_cap: backoff_cap_ms.map(duration_of_ms),
    }
}

/// Which messages a peek shows.
pub(crate) fn filter(wire: Option<v1::PeekFilter>) -> Result<Filter, FieldError> {
    let v1::PeekFilter { group, r#type, tags, priority, enqueued_until, min_failures } = wire.unwrap_or_default();
    Ok(Filter {
        group: field::text("filter.group", group, limits::ID_BYTES)?,
        r#type: field::text("filter.type", r#type, limits::FIELD_BYTES)?,
        tags: checked_tags("filter.tags", tags)?,
        priority: priority.map(|priority| field::priority("filter.priority", priority)).transpose()?,
        enqueued_until: match enqueued_until {
            Some(time) => Some(Timestamp(field::timestamp_ms("filter.enqueued_until", &time)?)),
            None => None,
        },
        min_failures,
    })
}

fn checked_tags(at: &str, tags: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, FieldError> {
    at_most(at, "tags", tags.len(), limits::TAGS)?;
    for (name, value) in &tags {
        if name.is_empty() {
            return Err(FieldError::new(at, "expected each tag to have a name, but one has none"));
        }
        at_most(at, "bytes in a tag's name", name.len(), limits::TAG_BYTES)?;
        at_most(&format!("{at}[{name:?}]"), "bytes", value.len(), limits::TAG_BYTES)?;
    }
    Ok(tags)
}

fn checked_headers(at: &str, headers: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, FieldError> {
    if headers.contains_key("") {
        return Err(FieldError::new(at, "expected each header to have a name, but one has none"));
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    at_most(at, "bytes together", bytes, limits::HEADERS_BYTES)?;
    Ok(headers)
}

/// What became of one message.
pub(crate) fn enqueue_result(result: &EnqueueResult) -> Result<v1::EnqueueResult, Refusal> {
    let outcome = match &result.outcome {
        Some(EnqueueOutcome::Enqueued(enqueued)) => v1::enqueue_result::Outcome::Enqueued(self::enqueued(enqueued)?),
        Some(EnqueueOutcome::Rejected(record)) => v1::enqueue_result::Outcome::Error(status::item(record)),
        None => return Err(Refusal::mismatch("an enqueue's result")),
    };
    Ok(v1::EnqueueResult { outcome: Some(outcome) })
}

/// Where a message is.
pub(crate) fn enqueued(enqueued: &Enqueued) -> Result<v1::Enqueued, Refusal> {
    let id = enqueued.place.message_id().ok_or_else(|| Refusal::mismatch("a message's place"))?;
    Ok(v1::Enqueued {
        message_id: id.to_string(),
        sequence: enqueued.place.sequence,
        available_at: Some(timestamp_of_ms(enqueued.available_at_ms)),
        duplicate: enqueued.duplicate,
    })
}

/// A delivery for its receiver. One that is acked already has no lease.
pub(crate) fn delivery(delivery: Delivery) -> v1::Delivery {
    let Delivery {
        id,
        queue,
        content,
        enqueued_at,
        token,
        remaining_ms,
        receive_count,
        failures,
        dead_letter,
        group,
        priority,
    } = delivery;
    let said = Said { content, enqueued_at_ms: enqueued_at.0, dead_letter, group, priority };
    v1::Delivery {
        message: Some(message(id, queue, said)),
        lease_remaining: (!token.is_empty()).then(|| duration_of_ms(remaining_ms)),
        lease_token: token,
        receive_count,
        failures,
    }
}

/// What came of a message that was acked.
pub(crate) fn outcome(done: DoneInfo) -> v1::Outcome {
    let DoneInfo { id, queue, finished_at, kept_until, output, receive_count, worker } = done;
    v1::Outcome {
        message_id: id.to_string(),
        namespace: queue.namespace,
        queue: queue.name,
        finished_at: Some(timestamp_of_ms(finished_at.0)),
        kept_until: Some(timestamp_of_ms(kept_until.0)),
        output,
        receive_count,
        worker,
    }
}

/// All there is to know of a message, as of `clock`.
pub(crate) fn message_info(info: MessageInfo, clock: &Clock) -> v1::MessageInfo {
    let MessageInfo {
        id,
        place,
        queue,
        content,
        enqueued_at,
        state,
        receive_count,
        failures,
        due,
        lease,
        dead_letter,
        history,
        group,
        line,
        dedup_id,
        expires_at,
        retry,
        dead_letter_queue,
    } = info;
    let size_bytes = content.size();
    let said = Said { content, enqueued_at_ms: enqueued_at.0, dead_letter, group, priority: place.priority };
    v1::MessageInfo {
        message: Some(message(id, queue, said)),
        state: state_to_wire(state).into(),
        sequence: place.sequence,
        size_bytes,
        receive_count,
        failures,
        due_at: due.map(|due| timestamp_of_ms(due.0)),
        lease: lease.map(|lease| lease_to_wire(lease, clock)),
        history: history.into_iter().map(failure).collect(),
        line,
        dedup_id,
        expires_at: expires_at.map(|at| timestamp_of_ms(at.0)),
        retry: retry.map(retry_to_wire),
        dead_letter_queue,
    }
}

/// How many of the first messages have at most `max` bytes together: contents and histories.
pub(crate) fn fitting(messages: &[MessageInfo], max: usize) -> usize {
    // Ids, names, times and counters of a message, and of a failure.
    const OVERHEAD: usize = 1_024;
    const FAILURE_OVERHEAD: usize = 128;
    let size = |info: &MessageInfo| {
        let history = info.history.iter().map(|f| f.worker.len() + f.code.len() + f.text.len() + FAILURE_OVERHEAD);
        usize::try_from(info.content.size()).unwrap_or(usize::MAX).saturating_add(OVERHEAD + history.sum::<usize>())
    };
    let mut left = max;
    messages
        .iter()
        .take_while(|info| {
            let fits = size(info) <= left;
            left = left.saturating_sub(size(info));
            fits
        })
        .count()
}

/// What is told of a message wherever it is shown.
struct Said {
    content: Content,
    enqueued_at_ms: u64,
    dead_letter: Option<DeadLetter>,
    group: String,
    priority: u8,
}

fn message(id: MessageId, queue: ticketrail_core::command::QueueRef, said: Said) -> v1::Message {
    let Said { content, enqueued_at_ms, dead_letter, group, priority } = said;
    let Content { body, content_type, r#type, tags, headers, correlation_id, reply_to } = content;
    v1::Message {
        id: id.to_string(),
        namespace: queue.namespace,
        queue: queue.name,
        enqueued_at: Some(timestamp_of_ms(enqueued_at_ms)),
        body,
        content_type,
        r#type,
        tags,
        headers,
        correlation_id,
        reply_to,
        dead_letter: dead_letter.map(dead_letter_to_wire),
        group,
        priority: priority.into(),
    }
}

fn dead_letter_to_wire(dead: DeadLetter) -> v1::DeadLetter {
    let DeadLetter { source, reason, at, receive_count, failures } = dead;
    let reason = match reason {
        DeadReason::Attempts => v1::DeadReason::Attempts,
        DeadReason::Rejected => v1::DeadReason::Rejected,
        DeadReason::Expired => v1::DeadReason::Expired,
        DeadReason::Group => v1::DeadReason::Group,
    };
    v1::DeadLetter {
        source_namespace: source.namespace,
        source_queue: source.name,
        reason: reason.into(),
        dead_at: Some(timestamp_of_ms(at.0)),
        receive_count,
        failures,
    }
}

fn lease_to_wire(lease: LeaseInfo, clock: &Clock) -> v1::Lease {
    v1::Lease {
        worker: lease.worker,
        granted_at: Some(timestamp_of_ms(lease.granted_at.0)),
        remaining: Some(duration_of_ms(lease.deadline.since(clock.lease))),
    }
}

fn failure(failure: FailureInfo) -> v1::Failure {
    let FailureInfo { worker, started_at, failed_at, class, code, text } = failure;
    let class = match class {
        FailureClass::Transient => v1::FailureClass::Transient,
        FailureClass::Permanent => v1::FailureClass::Permanent,
        FailureClass::LeaseExpired => v1::FailureClass::LeaseExpired,
    };
    v1::Failure {
        worker,
        started_at: Some(timestamp_of_ms(started_at.0)),
        failed_at: Some(timestamp_of_ms(failed_at.0)),
        class: class.into(),
        code,
        text,
    }
}

fn state_to_wire(state: MessageState) -> v1::MessageState {
    match state {
        MessageState::Delayed => v1::MessageState::Delayed,
        MessageState::Ready => v1::MessageState::Ready,
        MessageState::Blocked => v1::MessageState::Blocked,
        MessageState::Leased => v1::MessageState::Leased,
    }
}

/// The state to look for; unspecified: ready.
pub(crate) fn message_state(wire: i32) -> Result<MessageState, FieldError> {
    match v1::MessageState::try_from(wire) {
        Ok(v1::MessageState::Unspecified | v1::MessageState::Ready) => Ok(MessageState::Ready),
        Ok(v1::MessageState::Delayed) => Ok(MessageState::Delayed),
        Ok(v1::MessageState::Blocked) => Ok(MessageState::Blocked),
        Ok(v1::MessageState::Leased) => Ok(MessageState::Leased),
        Err(_) => Err(FieldError::new("state", format!("expected a state from 0 to 4, but got {wire}"))),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message() -> v1::NewMessage {
        v1::NewMessage { body: Bytes::from_static(b"{}"), ..Default::default() }
    }

    fn one(message: v1::NewMessage) -> Result<Enqueue, FieldError> {
        let commit = enqueue(&Settings::default(), String::new(), "orders".into(), vec![message])?;
        Ok(commit.enqueue[0].clone())
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    fn retrying(
        max_attempts: Option<u32>,
        backoff_base: Option<prost_types::Duration>,
        backoff_cap: Option<prost_types::Duration>,
    ) -> v1::NewMessage {
        let retry = Some(v1::RetryPolicy { max_attempts, backoff_base, backoff_cap });
        v1::NewMessage { retry, ..message() }
    }

    #[test]
    fn what_a_message_says_of_its_life_goes_in() {
        let wire = v1::NewMessage {
            group: "g".into(),
            priority: Some(0),
            dedup_id: "d".into(),
            ttl: Some(prost_types::Duration { seconds: 1, nanos: 1 }),
            expires_at: Some(prost_types::Timestamp { seconds: 5, nanos: 0 }),
            dead_letter_queue: "morgue".into(),
            ..retrying(Some(0), seconds(1), seconds(2))
        };
        let part = one(wire).unwrap();
        assert_eq!((part.group.as_str(), part.dedup_id.as_str()), ("g", "d"));
        assert_eq!((part.priority, part.ttl_ms, part.expires_at_ms), (Some(0), 1_001, 5_000));
        assert_eq!(part.dead_letter_queue, "morgue");
        let retry = RetryPolicy { max_attempts: Some(0), backoff_base_ms: Some(1_000), backoff_cap_ms: Some(2_000) };
        assert_eq!(part.retry, Some(retry));
        assert_eq!(retry_to_wire(retry).backoff_cap, seconds(2));
        let plain = one(message()).unwrap();
        assert_eq!((plain.priority, plain.ttl_ms, plain.expires_at_ms, plain.retry), (None, 0, 0, None));
    }

    #[test]
    fn a_filter_goes_in_and_has_limits() {
        assert_eq!(filter(None).unwrap(), Filter::default());
        let wire = v1::PeekFilter {
            group: "g".into(),
            r#type: "t".into(),
            tags: pairs(["a".into()], "b"),
            priority: Some(9),
            enqueued_until: Some(prost_types::Timestamp { seconds: 2, nanos: 0 }),
            min_failures: 3,
        };
        let filter = filter(Some(wire)).unwrap();
        assert_eq!((filter.priority, filter.enqueued_until, filter.min_failures), (Some(9), Some(Timestamp(2_000)), 3));
        assert_eq!(filter.tags["a"], "b");
        for (wire, field) in [
            (v1::PeekFilter { priority: Some(10), ..Default::default() }, "filter.priority"),
            (v1::PeekFilter { group: "g".repeat(257), ..Default::default() }, "filter.group"),
            (v1::PeekFilter { tags: pairs([String::new()], ""), ..Default::default() }, "filter.tags"),
        ] {
            assert_eq!(super::filter(Some(wire)).unwrap_err().field, field);
        }
    }

    fn pairs(names: impl IntoIterator<Item = String>, value: &str) -> BTreeMap<String, String> {
        names.into_iter().map(|name| (name, value.to_owned())).collect()
    }

    #[test]
    fn a_message_goes_in_whole() {
        let wire = v1::NewMessage {
            content_type: "application/json".into(),
            r#type: "order.placed".into(),
            tags: pairs(["customer".into()], "alice"),
            headers: pairs(["traceparent".into()], "00-1"),
            correlation_id: "c".into(),
            reply_to: "replies".into(),
            available: Some(v1::new_message::Available::Delay(prost_types::Duration { seconds: 2, nanos: 1 })),
            ..message()
        };
        let commit = enqueue(&Settings::default(), String::new(), "orders".into(), vec![wire]).unwrap();
        assert_eq!(commit.queues[0].namespace, "default");
        assert!(commit.auto_create);
        let part = &commit.enqueue[0];
        assert_eq!((part.delay_ms, part.deliver_at_ms), (2_001, 0));
        let content = part.message.as_ref().unwrap();
        assert_eq!(content.body, Bytes::from_static(b"{}"));
        assert_eq!(content.content_type, "application/json");
        assert_eq!(content.r#type, "order.placed");
        assert_eq!(content.tags["customer"], "alice");
        assert_eq!(content.headers["traceparent"], "00-1");
        assert_eq!((content.correlation_id.as_str(), content.reply_to.as_str()), ("c", "replies"));
    }

    #[test]
    fn each_limit_of_a_message_is_refused_by_field_limit_and_value() {
        let long = || "x".repeat(257);
        let names = |n: usize| (0..n).map(|i| i.to_string());
        let delay = |seconds| Some(v1::new_message::Available::Delay(prost_types::Duration { seconds, nanos: 0 }));
        let at = |seconds| Some(v1::new_message::Available::DeliverAt(prost_types::Timestamp { seconds, nanos: 0 }));
        let rows = [
            (v1::NewMessage { body: vec![0; (1 << 20) + 1].into(), ..message() }, "messages[0].body", "1048577"),
            (v1::NewMessage { content_type: long(), ..message() }, "messages[0].content_type", "257"),
            (v1::NewMessage { r#type: long(), ..message() }, "messages[0].type", "257"),
            (v1::NewMessage { correlation_id: long(), ..message() }, "messages[0].correlation_id", "257"),
            (v1::NewMessage { reply_to: long(), ..message() }, "messages[0].reply_to", "257"),
            (v1::NewMessage { tags: pairs(names(65), ""), ..message() }, "messages[0].tags", "65"),
            (v1::NewMessage { tags: pairs([long()], ""), ..message() }, "messages[0].tags", "257"),
            (v1::NewMessage { tags: pairs(["a".into()], &long()), ..message() }, "messages[0].tags[\"a\"]", "257"),
            (v1::NewMessage { tags: pairs([String::new()], "v"), ..message() }, "messages[0].tags", "name"),
            (
                v1::NewMessage { headers: pairs(["h".into()], &"x".repeat(16 << 10)), ..message() },
                "messages[0].headers",
                "16385",
            ),
            (v1::NewMessage { headers: pairs([String::new()], "v"), ..message() }, "messages[0].headers", "name"),
            (v1::NewMessage { available: delay(-1), ..message() }, "messages[0].delay", "-1"),
            (v1::NewMessage { available: delay(366 * 86_400 + 1), ..message() }, "messages[0].delay", "366 d"),
            (v1::NewMessage { available: at(-1), ..message() }, "messages[0].deliver_at", "-1"),
            (v1::NewMessage { group: long(), ..message() }, "messages[0].group", "257"),
            (v1::NewMessage { dedup_id: long(), ..message() }, "messages[0].dedup_id", "257"),
            (v1::NewMessage { priority: Some(10), ..message() }, "messages[0].priority", "10"),
            (v1::NewMessage { ttl: seconds(0), ..message() }, "messages[0].ttl", "0 s"),
            (v1::NewMessage { ttl: seconds(366 * 86_400 + 1), ..message() }, "messages[0].ttl", "366 d"),
            (
                v1::NewMessage { expires_at: Some(prost_types::Timestamp { seconds: -1, nanos: 0 }), ..message() },
                "messages[0].expires_at",
                "-1",
            ),
            (v1::NewMessage { dead_letter_queue: "a b".into(), ..message() }, "messages[0].dead_letter_queue", "' '"),
            (retrying(Some(101), None, None), "messages[0].retry.max_attempts", "101"),
            (retrying(None, seconds(0), None), "messages[0].retry.backoff_base", "0 s"),
            (retrying(None, None, seconds(86_401)), "messages[0].retry.backoff_cap", "86401 s"),
            (retrying(None, seconds(5), seconds(4)), "messages[0].retry.backoff_cap", "4000 ms"),
        ];
        for (wire, field, value) in rows {
            let error = one(wire).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.reason.contains(value), "{field}: {}", error.reason);
        }
    }

    #[test]
    fn values_at_their_limits_pass() {
        let names = (0..64).map(|i| format!("{i:0>256}"));
        let wire = v1::NewMessage {
            body: vec![0; 1 << 20].into(),
            content_type: "x".repeat(256),
            tags: pairs(names, &"v".repeat(256)),
            headers: pairs(["h".into()], &"x".repeat((16 << 10) - 1)),
            available: Some(v1::new_message::Available::Delay(prost_types::Duration {
                seconds: 366 * 86_400,
                nanos: 0,
            })),
            ..message()
        };
        assert_eq!(one(wire).unwrap().delay_ms, limits::DELAY_MAX_MS);
    }

    #[test]
    fn a_batch_has_a_count_and_a_size() {
        let enqueue = |messages| enqueue(&Settings::default(), String::new(), "orders".into(), messages);
        assert_eq!(enqueue(vec![]).unwrap_err().field, "messages");
        assert_eq!(enqueue(vec![message(); 1_001]).unwrap_err().field, "messages");
        assert_eq!(enqueue(vec![message(); 1_000]).unwrap().enqueue.len(), 1_000);
        let large = |bytes: usize| v1::NewMessage { body: vec![0; bytes].into(), ..Default::default() };
        assert!(enqueue(vec![large(1 << 20); 4]).is_ok());
        let error =
            enqueue(vec![large(1 << 20), large(1 << 20), large(1 << 20), large(1 << 20), large(1)]).unwrap_err();
        assert_eq!(error.reason, "expected at most 4194304 bytes together, but got 4194305");
    }

    #[test]
    fn configuration_raises_the_limit_of_a_body() {
        let settings = Settings { max_body_bytes: 4 << 20, auto_create: false };
        let wire = v1::NewMessage { body: vec![0; 4 << 20].into(), content_type: "x".into(), ..Default::default() };
        let commit = enqueue(&settings, String::new(), "orders".into(), vec![wire]).unwrap();
        assert!(!commit.auto_create);
        let wire = v1::NewMessage { body: vec![0; (4 << 20) + 1].into(), ..Default::default() };
        assert!(enqueue(&settings, String::new(), "orders".into(), vec![wire]).is_err());
    }

    #[test]
    fn states_are_those_we_know() {
        assert_eq!(message_state(0), Ok(MessageState::Ready));
        assert_eq!(message_state(4), Ok(MessageState::Leased));
        assert_eq!(message_state(5).unwrap_err().field, "state");
        for state in [MessageState::Delayed, MessageState::Ready, MessageState::Blocked, MessageState::Leased] {
            assert_eq!(message_state(state_to_wire(state).into()), Ok(state));
        }
    }
}
