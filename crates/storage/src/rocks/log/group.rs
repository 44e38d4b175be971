//! What is known in memory of one group's log.

use std::collections::VecDeque;
use std::ops::Range;

use crate::log::{LogId, LogRecord, LogState, Vote};
use crate::watermark::Watermark;

/// What an entry costs in memory beside its payload.
pub(super) const RECORD_OVERHEAD: usize = 96;

/// An entry and the payload bytes of all entries ever, up to and with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) record: LogRecord,
    pub(super) total: u64,
}

impl Counted {
    pub(super) fn cost(&self) -> usize {
        self.record.payload.len() + RECORD_OVERHEAD
    }
}

/// A place in the log: an entry, or the front if `id` is `None`, and the total up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: Option<LogId>,
    pub(super) total: u64,
}

/// Where the entry at some index can be looked up.
pub(super) enum Located {
    Here(Place),
    OnDisk,
}

/// One group's log: positions, and the newest entries.
#[derive(Debug, Default)]
pub(super) struct Group {
    purged: Option<LogId>,
    purged_total: u64,
    /// The index of the first entry held, or of the next one if none is held.
    first: u64,
    /// The last entry held, or else the last one purged.
    last: Option<LogId>,
    last_total: u64,
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// The newest entries, without a gap, up to `last`. What is before them is on the disk.
    tail: VecDeque<Counted>,
    /// The last entry of what the committer has made durable, in the order of the calls.
    synced: Option<LogId>,
    synced_vote: Option<Vote>,
    /// Truncations called and not yet written, and the lowest of their cuts: what is behind it may be of a branch that
    /// is gone, whatever `synced` says.
    cuts_pending: usize,
    ceiling: Option<Option<LogId>>,
    /// How often entries were removed, so that a reader of the disk knows.
    removals: u64,
}

fn next_index(id: Option<LogId>) -> u64 {
    id.map_or(0, |id| id.index.saturating_add(1))
}

/// What was found on the disk at the start; all of it is durable.
pub(super) struct Found {
    pub(super) purged: Option<(LogId, u64)>,
    pub(super) first: Option<u64>,
    pub(super) last: Option<Place>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
}

impl Group {
    pub(super) fn recover(found: &Found) -> Group {
        let (purged, purged_total) = match found.purged {
            Some((id, total)) => (Some(id), total),
            None => (None, 0),
        };
        let last = found.last.unwrap_or(Place { id: purged, total: purged_total });
        Group {
            purged,
            purged_total,
            first: found.first.unwrap_or(next_index(purged)),
            last: last.id,
            last_total: last.total,
            vote: found.vote,
            committed: found.committed,
            synced: last.id,
            synced_vote: found.vote,
            ..Group::default()
        }
    }

    pub(super) fn state(&self) -> LogState {
        LogState { purged: self.purged, last: self.last, vote: self.vote, committed: self.committed }
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.last_total.saturating_sub(self.purged_total)
    }

    pub(super) fn purged_total(&self) -> u64 {
        self.purged_total
    }

    /// The indexes of the entries held.
    pub(super) fn held(&self) -> Range<u64> {
        self.first..next_index(self.last)
    }

    /// The index of the first entry in memory, or of the next one.
    pub(super) fn tail_start(&self) -> u64 {
        next_index(self.last).saturating_sub(self.tail.len() as u64)
    }

    pub(super) fn removals(&self) -> u64 {
        self.removals
    }

    pub(super) fn set_vote(&mut self, vote: Vote) {
        self.vote = Some(vote);
    }

    pub(super) fn set_committed(&mut self, committed: Option<LogId>) {
        self.committed = committed;
    }

    /// Adds entries that follow `last` without a gap; returns them with their totals, and what they cost in memory.
    pub(super) fn append(&mut self, records: Vec<LogRecord>) -> (Vec<Counted>, usize) {
        if self.last.is_none()
            && let Some(record) = records.first()
        {
            self.first = record.id.index;
        }
        let mut cost = 0;
        let counted: Vec<Counted> = records
            .into_iter()
            .map(|record| {
                self.last = Some(record.id);
                self.last_total += record.payload.len() as u64;
                let counted = Counted { record, total: self.last_total };
                cost += counted.cost();
                counted
            })
            .collect();
        self.tail.extend(counted.iter().cloned());
        (counted, cost)
    }

    /// Where the log would end if it ended with the entry at `index`.
    pub(super) fn locate(&self, index: Option<u64>) -> Located {
        let front = Place { id: self.purged, total: self.purged_total };
        let held = self.held();
        let Some(index) = index.filter(|index| !held.is_empty() && *index >= held.start) else {
            return Located::Here(front);
        };
        if index >= held.end - 1 {
            return Located::Here(Place { id: self.last, total: self.last_total });
        }
        match index.checked_sub(self.tail_start()).and_then(|at| self.tail.get(at as usize)) {
            Some(counted) => Located::Here(Place { id: Some(counted.record.id), total: counted.total }),
            None => Located::OnDisk,
        }
    }

    /// From now on nothing behind `cut` counts as durable, until the truncation is written.
    pub(super) fn announce_cut(&mut self, cut: Option<LogId>) {
        self.cuts_pending += 1;
        self.ceiling = Some(match self.ceiling {
            Some(lower) if next_index(lower) < next_index(cut) => lower,
            Some(_) | None => cut,
        });
    }

    /// Removes the entries behind `cut`; returns the indexes removed, and what they cost in memory.
    pub(super) fn cut(&mut self, cut: Place) -> (Range<u64>, usize) {
        let end = next_index(self.last);
        // What was purged meanwhile stays purged.
        let front = Place { id: self.purged, total: self.purged_total };
        let cut = if next_index(cut.id) < self.first { front } else { cut };
        let keep = next_index(cut.id).max(self.first).min(end);
        self.removals += 1;
        let mut freed = 0;
        while self.tail.back().is_some_and(|counted| counted.record.id.index >= keep) {
            freed += self.tail.pop_back().map_or(0, |counted| counted.cost());
        }
        if keep < end {
            self.last = cut.id;
            self.last_total = cut.total;
            self.first = self.first.min(next_index(self.last)).max(next_index(self.purged));
        }
        (keep..end, freed)
    }

    /// Removes the entries up to and with `upto`; `total` is the total up to it. Returns the indexes removed, and what
    /// they cost in memory.
    pub(super) fn purge(&mut self, upto: LogId, total: u64) -> (Range<u64>, usize) {
        let held = self.held();
        let next = upto.index.saturating_add(1);
        self.removals += 1;
        let mut freed = 0;
        while self.tail.front().is_some_and(|counted| counted.record.id.index < next) {
            freed += self.tail.pop_front().map_or(0, |counted| counted.cost());
        }
        self.purged = Some(upto);
        if next >= held.end {
            self.last = Some(upto);
            self.purged_total = self.last_total;
            self.first = next;
        } else if next > held.start {
            self.purged_total = total;
            self.first = next;
        }
        (held.start..next.clamp(held.start, held.end.max(held.start)), freed)
    }

    /// Whether `purge(upto)` would change anything.
    pub(super) fn can_purge(&self, upto: LogId) -> bool {
        self.purged.is_none_or(|purged| purged.index < upto.index)
    }

    /// Copies entries of the tail from `range` behind `out`, as [`crate::log::RaftLog::read`] says.
    pub(super) fn read_tail(&self, range: Range<u64>, budget: &mut Budget, out: &mut Vec<LogRecord>) {
        let start = range.start.saturating_sub(self.tail_start()) as usize;
        for counted in self.tail.iter().skip(start).take((range.end - range.start) as usize) {
            if !budget.take(counted.record.payload.len()) {
                return;
            }
            out.push(counted.record.clone());
        }
    }

    /// The entries below this index are on the disk, durably.
    fn durable_below(&self) -> u64 {
        let synced = next_index(self.synced);
        self.ceiling.map_or(synced, |ceiling| synced.min(next_index(ceiling)))
    }

    /// Drops the oldest entry from memory, if the disk has it; returns what it cost.
    pub(super) fn evict(&mut self) -> Option<usize> {
        let durable = self.durable_below();
        self.tail.pop_front_if(|counted| counted.record.id.index < durable).map(|counted| counted.cost())
    }

    /// What is durable for certain.
    pub(super) fn mark(&self) -> Watermark {
        let last = match self.ceiling {
            Some(ceiling) if next_index(ceiling) < next_index(self.synced) => ceiling,
            Some(_) | None => self.synced,
        };
        Watermark { vote: self.synced_vote, last }
    }

    /// The committer has made entries up to `last` durable.
    pub(super) fn synced(&mut self, last: LogId) {
        self.synced = Some(last);
    }

    /// The committer has made `vote` durable.
    pub(super) fn synced_vote(&mut self, vote: Vote) {
        self.synced_vote = Some(vote);
    }

    /// The committer has written the truncation to `cut`.
    pub(super) fn cut_written(&mut self, cut: Option<LogId>) {
        if next_index(cut) < next_index(self.synced) {
            self.synced = cut;
        }
        self.cuts_pending = self.cuts_pending.saturating_sub(1);
        if self.cuts_pending == 0 {
            self.ceiling = None;
        }
    }
}

/// How many payload bytes may still be read; the first entry always fits.
pub(super) struct Budget {
    left: usize,
    first: bool,
    spent: bool,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, first: true, spent: false }
    }

    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || self.first;
        self.left = self.left.saturating_sub(bytes);
        self.first = false;
        self.spent |= !fits;
        fits
    }

    /// Whether something did not fit.
    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }
}
