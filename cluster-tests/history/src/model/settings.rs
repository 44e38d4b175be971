//! A queue's settings, none absent.

use crate::format::{QueueName, Settings};

/// A day in milliseconds.
const DAY: u64 = 86_400_000;
/// The shortest and the longest lease in milliseconds.
pub(crate) const LEASES: std::ops::RangeInclusive<u64> = 1_000..=43_200_000;
/// The longest delay in milliseconds.
pub(crate) const DELAY: u64 = 366 * DAY;

/// A queue's settings, none absent.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) max_depth: u64,
    pub(crate) max_bytes: u64,
    pub(crate) lease: u64,
    pub(crate) max_attempts: u32,
    pub(crate) window: u64,
    pub(crate) base: u64,
    pub(crate) cap: u64,
    pub(crate) dead_letters: String,
}

impl Default for Resolved {
    fn default() -> Self {
        Self {
            max_depth: 1_000_000,
            max_bytes: 0,
            lease: 60_000,
            max_attempts: 5,
            window: DAY,
            base: 1_000,
            cap: 60_000,
            dead_letters: String::new(),
        }
    }
}

impl Resolved {
    /// With what `changes` says.
    pub(crate) fn with(self, changes: &Settings) -> Self {
        Self {
            max_depth: changes.max_depth.unwrap_or(self.max_depth),
            max_bytes: changes.max_bytes.unwrap_or(self.max_bytes),
            lease: changes.lease.unwrap_or(self.lease),
            max_attempts: changes.max_attempts.unwrap_or(self.max_attempts),
            window: changes.window.unwrap_or(self.window),
            base: changes.base.unwrap_or(self.base),
            cap: changes.cap.unwrap_or(self.cap),
            dead_letters: changes.dlq.clone().unwrap_or(self.dead_letters),
        }
    }

    /// Whether the queue `name` may have them.
    pub(crate) fn lawful(&self, name: &QueueName) -> bool {
        LEASES.contains(&self.lease)
            && self.max_attempts <= 100
            && (1_000..=366 * DAY).contains(&self.window)
            && (1..=DAY).contains(&self.base)
            && (self.base..=DAY).contains(&self.cap)
            && self.dead_letters != name.name()
            && self.dead_letter_queue(name).is_some()
    }

    /// Where dead letters go; `None` where the name does not fit.
    pub(crate) fn dead_letter_queue(&self, name: &QueueName) -> Option<QueueName> {
        let target =
            if self.dead_letters.is_empty() { format!("{}.dlq", name.name()) } else { self.dead_letters.clone() };
        (target.len() <= 200).then(|| QueueName::new(name.namespace(), &target))
    }

    /// The longest that the n-th failure waits, in milliseconds.
    pub(crate) fn backoff_ceiling(&self, failures: u32) -> u64 {
        let mut ceiling = self.base;
        for _ in 0..failures {
            if ceiling >= self.cap {
                break;
            }
            ceiling = ceiling.saturating_mul(2);
        }
        ceiling.min(self.cap)
    }
}
