//! A queue's settings: their defaults and limits.

use super::invalid;
use crate::command::{OnExhausted, OnExpired, OnGroupFailure, QueueRef, QueueSettings, RetryPolicy, Shed};
use crate::limits;
use crate::names::QueueName;
use crate::records::ConfigRecord;
use crate::reply::Rejection;

/// What a queue gets whose settings nobody gave.
pub(crate) fn defaults() -> QueueSettings {
    QueueSettings {
        max_depth: Some(limits::DEPTH_DEFAULT),
        max_bytes: Some(0),
        lease_ms: Some(limits::LEASE_DEFAULT_MS),
        max_attempts: Some(limits::ATTEMPTS_DEFAULT),
        failure_window_ms: Some(limits::FAILURE_WINDOW_DEFAULT_MS),
        backoff_base_ms: Some(limits::BACKOFF_BASE_DEFAULT_MS),
        backoff_cap_ms: Some(limits::BACKOFF_CAP_DEFAULT_MS),
        dead_letter_queue: Some(String::new()),
        max_wait_ms: Some(0),
        expected_rate_milli: Some(0),
        on_group_failure: Some(OnGroupFailure::Continue.into()),
        shed: Some(Shed::default()),
        ttl_ms: Some(0),
        retain_done_ms: Some(0),
        owner: Some(String::new()),
        runbook_url: Some(String::new()),
        age_slo_ms: Some(0),
        dedup_window_ms: Some(limits::DEDUP_WINDOW_DEFAULT_MS),
        on_expired: Some(OnExpired::Drop.into()),
        on_exhausted: Some(OnExhausted::DeadLetter.into()),
    }
}

/// `base`, with what `changes` says.
pub(crate) fn merge(base: &QueueSettings, changes: &QueueSettings) -> QueueSettings {
    QueueSettings {
        max_depth: changes.max_depth.or(base.max_depth),
        max_bytes: changes.max_bytes.or(base.max_bytes),
        lease_ms: changes.lease_ms.or(base.lease_ms),
        max_attempts: changes.max_attempts.or(base.max_attempts),
        failure_window_ms: changes.failure_window_ms.or(base.failure_window_ms),
        backoff_base_ms: changes.backoff_base_ms.or(base.backoff_base_ms),
        backoff_cap_ms: changes.backoff_cap_ms.or(base.backoff_cap_ms),
        dead_letter_queue: changes.dead_letter_queue.clone().or_else(|| base.dead_letter_queue.clone()),
        max_wait_ms: changes.max_wait_ms.or(base.max_wait_ms),
        expected_rate_milli: changes.expected_rate_milli.or(base.expected_rate_milli),
        on_group_failure: changes.on_group_failure.or(base.on_group_failure),
        shed: changes.shed.clone().or_else(|| base.shed.clone()),
        ttl_ms: changes.ttl_ms.or(base.ttl_ms),
        retain_done_ms: changes.retain_done_ms.or(base.retain_done_ms),
        owner: changes.owner.clone().or_else(|| base.owner.clone()),
        runbook_url: changes.runbook_url.clone().or_else(|| base.runbook_url.clone()),
        age_slo_ms: changes.age_slo_ms.or(base.age_slo_ms),
        dedup_window_ms: changes.dedup_window_ms.or(base.dedup_window_ms),
        on_expired: changes.on_expired.or(base.on_expired),
        on_exhausted: changes.on_exhausted.or(base.on_exhausted),
    }
}

/// Checks whole settings of the queue `name`.
pub(crate) fn check(name: &QueueRef, settings: &QueueSettings) -> Result<(), Rejection> {
    let range = |field: &str, value: Option<u64>, low: u64, high: u64| match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(invalid(field, format!("expected {low} to {high}, but got {value}")))
        }
        Some(_) | None => Ok(()),
    };
    range("lease_ms", settings.lease_ms, limits::LEASE_MIN_MS, limits::LEASE_MAX_MS)?;
    range("max_attempts", settings.max_attempts.map(u64::from), 0, limits::ATTEMPTS_MAX.into())?;
    range("failure_window_ms", settings.failure_window_ms, 1_000, limits::FAILURE_WINDOW_MAX_MS)?;
    range("backoff_base_ms", settings.backoff_base_ms, 1, limits::BACKOFF_MAX_MS)?;
    let base = settings.backoff_base_ms.unwrap_or(1);
    range("backoff_cap_ms", settings.backoff_cap_ms, base, limits::BACKOFF_MAX_MS)?;
    range("max_wait_ms", settings.max_wait_ms, 0, limits::MAX_WAIT_MAX_MS)?;
    range("expected_rate_milli", settings.expected_rate_milli, 0, limits::EXPECTED_RATE_MAX_MILLI)?;
    range("ttl_ms", settings.ttl_ms, 0, limits::TTL_MAX_MS)?;
    range("retain_done_ms", settings.retain_done_ms, 0, limits::RETAIN_DONE_MAX_MS)?;
    range("age_slo_ms", settings.age_slo_ms, 0, limits::MAX_WAIT_MAX_MS)?;
    range("dedup_window_ms", settings.dedup_window_ms, 1_000, limits::DEDUP_WINDOW_MAX_MS)?;
    let choices = [
        ("on_group_failure", settings.on_group_failure.is_none_or(OnGroupFailure::is_valid)),
        ("on_expired", settings.on_expired.is_none_or(OnExpired::is_valid)),
        ("on_exhausted", settings.on_exhausted.is_none_or(OnExhausted::is_valid)),
    ];
    if let Some((field, _)) = choices.into_iter().find(|(_, is_known)| !is_known) {
        return Err(invalid(field, "expected one that this version knows, but got another number"));
    }
    for (field, text) in [("owner", &settings.owner), ("runbook_url", &settings.runbook_url)] {
        let len = text.as_ref().map_or(0, String::len);
        if len > limits::NOTE_BYTES {
            return Err(invalid(field, format!("expected at most {} bytes, but got {len}", limits::NOTE_BYTES)));
        }
    }
    check_shed(settings.shed.as_ref())?;
    let named = settings.dead_letter_queue.as_deref().unwrap_or_default();
    if named == name.name {
        return Err(invalid("dead_letter_queue", "expected another queue, but it is the queue itself"));
    }
    let (field, target) = if named.is_empty() {
        ("queue", derived_dead_letter_queue(&name.name))
    } else {
        ("dead_letter_queue", named.to_owned())
    };
    match QueueName::parse(target.as_str()) {
        Ok(_) => Ok(()),
        Err(e) if named.is_empty() => Err(invalid(
            field,
            format!(
                "expected a name whose dead-letter queue {target:?} is a name too, but {e}; name one by dead_letter_queue"
            ),
        )),
        Err(e) => Err(invalid(field, e.to_string())),
    }
}

fn check_shed(shed: Option<&Shed>) -> Result<(), Rejection> {
    let rules = shed.map_or(&[][..], |shed| &shed.rules);
    if rules.len() > limits::SHED_RULES {
        let reason = format!("expected at most {} rules, but got {}", limits::SHED_RULES, rules.len());
        return Err(invalid("shed", reason));
    }
    for rule in rules {
        if rule.above_percent > 99 {
            return Err(invalid("shed.above_percent", format!("expected 0 to 99, but got {}", rule.above_percent)));
        }
        if !(1..=u32::from(limits::PRIORITY_MAX)).contains(&rule.below_priority) {
            let reason = format!("expected 1 to {}, but got {}", limits::PRIORITY_MAX, rule.below_priority);
            return Err(invalid("shed.below_priority", reason));
        }
    }
    Ok(())
}

/// How a message is tried again: as it says itself, else as its queue says.
pub(crate) struct Policy {
    /// The attempt budget; `None`: without limit.
    pub max_attempts: Option<u32>,
    base_ms: u64,
    cap_ms: u64,
}

impl Policy {
    /// The ceiling of the backoff after the n-th failure: min(cap, base * 2^n).
    pub(crate) fn backoff_ceiling_ms(&self, failures: u32) -> u64 {
        let doubled = 1u64.checked_shl(failures).and_then(|factor| self.base_ms.checked_mul(factor));
        doubled.unwrap_or(u64::MAX).min(self.cap_ms)
    }
}

/// The dead-letter queue of a queue that names none.
pub(crate) fn derived_dead_letter_queue(name: &str) -> String {
    format!("{name}.dlq")
}

impl ConfigRecord {
    /// Where the queue's dead letters go; `None` where no name fits.
    pub(crate) fn dead_letter_queue(&self) -> Option<QueueRef> {
        let named = self.settings.dead_letter_queue.as_deref().unwrap_or_default();
        let name = if named.is_empty() { derived_dead_letter_queue(&self.name.name) } else { named.to_owned() };
        QueueName::parse(name.as_str()).ok()?;
        Some(QueueRef { namespace: self.name.namespace.clone(), name })
    }

    /// The lease of a receive that names none, in milliseconds.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.settings.lease_ms.unwrap_or(limits::LEASE_DEFAULT_MS)
    }

    /// How a message with this policy of its own is tried again. A cap below the base of the other says nothing.
    pub(crate) fn retry_policy(&self, own: &RetryPolicy) -> Policy {
        let settings = &self.settings;
        let attempts = own.max_attempts.or(settings.max_attempts).unwrap_or(limits::ATTEMPTS_DEFAULT);
        let base_ms = own.backoff_base_ms.or(settings.backoff_base_ms).unwrap_or(limits::BACKOFF_BASE_DEFAULT_MS);
        let cap_ms = own.backoff_cap_ms.unwrap_or_else(|| self.backoff_cap_ms()).max(base_ms);
        Policy { max_attempts: Some(attempts).filter(|max| *max > 0), base_ms, cap_ms }
    }

    /// What a dead-lettered head does to its group.
    pub(crate) fn on_group_failure(&self) -> OnGroupFailure {
        known(self.settings.on_group_failure).unwrap_or(OnGroupFailure::Continue)
    }

    /// What becomes of expired messages.
    pub(crate) fn on_expired(&self) -> OnExpired {
        known(self.settings.on_expired).unwrap_or(OnExpired::Drop)
    }

    /// What becomes of messages whose attempts are used up.
    pub(crate) fn on_exhausted(&self) -> OnExhausted {
        known(self.settings.on_exhausted).unwrap_or(OnExhausted::DeadLetter)
    }

    /// The time to live of messages that have none of their own, in milliseconds; 0: none.
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.settings.ttl_ms.unwrap_or(0)
    }

    /// For how long dedup ids are remembered, in milliseconds.
    pub(crate) fn dedup_window_ms(&self) -> u64 {
        self.settings.dedup_window_ms.unwrap_or(limits::DEDUP_WINDOW_DEFAULT_MS)
    }

    /// How long outcomes of acks are kept, in milliseconds; 0: not at all.
    pub(crate) fn retain_done_ms(&self) -> u64 {
        self.settings.retain_done_ms.unwrap_or(0)
    }

    /// The window in which failures are counted, in milliseconds.
    pub(crate) fn failure_window_ms(&self) -> u64 {
        self.settings.failure_window_ms.unwrap_or(limits::FAILURE_WINDOW_DEFAULT_MS)
    }

    /// The longest backoff, in milliseconds.
    pub(crate) fn backoff_cap_ms(&self) -> u64 {
        self.settings.backoff_cap_ms.unwrap_or(limits::BACKOFF_CAP_DEFAULT_MS)
    }
}

fn known<E: TryFrom<i32>>(number: Option<i32>) -> Option<E> {
    number.and_then(|number| E::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: QueueSettings) -> ConfigRecord {
        ConfigRecord { settings, ..ConfigRecord::default() }
    }

    #[test]
    fn backoff_ceilings_double_up_to_the_cap() {
        let config = config(defaults());
        let policy = config.retry_policy(&RetryPolicy::default());
        let ceilings: Vec<u64> = (1..=8).map(|n| policy.backoff_ceiling_ms(n) / 1_000).collect();
        assert_eq!(ceilings, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(policy.backoff_ceiling_ms(u32::MAX), 60_000);
    }

    #[test]
    fn every_setting_has_its_limits() {
        let name = |n: &str| QueueRef { namespace: "default".into(), name: n.into() };
        let with = |changes: QueueSettings| check(&name("orders"), &merge(&defaults(), &changes));
        assert_eq!(with(QueueSettings::default()), Ok(()));
        for (field, changes) in [
            ("lease_ms", QueueSettings { lease_ms: Some(999), ..Default::default() }),
            ("lease_ms", QueueSettings { lease_ms: Some(12 * 3_600_000 + 1), ..Default::default() }),
            ("max_attempts", QueueSettings { max_attempts: Some(101), ..Default::default() }),
            ("failure_window_ms", QueueSettings { failure_window_ms: Some(999), ..Default::default() }),
            ("backoff_base_ms", QueueSettings { backoff_base_ms: Some(0), ..Default::default() }),
            ("backoff_cap_ms", QueueSettings { backoff_cap_ms: Some(999), ..Default::default() }),
            ("dead_letter_queue", QueueSettings { dead_letter_queue: Some("orders".into()), ..Default::default() }),
            ("dead_letter_queue", QueueSettings { dead_letter_queue: Some("a b".into()), ..Default::default() }),
        ] {
            let Err(Rejection::Invalid(invalid)) = with(changes) else { panic!("{field} was let through") };
            assert_eq!(invalid.field, field);
        }
        assert_eq!(check(&name(&"x".repeat(196)), &defaults()), Ok(()));
        assert!(check(&name(&"x".repeat(197)), &defaults()).is_err());
        let named = merge(&defaults(), &QueueSettings { dead_letter_queue: Some("dead".into()), ..Default::default() });
        assert_eq!(check(&name(&"x".repeat(200)), &named), Ok(()));
    }
}
