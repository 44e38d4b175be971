//! The one thread that writes the log. Whatever was queued during the last fsync is the next batch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rocksdb::{WriteBatch, WriteOptions};
use ticketrail_core::GroupId;

use super::core::{Core, Op};
use super::keys::{self, Tag};
use crate::log::{Done, LogError};
use crate::rocks::codec;

/// After so many purges of a group, files that hold nothing else are dropped.
const PURGES_BEFORE_DROP: u32 = 16;

pub(super) struct Committer<'a> {
    core: &'a Core,
    purges: BTreeMap<GroupId, Purges>,
}

/// The purges of one group since files were dropped last.
#[derive(Default)]
struct Purges {
    count: u32,
    /// The first index kept by the last purge written.
    written: u64,
    /// The first index kept by the last purge synced. Files are dropped past the WAL, so only this one counts.
    synced: u64,
}

/// Writes until the log is closing and the queue is empty.
pub(super) fn run(core: &Core) {
    let mut committer = Committer { core, purges: BTreeMap::new() };
    while let Some(ops) = committer.take() {
        let cost = ops.iter().map(Op::cost).sum();
        let result = core.check().and_then(|()| committer.commit(&ops));
        committer.settle(&ops, cost, &result);
        for done in ops.into_iter().filter_map(done) {
            call(core, done, &result);
        }
        if result.is_ok() {
            committer.drop_files();
        }
    }
    // A purge or a committed position without an append behind it: worth a last fsync, but nobody waits for it.
    if core.check().is_ok()
        && let Err(error) = core.db.flush_wal(true).map_err(|error| error.to_string()).and_then(|()| core.write_marks())
    {
        tracing::warn!(error, "the raft log could not be synced at its end");
    }
}

/// A callback that panics must not take the others' answers with it.
fn call(core: &Core, done: Done, result: &Result<(), LogError>) {
    if catch_unwind(AssertUnwindSafe(|| done(result.clone()))).is_err() {
        core.poison("a callback of the log panicked".into());
    }
}

fn done(op: Op) -> Option<Done> {
    match op {
        Op::Append { done, .. } | Op::Vote { done, .. } => Some(done),
        Op::Committed { .. } | Op::Truncate { .. } | Op::Purge { .. } => None,
    }
}

impl Committer<'_> {
    /// Waits for operations and takes those that make one batch; `None` when the log is closing.
    fn take(&self) -> Option<Vec<Op>> {
        let mut state = self.core.state.lock();
        while state.queue.is_empty() {
            if state.closing {
                return None;
            }
            self.core.queued.wait(&mut state);
        }
        let options = &self.core.options;
        let mut ops = Vec::new();
        let mut bytes = 0;
        while let Some(op) = state.queue.front() {
            bytes += op.cost();
            if !ops.is_empty() && (bytes > options.batch_bytes || ops.len() >= options.batch_ops) {
                break;
            }
            ops.extend(state.queue.pop_front());
        }
        Some(ops)
    }

    fn commit(&mut self, ops: &[Op]) -> Result<(), LogError> {
        // A panic in here is as unknown an end as a failed write.
        match catch_unwind(AssertUnwindSafe(|| self.write(ops))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(LogError::Poisoned(reason)),
            Err(_) => Err(LogError::Poisoned("the committer panicked".into())),
        }
    }

    fn write(&mut self, ops: &[Op]) -> Result<(), String> {
        let (log, meta) = (self.core.log_family()?, self.core.family(keys::META)?);
        let mut batch = WriteBatch::default();
        for op in ops {
            match op {
                Op::Append { group, records, .. } => {
                    for counted in records {
                        let key = keys::entry(*group, counted.record.id.index);
                        batch.put_cf(log, key, codec::encode_record(&counted.record, counted.total));
                    }
                }
                Op::Vote { group, vote, .. } => {
                    batch.put_cf(meta, keys::meta(*group, Tag::Vote), codec::encode_vote(*vote));
                }
                Op::Committed { group, committed: Some(committed) } => {
                    batch.put_cf(meta, keys::meta(*group, Tag::Committed), codec::encode_log_id(*committed));
                }
                Op::Committed { group, committed: None } => batch.delete_cf(meta, keys::meta(*group, Tag::Committed)),
                Op::Truncate { group, removed, .. } => {
                    if !removed.is_empty() {
                        let range = (keys::entry(*group, removed.start), keys::entry(*group, removed.end));
                        batch.delete_range_cf(log, range.0, range.1);
                    }
                }
                Op::Purge { group, upto, total, removed } => {
                    batch.put_cf(meta, keys::meta(*group, Tag::Purged), codec::encode_purged(*upto, *total));
                    if !removed.is_empty() {
                        let range = (keys::entry(*group, removed.start), keys::entry(*group, removed.end));
                        batch.delete_range_cf(log, range.0, range.1);
                    }
                }
            }
        }
        let mut options = WriteOptions::default();
        let synced = ops.iter().any(Op::wants_sync);
        options.set_sync(synced);
        let (bytes, begun) = (batch.size_in_bytes(), Instant::now());
        self.core.db.write_opt(batch, &options).map_err(|error| format!("a write failed: {error}"))?;
        if synced {
            self.core.syncs.note(begun.elapsed(), bytes, ops.iter().map(Op::entries).sum());
        }
        self.note(ops);
        // A vote must be known to be durable before anybody hears of it.
        if ops.iter().any(|op| matches!(op, Op::Vote { .. })) {
            self.core.write_marks()?;
        }
        Ok(())
    }

    /// Notes what is durable now.
    fn note(&mut self, ops: &[Op]) {
        let mut state = self.core.state.lock();
        let synced = ops.iter().any(Op::wants_sync);
        for op in ops {
            match op {
                Op::Append { group, records, .. } => {
                    if let (Some(group), Some(last)) = (state.groups.get_mut(group), records.last()) {
                        group.synced(last.record.id);
                    }
                }
                Op::Vote { group, vote, .. } => {
                    if let Some(group) = state.groups.get_mut(group) {
                        group.synced_vote(*vote);
                    }
                }
                Op::Truncate { group, cut, .. } => {
                    if let Some(group) = state.groups.get_mut(group) {
                        group.cut_written(*cut);
                    }
                }
                Op::Purge { group, upto, .. } => {
                    let purges = self.purges.entry(*group).or_default();
                    purges.written = upto.index.saturating_add(1);
                    purges.count += 1;
                }
                Op::Committed { .. } => {}
            }
        }
        if synced {
            self.purges.values_mut().for_each(|purges| purges.synced = purges.written);
        }
    }

    /// Makes room in the queue and in memory, or poisons.
    fn settle(&self, ops: &[Op], cost: usize, result: &Result<(), LogError>) {
        if let Err(LogError::Poisoned(reason) | LogError::Read(reason)) = result {
            self.core.poison(reason.clone());
        }
        let mut state = self.core.state.lock();
        state.queued_bytes -= cost;
        if ops.iter().any(Op::wants_sync) {
            state.evict(self.core.options.tail_bytes);
        }
        self.core.room.notify_all();
    }

    /// Drops files that hold only purged entries. Compaction would get there, but it would read them first.
    fn drop_files(&mut self) {
        for (group, purges) in &mut self.purges {
            if purges.count < PURGES_BEFORE_DROP || purges.synced < purges.written {
                continue;
            }
            purges.count = 0;
            let range = (keys::entry(*group, 0), keys::entry(*group, purges.synced));
            let dropped = self
                .core
                .log_family()
                .and_then(|log| self.core.db.delete_file_in_range_cf(log, range.0, range.1).map_err(String::from));
            if let Err(error) = dropped {
                tracing::warn!(error, group = group.0, "purged files could not be dropped");
            }
        }
    }
}
