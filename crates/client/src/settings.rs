//! A queue's settings.

use std::time::Duration;

use ticketrail_proto::v1;

use crate::wire;

/// A queue's settings. Absent: the default in a create, as it was in an update. Of a queue looked at, all are there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueSettings {
    /// Messages at most; 0: without limit. Default 1,000,000.
    pub max_depth: Option<u64>,
    /// Bytes of messages at most; 0: without limit. Default 0.
    pub max_bytes: Option<u64>,
    /// How long a receiver has a message unless it says otherwise, 1 s to 12 h. Default 60 s.
    pub lease: Option<Duration>,
    /// Failures within the window until a message is dead-lettered, 1 to 100; 0: without limit. Default 5.
    pub max_attempts: Option<u32>,
    /// The window in which failures are counted, 1 s to 366 days. Default 24 h.
    pub failure_window: Option<Duration>,
    /// The backoff's base, 1 ms to 1 day. Default 1 s.
    pub backoff_base: Option<Duration>,
    /// The backoff's cap, from the base to 1 day. Default 60 s.
    pub backoff_cap: Option<Duration>,
    /// The dead-letter queue; empty: `<queue>.dlq`.
    pub dead_letter_queue: Option<String>,
    /// How long a new message may have to wait for a receiver, up to 366 days; past that it is refused. Zero: without limit.
    /// Default zero.
    pub max_wait: Option<Duration>,
    /// What the queue's workers finish, in messages a second, until that has been measured: up to 1,000,000, to three
    /// decimals. 0: unknown. Default 0.
    pub expected_rate: Option<f64>,
    /// What a dead-lettered head does to its group. Default: the next goes on.
    pub on_group_failure: Option<OnGroupFailure>,
    /// Which messages are refused as the queue fills, at most 10 rules. Default: none.
    pub shed: Option<Vec<ShedRule>>,
    /// The time to live of messages that say nothing of their own, up to 366 days; zero: none. Default zero.
    pub ttl: Option<Duration>,
    /// How long the outcome of an acked message can be read, up to 7 days; zero: not at all. Default zero.
    pub retain_done: Option<Duration>,
    /// Whose queue it is; at most 512 bytes.
    pub owner: Option<String>,
    /// What to do when it alarms; at most 512 bytes.
    pub runbook_url: Option<String>,
    /// How old its oldest ready message may be before it alarms, up to 366 days; zero: nothing said. Default zero.
    pub age_slo: Option<Duration>,
    /// For how long dedup ids are remembered at least, 1 s to 30 days. Default 1 h.
    pub dedup_window: Option<Duration>,
    /// What becomes of expired messages. Default: they are dropped.
    pub on_expired: Option<OnExpired>,
    /// What becomes of messages whose attempts are used up. Default: they are dead letters.
    pub on_exhausted: Option<OnExhausted>,
}

/// A choice of a setting: its names, and how it stands on the wire.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A choice of a newer server. Sent, it changes nothing.
            Other,
        }

        impl $name {
            /// The choice's name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                    $name::Other => "other",
                }
            }

            fn to_wire(self) -> i32 {
                match self {
                    $($name::$variant => v1::$name::$variant.into(),)*
                    $name::Other => v1::$name::Unspecified.into(),
                }
            }

            /// `None`: not said.
            fn from_wire(wire: i32) -> Option<Self> {
                match v1::$name::try_from(wire) {
                    Ok(v1::$name::Unspecified) => None,
                    $(Ok(v1::$name::$variant) => Some($name::$variant),)*
                    Err(_) => Some($name::Other),
                }
            }
        }
    };
}

choice! {
    /// What a dead-lettered head (its attempts used up, or rejected) does to its group.
    OnGroupFailure {
        /// The next of the line can be received.
        Continue = "continue",
        /// All wait until the dead letter is gone.
        Block = "block",
        /// All that are in the line follow it to the dead-letter queue.
        DeadLetterGroup = "dead_letter_group",
    }
}

choice! {
    /// What becomes of expired messages.
    OnExpired {
        /// They are gone, and counted.
        Drop = "drop",
        /// They are dead letters.
        DeadLetter = "dead_letter",
    }
}

choice! {
    /// What becomes of messages whose attempts are used up.
    OnExhausted {
        /// They are dead letters.
        DeadLetter = "dead_letter",
        /// They are gone, and counted.
        Drop = "drop",
    }
}

/// While a queue holds more than a share of `max_depth`, messages below a priority are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShedRule {
    /// The share in percent, 0 to 99.
    pub above_percent: u32,
    /// 1 to 9: messages of lower priority are refused.
    pub below_priority: u32,
}

impl QueueSettings {
    pub(crate) fn into_wire(self) -> v1::QueueSettings {
        let duration = |duration: Option<Duration>| duration.map(wire::to_duration);
        v1::QueueSettings {
            max_depth: self.max_depth,
            max_bytes: self.max_bytes,
            lease: duration(self.lease),
            max_attempts: self.max_attempts,
            failure_window: duration(self.failure_window),
            backoff_base: duration(self.backoff_base),
            backoff_cap: duration(self.backoff_cap),
            dead_letter_queue: self.dead_letter_queue,
            max_wait: duration(self.max_wait),
            expected_rate: self.expected_rate,
            on_group_failure: self.on_group_failure.map_or(0, OnGroupFailure::to_wire),
            shed: self.shed.map(|rules| v1::Shed {
                rules: rules
                    .into_iter()
                    .map(|ShedRule { above_percent, below_priority }| v1::ShedRule { above_percent, below_priority })
                    .collect(),
            }),
            ttl: duration(self.ttl),
            retain_done: duration(self.retain_done),
            owner: self.owner,
            runbook_url: self.runbook_url,
            age_slo: duration(self.age_slo),
            dedup_window: duration(self.dedup_window),
            on_expired: self.on_expired.map_or(0, OnExpired::to_wire),
            on_exhausted: self.on_exhausted.map_or(0, OnExhausted::to_wire),
        }
    }

    pub(crate) fn from_wire(settings: v1::QueueSettings) -> Self {
        let duration = |duration: Option<prost_types::Duration>| duration.and_then(wire::duration);
        Self {
            max_depth: settings.max_depth,
            max_bytes: settings.max_bytes,
            lease: duration(settings.lease),
            max_attempts: settings.max_attempts,
            failure_window: duration(settings.failure_window),
            backoff_base: duration(settings.backoff_base),
            backoff_cap: duration(settings.backoff_cap),
            dead_letter_queue: settings.dead_letter_queue,
            max_wait: duration(settings.max_wait),
            expected_rate: settings.expected_rate,
            on_group_failure: OnGroupFailure::from_wire(settings.on_group_failure),
            shed: settings.shed.map(|shed| {
                let rule = |v1::ShedRule { above_percent, below_priority }| ShedRule { above_percent, below_priority };
                shed.rules.into_iter().map(rule).collect()
            }),
            ttl: duration(settings.ttl),
            retain_done: duration(settings.retain_done),
            owner: settings.owner,
            runbook_url: settings.runbook_url,
            age_slo: duration(settings.age_slo),
            dedup_window: duration(settings.dedup_window),
            on_expired: OnExpired::from_wire(settings.on_expired),
            on_exhausted: OnExhausted::from_wire(settings.on_exhausted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_wire() {
        let all = QueueSettings {
            max_depth: Some(1),
            max_bytes: Some(2),
            lease: Some(Duration::from_secs(3)),
            max_attempts: Some(4),
            failure_window: Some(Duration::from_secs(5)),
            backoff_base: Some(Duration::from_millis(6)),
            backoff_cap: Some(Duration::from_secs(7)),
            dead_letter_queue: Some("dead".to_owned()),
            max_wait: Some(Duration::from_secs(8)),
            expected_rate: Some(0.25),
            on_group_failure: Some(OnGroupFailure::DeadLetterGroup),
            shed: Some(vec![ShedRule { above_percent: 80, below_priority: 5 }]),
            ttl: Some(Duration::from_secs(9)),
            retain_done: Some(Duration::from_secs(10)),
            owner: Some("kitchen".to_owned()),
            runbook_url: Some("https://example.com/orders".to_owned()),
            age_slo: Some(Duration::from_secs(11)),
            dedup_window: Some(Duration::from_secs(12)),
            on_expired: Some(OnExpired::DeadLetter),
            on_exhausted: Some(OnExhausted::Drop),
        };
        for settings in [all, QueueSettings::default(), QueueSettings { shed: Some(vec![]), ..Default::default() }] {
            assert_eq!(QueueSettings::from_wire(settings.clone().into_wire()), settings);
        }
    }

    #[test]
    fn a_choice_of_a_newer_server_is_kept_apart() {
        assert_eq!(OnExpired::from_wire(99), Some(OnExpired::Other));
        assert_eq!(OnExpired::Other.to_wire(), 0);
        assert_eq!(OnGroupFailure::from_wire(0), None);
    }
}
