//! Queues as they are printed.

use serde::Serialize;
use serde_json::{Map, Value};
use ticketrail_client::{Pause, QueueInfo, QueueSettings, QueueStats};

use super::ms;
use crate::output::{Card, Row, millis, short, timestamp};
use crate::settings::{self, SETTINGS};

/// A queue in a list: as short as it can be.
#[derive(Debug, Serialize)]
pub(crate) struct QueueLine {
    name: String,
    ready: u64,
    leased: u64,
    delayed: u64,
    blocked: u64,
    oldest_ms: Option<u64>,
    dead: u64,
    bytes: u64,
    rate: Option<f64>,
    groups_blocked: u64,
    owner: String,
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
            blocked: queue.stats.blocked,
            oldest_ms: oldest.map(millis),
            dead: queue.dead,
            bytes: queue.stats.bytes,
            rate: queue.stats.rate,
            groups_blocked: queue.stats.groups_blocked,
            owner: queue.settings.owner.clone().unwrap_or_default(),
            paused: queue.pause.is_some(),
            closed: queue.closed,
            oldest: oldest.map(short).unwrap_or_default(),
        }
    }
}

impl Row for QueueLine {
    const COLUMNS: &'static [&'static str] = &["NAME", "READY", "LEASED", "DELAYED", "BLOCKED", "OLDEST", "DEAD"];

    fn cells(&self) -> Vec<String> {
        vec![
            marked(&self.name, self.paused, self.closed),
            self.ready.to_string(),
            self.leased.to_string(),
            self.delayed.to_string(),
            self.blocked.to_string(),
            self.oldest.clone(),
            self.dead.to_string(),
        ]
    }
}

/// A queue's name, and whether it is paused or closed.
pub(crate) fn marked(name: &str, paused: bool, closed: bool) -> String {
    let mark = match (paused, closed) {
        (true, true) => " (paused, closed)",
        (true, false) => " (paused)",
        (false, true) => " (closed)",
        (false, false) => "",
    };
    format!("{name}{mark}")
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
    settings: Map<String, Value>,
    #[serde(skip)]
    said: QueueSettings,
    stats: StatsView,
}

#[derive(Debug, Serialize)]
struct PauseView {
    reason: String,
    author: String,
    until: Option<String>,
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
    duplicates: u64,
    outcomes_dropped: u64,
    dedup_ids: u64,
    retained: u64,
    groups_blocked: u64,
    rate: Option<f64>,
    oldest_parked_at: Option<String>,
    oldest_parked_age_ms: Option<u64>,
}

impl QueueCard {
    pub(crate) fn new(queue: QueueInfo) -> Self {
        let mut said = queue.settings;
        said.dead_letter_queue = Some(dead_letter_queue(&queue.name, &said));
        let pause = queue.pause.map(|Pause { reason, author, until }| PauseView {
            reason,
            author,
            until: until.map(timestamp),
        });
        Self {
            dead: queue.dead,
            settings: settings_json(&said),
            said,
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

/// Settings for JSON: durations as milliseconds, under `<name>_ms`.
fn settings_json(settings: &QueueSettings) -> Map<String, Value> {
    let durations = [
        ("max_wait_ms", settings.max_wait),
        ("lease_ms", settings.lease),
        ("failure_window_ms", settings.failure_window),
        ("backoff_base_ms", settings.backoff_base),
        ("backoff_cap_ms", settings.backoff_cap),
        ("ttl_ms", settings.ttl),
        ("dedup_window_ms", settings.dedup_window),
        ("retain_done_ms", settings.retain_done),
        ("age_slo_ms", settings.age_slo),
    ];
    let mut json: Map<String, Value> = SETTINGS
        .iter()
        .filter(|setting| !durations.iter().any(|(name, _)| name.strip_suffix("_ms") == Some(setting.name)))
        .map(|setting| (setting.name.to_owned(), setting.value(settings).unwrap_or(Value::Null)))
        .collect();
    for (name, duration) in durations {
        json.insert(name.to_owned(), duration.map(millis).into());
    }
    json
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
            duplicates: stats.duplicates,
            outcomes_dropped: stats.outcomes_dropped,
            dedup_ids: stats.dedup_ids,
            retained: stats.retained,
            groups_blocked: stats.groups_blocked,
            rate: stats.rate,
            oldest_parked_at: stats.oldest_parked_at.map(timestamp),
            oldest_parked_age_ms: stats.oldest_parked_age.map(millis),
        }
    }
}

impl Card for QueueCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let stats = &self.stats;
        let delivery = match &self.pause {
            Some(pause) => {
                let until = pause.until.as_deref().unwrap_or("resumed");
                format!("paused until {until} by {}: {}", pause.author, pause.reason)
            }
            None => "on".to_owned(),
        };
        let rate = stats.rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{} a second", rate_text(rate)));
        let mut fields = vec![
            ("queue", self.name.clone()),
            ("namespace", self.namespace.clone()),
            ("id", self.id.to_string()),
            ("created", self.created_at.clone()),
            ("delivery", delivery),
            ("enqueues", if self.closed { "closed" } else { "open" }.to_owned()),
            ("ready", stats.ready.to_string()),
            ("leased", stats.leased.to_string()),
            ("delayed", stats.delayed.to_string()),
            ("blocked", blocked(stats)),
            ("oldest ready", ms(stats.oldest_ready_age_ms)),
            ("oldest parked group", ms(stats.oldest_parked_age_ms)),
            ("workers finish", rate),
            ("bytes", stats.bytes.to_string()),
            ("dead", format!("{} in {}", self.dead, self.said.dead_letter_queue.as_deref().unwrap_or("-"))),
            ("dedup ids", stats.dedup_ids.to_string()),
            ("outcomes kept", stats.retained.to_string()),
        ];
        fields.extend(SETTINGS.iter().filter(|setting| setting.name != "dead_letter_queue").map(|setting| {
            let text = setting.text(&self.said).unwrap_or_else(|| "-".to_owned());
            // Where 0 is no bound, say so.
            let unbounded = ["max_depth", "max_bytes", "max_wait", "max_attempts", "ttl", "retain_done", "age_slo"];
            let none = matches!(text.as_str(), "0" | "0s") && unbounded.contains(&setting.name);
            (settings::words(setting.name), if none { "none".to_owned() } else { text })
        }));
        fields.extend([
            ("enqueued ever", stats.enqueued.to_string()),
            ("duplicates ever", stats.duplicates.to_string()),
            ("moved in ever", stats.moved_in.to_string()),
            ("received ever", stats.received.to_string()),
            ("redelivered ever", stats.redelivered.to_string()),
            ("acked ever", stats.acked.to_string()),
            ("failed ever", stats.failed.to_string()),
            ("leases expired ever", stats.lease_expired.to_string()),
            ("moved out ever", stats.moved_out.to_string()),
            ("dropped ever", stats.dropped.to_string()),
            ("expired ever", stats.expired_dropped.to_string()),
            ("cancelled ever", stats.cancelled.to_string()),
            ("purged ever", stats.purged.to_string()),
            ("taken over a bound ever", stats.over_bound.to_string()),
            ("outcomes not kept ever", stats.outcomes_dropped.to_string()),
        ]);
        fields
    }
}

fn blocked(stats: &StatsView) -> String {
    match stats.groups_blocked {
        0 => stats.blocked.to_string(),
        groups => format!("{} ({groups} groups wait for a dead letter)", stats.blocked),
    }
}

/// A rate for people.
pub(crate) fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 10.0 => format!("{rate:.0}"),
        rate if rate >= 1.0 => format!("{rate:.1}"),
        rate if rate > 0.0 => format!("{rate:.3}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_card_shows_all_settings_and_what_has_no_bound() {
        let settings = QueueSettings {
            max_depth: Some(0),
            lease: Some(Duration::from_secs(30)),
            ttl: Some(Duration::ZERO),
            shed: Some(vec![]),
            ..QueueSettings::default()
        };
        let card = QueueCard::new(QueueInfo {
            namespace: "default".to_owned(),
            name: "orders".to_owned(),
            id: 1,
            created_at: SystemTime::UNIX_EPOCH,
            settings,
            pause: None,
            closed: false,
            stats: QueueStats { blocked: 3, groups_blocked: 2, rate: Some(2.5), ..QueueStats::default() },
            dead: 1,
        });
        let fields = card.fields();
        let field = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, text)| text.as_str());
        assert_eq!(
            (field("max depth"), field("time to live"), field("lease")),
            (Some("none"), Some("none"), Some("30s"))
        );
        assert_eq!(field("blocked"), Some("3 (2 groups wait for a dead letter)"));
        assert_eq!(field("workers finish"), Some("2.5 a second"));
        assert_eq!(field("dead"), Some("1 in orders.dlq"));
        let json = serde_json::to_value(&card).expect("JSON");
        assert_eq!(json["settings"]["lease_ms"], 30_000);
        assert_eq!(json["settings"]["dead_letter_queue"], "orders.dlq");
        assert_eq!(json["stats"]["rate"], 2.5);
        assert!(json["settings"].get("lease").is_none());
    }

    #[test]
    fn rates_are_short() {
        for (rate, text) in [(1_234.5, "1234"), (2.55, "2.5"), (0.016_7, "0.017"), (0.0, "0")] {
            assert_eq!(rate_text(rate), text);
        }
    }
}
