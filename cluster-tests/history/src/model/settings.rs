//! A queue's settings, none absent.

use crate::format::{OnGroup, QueueName, Remains, Settings};

/// A day in milliseconds.
pub(crate) const DAY: u64 = 86_400_000;
/// The shortest and the longest lease in milliseconds.
pub(crate) const LEASES: std::ops::RangeInclusive<u64> = 1_000..=43_200_000;
/// The longest delay, time to live and wait in milliseconds.
pub(crate) const DELAY: u64 = 366 * DAY;
/// The most attempts.
pub(crate) const ATTEMPTS: u32 = 100;

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
    pub(crate) max_wait: u64,
    pub(crate) expected_rate: u64,
    pub(crate) on_group: OnGroup,
    pub(crate) shed: Vec<(u32, u32)>,
    pub(crate) ttl: u64,
    pub(crate) retain: u64,
    pub(crate) dedup: u64,
    pub(crate) on_expired: Remains,
    pub(crate) on_exhausted: Remains,
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
            max_wait: 0,
            expected_rate: 0,
            on_group: OnGroup::Continue,
            shed: Vec::new(),
            ttl: 0,
            retain: 0,
            dedup: 3_600_000,
            on_expired: Remains::Nothing,
            on_exhausted: Remains::DeadLetter,
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
            max_wait: changes.max_wait.unwrap_or(self.max_wait),
            expected_rate: changes.expected_rate.unwrap_or(self.expected_rate),
            on_group: changes.on_group.unwrap_or(self.on_group),
            shed: changes.shed.clone().unwrap_or(self.shed),
            ttl: changes.ttl.unwrap_or(self.ttl),
            retain: changes.retain.unwrap_or(self.retain),
            dedup: changes.dedup.unwrap_or(self.dedup),
            on_expired: changes.on_expired.unwrap_or(self.on_expired),
            on_exhausted: changes.on_exhausted.unwrap_or(self.on_exhausted),
        }
    }

    /// Whether the queue `name` may have them.
    pub(crate) fn lawful(&self, name: &QueueName) -> bool {
        self.in_range() && self.dead_letters != name.name() && self.dead_letter_queue(name).is_some()
    }

    /// Whether each of them is within its limits.
    pub(crate) fn in_range(&self) -> bool {
        LEASES.contains(&self.lease)
            && self.max_attempts <= ATTEMPTS
            && (1_000..=366 * DAY).contains(&self.window)
            && (1..=DAY).contains(&self.base)
            && (self.base..=DAY).contains(&self.cap)
            && self.max_wait <= DELAY
            && self.expected_rate <= 1_000_000_000
            && self.shed.len() <= 10
            && self.shed.iter().all(|(above, below)| *above <= 99 && (1..=9).contains(below))
            && self.ttl <= DELAY
            && self.retain <= 7 * DAY
            && (1_000..=30 * DAY).contains(&self.dedup)
    }

    /// Where dead letters go; `None` where the name does not fit.
    pub(crate) fn dead_letter_queue(&self, name: &QueueName) -> Option<QueueName> {
        let target =
            if self.dead_letters.is_empty() { format!("{}.dlq", name.name()) } else { self.dead_letters.clone() };
        (target.len() <= 200).then(|| QueueName::new(name.namespace(), &target))
    }
}

/// The longest that the n-th failure waits, in milliseconds.
pub(crate) fn backoff_ceiling(base: u64, cap: u64, failures: u32) -> u64 {
    let mut ceiling = base;
    for _ in 0..failures {
        if ceiling >= cap {
            break;
        }
        ceiling = ceiling.saturating_mul(2);
    }
    ceiling.min(cap)
}
