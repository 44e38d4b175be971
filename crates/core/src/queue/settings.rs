//! A queue's settings: their defaults and limits.

use super::invalid;
use crate::command::{QueueRef, QueueSettings};
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

    /// The attempt budget; `None`: without limit.
    pub(crate) fn max_attempts(&self) -> Option<u32> {
        Some(self.settings.max_attempts.unwrap_or(limits::ATTEMPTS_DEFAULT)).filter(|max| *max > 0)
    }

    /// The window in which failures are counted, in milliseconds.
    pub(crate) fn failure_window_ms(&self) -> u64 {
        self.settings.failure_window_ms.unwrap_or(limits::FAILURE_WINDOW_DEFAULT_MS)
    }

    /// The longest backoff, in milliseconds.
    pub(crate) fn backoff_cap_ms(&self) -> u64 {
        self.settings.backoff_cap_ms.unwrap_or(limits::BACKOFF_CAP_DEFAULT_MS)
    }

    /// The ceiling of the backoff after the n-th failure: min(cap, base * 2^n).
    pub(crate) fn backoff_ceiling_ms(&self, failures: u32) -> u64 {
        let base = self.settings.backoff_base_ms.unwrap_or(limits::BACKOFF_BASE_DEFAULT_MS);
        let doubled = 1u64.checked_shl(failures).and_then(|factor| base.checked_mul(factor));
        doubled.unwrap_or(u64::MAX).min(self.backoff_cap_ms())
    }
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
        let ceilings: Vec<u64> = (1..=8).map(|n| config.backoff_ceiling_ms(n) / 1_000).collect();
        assert_eq!(ceilings, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(config.backoff_ceiling_ms(u32::MAX), 60_000);
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
