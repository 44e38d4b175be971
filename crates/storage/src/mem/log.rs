//! The Raft log in memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ticketrail_core::GroupId;

use crate::log::{Done, LogError, LogId, LogRecord, LogState, RaftLog, Vote};

/// The Raft log of all groups in memory, with a durable and a volatile half. No threads: what is called happens on the
/// caller's, callbacks included.
///
/// An append or a vote is synced at once, and with it what was called before, unless a test holds the syncs back. Then
/// the operations wait in their order until the test makes some of them durable, fails them, or crashes the log.
#[derive(Default)]
pub struct MemLog {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    live: Groups,
    durable: Groups,
    /// Operations that `live` has and `durable` lacks.
    pending: VecDeque<(Op, Option<Done>)>,
    held: bool,
    /// Whom to tell when there is something to sync.
    syncer: Option<Waker>,
    fail_next: Option<String>,
    fail_writes: Option<String>,
    fail_reads: Option<String>,
    poisoned: Option<String>,
    /// Callbacks due, in their order.
    due: VecDeque<(Done, Result<(), LogError>)>,
    delivering: bool,
}

impl MemLog {
    /// An empty log.
    pub fn new() -> MemLog {
        MemLog::default()
    }

    /// From now on nothing becomes durable by itself.
    pub fn hold_syncs(&self) {
        self.inner.lock().held = true;
    }

    /// Makes durable what was held back, and goes on syncing at once.
    pub fn release_syncs(&self) {
        let mut inner = self.inner.lock();
        inner.held = false;
        let pending = inner.pending.len();
        inner.sync(pending);
        drop(inner);
        self.deliver();
    }

    /// How many operations are not durable.
    pub fn pending(&self) -> usize {
        self.inner.lock().pending.len()
    }

    /// Waits until somebody waits for a sync, and says how many operations that would make durable. For one task, which
    /// stands for the disk while syncs are held back.
    pub fn poll_unsynced(&self, context: &mut Context<'_>) -> Poll<usize> {
        let mut inner = self.inner.lock();
        if inner.pending.iter().any(|(_, done)| done.is_some()) {
            return Poll::Ready(inner.pending.len());
        }
        inner.syncer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Makes the next `count` operations durable, or as many as there are, and calls their callbacks.
    pub fn sync(&self, count: usize) {
        self.inner.lock().sync(count);
        self.deliver();
    }

    /// The next sync fails for `reason`, and so does all that is called afterwards.
    pub fn fail_next_sync(&self, reason: &str) {
        self.inner.lock().fail_next = Some(reason.to_string());
    }

    /// From now on each write fails for `reason`, and the first one poisons the log; `None`: no longer.
    pub fn fail_writes(&self, reason: Option<&str>) {
        self.inner.lock().fail_writes = reason.map(str::to_string);
    }

    /// From now on each read fails for `reason`; `None`: no longer.
    pub fn fail_reads(&self, reason: Option<&str>) {
        self.inner.lock().fail_reads = reason.map(str::to_string);
    }

    /// What a restart finds after the power went: the durable half. Callbacks that wait are dropped with `self`.
    pub fn crash(&self) -> MemLog {
        self.crash_keeping(0)
    }

    /// As [`MemLog::crash`], but the disk happened to keep the next `count` operations as well.
    pub fn crash_keeping(&self, count: usize) -> MemLog {
        let inner = self.inner.lock();
        let mut groups = inner.durable.clone();
        for (op, _) in inner.pending.iter().take(count) {
            op.apply(&mut groups);
        }
        MemLog { inner: Mutex::new(Inner { live: groups.clone(), durable: groups, ..Inner::default() }) }
    }

    /// Does `op`; `done` asks for a sync.
    fn submit(&self, op: Op, done: Option<Done>) -> Result<(), LogError> {
        let mut inner = self.inner.lock();
        if inner.poisoned.is_none()
            && let Err(reason) = inner.fail_writes.clone().map_or(Ok(()), Err).and_then(|()| op.check(&inner.live))
        {
            inner.poison(reason);
        }
        let result = match inner.poisoned.clone() {
            Some(reason) => {
                let error = LogError::Poisoned(reason);
                inner.due.extend(done.map(|done| (done, Err(error.clone()))));
                Err(error)
            }
            None => {
                op.apply(&mut inner.live);
                let wants_sync = done.is_some();
                inner.pending.push_back((op, done));
                if wants_sync && !inner.held {
                    let pending = inner.pending.len();
                    inner.sync(pending);
                } else if wants_sync && let Some(syncer) = inner.syncer.take() {
                    syncer.wake();
                }
                Ok(())
            }
        };
        drop(inner);
        self.deliver();
        result
    }

    /// Calls what is due, in its order, outside of the lock. Whoever comes second leaves it to the first.
    fn deliver(&self) {
        let mut inner = self.inner.lock();
        if inner.delivering {
            return;
        }
        inner.delivering = true;
        while let Some((done, result)) = inner.due.pop_front() {
            drop(inner);
            done(result);
            inner = self.inner.lock();
        }
        inner.delivering = false;
    }
}

impl Inner {
    fn sync(&mut self, count: usize) {
        if let Some(reason) = self.fail_next.take() {
            self.poison(reason);
        }
        for _ in 0..count {
            let Some((op, done)) = self.pending.pop_front() else { return };
            op.apply(&mut self.durable);
            self.due.extend(done.map(|done| (done, Ok(()))));
        }
    }

    fn poison(&mut self, reason: String) {
        for (_, done) in std::mem::take(&mut self.pending) {
            self.due.extend(done.map(|done| (done, Err(LogError::Poisoned(reason.clone())))));
        }
        self.poisoned = Some(reason);
    }
}

impl RaftLog for MemLog {
    fn state(&self, group: GroupId) -> LogState {
        self.inner.lock().live.get(&group).map(Group::state).unwrap_or_default()
    }

    fn read(&self, group: GroupId, range: Range<u64>, max_bytes: usize) -> Result<Vec<LogRecord>, LogError> {
        let inner = self.inner.lock();
        if let Some(reason) = &inner.poisoned {
            return Err(LogError::Poisoned(reason.clone()));
        }
        if let Some(reason) = &inner.fail_reads {
            return Err(LogError::Read(reason.clone()));
        }
        let Some(held) = inner.live.get(&group) else { return Ok(Vec::new()) };
        let mut records = Vec::new();
        let mut bytes = 0;
        for (_, record) in held.entries.range(range.start..range.end.max(range.start)) {
            bytes += record.payload.len();
            if bytes > max_bytes && !records.is_empty() {
                break;
            }
            records.push(record.clone());
        }
        Ok(records)
    }

    fn append(&self, group: GroupId, records: Vec<LogRecord>, done: Done) {
        // A failure reaches the caller through `done`.
        let _ = self.submit(Op::Append { group, records }, Some(done));
    }

    fn save_vote(&self, group: GroupId, vote: Vote, done: Done) {
        // A failure reaches the caller through `done`.
        let _ = self.submit(Op::Vote { group, vote }, Some(done));
    }

    fn save_committed(&self, group: GroupId, committed: Option<LogId>) {
        // Only a hint; a failure shows at the next call.
        let _ = self.submit(Op::Committed { group, committed }, None);
    }

    fn truncate_after(&self, group: GroupId, last: Option<LogId>) -> Result<(), LogError> {
        self.submit(Op::Truncate { group, last }, None)
    }

    fn purge(&self, group: GroupId, upto: LogId) -> Result<(), LogError> {
        self.submit(Op::Purge { group, upto }, None)
    }

    fn held_bytes(&self, group: GroupId) -> u64 {
        self.inner.lock().live.get(&group).map(Group::held_bytes).unwrap_or_default()
    }
}

type Groups = BTreeMap<GroupId, Group>;

#[derive(Debug, Clone, Default)]
struct Group {
    entries: BTreeMap<u64, LogRecord>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

impl Group {
    fn state(&self) -> LogState {
        let last = self.entries.last_key_value().map(|(_, record)| record.id).or(self.purged);
        LogState { purged: self.purged, last, vote: self.vote, committed: self.committed }
    }

    fn held_bytes(&self) -> u64 {
        self.entries.values().map(|record| record.payload.len() as u64).sum()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Append { group: GroupId, records: Vec<LogRecord> },
    Vote { group: GroupId, vote: Vote },
    Committed { group: GroupId, committed: Option<LogId> },
    Truncate { group: GroupId, last: Option<LogId> },
    Purge { group: GroupId, upto: LogId },
}

impl Op {
    /// A hole in the log is never written: it would be found when it is too late.
    fn check(&self, groups: &Groups) -> Result<(), String> {
        match self {
            Op::Append { group, records } => {
                crate::log::check_consecutive(groups.get(group).and_then(|group| group.state().last), records)
            }
            Op::Vote { .. } | Op::Committed { .. } | Op::Truncate { .. } | Op::Purge { .. } => Ok(()),
        }
    }

    fn apply(&self, groups: &mut Groups) {
        match self {
            Op::Append { group, records } => {
                let held = groups.entry(*group).or_default();
                held.entries.extend(records.iter().map(|record| (record.id.index, record.clone())));
            }
            Op::Vote { group, vote } => groups.entry(*group).or_default().vote = Some(*vote),
            Op::Committed { group, committed } => groups.entry(*group).or_default().committed = *committed,
            Op::Truncate { group, last } => {
                let keep = last.map_or(0, |last| last.index.saturating_add(1));
                groups.entry(*group).or_default().entries.split_off(&keep);
            }
            Op::Purge { group, upto } => {
                let held = groups.entry(*group).or_default();
                if held.purged.is_none_or(|purged| purged.index < upto.index) {
                    held.entries = held.entries.split_off(&upto.index.saturating_add(1));
                    held.purged = Some(*upto);
                }
            }
        }
    }
}
