//! `rail check`: whether something is well, as Nagios and its kin ask: one line, and 0 ok, 1 warning, 2 critical, 3 unknown.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use ticketrail_client::QueueInfo;

use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, millis, short};
use crate::parse;
use crate::view::queue::rate_text;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a queue against thresholds; without any for its age, its age_slo is critical and 80 % of it a warning
    Queue(Queue),
}

#[derive(Debug, Args)]
struct Queue {
    /// Its name
    queue: String,
    #[command(flatten)]
    thresholds: Thresholds,
}

#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Thresholds")]
struct Thresholds {
    /// Warn from so many messages on, in all states together
    #[arg(long, value_name = "N")]
    depth_warn: Option<u64>,
    /// Critical from so many messages on
    #[arg(long, value_name = "N")]
    depth_crit: Option<u64>,
    /// Warn where the oldest ready message is so old
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    age_warn: Option<Duration>,
    /// Critical where the oldest ready message is so old
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    age_crit: Option<Duration>,
    /// Warn from so many dead letters on
    #[arg(long, value_name = "N")]
    dead_warn: Option<u64>,
    /// Critical from so many dead letters on
    #[arg(long, value_name = "N")]
    dead_crit: Option<u64>,
    /// Warn where workers finish fewer messages a second than this while something is ready
    #[arg(long, value_name = "RATE")]
    rate_warn: Option<f64>,
    /// Critical where workers finish fewer messages a second than this while something is ready
    #[arg(long, value_name = "RATE")]
    rate_crit: Option<f64>,
}

/// How well it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    Warning,
    Critical,
    Unknown,
}

impl Health {
    fn as_str(self) -> &'static str {
        match self {
            Health::Ok => "OK",
            Health::Warning => "WARNING",
            Health::Critical => "CRITICAL",
            Health::Unknown => "UNKNOWN",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Health::Ok => Exit::Ok,
            Health::Warning => Exit::Warning,
            Health::Critical => Exit::Critical,
            Health::Unknown => Exit::NotKnown,
        }
    }
}

/// One figure against its thresholds.
#[derive(Debug, PartialEq, Serialize)]
struct Figure {
    name: &'static str,
    health: Health,
    /// For a person.
    text: String,
    value: Option<f64>,
    warn: Option<f64>,
    crit: Option<f64>,
    #[serde(skip)]
    unit: &'static str,
}

impl Figure {
    /// `'name'=value[unit];warn;crit`, as monitoring plugins give it.
    fn performance(&self) -> Option<String> {
        let value = self.value?;
        let bound = |bound: Option<f64>| bound.map_or_else(String::new, |bound| self.range(bound));
        Some(format!("{}={value}{};{};{};0", self.name, self.unit, bound(self.warn), bound(self.crit)))
    }

    /// A rate alarms below its bound, all else above.
    fn range(&self, bound: f64) -> String {
        if self.name == "rate" { format!("{bound}:") } else { bound.to_string() }
    }
}

/// What a check says.
#[derive(Debug, Serialize)]
struct Report {
    check: &'static str,
    queue: String,
    health: Health,
    text: String,
    figures: Vec<Figure>,
    owner: String,
    runbook_url: String,
}

impl Report {
    fn unknown(queue: &str, text: String) -> Self {
        Self {
            check: "queue",
            queue: queue.to_owned(),
            health: Health::Unknown,
            text,
            figures: Vec::new(),
            owner: String::new(),
            runbook_url: String::new(),
        }
    }

    /// One line, and for whoever is woken whose it is and what to do.
    fn lines(&self) -> String {
        let mut text = format!("QUEUE {} - {}: {}", self.health.as_str(), self.queue, self.text);
        let performance: Vec<String> = self.figures.iter().filter_map(Figure::performance).collect();
        if !performance.is_empty() {
            let _ = write!(text, " | {}", performance.join(" "));
        }
        text.push('\n');
        if self.health != Health::Ok {
            for (name, value) in [("owner", &self.owner), ("runbook", &self.runbook_url)] {
                if !value.is_empty() {
                    let _ = writeln!(text, "{name}: {value}");
                }
            }
        }
        text
    }
}

/// How a figure stands that should stay below its bounds.
fn above<T: PartialOrd>(value: T, warn: Option<T>, crit: Option<T>) -> Health {
    match () {
        () if crit.is_some_and(|crit| value >= crit) => Health::Critical,
        () if warn.is_some_and(|warn| value >= warn) => Health::Warning,
        () => Health::Ok,
    }
}

fn count(name: &'static str, what: &str, value: u64, warn: Option<u64>, crit: Option<u64>) -> Figure {
    let float = |count: u64| count as f64;
    Figure {
        name,
        health: above(value, warn, crit),
        text: format!("{value} {what}"),
        value: Some(float(value)),
        warn: warn.map(float),
        crit: crit.map(float),
        unit: "",
    }
}

fn age(queue: &QueueInfo, warn: Option<Duration>, crit: Option<Duration>) -> Figure {
    let oldest = queue.stats.oldest_ready_age;
    Figure {
        name: "oldest",
        health: above(oldest.unwrap_or_default(), warn.filter(|_| oldest.is_some()), crit.filter(|_| oldest.is_some())),
        text: oldest.map_or_else(|| "nothing ready".to_owned(), |oldest| format!("oldest ready {}", short(oldest))),
        value: Some(seconds(oldest.unwrap_or_default())),
        warn: warn.map(seconds),
        crit: crit.map(seconds),
        unit: "s",
    }
}

/// Seconds to the millisecond.
fn seconds(duration: Duration) -> f64 {
    millis(duration) as f64 / 1_000.0
}

/// A rate says something only while there is work, and only once it has been measured or is expected.
fn rate(queue: &QueueInfo, warn: Option<f64>, crit: Option<f64>) -> Figure {
    let rate = queue.stats.rate;
    let below = |bound: Option<f64>| rate.zip(bound).is_some_and(|(rate, bound)| rate < bound);
    let health = match (queue.stats.ready > 0, below(crit), below(warn)) {
        (true, true, _) => Health::Critical,
        (true, false, true) => Health::Warning,
        (true, false, false) | (false, _, _) => Health::Ok,
    };
    let text = rate.map_or_else(|| "rate unknown".to_owned(), |rate| format!("{} finished a second", rate_text(rate)));
    Figure { name: "rate", health, text, value: rate, warn, crit, unit: "" }
}

/// Checks a queue.
fn judge(queue: &QueueInfo, thresholds: &Thresholds) -> Report {
    let slo = queue.settings.age_slo.filter(|slo| !slo.is_zero());
    let (age_warn, age_crit) = match (thresholds.age_warn, thresholds.age_crit) {
        (None, None) => (slo.map(|slo| slo * 4 / 5), slo),
        given => given,
    };
    let mut figures = vec![
        count("depth", "messages", queue.stats.depth(), thresholds.depth_warn, thresholds.depth_crit),
        age(queue, age_warn, age_crit),
        count("dead", "dead letters", queue.dead, thresholds.dead_warn, thresholds.dead_crit),
    ];
    if queue.stats.rate.is_some() || thresholds.rate_warn.is_some() || thresholds.rate_crit.is_some() {
        figures.push(rate(queue, thresholds.rate_warn, thresholds.rate_crit));
    }
    let bounded = figures.iter().any(|figure| figure.warn.is_some() || figure.crit.is_some());
    let health = figures.iter().map(|figure| figure.health).max().unwrap_or(Health::Ok);
    let health = if bounded { health } else { Health::Unknown };
    // What alarms comes first.
    let mut said: Vec<&Figure> = figures.iter().collect();
    said.sort_by_key(|figure| std::cmp::Reverse(figure.health));
    let mut text = said.iter().map(|figure| figure.text.as_str()).collect::<Vec<_>>().join(", ");
    if !bounded {
        text = format!("expected a threshold, but there is none: give one, or the queue an age_slo; {text}");
    }
    match (&queue.pause, queue.closed) {
        (Some(pause), _) => {
            let _ = write!(text, ", paused by {}: {}", pause.author, pause.reason);
        }
        (None, true) => text.push_str(", closed"),
        (None, false) => {}
    }
    Report {
        check: "queue",
        queue: queue.name.clone(),
        health,
        // A bar ends the text for a monitoring system.
        text: text.replace('|', "/").replace('\n', " "),
        figures,
        owner: queue.settings.owner.clone().unwrap_or_default(),
        runbook_url: queue.settings.runbook_url.clone().unwrap_or_default(),
    }
}

pub(crate) async fn run(args: CheckArgs, format: Format) -> Result<Exit, Failure> {
    let Verb::Queue(Queue { queue, thresholds }) = args.verb;
    let looked = match args.connection.client() {
        Ok(client) => client.admin().queue(&queue).await,
        Err(error) => Err(error),
    };
    let report = match looked {
        Ok(info) => judge(&info, &thresholds),
        Err(error) => Report::unknown(&queue, Failure::from(error).what),
    };
    match format {
        Format::Table => output::print(&report.lines())?,
        Format::Json | Format::Jsonl => {
            let text = match format {
                Format::Json => serde_json::to_string_pretty(&report),
                Format::Table | Format::Jsonl => serde_json::to_string(&report),
            };
            output::print(&(text.map_err(std::io::Error::from)? + "\n"))?;
        }
    }
    Ok(report.health.exit())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ticketrail_client::{Pause, QueueSettings, QueueStats};

    use super::*;

    fn queue(ready: u64, oldest: Option<u64>) -> QueueInfo {
        QueueInfo {
            namespace: "default".to_owned(),
            name: "orders".to_owned(),
            id: 1,
            created_at: SystemTime::UNIX_EPOCH,
            settings: QueueSettings::default(),
            pause: None,
            closed: false,
            stats: QueueStats { ready, oldest_ready_age: oldest.map(Duration::from_secs), ..QueueStats::default() },
            dead: 0,
        }
    }

    fn secs(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn each_threshold_counts_from_its_value_on() {
        let ages = Thresholds { age_warn: secs(30), age_crit: secs(120), ..Default::default() };
        for (age, health) in [(29, Health::Ok), (30, Health::Warning), (119, Health::Warning), (120, Health::Critical)]
        {
            assert_eq!(judge(&queue(1, Some(age)), &ages).health, health, "{age} s");
        }
        let depths = Thresholds { depth_warn: Some(5), depth_crit: Some(9), ..Default::default() };
        for (depth, health) in [(4, Health::Ok), (5, Health::Warning), (9, Health::Critical)] {
            assert_eq!(judge(&queue(depth, Some(1)), &depths).health, health, "{depth} messages");
        }
        let dead = Thresholds { dead_crit: Some(1), ..Default::default() };
        assert_eq!(judge(&queue(0, None), &dead).health, Health::Ok);
        assert_eq!(judge(&QueueInfo { dead: 1, ..queue(0, None) }, &dead).health, Health::Critical);
    }

    #[test]
    fn a_rate_alarms_only_while_there_is_work() {
        let thresholds = Thresholds { rate_warn: Some(5.0), rate_crit: Some(1.0), ..Default::default() };
        let with = |ready: u64, rate: Option<f64>| {
            let info = queue(ready, None);
            judge(&QueueInfo { stats: QueueStats { rate, ..info.stats }, ..info }, &thresholds).health
        };
        assert_eq!(with(3, Some(5.0)), Health::Ok);
        assert_eq!(with(3, Some(4.9)), Health::Warning);
        assert_eq!(with(3, Some(0.5)), Health::Critical);
        assert_eq!(with(0, Some(0.5)), Health::Ok);
        assert_eq!(with(3, None), Health::Ok);
    }

    #[test]
    fn the_goal_of_the_queue_counts_where_no_age_is_given() {
        let settings = QueueSettings {
            age_slo: secs(100),
            owner: Some("kitchen".to_owned()),
            runbook_url: Some("https://example.com/orders".to_owned()),
            ..Default::default()
        };
        let at = |age| judge(&QueueInfo { settings: settings.clone(), ..queue(1, Some(age)) }, &Thresholds::default());
        assert_eq!((at(79).health, at(80).health, at(100).health), (Health::Ok, Health::Warning, Health::Critical));
        assert_eq!(
            at(100).lines(),
            "QUEUE CRITICAL - orders: oldest ready 1m 40s, 1 messages, 0 dead letters | depth=1;;;0 oldest=100s;80;100;0 \
             dead=0;;;0\nowner: kitchen\nrunbook: https://example.com/orders\n"
        );
        let own = Thresholds { age_crit: secs(1_000), ..Default::default() };
        let info = QueueInfo { settings, ..queue(1, Some(100)) };
        assert_eq!(judge(&info, &own).health, Health::Ok, "what is given takes its place");
    }

    #[test]
    fn without_a_threshold_nobody_knows() {
        let report = judge(&queue(1, Some(5)), &Thresholds::default());
        assert_eq!(report.health, Health::Unknown);
        assert!(report.text.contains("age_slo"), "{}", report.text);
    }

    #[test]
    fn a_pause_is_said_and_a_bar_does_not_end_the_text() {
        let pause = Pause { reason: "a | b".to_owned(), author: "alice".to_owned(), until: None };
        let dead = Thresholds { dead_crit: Some(1), ..Default::default() };
        let report = judge(&QueueInfo { pause: Some(pause), ..queue(0, None) }, &dead);
        assert!(report.lines().contains("paused by alice: a / b |"), "{}", report.lines());
    }

    #[test]
    fn the_exit_codes_are_those_of_monitoring_plugins() {
        let codes = [Health::Ok, Health::Warning, Health::Critical, Health::Unknown].map(|h| h.exit().code());
        assert_eq!(codes, [0, 1, 2, 3]);
    }
}
