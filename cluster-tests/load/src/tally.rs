//! What all clients together have done.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ticketrail_history::format::Kind;

/// Ends of calls of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Answered.
    pub ok: u64,
    /// Certainly without effect.
    pub failed: u64,
    /// Unknown.
    pub unknown: u64,
}

/// Counts what all clients of a load have done.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: BTreeMap<Kind, Count>,
    /// By name.
    seen: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// The calls, by kind.
    pub fn calls(&self) -> BTreeMap<Kind, Count> {
        self.lock().calls.clone()
    }

    /// Calls of one kind.
    pub fn of(&self, kind: Kind) -> Count {
        self.lock().calls.get(&kind).copied().unwrap_or_default()
    }

    /// What was seen so often: `messages` enqueued, `duplicates` of them, `deliveries`, `redeliveries`, `dead`, `acked`,
    /// `taken` at most once, `cancelled`, `rescheduled`, `children`, `leases_lost`, `overruns`, `silent`.
    pub fn seen(&self, name: &str) -> u64 {
        self.lock().seen.get(name).copied().unwrap_or(0)
    }

    /// All that was seen, by name.
    pub fn all_seen(&self) -> BTreeMap<&'static str, u64> {
        self.lock().seen.clone()
    }

    pub(crate) fn end(&self, kind: Kind, end: impl FnOnce(&mut Count)) {
        end(self.lock().calls.entry(kind).or_default());
    }

    pub(crate) fn see(&self, name: &'static str, times: usize) {
        if times > 0 {
            *self.lock().seen.entry(name).or_default() += times as u64;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
