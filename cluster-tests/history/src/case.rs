//! A run, ready to be judged.

use std::collections::HashMap;

use crate::format::{ChainLine, Kind, Meta, NemesisLine};
use crate::index::Index;
use crate::story::{Got, Story};

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// A run, ready to be judged.
#[derive(Debug)]
pub struct Case {
    /// What clients asked and were told.
    pub story: Story,
    /// The same by message, lease, request and position.
    pub index: Index,
    /// The faults.
    pub nemesis: Vec<NemesisLine>,
    /// The nodes' chains, by the file's name.
    pub chains: Vec<(String, Vec<ChainLine>)>,
    /// What the run was.
    pub meta: Meta,
    /// When there may have been no leader, in nanoseconds: from, to, and all such time before.
    outages: Vec<(u64, u64, u64)>,
    bounds: HashMap<u32, Bounds>,
}

/// The least and the most that a queue's settings were during a run.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The lease in milliseconds.
    pub lease: (u64, u64),
    /// The attempts; `u32::MAX`: without limit.
    pub attempts: (u32, u32),
    /// The shortest failure window in milliseconds.
    pub window: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { lease: (60_000, 60_000), attempts: (5, 5), window: 86_400_000 }
    }
}

impl Case {
    /// Puts a run together.
    pub fn new(story: Story, meta: Meta, nemesis: Vec<NemesisLine>, chains: Vec<(String, Vec<ChainLine>)>) -> Self {
        let index = Index::of(&story);
        let (outages, bounds) = (outages(&story), bounds(&story));
        Self { story, index, nemesis, chains, meta, outages, bounds }
    }

    /// How far cluster time and the clients' clock may drift apart within `span` nanoseconds, jumps included.
    pub fn slack(&self, span: u64) -> u64 {
        let drift = u128::from(span) * u128::from(self.meta.drift_ppm) / 1_000_000;
        u64::try_from(drift).unwrap_or(u64::MAX).saturating_add(self.meta.jump_ms.saturating_mul(MS))
    }

    /// Nanoseconds between `from` and `to` in which there may have been no leader, so that the lease clock stood.
    pub fn leaderless(&self, from: u64, to: u64) -> u64 {
        let until = |t: u64| {
            let at = self.outages.partition_point(|(begin, _, _)| *begin < t);
            self.outages[..at].last().map_or(0, |(begin, end, before)| before + t.min(*end).saturating_sub(*begin))
        };
        until(to).saturating_sub(until(from))
    }

    /// What a queue's settings were during the run.
    pub fn bounds(&self, queue: u32) -> Bounds {
        self.bounds.get(&queue).copied().unwrap_or_default()
    }

    /// What the lease of a delivery was for, in nanoseconds: as it was asked for, or else what was left of it when the
    /// answer was made up. It begins between the begin and the end of the receive, and so ends at most so long after that.
    pub fn lease(&self, got: &Got) -> u64 {
        let lease = match self.story.ops[got.op as usize].argument {
            0 => got.left,
            lease => lease,
        };
        lease.saturating_mul(MS)
    }

    /// A delivery in words.
    pub fn delivery(&self, got: &Got) -> String {
        format!(
            "the delivery of message v {} ({}, receive count {}) by {}",
            got.v,
            got.id,
            got.rc,
            self.story.name(got.op)
        )
    }
}

/// Between the answers of one term and those of the next there may have been no leader.
fn outages(story: &Story) -> Vec<(u64, u64, u64)> {
    let mut terms: std::collections::BTreeMap<u32, (u64, u64)> = std::collections::BTreeMap::new();
    for op in &story.ops {
        if op.is_ok() && op.cp().is_some() && !op.replayed && op.term > 0 {
            let span = terms.entry(op.term).or_insert((op.t1, op.t0));
            *span = (span.0.min(op.t1), span.1.max(op.t0));
        }
    }
    let mut outages: Vec<(u64, u64, u64)> = Vec::new();
    let mut before = 0;
    for (earlier, later) in terms.values().zip(terms.values().skip(1)) {
        // The last change of the old term came after its last operation began, the first of the new one before it ended.
        let from = earlier.1.max(outages.last().map_or(0, |(_, to, _)| *to));
        let to = later.0.max(from);
        outages.push((from, to, before));
        before += to - from;
    }
    outages
}

fn bounds(story: &Story) -> HashMap<u32, Bounds> {
    let mut bounds: HashMap<u32, Bounds> = HashMap::new();
    for (op, set) in &story.settings {
        let row = &story.ops[*op as usize];
        let attempts = |max: u32| if max == 0 { u32::MAX } else { max };
        let known = bounds.entry(row.queue).or_insert_with(|| {
            // A queue that is made with settings may never have had the defaults.
            let default = Bounds::default();
            if row.kind == Kind::Create && row.is_ok() {
                let lease = set.lease.unwrap_or(default.lease.0);
                let most = set.max_attempts.map_or(default.attempts.0, attempts);
                Bounds { lease: (lease, lease), attempts: (most, most), window: set.window.unwrap_or(default.window) }
            } else {
                default
            }
        });
        if let Some(lease) = set.lease {
            known.lease = (known.lease.0.min(lease), known.lease.1.max(lease));
        }
        if let Some(max) = set.max_attempts.map(attempts) {
            known.attempts = (known.attempts.0.min(max), known.attempts.1.max(max));
        }
        if let Some(window) = set.window {
            known.window = known.window.min(window);
        }
    }
    // A queue that is removed and made anew has the defaults again.
    for op in story.ops.iter().filter(|op| op.kind == Kind::Delete) {
        if let Some(known) = bounds.get_mut(&op.queue) {
            let default = Bounds::default();
            known.lease = (known.lease.0.min(default.lease.0), known.lease.1.max(default.lease.1));
            known.attempts = (known.attempts.0.min(default.attempts.0), known.attempts.1.max(default.attempts.1));
            known.window = known.window.min(default.window);
        }
    }
    bounds
}
