//! Queues: their settings, pauses and figures.

use ticketrail_core::command::{OnExhausted, OnExpired, OnGroupFailure, Pause, QueueSettings, Shed, ShedRule};
use ticketrail_core::limits;
use ticketrail_core::query::{Clock, NamespaceInfo, QueueInfo, Stats};
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
        max_wait,
        expected_rate,
        on_group_failure,
        shed,
        ttl,
        retain_done,
        owner,
        runbook_url,
        age_slo,
        dedup_window,
        on_expired,
        on_exhausted,
    } = wire;
    let note = |name: &str, text: Option<String>| {
        text.map(|text| field::text(&format!("settings.{name}"), text, limits::NOTE_BYTES)).transpose()
    };
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
        max_wait_ms: duration("max_wait", max_wait, 0, limits::MAX_WAIT_MAX_MS)?,
        expected_rate_milli: expected_rate.map(rate_milli).transpose()?,
        on_group_failure: self::on_group_failure(on_group_failure)?.map(i32::from),
        shed: shed.map(self::shed).transpose()?,
        ttl_ms: duration("ttl", ttl, 0, limits::TTL_MAX_MS)?,
        retain_done_ms: duration("retain_done", retain_done, 0, limits::RETAIN_DONE_MAX_MS)?,
        owner: note("owner", owner)?,
        runbook_url: note("runbook_url", runbook_url)?,
        age_slo_ms: duration("age_slo", age_slo, 0, limits::MAX_WAIT_MAX_MS)?,
        dedup_window_ms: duration("dedup_window", dedup_window, 1_000, limits::DEDUP_WINDOW_MAX_MS)?,
        on_expired: self::on_expired(on_expired)?.map(i32::from),
        on_exhausted: self::on_exhausted(on_exhausted)?.map(i32::from),
    })
}

/// Settings that are the defaults of a namespace.
pub(crate) fn defaults(wire: Option<v1::QueueSettings>) -> Result<QueueSettings, FieldError> {
    let in_defaults = |mut error: FieldError| {
        if let Some(name) = error.field.strip_prefix("settings.") {
            error.field = format!("defaults.{name}");
        }
        error
    };
    let defaults = settings(wire.unwrap_or_default()).map_err(in_defaults)?;
    if defaults.dead_letter_queue.as_deref().is_some_and(|named| !named.is_empty()) {
        let reason = "expected none, since one queue can't be that of all, but one is named";
        return Err(FieldError::new("defaults.dead_letter_queue", reason));
    }
    Ok(defaults)
}

/// Messages a second in thousandths, to the nearest.
fn rate_milli(rate: f64) -> Result<u64, FieldError> {
    let most = limits::EXPECTED_RATE_MAX_MILLI / 1_000;
    let milli = rate * 1_000.0;
    if !(0.0..=limits::EXPECTED_RATE_MAX_MILLI as f64).contains(&milli) {
        let reason = format!("expected 0 to {most} messages a second, but got {rate}");
        return Err(FieldError::new("settings.expected_rate", reason));
    }
    Ok(milli.round() as u64)
}

/// Thousandths of a message a second as messages a second.
fn rate(milli: u64) -> f64 {
    milli as f64 / 1_000.0
}

fn shed(wire: v1::Shed) -> Result<Shed, FieldError> {
    at_most("settings.shed.rules", "rules", wire.rules.len(), limits::SHED_RULES)?;
    let rule = |(number, v1::ShedRule { above_percent, below_priority }): (usize, v1::ShedRule)| {
        let at = format!("settings.shed.rules[{number}]");
        at_most(&format!("{at}.above_percent"), "percent", above_percent, 99)?;
        if !(1..=u32::from(limits::PRIORITY_MAX)).contains(&below_priority) {
            let reason = format!("expected 1 to {}, but got {below_priority}", limits::PRIORITY_MAX);
            return Err(FieldError::new(format!("{at}.below_priority"), reason));
        }
        Ok(ShedRule { above_percent, below_priority })
    };
    Ok(Shed { rules: wire.rules.into_iter().enumerate().map(rule).collect::<Result<_, _>>()? })
}

/// A choice that this version does not know.
fn unknown(name: &str, wire: i32, most: i32) -> FieldError {
    FieldError::new(format!("settings.{name}"), format!("expected a choice from 0 to {most}, but got {wire}"))
}

fn on_group_failure(wire: i32) -> Result<Option<OnGroupFailure>, FieldError> {
    use v1::OnGroupFailure as Wire;
    match Wire::try_from(wire) {
        Ok(Wire::Unspecified) => Ok(None),
        Ok(Wire::Continue) => Ok(Some(OnGroupFailure::Continue)),
        Ok(Wire::Block) => Ok(Some(OnGroupFailure::Block)),
        Ok(Wire::DeadLetterGroup) => Ok(Some(OnGroupFailure::DeadLetterGroup)),
        Err(_) => Err(unknown("on_group_failure", wire, Wire::DeadLetterGroup.into())),
    }
}

fn on_expired(wire: i32) -> Result<Option<OnExpired>, FieldError> {
    use v1::OnExpired as Wire;
    match Wire::try_from(wire) {
        Ok(Wire::Unspecified) => Ok(None),
        Ok(Wire::Drop) => Ok(Some(OnExpired::Drop)),
        Ok(Wire::DeadLetter) => Ok(Some(OnExpired::DeadLetter)),
        Err(_) => Err(unknown("on_expired", wire, Wire::DeadLetter.into())),
    }
}

fn on_exhausted(wire: i32) -> Result<Option<OnExhausted>, FieldError> {
    use v1::OnExhausted as Wire;
    match Wire::try_from(wire) {
        Ok(Wire::Unspecified) => Ok(None),
        Ok(Wire::DeadLetter) => Ok(Some(OnExhausted::DeadLetter)),
        Ok(Wire::Drop) => Ok(Some(OnExhausted::Drop)),
        Err(_) => Err(unknown("on_exhausted", wire, Wire::Drop.into())),
    }
}

fn group_failure_to_wire(choice: OnGroupFailure) -> v1::OnGroupFailure {
    match choice {
        OnGroupFailure::Continue => v1::OnGroupFailure::Continue,
        OnGroupFailure::Block => v1::OnGroupFailure::Block,
        OnGroupFailure::DeadLetterGroup => v1::OnGroupFailure::DeadLetterGroup,
    }
}

fn expired_to_wire(choice: OnExpired) -> v1::OnExpired {
    match choice {
        OnExpired::Drop => v1::OnExpired::Drop,
        OnExpired::DeadLetter => v1::OnExpired::DeadLetter,
    }
}

fn exhausted_to_wire(choice: OnExhausted) -> v1::OnExhausted {
    match choice {
        OnExhausted::DeadLetter => v1::OnExhausted::DeadLetter,
        OnExhausted::Drop => v1::OnExhausted::Drop,
    }
}

/// A stored choice for the wire; unspecified where there is none, or one of a newer version.
fn choice<C: TryFrom<i32>, W: Into<i32>>(stored: Option<i32>, to_wire: impl FnOnce(C) -> W) -> i32 {
    stored.and_then(|number| C::try_from(number).ok()).map_or(0, |choice| to_wire(choice).into())
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

/// A namespace's defaults for the wire.
pub(crate) fn namespace_info(info: NamespaceInfo, configured: bool) -> v1::NamespaceInfo {
    let NamespaceInfo { name, defaults, auto_create } = info;
    v1::NamespaceInfo { name, defaults: Some(settings_to_wire(defaults)), auto_create, configured }
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
        max_wait_ms,
        expected_rate_milli,
        on_group_failure,
        shed,
        ttl_ms,
        retain_done_ms,
        owner,
        runbook_url,
        age_slo_ms,
        dedup_window_ms,
        on_expired,
        on_exhausted,
    } = settings;
    let rule = |ShedRule { above_percent, below_priority }| v1::ShedRule { above_percent, below_priority };
    v1::QueueSettings {
        max_depth,
        max_bytes,
        lease: lease_ms.map(duration_of_ms),
        max_attempts,
        failure_window: failure_window_ms.map(duration_of_ms),
        backoff_base: backoff_base_ms.map(duration_of_ms),
        backoff_cap: backoff_cap_ms.map(duration_of_ms),
        dead_letter_queue,
        max_wait: max_wait_ms.map(duration_of_ms),
        expected_rate: expected_rate_milli.map(rate),
        on_group_failure: choice(on_group_failure, group_failure_to_wire),
        shed: shed.map(|shed| v1::Shed { rules: shed.rules.into_iter().map(rule).collect() }),
        ttl: ttl_ms.map(duration_of_ms),
        retain_done: retain_done_ms.map(duration_of_ms),
        owner,
        runbook_url,
        age_slo: age_slo_ms.map(duration_of_ms),
        dedup_window: dedup_window_ms.map(duration_of_ms),
        on_expired: choice(on_expired, expired_to_wire),
        on_exhausted: choice(on_exhausted, exhausted_to_wire),
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
        duplicates,
        outcomes_dropped,
        dedup_ids,
        retained,
        groups_blocked,
        rate_milli,
        oldest_parked_at,
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
        duplicates,
        outcomes_dropped,
        dedup_ids,
        retained,
        groups_blocked,
        rate: rate_milli.map(rate),
        oldest_parked_at: oldest_parked_at.map(|at| timestamp_of_ms(at.0)),
        oldest_parked_age: oldest_parked_at.map(|at| duration_of_ms(clock.cluster.since(at))),
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
            (v1::QueueSettings { max_wait: seconds(366 * 86_400 + 1), ..none() }, "settings.max_wait"),
            (v1::QueueSettings { max_wait: seconds(-1), ..none() }, "settings.max_wait"),
            (v1::QueueSettings { expected_rate: Some(-0.1), ..none() }, "settings.expected_rate"),
            (v1::QueueSettings { expected_rate: Some(1_000_000.1), ..none() }, "settings.expected_rate"),
            (v1::QueueSettings { expected_rate: Some(f64::NAN), ..none() }, "settings.expected_rate"),
            (v1::QueueSettings { on_group_failure: 4, ..none() }, "settings.on_group_failure"),
            (v1::QueueSettings { on_expired: -1, ..none() }, "settings.on_expired"),
            (v1::QueueSettings { on_exhausted: 3, ..none() }, "settings.on_exhausted"),
            (v1::QueueSettings { shed: rules(&[(80, 5); 11]), ..none() }, "settings.shed.rules"),
            (v1::QueueSettings { shed: rules(&[(80, 5), (100, 5)]), ..none() }, "settings.shed.rules[1].above_percent"),
            (v1::QueueSettings { shed: rules(&[(80, 0)]), ..none() }, "settings.shed.rules[0].below_priority"),
            (v1::QueueSettings { shed: rules(&[(80, 10)]), ..none() }, "settings.shed.rules[0].below_priority"),
            (v1::QueueSettings { ttl: seconds(366 * 86_400 + 1), ..none() }, "settings.ttl"),
            (v1::QueueSettings { retain_done: seconds(7 * 86_400 + 1), ..none() }, "settings.retain_done"),
            (v1::QueueSettings { owner: Some("x".repeat(513)), ..none() }, "settings.owner"),
            (v1::QueueSettings { runbook_url: Some("x".repeat(513)), ..none() }, "settings.runbook_url"),
            (v1::QueueSettings { age_slo: seconds(366 * 86_400 + 1), ..none() }, "settings.age_slo"),
            (v1::QueueSettings { dedup_window: seconds(0), ..none() }, "settings.dedup_window"),
            (v1::QueueSettings { dedup_window: seconds(30 * 86_400 + 1), ..none() }, "settings.dedup_window"),
        ];
        for (wire, field) in rows {
            assert_eq!(settings(wire).unwrap_err().field, field);
        }
    }

    fn rules(rules: &[(u32, u32)]) -> Option<v1::Shed> {
        let rule = |(above_percent, below_priority): &(u32, u32)| v1::ShedRule {
            above_percent: *above_percent,
            below_priority: *below_priority,
        };
        Some(v1::Shed { rules: rules.iter().map(rule).collect() })
    }

    #[test]
    fn defaults_of_a_namespace_name_no_dead_letter_queue() {
        assert_eq!(defaults(None).unwrap(), QueueSettings::default());
        let named = v1::QueueSettings { dead_letter_queue: Some("morgue".into()), ..Default::default() };
        assert_eq!(defaults(Some(named)).unwrap_err().field, "defaults.dead_letter_queue");
        let short = v1::QueueSettings { lease: seconds(0), ..Default::default() };
        assert_eq!(defaults(Some(short)).unwrap_err().field, "defaults.lease");
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
            max_wait: seconds(12),
            expected_rate: Some(2.125),
            on_group_failure: v1::OnGroupFailure::DeadLetterGroup.into(),
            shed: rules(&[(80, 5), (0, 9)]),
            ttl: seconds(13),
            retain_done: seconds(14),
            owner: Some("kitchen".into()),
            runbook_url: Some("https://example.com".into()),
            age_slo: seconds(15),
            dedup_window: seconds(16),
            on_expired: v1::OnExpired::DeadLetter.into(),
            on_exhausted: v1::OnExhausted::Drop.into(),
        };
        assert_eq!(settings_to_wire(settings(wire.clone()).unwrap()), wire);
        let none = v1::QueueSettings::default();
        assert_eq!(settings_to_wire(settings(none.clone()).unwrap()), none);
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
            stats: Stats {
                ready: 2,
                oldest_ready_at: Some(Timestamp(4_000)),
                oldest_parked_at: Some(Timestamp(8_500)),
                rate_milli: Some(2_500),
                ..Default::default()
            },
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
        assert_eq!((stats.oldest_parked_age, stats.rate), (seconds(1), Some(2.5)));
    }
}
