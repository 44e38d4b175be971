//! A queue's settings, on the command line, in files and in print: one table of names for all three.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use ticketrail_client::{OnExhausted, OnExpired, OnGroupFailure, QueueSettings, ShedRule};

use crate::output;
use crate::parse;

/// Settings as flags; what is not given is absent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingsArgs {
    /// Messages at most, in all states together; 0: without limit [default: 1000000]
    #[arg(long, value_name = "N")]
    max_depth: Option<u64>,
    /// Bytes of messages at most, such as 64MiB; 0: without limit [default: 0]
    #[arg(long, value_parser = parse::size, value_name = "SIZE")]
    max_bytes: Option<u64>,
    /// Refuse messages that would wait longer than this for a worker; 0s: without limit [default: 0s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    max_wait: Option<Duration>,
    /// What workers finish, in messages a second, until it has been measured; 0: unknown [default: 0]
    #[arg(long, value_name = "RATE")]
    expected_rate: Option<f64>,
    /// Above so many percent of max-depth refuse messages below a priority, such as 80:5; may be given many times, `none`
    /// takes all rules back
    #[arg(long, value_parser = shed_rule, value_name = "PERCENT:PRIORITY")]
    shed: Vec<Shedding>,
    /// How long a worker has a message, 1s to 12h [default: 60s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    lease: Option<Duration>,
    /// Failures until a message is dead-lettered, 1 to 100; 0: without limit [default: 5]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The window in which failures are counted [default: 24h]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    failure_window: Option<Duration>,
    /// The n-th failure waits up to this times 2^n [default: 1s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    backoff_base: Option<Duration>,
    /// The longest backoff [default: 60s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    backoff_cap: Option<Duration>,
    /// Where dead letters go [default: QUEUE.dlq]
    #[arg(long, value_name = "QUEUE")]
    dead_letter_queue: Option<String>,
    /// What becomes of messages whose attempts are used up [default: dead-letter]
    #[arg(long, value_enum)]
    on_exhausted: Option<Exhausted>,
    /// What a dead-lettered message does to the rest of its group [default: continue]
    #[arg(long, value_enum)]
    on_group_failure: Option<GroupFailure>,
    /// The time to live of messages that have none of their own; 0s: none [default: 0s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    ttl: Option<Duration>,
    /// What becomes of expired messages [default: drop]
    #[arg(long, value_enum)]
    on_expired: Option<Expired>,
    /// For how long dedup ids are remembered at least, 1s to 30d [default: 1h]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    dedup_window: Option<Duration>,
    /// How long outcomes of acked messages can be read, up to 7d; 0s: not at all [default: 0s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    retain_done: Option<Duration>,
    /// How old the oldest ready message may be before `rail check queue` alarms; 0s: nothing said [default: 0s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    age_slo: Option<Duration>,
    /// Whose queue it is, shown where it alarms
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// What to do when it alarms, shown there too
    #[arg(long, value_name = "URL")]
    runbook_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Exhausted {
    DeadLetter,
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Expired {
    Drop,
    DeadLetter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupFailure {
    /// The next of the group goes on
    Continue,
    /// All wait until the dead letter is gone
    Block,
    /// All that wait follow it
    DeadLetterGroup,
}

/// What one `--shed` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shedding {
    /// No rules.
    None,
    /// One rule.
    Rule(ShedRule),
}

/// `80:5`, or `none`.
fn shed_rule(text: &str) -> Result<Shedding, String> {
    let wrong = || {
        format!(
            "expected PERCENT:PRIORITY such as 80:5 (above 80 % of max-depth, below priority 5), or none, but got {text:?}"
        )
    };
    if text == "none" {
        return Ok(Shedding::None);
    }
    let (percent, priority) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().trim_end_matches('%').parse::<u32>().map_err(|_| wrong());
    Ok(Shedding::Rule(ShedRule { above_percent: number(percent)?, below_priority: number(priority)? }))
}

impl From<SettingsArgs> for QueueSettings {
    fn from(args: SettingsArgs) -> Self {
        let rules = |shed: Vec<Shedding>| {
            shed.into_iter()
                .filter_map(|shedding| match shedding {
                    Shedding::None => None,
                    Shedding::Rule(rule) => Some(rule),
                })
                .collect()
        };
        QueueSettings {
            max_depth: args.max_depth,
            max_bytes: args.max_bytes,
            lease: args.lease,
            max_attempts: args.max_attempts,
            failure_window: args.failure_window,
            backoff_base: args.backoff_base,
            backoff_cap: args.backoff_cap,
            dead_letter_queue: args.dead_letter_queue,
            max_wait: args.max_wait,
            expected_rate: args.expected_rate,
            on_group_failure: args.on_group_failure.map(|choice| match choice {
                GroupFailure::Continue => OnGroupFailure::Continue,
                GroupFailure::Block => OnGroupFailure::Block,
                GroupFailure::DeadLetterGroup => OnGroupFailure::DeadLetterGroup,
            }),
            shed: (!args.shed.is_empty()).then(|| rules(args.shed)),
            ttl: args.ttl,
            retain_done: args.retain_done,
            owner: args.owner,
            runbook_url: args.runbook_url,
            age_slo: args.age_slo,
            dedup_window: args.dedup_window,
            on_expired: args.on_expired.map(|choice| match choice {
                Expired::Drop => OnExpired::Drop,
                Expired::DeadLetter => OnExpired::DeadLetter,
            }),
            on_exhausted: args.on_exhausted.map(|choice| match choice {
                Exhausted::DeadLetter => OnExhausted::DeadLetter,
                Exhausted::Drop => OnExhausted::Drop,
            }),
        }
    }
}

/// One setting: its name, and how it is read from and written to a file.
pub(crate) struct Setting {
    /// Its name, such as `max_depth`.
    pub(crate) name: &'static str,
    get: fn(&QueueSettings) -> Option<Value>,
    set: fn(&mut QueueSettings, &Value) -> Result<(), String>,
}

impl Setting {
    /// Its value for a file: a number, a text such as `30s`, or a list of rules. `None`: absent.
    pub(crate) fn value(&self, settings: &QueueSettings) -> Option<Value> {
        (self.get)(settings)
    }

    /// Its value for a person.
    pub(crate) fn text(&self, settings: &QueueSettings) -> Option<String> {
        self.value(settings).map(|value| value_text(&value))
    }

    /// Reads it from a file's value.
    pub(crate) fn read(&self, settings: &mut QueueSettings, value: &Value) -> Result<(), String> {
        (self.set)(settings, value).map_err(|wrong| format!("{}: {wrong}, but got {value}", self.name))
    }
}

/// A value of a setting as a person reads it.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(rules) if rules.is_empty() => "none".to_owned(),
        Value::Array(rules) => {
            let rule = |rule: &Value| {
                let number = |name: &str| rule.get(name).map_or_else(String::new, Value::to_string);
                format!("above {} % below {}", number("above_percent"), number("below_priority"))
            };
            rules.iter().map(rule).collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

fn number(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| "expected a whole number from 0 on".to_owned())
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "expected a text".to_owned())
}

fn duration(value: &Value) -> Result<Duration, String> {
    let wrong = || "expected a duration such as \"30s\" or \"1h 30m\"".to_owned();
    value.as_str().and_then(|text| parse::duration(text).ok()).ok_or_else(wrong)
}

/// Bytes: a number, or a size such as `64MiB`.
fn size(value: &Value) -> Result<u64, String> {
    let wrong = || "expected bytes, such as 65536 or \"64MiB\"".to_owned();
    match value {
        Value::String(text) => parse::size(text).map_err(|_| wrong()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.as_u64().ok_or_else(wrong)
        }
    }
}

fn duration_value(duration: Duration) -> Value {
    Value::String(humantime::format_duration(duration).to_string())
}

fn shed_rules(value: &Value) -> Result<Vec<ShedRule>, String> {
    let wrong = || "expected a list of { above_percent, below_priority }".to_owned();
    let rule = |rule: &Value| {
        let fields = rule.as_object().ok_or_else(wrong)?;
        if fields.len() != 2 {
            return Err(wrong());
        }
        let field = |name: &str| {
            let number = fields.get(name).and_then(Value::as_u64).ok_or_else(wrong)?;
            u32::try_from(number).map_err(|_| wrong())
        };
        Ok(ShedRule { above_percent: field("above_percent")?, below_priority: field("below_priority")? })
    };
    value.as_array().ok_or_else(wrong)?.iter().map(rule).collect()
}

/// A setting whose value is one of a choice's names.
macro_rules! choice {
    ($field:ident, $kind:ident { $($variant:ident),* }) => {
        Setting {
            name: stringify!($field),
            get: |settings| settings.$field.map(|choice| json!(choice.as_str())),
            set: |settings, value| {
                let all = [$($kind::$variant),*];
                let found = value.as_str().and_then(|text| all.into_iter().find(|choice| choice.as_str() == text));
                let names = || format!("expected one of {}", all.map(|choice| choice.as_str()).join(", "));
                settings.$field = Some(found.ok_or_else(names)?);
                Ok(())
            },
        }
    };
}

/// A setting of one of the simple kinds.
macro_rules! simple {
    ($field:ident, $read:expr, $write:expr) => {
        Setting {
            name: stringify!($field),
            get: |settings| settings.$field.as_ref().map($write),
            set: |settings, value| {
                settings.$field = Some($read(value)?);
                Ok(())
            },
        }
    };
}

/// All settings, in the order in which they are printed.
pub(crate) static SETTINGS: [Setting; 20] = [
    simple!(max_depth, number, |depth| json!(depth)),
    simple!(max_bytes, size, |bytes| json!(bytes)),
    simple!(max_wait, duration, |wait| duration_value(*wait)),
    simple!(
        expected_rate,
        |value: &Value| value.as_f64().ok_or_else(|| "expected messages a second".to_owned()),
        |rate| json!(rate)
    ),
    simple!(shed, shed_rules, |rules: &Vec<ShedRule>| {
        rules
            .iter()
            .map(|rule| json!({"above_percent": rule.above_percent, "below_priority": rule.below_priority}))
            .collect()
    }),
    simple!(lease, duration, |lease| duration_value(*lease)),
    simple!(
        max_attempts,
        |value: &Value| u32::try_from(number(value)?).map_err(|_| "expected 0 to 100".to_owned()),
        |attempts| json!(attempts)
    ),
    simple!(failure_window, duration, |window| duration_value(*window)),
    simple!(backoff_base, duration, |base| duration_value(*base)),
    simple!(backoff_cap, duration, |cap| duration_value(*cap)),
    simple!(dead_letter_queue, |value| text(value).map(str::to_owned), |queue| json!(queue)),
    choice!(on_exhausted, OnExhausted { DeadLetter, Drop }),
    choice!(on_group_failure, OnGroupFailure { Continue, Block, DeadLetterGroup }),
    simple!(ttl, duration, |ttl| duration_value(*ttl)),
    choice!(on_expired, OnExpired { Drop, DeadLetter }),
    simple!(dedup_window, duration, |window| duration_value(*window)),
    simple!(retain_done, duration, |kept| duration_value(*kept)),
    simple!(age_slo, duration, |age| duration_value(*age)),
    simple!(owner, |value| text(value).map(str::to_owned), |owner| json!(owner)),
    simple!(runbook_url, |value| text(value).map(str::to_owned), |url| json!(url)),
];

/// A setting's name as words, such as `max depth`.
pub(crate) fn words(name: &'static str) -> &'static str {
    match name {
        "max_depth" => "max depth",
        "max_bytes" => "max bytes",
        "max_wait" => "max wait",
        "expected_rate" => "expected rate",
        "max_attempts" => "max attempts",
        "failure_window" => "failure window",
        "backoff_base" => "backoff base",
        "backoff_cap" => "backoff cap",
        "dead_letter_queue" => "dead letters to",
        "on_exhausted" => "when attempts are used up",
        "on_group_failure" => "when a group's head dies",
        "ttl" => "time to live",
        "on_expired" => "when it is over",
        "dedup_window" => "dedup window",
        "retain_done" => "outcomes kept for",
        "age_slo" => "oldest at most",
        "runbook_url" => "runbook",
        other => other,
    }
}

/// The setting of this name; where there is none, the nearest is suggested.
pub(crate) fn named(name: &str) -> Result<&'static Setting, String> {
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
        return Ok(setting);
    }
    let nearest = SETTINGS.iter().map(|setting| setting.name).min_by_key(|known| output::distance(known, name));
    Err(format!("expected a setting, but there is none called {name:?}; did you mean {}?", nearest.unwrap_or_default()))
}

/// Reads settings from a file's table.
pub(crate) fn read(table: &serde_json::Map<String, Value>) -> Result<QueueSettings, String> {
    let mut settings = QueueSettings::default();
    for (name, value) in table {
        named(name)?.read(&mut settings, value)?;
    }
    Ok(settings)
}

/// Settings as a file's table: what is there, but no empty texts.
pub(crate) fn write(settings: &QueueSettings) -> serde_json::Map<String, Value> {
    let said = |value: &Value| value.as_str() != Some("");
    let pair = |setting: &Setting| {
        let value = setting.value(settings).filter(said)?;
        Some((setting.name.to_owned(), value))
    };
    SETTINGS.iter().filter_map(pair).collect()
}

/// Takes from `other` what `settings` leaves absent.
pub(crate) fn fill(settings: &mut QueueSettings, other: &QueueSettings) {
    for setting in &SETTINGS {
        if setting.value(settings).is_none()
            && let Some(value) = setting.value(other)
        {
            // What was written can be read; a choice of a newer server cannot, and stays absent.
            let _ = setting.read(settings, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingsArgs,
    }

    fn flags(line: &str) -> Result<QueueSettings, clap::Error> {
        Line::try_parse_from(["rail"].into_iter().chain(line.split_whitespace())).map(|line| line.settings.into())
    }

    const FLAGS: &str = "--max-depth 10 --max-bytes 64KiB --max-wait 30s --expected-rate 2.5 --shed 80:5 --shed 90%:8 \
        --lease 30s --max-attempts 3 --failure-window 1h --backoff-base 10ms --backoff-cap 5s --dead-letter-queue morgue \
        --on-exhausted drop --on-group-failure block --ttl 1d --on-expired dead-letter --dedup-window 2h \
        --retain-done 1d --age-slo 45s --owner kitchen --runbook-url https://example.com/orders";

    #[test]
    fn each_setting_has_a_flag_a_name_and_a_value() {
        let settings = flags(FLAGS).expect("flags");
        assert_eq!(settings.shed.as_ref().map(Vec::len), Some(2));
        assert_eq!(settings.max_bytes, Some(65_536));
        for setting in &SETTINGS {
            assert!(setting.value(&settings).is_some(), "{} has no flag", setting.name);
        }
        assert_eq!(read(&write(&settings)), Ok(settings), "what is written reads back");
    }

    #[test]
    fn what_is_not_given_is_absent() {
        assert_eq!(flags("").expect("flags"), QueueSettings::default());
        assert_eq!(write(&QueueSettings::default()).len(), 0);
        let settings = flags("--shed none").expect("flags");
        assert_eq!(settings.shed, Some(vec![]));
        for bad in ["--shed 80", "--shed a:b", "--lease 5", "--on-expired keep", "--expected-rate many"] {
            assert!(flags(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_name_or_value_says_what_was_expected() {
        let table = |text: &str| serde_json::from_str(text).expect("JSON");
        for (wrong, expected) in [
            (r#"{"max_dept": 5}"#, "did you mean max_depth?"),
            (r#"{"lease": 30}"#, "lease: expected a duration such as \"30s\" or \"1h 30m\", but got 30"),
            (r#"{"max_depth": "many"}"#, "expected a whole number"),
            (r#"{"max_bytes": "64 parsecs"}"#, "64MiB"),
            (r#"{"on_expired": "keep"}"#, "expected one of drop, dead_letter, but got \"keep\""),
            (r#"{"shed": [{"above_percent": 80}]}"#, "below_priority"),
            (r#"{"shed": [{"above": 80, "below_priority": 5}]}"#, "above_percent"),
        ] {
            let error = read(&table(wrong)).expect_err(wrong);
            assert!(error.contains(expected), "{wrong}: {error}");
        }
        let sizes = read(&table(r#"{"max_bytes": "64MiB"}"#)).expect("a size");
        assert_eq!(sizes.max_bytes, Some(64 << 20));
    }

    #[test]
    fn settings_are_filled_from_others_where_absent() {
        let mut settings = flags("--max-depth 5 --ttl 1h").expect("flags");
        fill(&mut settings, &flags("--max-depth 9 --owner kitchen --shed 80:5").expect("flags"));
        assert_eq!((settings.max_depth, settings.owner.as_deref()), (Some(5), Some("kitchen")));
        assert_eq!(settings.shed.as_ref().map(Vec::len), Some(1));
    }

    #[test]
    fn values_read_well() {
        let settings = flags(FLAGS).expect("flags");
        let text = |name: &str| named(name).expect("a setting").text(&settings).expect("a value");
        assert_eq!(text("lease"), "30s");
        assert_eq!(text("shed"), "above 80 % below 5, above 90 % below 8");
        assert_eq!(text("expected_rate"), "2.5");
    }
}
