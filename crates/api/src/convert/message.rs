//! Messages in, messages out.

use std::collections::BTreeMap;

use ticketrail_core::command::{Commit, Content, Enqueue};
use ticketrail_core::query::{Clock, MessageState};
use ticketrail_core::query::{DeadLetter, DeadReason, Delivery, FailureClass, FailureInfo, LeaseInfo, MessageInfo};
use ticketrail_core::reply::{EnqueueOutcome, EnqueueResult, Enqueued};
use ticketrail_core::{MessageId, limits};
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
    let v1::NewMessage { body, content_type, r#type, tags, headers, correlation_id, reply_to, available } = message;
    at_most(&format!("{at}.body"), "bytes", body.len(), settings.max_body_bytes)?;
    let short = |name: &str, text: String| field::text(&format!("{at}.{name}"), text, limits::FIELD_BYTES);
    let (delay_ms, deliver_at_ms) = match available {
        None => (0, 0),
        Some(v1::new_message::Available::Delay(delay)) => {
            (field::duration_ms(&format!("{at}.delay"), &delay, 0, limits::DELAY_MAX_MS)?, 0)
        }
        Some(v1::new_message::Available::DeliverAt(time)) => {
            (0, field::timestamp_ms(&format!("{at}.deliver_at"), &time)?)
        }
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
    Ok(Enqueue { queue: 0, message: Some(content), delay_ms, deliver_at_ms })
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
    })
}

/// A delivery for its receiver.
pub(crate) fn delivery(delivery: Delivery) -> v1::Delivery {
    let Delivery { id, queue, content, enqueued_at, token, remaining_ms, receive_count, failures, dead_letter } =
        delivery;
    v1::Delivery {
        message: Some(message(id, queue, content, enqueued_at.0, dead_letter)),
        lease_token: token,
        lease_remaining: Some(duration_of_ms(remaining_ms)),
        receive_count,
        failures,
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
    } = info;
    let size_bytes = content.size();
    v1::MessageInfo {
        message: Some(message(id, queue, content, enqueued_at.0, dead_letter)),
        state: state_to_wire(state).into(),
        sequence: place.sequence,
        size_bytes,
        receive_count,
        failures,
        due_at: due.map(|due| timestamp_of_ms(due.0)),
        lease: lease.map(|lease| lease_to_wire(lease, clock)),
        history: history.into_iter().map(failure).collect(),
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

fn message(
    id: MessageId,
    queue: ticketrail_core::command::QueueRef,
    content: Content,
    enqueued_at_ms: u64,
    dead_letter: Option<DeadLetter>,
) -> v1::Message {
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
    }
}

fn dead_letter_to_wire(dead: DeadLetter) -> v1::DeadLetter {
    let DeadLetter { source, reason, at, receive_count, failures } = dead;
    let reason = match reason {
        DeadReason::Attempts => v1::DeadReason::Attempts,
        DeadReason::Rejected => v1::DeadReason::Rejected,
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
