//! Queues and messages as they are printed.

use std::collections::BTreeMap;

use serde::Serialize;
use ticketrail_client::{
    DeadLetter, Delivery, FailureRecord, LeaseRecord, Message, MessageInfo, Pause, QueueInfo, QueueSettings, QueueStats,
};

use crate::output::{Card, Row, cut, millis, short, timestamp};
use crate::parse;

/// Characters of a body that a table shows.
const BODY_WIDTH: usize = 60;

/// A queue in a list: as short as it can be.
#[derive(Debug, Serialize)]
pub(crate) struct QueueLine {
    name: String,
    ready: u64,
    leased: u64,
    delayed: u64,
    oldest_ms: Option<u64>,
    dead: u64,
    paused: bool,
    closed: bool,
    #[serde(skip)]
    oldest: String,
}

impl QueueLine {
    pub(crate) fn new(queue: &QueueInfo) -> Self {
        let oldest = queue.stats.oldest_ready_age;
        Self {
            name: queue.name.clone(),
            ready: queue.stats.ready,
            leased: queue.stats.leased,
            delayed: queue.stats.delayed,
            oldest_ms: oldest.map(millis),
            dead: queue.dead,
            paused: queue.pause.is_some(),
            closed: queue.closed,
            oldest: oldest.map(short).unwrap_or_default(),
        }
    }
}

impl Row for QueueLine {
    const COLUMNS: &'static [&'static str] = &["NAME", "READY", "LEASED", "DELAYED", "OLDEST", "DEAD"];

    fn cells(&self) -> Vec<String> {
        let mark = match (self.paused, self.closed) {
            (true, true) => " (paused, closed)",
            (true, false) => " (paused)",
            (false, true) => " (closed)",
            (false, false) => "",
        };
        vec![
            format!("{}{mark}", self.name),
            self.ready.to_string(),
            self.leased.to_string(),
            self.delayed.to_string(),
            self.oldest.clone(),
            self.dead.to_string(),
        ]
    }
}

/// A queue in full.
#[derive(Debug, Serialize)]
pub(crate) struct QueueCard {
    namespace: String,
    name: String,
    id: u64,
    created_at: String,
    closed: bool,
    pause: Option<PauseView>,
    dead: u64,
    settings: SettingsView,
    stats: StatsView,
}

#[derive(Debug, Serialize)]
struct PauseView {
    reason: String,
    author: String,
    until: Option<String>,
}

#[derive(Debug, Serialize)]
struct SettingsView {
    max_depth: Option<u64>,
    max_bytes: Option<u64>,
    lease_ms: Option<u64>,
    max_attempts: Option<u32>,
    failure_window_ms: Option<u64>,
    backoff_base_ms: Option<u64>,
    backoff_cap_ms: Option<u64>,
    dead_letter_queue: Option<String>,
}

#[derive(Debug, Serialize)]
struct StatsView {
    ready: u64,
    delayed: u64,
    blocked: u64,
    leased: u64,
    bytes: u64,
    oldest_ready_at: Option<String>,
    oldest_ready_age_ms: Option<u64>,
    enqueued: u64,
    moved_in: u64,
    acked: u64,
    moved_out: u64,
    expired_dropped: u64,
    cancelled: u64,
    purged: u64,
    dropped: u64,
    received: u64,
    redelivered: u64,
    failed: u64,
    lease_expired: u64,
    over_bound: u64,
}

impl QueueCard {
    pub(crate) fn new(queue: QueueInfo) -> Self {
        let pause = queue.pause.map(|Pause { reason, author, until }| PauseView {
            reason,
            author,
            until: until.map(timestamp),
        });
        Self {
            dead: queue.dead,
            settings: SettingsView::new(queue.settings, &queue.name),
            stats: StatsView::new(&queue.stats),
            namespace: queue.namespace,
            name: queue.name,
            id: queue.id,
            created_at: timestamp(queue.created_at),
            closed: queue.closed,
            pause,
        }
    }
}

/// The name of a queue's dead-letter queue.
pub(crate) fn dead_letter_queue(queue: &str, settings: &QueueSettings) -> String {
    match settings.dead_letter_queue.as_deref() {
        Some(named) if !named.is_empty() => named.to_owned(),
        Some(_) | None => format!("{queue}.dlq"),
    }
}

impl SettingsView {
    fn new(settings: QueueSettings, queue: &str) -> Self {
        Self {
            dead_letter_queue: Some(dead_letter_queue(queue, &settings)),
            max_depth: settings.max_depth,
            max_bytes: settings.max_bytes,
            lease_ms: settings.lease.map(millis),
            max_attempts: settings.max_attempts,
            failure_window_ms: settings.failure_window.map(millis),
            backoff_base_ms: settings.backoff_base.map(millis),
            backoff_cap_ms: settings.backoff_cap.map(millis),
        }
    }
}

impl StatsView {
    fn new(stats: &QueueStats) -> Self {
        Self {
            ready: stats.ready,
            delayed: stats.delayed,
            blocked: stats.blocked,
            leased: stats.leased,
            bytes: stats.bytes,
            oldest_ready_at: stats.oldest_ready_at.map(timestamp),
            oldest_ready_age_ms: stats.oldest_ready_age.map(millis),
            enqueued: stats.enqueued,
            moved_in: stats.moved_in,
            acked: stats.acked,
            moved_out: stats.moved_out,
            expired_dropped: stats.expired_dropped,
            cancelled: stats.cancelled,
            purged: stats.purged,
            dropped: stats.dropped,
            received: stats.received,
            redelivered: stats.redelivered,
            failed: stats.failed,
            lease_expired: stats.lease_expired,
            over_bound: stats.over_bound,
        }
    }
}

fn ms(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| short(std::time::Duration::from_millis(value)))
}

/// A bound; 0 is none.
fn bound(value: Option<u64>) -> String {
    match value {
        Some(0) => "none".to_owned(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    }
}

impl Card for QueueCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let (settings, stats) = (&self.settings, &self.stats);
        let delivery = match &self.pause {
            Some(pause) => {
                let until = pause.until.as_deref().unwrap_or("resumed");
                format!("paused until {until} by {}: {}", pause.author, pause.reason)
            }
            None => "on".to_owned(),
        };
        vec![
            ("queue", self.name.clone()),
            ("namespace", self.namespace.clone()),
            ("id", self.id.to_string()),
            ("created", self.created_at.clone()),
            ("delivery", delivery),
            ("enqueues", if self.closed { "closed" } else { "open" }.to_owned()),
            ("ready", stats.ready.to_string()),
            ("leased", stats.leased.to_string()),
            ("delayed", stats.delayed.to_string()),
            ("oldest ready", ms(stats.oldest_ready_age_ms)),
            ("bytes", stats.bytes.to_string()),
            ("dead", format!("{} in {}", self.dead, settings.dead_letter_queue.as_deref().unwrap_or("-"))),
            ("max depth", bound(settings.max_depth)),
            ("max bytes", bound(settings.max_bytes)),
            ("lease", ms(settings.lease_ms)),
            ("max attempts", bound(settings.max_attempts.map(u64::from))),
            ("failure window", ms(settings.failure_window_ms)),
            ("backoff", format!("{} to {}", ms(settings.backoff_base_ms), ms(settings.backoff_cap_ms))),
            ("enqueued ever", stats.enqueued.to_string()),
            ("moved in ever", stats.moved_in.to_string()),
            ("received ever", stats.received.to_string()),
            ("redelivered ever", stats.redelivered.to_string()),
            ("acked ever", stats.acked.to_string()),
            ("failed ever", stats.failed.to_string()),
            ("leases expired ever", stats.lease_expired.to_string()),
            ("moved out ever", stats.moved_out.to_string()),
            ("purged ever", stats.purged.to_string()),
        ]
    }
}

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
    lease_left_ms: u64,
    lease_token: String,
}

impl DeliveryLine {
    pub(crate) fn new(delivery: &Delivery) -> Self {
        Self {
            message: MessageView::new(delivery.message.clone()),
            receive_count: delivery.receive_count,
            failures: delivery.failures,
            lease_left_ms: millis(delivery.lease_left()),
            lease_token: parse::token_text(&delivery.token),
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
            ms(Some(self.lease_left_ms)),
            self.lease_token.clone(),
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
    lease: Option<LeaseView>,
    history: Vec<FailureView>,
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
        ];
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
