//! Messages as they are printed.

use std::collections::BTreeMap;

use serde::Serialize;
use ticketrail_client::{
    DeadLetter, Delivery, FailureRecord, LeaseRecord, Message, MessageInfo, MessageRetry, Outcome, TakenMessage,
};

use super::ms;
use crate::output::{Card, Row, cut, millis, timestamp};
use crate::parse;

/// Characters of a body that a table shows.
const BODY_WIDTH: usize = 60;

/// What a producer said, as printed.
#[derive(Debug, Serialize)]
pub(crate) struct MessageView {
    id: String,
    namespace: String,
    queue: String,
    enqueued_at: String,
    /// The body where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    content_type: String,
    #[serde(rename = "type")]
    message_type: String,
    tags: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    correlation_id: String,
    reply_to: String,
    group: String,
    priority: u32,
    dead_letter: Option<DeadLetterView>,
}

#[derive(Debug, Serialize)]
struct DeadLetterView {
    source_queue: String,
    reason: &'static str,
    at: String,
    receive_count: u32,
    failures: u32,
}

impl MessageView {
    pub(crate) fn new(message: Message) -> Self {
        let text = std::str::from_utf8(&message.body).ok().map(str::to_owned);
        let base64 = text.is_none().then(|| parse::base64_text(&message.body));
        Self {
            id: message.id,
            namespace: message.namespace,
            queue: message.queue,
            enqueued_at: timestamp(message.enqueued_at),
            body: text,
            body_base64: base64,
            content_type: message.content_type,
            message_type: message.message_type,
            tags: message.tags,
            headers: message.headers,
            correlation_id: message.correlation_id,
            reply_to: message.reply_to,
            group: message.group,
            priority: message.priority,
            dead_letter: message.dead_letter.map(|dead: DeadLetter| DeadLetterView {
                source_queue: dead.source_queue,
                reason: dead.reason.as_str(),
                at: timestamp(dead.at),
                receive_count: dead.receive_count,
                failures: dead.failures,
            }),
        }
    }

    fn body_text(&self) -> String {
        match (&self.body, &self.body_base64) {
            (Some(text), _) => text.clone(),
            (None, Some(base64)) => format!("base64:{base64}"),
            (None, None) => String::new(),
        }
    }
}

/// A message in a worker's hands.
#[derive(Debug, Serialize)]
pub(crate) struct DeliveryLine {
    #[serde(flatten)]
    message: MessageView,
    receive_count: u32,
    failures: u32,
    /// None: it is acked already.
    lease_left_ms: Option<u64>,
    lease_token: Option<String>,
}

impl DeliveryLine {
    /// A message that was acked as it was received.
    pub(crate) fn taken(taken: TakenMessage) -> Self {
        Self {
            message: MessageView::new(taken.message),
            receive_count: taken.receive_count,
            failures: taken.failures,
            lease_left_ms: None,
            lease_token: None,
        }
    }

    pub(crate) fn new(delivery: &Delivery) -> Self {
        Self {
            message: MessageView::new(delivery.message.clone()),
            receive_count: delivery.receive_count,
            failures: delivery.failures,
            lease_left_ms: Some(millis(delivery.lease_left())),
            lease_token: Some(parse::token_text(&delivery.token)),
        }
    }
}

impl Row for DeliveryLine {
    const COLUMNS: &'static [&'static str] = &["ID", "RECEIVED", "FAILED", "LEASE", "TOKEN", "BODY"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.message.id.clone(),
            self.receive_count.to_string(),
            self.failures.to_string(),
            ms(self.lease_left_ms),
            self.lease_token.clone().unwrap_or_else(|| "acked".to_owned()),
            cut(&self.message.body_text(), BODY_WIDTH),
        ]
    }
}

/// A message looked at.
#[derive(Debug, Serialize)]
pub(crate) struct MessageCard {
    #[serde(flatten)]
    message: MessageView,
    state: &'static str,
    sequence: u64,
    size_bytes: u64,
    receive_count: u32,
    failures: u32,
    due_at: Option<String>,
    expires_at: Option<String>,
    /// Its place in the line of its group.
    line: Option<u64>,
    dedup_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryView>,
    #[serde(skip_serializing_if = "String::is_empty")]
    dead_letter_queue: String,
    lease: Option<LeaseView>,
    history: Vec<FailureView>,
}

#[derive(Debug, Serialize)]
struct RetryView {
    max_attempts: Option<u32>,
    backoff_base_ms: Option<u64>,
    backoff_cap_ms: Option<u64>,
}

impl RetryView {
    fn new(retry: MessageRetry) -> Self {
        Self {
            max_attempts: retry.max_attempts,
            backoff_base_ms: retry.backoff_base.map(millis),
            backoff_cap_ms: retry.backoff_cap.map(millis),
        }
    }

    fn text(&self) -> String {
        let attempts = self.max_attempts.map(|attempts| match attempts {
            0 => "attempts without limit".to_owned(),
            attempts => format!("{attempts} attempts"),
        });
        let base = self.backoff_base_ms.map(|base| format!("backoff from {}", ms(Some(base))));
        let cap = self.backoff_cap_ms.map(|cap| format!("backoff to {}", ms(Some(cap))));
        let said: Vec<String> = [attempts, base, cap].into_iter().flatten().collect();
        said.join(", ")
    }
}

#[derive(Debug, Serialize)]
struct LeaseView {
    worker: String,
    granted_at: String,
    remaining_ms: u64,
}

#[derive(Debug, Serialize)]
struct FailureView {
    worker: String,
    started_at: String,
    failed_at: String,
    class: &'static str,
    code: String,
    text: String,
}

impl MessageCard {
    pub(crate) fn new(info: MessageInfo) -> Self {
        let lease = |lease: LeaseRecord| LeaseView {
            worker: lease.worker,
            granted_at: timestamp(lease.granted_at),
            remaining_ms: millis(lease.remaining),
        };
        let failure = |failure: FailureRecord| FailureView {
            worker: failure.worker,
            started_at: timestamp(failure.started_at),
            failed_at: timestamp(failure.failed_at),
            class: failure.class.as_str(),
            code: failure.code,
            text: failure.text,
        };
        Self {
            message: MessageView::new(info.message),
            state: info.state.map_or("other", ticketrail_client::MessageState::as_str),
            sequence: info.sequence,
            size_bytes: info.size_bytes,
            receive_count: info.receive_count,
            failures: info.failures,
            due_at: info.due_at.map(timestamp),
            expires_at: info.expires_at.map(timestamp),
            line: info.line,
            dedup_id: info.dedup_id,
            retry: info.retry.map(RetryView::new),
            dead_letter_queue: info.dead_letter_queue,
            lease: info.lease.map(lease),
            history: info.history.into_iter().map(failure).collect(),
        }
    }
}

impl Row for MessageCard {
    const COLUMNS: &'static [&'static str] = &["ID", "STATE", "RECEIVED", "FAILED", "DUE", "ENQUEUED", "BODY"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.message.id.clone(),
            self.state.to_owned(),
            self.receive_count.to_string(),
            self.failures.to_string(),
            self.due_at.clone().unwrap_or_default(),
            self.message.enqueued_at.clone(),
            cut(&self.message.body_text(), BODY_WIDTH),
        ]
    }
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "-".to_owned() } else { pairs.join(" ") }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn group(group: &str, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{group} (number {line} of its line)"),
        None => or_dash(group),
    }
}

impl Card for MessageCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let message = &self.message;
        let mut fields = vec![
            ("message", message.id.clone()),
            ("queue", message.queue.clone()),
            ("namespace", message.namespace.clone()),
            ("state", self.state.to_owned()),
            ("enqueued", message.enqueued_at.clone()),
            ("due", self.due_at.clone().unwrap_or_else(|| "-".to_owned())),
            ("received", self.receive_count.to_string()),
            ("failures", self.failures.to_string()),
            ("size", format!("{} bytes", self.size_bytes)),
            ("type", or_dash(&message.message_type)),
            ("content type", or_dash(&message.content_type)),
            ("tags", pairs(&message.tags)),
            ("headers", pairs(&message.headers)),
            ("correlation id", or_dash(&message.correlation_id)),
            ("reply to", or_dash(&message.reply_to)),
            ("group", group(&message.group, self.line)),
            ("priority", message.priority.to_string()),
            ("dedup id", or_dash(&self.dedup_id)),
            ("expires", self.expires_at.clone().unwrap_or_else(|| "-".to_owned())),
        ];
        if let Some(retry) = &self.retry {
            fields.push(("retry", retry.text()));
        }
        if !self.dead_letter_queue.is_empty() {
            fields.push(("dead letters to", self.dead_letter_queue.clone()));
        }
        if let Some(lease) = &self.lease {
            let worker = or_dash(&lease.worker);
            fields.push(("lease", format!("{} left, held by {worker}", ms(Some(lease.remaining_ms)))));
        }
        if let Some(dead) = &message.dead_letter {
            let text = format!(
                "from {} at {}: {}, received {}, failed {}",
                dead.source_queue, dead.at, dead.reason, dead.receive_count, dead.failures
            );
            fields.push(("dead letter", text));
        }
        for failure in &self.history {
            let text = format!(
                "{} {} {} {} (worker {})",
                failure.failed_at,
                failure.class,
                or_dash(&failure.code),
                failure.text,
                or_dash(&failure.worker)
            );
            fields.push(("failed", text));
        }
        fields.push(("body", message.body_text()));
        fields
    }
}

/// What came of a message that was acked.
#[derive(Debug, Serialize)]
pub(crate) struct OutcomeCard {
    id: String,
    namespace: String,
    queue: String,
    state: &'static str,
    finished_at: String,
    kept_until: String,
    receive_count: u32,
    worker: String,
    /// The output where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// The output where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_base64: Option<String>,
}

impl OutcomeCard {
    pub(crate) fn new(outcome: Outcome) -> Self {
        let text = std::str::from_utf8(&outcome.output).ok().map(str::to_owned);
        Self {
            output_base64: text.is_none().then(|| parse::base64_text(&outcome.output)),
            output: text,
            id: outcome.message_id,
            namespace: outcome.namespace,
            queue: outcome.queue,
            state: "done",
            finished_at: timestamp(outcome.finished_at),
            kept_until: timestamp(outcome.kept_until),
            receive_count: outcome.receive_count,
            worker: outcome.worker,
        }
    }
}

impl Card for OutcomeCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let base64 = self.output_base64.as_ref().map(|base64| format!("base64:{base64}"));
        vec![
            ("message", self.id.clone()),
            ("queue", self.queue.clone()),
            ("namespace", self.namespace.clone()),
            ("state", self.state.to_owned()),
            ("finished", self.finished_at.clone()),
            ("received", self.receive_count.to_string()),
            ("worker", or_dash(&self.worker)),
            ("shown until", self.kept_until.clone()),
            ("output", self.output.clone().or(base64).unwrap_or_default()),
        ]
    }
}

/// A dead letter in a list.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLine {
    #[serde(flatten)]
    card: MessageCard,
}

impl DeadLine {
    pub(crate) fn new(info: MessageInfo) -> Self {
        Self { card: MessageCard::new(info) }
    }
}

impl Row for DeadLine {
    const COLUMNS: &'static [&'static str] = &["ID", "DIED", "FROM", "REASON", "RECEIVED", "LAST FAILURE", "BODY"];

    fn cells(&self) -> Vec<String> {
        let dead = self.card.message.dead_letter.as_ref();
        let last = self.card.history.last();
        vec![
            self.card.message.id.clone(),
            dead.map(|dead| dead.at.clone()).unwrap_or_default(),
            dead.map(|dead| dead.source_queue.clone()).unwrap_or_default(),
            dead.map(|dead| dead.reason.to_owned()).unwrap_or_default(),
            dead.map(|dead| dead.receive_count.to_string()).unwrap_or_default(),
            last.map(|last| cut(format!("{} {}", last.code, last.text).trim(), 40)).unwrap_or_default(),
            cut(&self.card.message.body_text(), BODY_WIDTH / 2),
        ]
    }
}
