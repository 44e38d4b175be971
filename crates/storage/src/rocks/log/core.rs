//! What the callers, the committer and the marker share.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rocksdb::{ColumnFamily, DB};
use ticketrail_core::GroupId;

use super::LogOptions;
use super::group::{Counted, Group};
use super::keys;
use super::syncs::Syncs;
use crate::log::{Done, LogError, LogId, Vote};
use crate::watermark::{self, Watermarks};

/// What an operation costs in the queue beside its entries.
const OP_OVERHEAD: usize = 64;

/// An operation on its way to the disk.
pub(super) enum Op {
    Append { group: GroupId, records: Vec<Counted>, done: Done },
    Vote { group: GroupId, vote: Vote, done: Done },
    Committed { group: GroupId, committed: Option<LogId> },
    Truncate { group: GroupId, cut: Option<LogId>, removed: std::ops::Range<u64> },
    Purge { group: GroupId, upto: LogId, total: u64, removed: std::ops::Range<u64> },
}

impl Op {
    pub(super) fn cost(&self) -> usize {
        match self {
            Op::Append { records, .. } => OP_OVERHEAD + records.iter().map(Counted::cost).sum::<usize>(),
            Op::Vote { .. } | Op::Committed { .. } | Op::Truncate { .. } | Op::Purge { .. } => OP_OVERHEAD,
        }
    }

    /// How many entries it appends.
    pub(super) fn entries(&self) -> usize {
        match self {
            Op::Append { records, .. } => records.len(),
            Op::Vote { .. } | Op::Committed { .. } | Op::Truncate { .. } | Op::Purge { .. } => 0,
        }
    }

    /// Whether its `Done` waits for the disk.
    pub(super) fn wants_sync(&self) -> bool {
        match self {
            Op::Append { .. } | Op::Vote { .. } => true,
            Op::Committed { .. } | Op::Truncate { .. } | Op::Purge { .. } => false,
        }
    }
}

/// What one mutex guards: the groups and the queue change together, so that the queue has the order of the calls.
#[derive(Default)]
pub(super) struct State {
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) queue: VecDeque<Op>,
    /// What waits in the queue or is being written, in bytes.
    pub(super) queued_bytes: usize,
    /// The entries in memory of all groups, in bytes.
    pub(super) tail_bytes: usize,
    pub(super) poisoned: Option<String>,
    pub(super) closing: bool,
}

impl State {
    pub(super) fn check(&self) -> Result<(), LogError> {
        match &self.poisoned {
            Some(reason) => Err(LogError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Drops the oldest durable entries from memory until the tails fit; the largest tail gives first.
    pub(super) fn evict(&mut self, tail_bytes: usize) {
        while self.tail_bytes > tail_bytes {
            let freed = self
                .groups
                .values_mut()
                .max_by_key(|group| group.held().end - group.tail_start())
                .and_then(Group::evict);
            match freed {
                Some(freed) => self.tail_bytes -= freed,
                None => return,
            }
        }
    }
}

/// The watermark file, and what stands in it. Its lock is taken before that of the state, never after.
pub(super) struct Marks {
    pub(super) path: PathBuf,
    pub(super) written: Watermarks,
}

pub(super) struct Core {
    pub(super) db: DB,
    pub(super) options: LogOptions,
    pub(super) state: Mutex<State>,
    /// Something was queued, or the log is closing.
    pub(super) queued: Condvar,
    /// Something left the queue.
    pub(super) room: Condvar,
    /// The log is closing.
    pub(super) closed: Condvar,
    pub(super) marks: Mutex<Marks>,
    pub(super) syncs: Arc<Syncs>,
}

impl Core {
    pub(super) fn family(&self, name: &str) -> Result<&ColumnFamily, String> {
        self.db.cf_handle(name).ok_or_else(|| format!("it has no column family {name:?}"))
    }

    pub(super) fn log_family(&self) -> Result<&ColumnFamily, String> {
        self.family(keys::LOG)
    }

    /// `LogError::Poisoned` once anything has failed.
    pub(super) fn check(&self) -> Result<(), LogError> {
        self.state.lock().check()
    }

    /// Fails everything from now on.
    pub(super) fn poison(&self, reason: String) {
        let mut state = self.state.lock();
        if state.poisoned.is_none() {
            tracing::error!(reason, "the raft log is poisoned; the process must end");
            state.poisoned = Some(reason);
        }
        self.room.notify_all();
    }

    /// Waits until `cost` bytes fit into the queue (a larger operation: until it is empty) or the log is poisoned.
    pub(super) fn wait_for_room(&self, state: &mut MutexGuard<'_, State>, cost: usize) {
        while state.queued_bytes > 0
            && state.queued_bytes.saturating_add(cost) > self.options.queue_bytes
            && state.poisoned.is_none()
        {
            self.room.wait(state);
        }
    }

    pub(super) fn enqueue(&self, state: &mut MutexGuard<'_, State>, op: Op) {
        state.queued_bytes += op.cost();
        state.queue.push_back(op);
        self.queued.notify_one();
    }

    /// Writes the watermarks, durably, if they have changed.
    pub(super) fn write_marks(&self) -> Result<(), String> {
        let mut marks = self.marks.lock();
        let now: Watermarks = self.state.lock().groups.iter().map(|(id, group)| (*id, group.mark())).collect();
        marks.write(now)
    }
}

impl Marks {
    pub(super) fn write(&mut self, marks: Watermarks) -> Result<(), String> {
        if marks == self.written {
            return Ok(());
        }
        watermark::write(&self.path, &marks)
            .map_err(|error| format!("the watermark {} could not be written: {error}", self.path.display()))?;
        self.written = marks;
        Ok(())
    }
}
