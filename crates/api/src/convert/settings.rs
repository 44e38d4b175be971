//! Queues: their settings, pauses and figures.

use ticketrail_core::command::{Pause, QueueSettings};
use ticketrail_core::limits;
use ticketrail_core::query::{Clock, QueueInfo, Stats};
use ticketrail_proto::v1;

use super::field::{self, at_most, duration_of_ms, timestamp_of_ms};
use crate::status::FieldError;

/// What follows a queue's name in the name of its dead-letter queue, unless another is named.
const DEAD_LETTER_SUFFIX: &str = ".dlq";

/// Settings of a create or an update.
pub(crate) fn settings(wire: v1::QueueSettings) -> Result<QueueSettings, FieldError> {
    let v1::QueueSettings {
        max_depth,
        max_bytes,
        lease,
        max_attempts,
        failure_window,
        backoff_base,
        backoff_cap,
        dead_letter_queue,
    } = wire;
    let duration = |name: &str, wire: Option<prost_types::Duration>, min_ms, max_ms| {
        wire.map(|wire| field::duration_ms(&format!("settings.{name}"), &wire, min_ms, max_ms)).transpose()
    };
    if let Some(attempts) = max_attempts {
        at_most("settings.max_attempts", "attempts", attempts, limits::ATTEMPTS_MAX)?;
    }
    let backoff_base_ms = duration("backoff_base", backoff_base, 1, limits::BACKOFF_MAX_MS)?;
    let backoff_cap_ms = duration("backoff_cap", backoff_cap, 1, limits::BACKOFF_MAX_MS)?;
    if let (Some(base), Some(cap)) = (backoff_base_ms, backoff_cap_ms)
        && cap < base
    {
        let reason = format!("expected at least backoff_base, {base} ms, but got {cap} ms");
        return Err(FieldError::new("settings.backoff_cap", reason));
    }
    let dead_letter_queue = match dead_letter_queue {
        Some(name) if !name.is_empty() => Some(field::queue_name("settings.dead_letter_queue", name)?),
        derived => derived,
    };
    Ok(QueueSettings {
        max_depth,
        max_bytes,
        lease_ms: duration("lease", lease, limits::LEASE_MIN_MS, limits::LEASE_MAX_MS)?,
        max_attempts,
        failure_window_ms: duration("failure_window", failure_window, 1_000, limits::FAILURE_WINDOW_MAX_MS)?,
        backoff_base_ms,
        backoff_cap_ms,
        dead_letter_queue,
    })
}

/// The settings of an update: at least one.
pub(crate) fn changed_settings(wire: Option<v1::QueueSettings>) -> Result<QueueSettings, FieldError> {
    let settings = settings(wire.unwrap_or_default())?;
    if settings == QueueSettings::default() {
        return Err(FieldError::new("settings", "expected at least one setting to change, but got none"));
    }
    Ok(settings)
}

/// A pause.
pub(crate) fn pause(wire: Option<v1::Pause>) -> Result<Pause, FieldError> {
    let v1::Pause { reason, author, until } = wire.unwrap_or_default();
    let until_ms = match until {
        Some(until) => field::timestamp_ms("pause.until", &until)?,
        None => 0,
    };
    if until.is_some() && until_ms == 0 {
        return Err(FieldError::new("pause.until", "expected a time after 1970, or none, but got its first moment"));
    }
    Ok(Pause {
        reason: field::text("pause.reason", reason, limits::NOTE_BYTES)?,
        author: field::text("pause.author", author, limits::NOTE_BYTES)?,
        until_ms,
    })
}

/// The name of a queue's dead-letter queue.
pub(crate) fn dead_letter_queue(queue: &QueueInfo) -> String {
    match queue.settings.dead_letter_queue.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        Some(_) | None => format!("{}{DEAD_LETTER_SUFFIX}", queue.name.name),
    }
}

/// A queue with `dead` messages in its dead-letter queue, as of `clock`.
pub(crate) fn queue_info(info: QueueInfo, dead: u64, clock: &Clock) -> v1::QueueInfo {
    let QueueInfo { id, name, created_at, settings, paused, closed, stats } = info;
    v1::QueueInfo {
        namespace: name.namespace,
        name: name.name,
        id: id.0,
        created_at: Some(timestamp_of_ms(created_at.0)),
        settings: Some(settings_to_wire(settings)),
        pause: paused.map(pause_to_wire),
        closed,
        stats: Some(stats_to_wire(&stats, clock)),
        dead,
    }
}

fn settings_to_wire(settings: QueueSettings) -> v1::QueueSettings {
    let QueueSettings {
        max_depth,
        max_bytes,
        lease_ms,
        max_attempts,
        failure_window_ms,
        backoff_base_ms,
        backoff_cap_ms,
        dead_letter_queue,
    } = settings;
    v1::QueueSettings {
        max_depth,
        max_bytes,
        lease: lease_ms.map(duration_of_ms),
        max_attempts,
        failure_window: failure_window_ms.map(duration_of_ms),
        backoff_base: backoff_base_ms.map(duration_of_ms),
        backoff_cap: backoff_cap_ms.map(duration_of_ms),
        dead_letter_queue,
    }
}

fn pause_to_wire(pause: Pause) -> v1::Pause {
    let Pause { reason, author, until_ms } = pause;
    v1::Pause { reason, author, until: (until_ms > 0).then(|| timestamp_of_ms(until_ms)) }
}

fn stats_to_wire(stats: &Stats, clock: &Clock) -> v1::QueueStats {
    let Stats {
        ready,
        delayed,
        blocked,
        leased,
        bytes,
        enqueued,
        moved_in,
        acked,
        moved_out,
        expired_dropped,
        cancelled,
        purged,
        dropped,
        received,
        redelivered,
        failed,
        lease_expired,
        over_bound,
        oldest_ready_at,
    } = *stats;
    v1::QueueStats {
        ready,
        delayed,
        blocked,
        leased,
        bytes,
        enqueued,
        moved_in,
        acked,
        moved_out,
        expired_dropped,
        cancelled,
        purged,
        dropped,
        received,
        redelivered,
        failed,
        lease_expired,
        over_bound,
        oldest_ready_at: oldest_ready_at.map(|at| timestamp_of_ms(at.0)),
        oldest_ready_age: oldest_ready_at.map(|at| duration_of_ms(clock.cluster.since(at))),
    }
}

#[cfg(test)]
mod tests {
    use ticketrail_core::command::QueueRef;
    use ticketrail_core::{QueueId, Timestamp};

    use super::*;

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn each_limit_of_the_settings_is_refused_by_field() {
        let none = v1::QueueSettings::default;
        let nanos = Some(prost_types::Duration { seconds: 0, nanos: 0 });
        let rows = [
            (v1::QueueSettings { lease: seconds(0), ..none() }, "settings.lease"),
            (v1::QueueSettings { lease: seconds(43_201), ..none() }, "settings.lease"),
            (v1::QueueSettings { max_attempts: Some(101), ..none() }, "settings.max_attempts"),
            (v1::QueueSettings { failure_window: seconds(0), ..none() }, "settings.failure_window"),
            (v1::QueueSettings { failure_window: seconds(366 * 86_400 + 1), ..none() }, "settings.failure_window"),
            (v1::QueueSettings { backoff_base: nanos, ..none() }, "settings.backoff_base"),
            (v1::QueueSettings { backoff_base: seconds(86_401), ..none() }, "settings.backoff_base"),
            (v1::QueueSettings { backoff_cap: seconds(86_401), ..none() }, "settings.backoff_cap"),
            (v1::QueueSettings { backoff_base: seconds(5), backoff_cap: seconds(4), ..none() }, "settings.backoff_cap"),
            (v1::QueueSettings { dead_letter_queue: Some(".x".into()), ..none() }, "settings.dead_letter_queue"),
        ];
        for (wire, field) in rows {
            assert_eq!(settings(wire).unwrap_err().field, field);
        }
    }

    #[test]
    fn an_update_changes_something() {
        assert_eq!(changed_settings(None).unwrap_err().field, "settings");
        let wire = v1::QueueSettings { max_depth: Some(0), ..Default::default() };
        assert_eq!(changed_settings(Some(wire)).unwrap().max_depth, Some(0));
        let wire = v1::QueueSettings { dead_letter_queue: Some(String::new()), ..Default::default() };
        assert_eq!(changed_settings(Some(wire)).unwrap().dead_letter_queue.as_deref(), Some(""));
    }

    #[test]
    fn a_pause_has_short_notes_and_a_sensible_end() {
        assert_eq!(pause(None).unwrap(), Pause::default());
        let note = |n: usize| "x".repeat(n);
        let wire = v1::Pause { reason: note(513), ..Default::default() };
        assert_eq!(pause(Some(wire)).unwrap_err().field, "pause.reason");
        let wire = v1::Pause { author: note(513), ..Default::default() };
        assert_eq!(pause(Some(wire)).unwrap_err().field, "pause.author");
        let until = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        for odd in [-1, 0, i64::MAX] {
            let wire = v1::Pause { until: until(odd), ..Default::default() };
            assert_eq!(pause(Some(wire)).unwrap_err().field, "pause.until");
        }
        let wire = v1::Pause { reason: note(512), author: note(512), until: until(2) };
        assert_eq!(pause(Some(wire)).unwrap().until_ms, 2_000);
    }

    #[test]
    fn settings_come_back_as_they_went_in() {
        let wire = v1::QueueSettings {
            max_depth: Some(5),
            max_bytes: Some(6),
            lease: seconds(7),
            max_attempts: Some(8),
            failure_window: seconds(9),
            backoff_base: seconds(10),
            backoff_cap: seconds(11),
            dead_letter_queue: Some("dead".into()),
        };
        assert_eq!(settings_to_wire(settings(wire.clone()).unwrap()), wire);
    }

    #[test]
    fn a_queue_shows_the_age_of_its_oldest_message_and_its_dead() {
        let mut info = QueueInfo {
            id: QueueId(3),
            name: QueueRef { namespace: "default".into(), name: "orders".into() },
            created_at: Timestamp(1_000),
            settings: QueueSettings::default(),
            paused: Some(Pause { reason: "r".into(), author: "a".into(), until_ms: 0 }),
            closed: true,
            stats: Stats { ready: 2, oldest_ready_at: Some(Timestamp(4_000)), ..Default::default() },
        };
        assert_eq!(dead_letter_queue(&info), "orders.dlq");
        info.settings.dead_letter_queue = Some("dead".into());
        assert_eq!(dead_letter_queue(&info), "dead");
        let clock = Clock { cluster: Timestamp(9_500), ..Default::default() };
        let wire = queue_info(info, 7, &clock);
        assert_eq!((wire.dead, wire.closed, wire.id), (7, true, 3));
        assert_eq!(wire.pause.unwrap().until, None);
        let stats = wire.stats.unwrap();
        assert_eq!(stats.oldest_ready_age, Some(prost_types::Duration { seconds: 5, nanos: 500_000_000 }));
    }
}
