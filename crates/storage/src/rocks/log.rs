//! The Raft log on RocksDB: one database for all groups, one thread that writes it.

mod committer;
mod core;
mod group;
mod keys;
mod open;
mod options;
mod syncs;

use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rocksdb::ReadOptions;
use ticketrail_core::GroupId;

pub use self::options::LogOptions;
pub use self::syncs::Syncs;

use self::core::{Core, Marks, Op, State};
use self::group::{Budget, Located, Place, RECORD_OVERHEAD};
use crate::error::OpenError;
use crate::log::{Done, LogError, LogId, LogRecord, LogState, RaftLog, Vote, check_consecutive};
use crate::rocks::codec;

/// The Raft log of all groups on RocksDB.
///
/// Dropping it writes what is queued first.
pub struct RocksLog {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl RocksLog {
    /// Opens the log of `options`, or creates it if there is none.
    ///
    /// Refuses a log that is damaged, of another node, of a newer format, or behind its watermark.
    pub fn open(options: LogOptions) -> Result<RocksLog, OpenError> {
        let opened = open::open(&options)?;
        let marks = Marks { path: options.watermark.clone(), written: opened.marks };
        let core = Arc::new(Core {
            db: opened.db,
            state: Mutex::new(State { groups: opened.groups, ..State::default() }),
            queued: Condvar::new(),
            room: Condvar::new(),
            closed: Condvar::new(),
            marks: Mutex::new(marks),
            syncs: Arc::default(),
            options,
        });
        let mut log = RocksLog { core, threads: Vec::new() };
        log.spawn("log-committer", committer::run)?;
        log.spawn("log-watermark", mark_until_closed)?;
        Ok(log)
    }

    /// What its synced writes were like; outlives the log.
    pub fn syncs(&self) -> Arc<Syncs> {
        Arc::clone(&self.core.syncs)
    }

    fn spawn(&mut self, name: &str, run: fn(&Core)) -> Result<(), OpenError> {
        let core = Arc::clone(&self.core);
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(&core));
        let thread = thread.map_err(|error| OpenError::io("start the threads of", &self.core.options.dir, &error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for room in the queue, then lets `change` change the log and queue what it has changed.
    fn submit(
        &self,
        cost: usize,
        change: impl FnOnce(&mut State) -> Result<Option<Op>, LogError>,
    ) -> Result<(), LogError> {
        let mut state = self.core.state.lock();
        self.core.wait_for_room(&mut state, cost);
        if let Some(op) = change(&mut state)? {
            self.core.enqueue(&mut state, op);
        }
        Ok(())
    }

    /// Where the log would end if it ended with the entry at `index` (`None`: with nothing).
    fn locate(&self, group: GroupId, index: Option<u64>) -> Result<Place, LogError> {
        let located = self.core.state.lock().groups.get(&group).map(|held| held.locate(index));
        match (located, index) {
            (Some(Located::Here(place)), _) => Ok(place),
            (Some(Located::OnDisk), Some(index)) => {
                let mut found = Vec::new();
                self.read_disk(group, index..index.saturating_add(1), &mut Budget::new(0), &mut found)?;
                match found.pop() {
                    Some((record, total)) => Ok(Place { id: Some(record.id), total }),
                    None => Err(missing(group, index)),
                }
            }
            (Some(Located::OnDisk), None) | (None, _) => Ok(Place { id: None, total: 0 }),
        }
    }

    /// Entries from `range` on the disk, from its start on, without a gap, and their totals.
    fn read_disk(
        &self,
        group: GroupId,
        range: Range<u64>,
        budget: &mut Budget,
        out: &mut Vec<(LogRecord, u64)>,
    ) -> Result<(), LogError> {
        let log = self.core.log_family().map_err(LogError::Read)?;
        let mut bounds = ReadOptions::default();
        bounds.set_iterate_lower_bound(codec_key(group, range.start));
        bounds.set_iterate_upper_bound(codec_key(group, range.end));
        bounds.fill_cache(false);
        let mut at = self.core.db.raw_iterator_cf_opt(log, bounds);
        at.seek_to_first();
        let mut next = range.start;
        while let Some((key, value)) = at.item() {
            let (_, index) = keys::parse_entry(key).map_err(LogError::Read)?;
            if index != next {
                break;
            }
            let (record, total) = codec::decode_record(index, Bytes::copy_from_slice(value)).map_err(LogError::Read)?;
            if !budget.take(record.payload.len()) {
                return Ok(());
            }
            out.push((record, total));
            next = next.saturating_add(1);
            at.next();
        }
        at.status().map_err(|error| LogError::Read(format!("the disk gave an error: {error}")))
    }
}

fn codec_key(group: GroupId, index: u64) -> Vec<u8> {
    keys::entry(group, index).to_vec()
}

fn missing(group: GroupId, index: u64) -> LogError {
    LogError::Read(format!("entry {index} of group {} is not on the disk", group.0))
}

/// Writes the watermarks every now and then until the log is closing.
fn mark_until_closed(core: &Core) {
    loop {
        let mut state = core.state.lock();
        if !state.closing {
            core.closed.wait_for(&mut state, core.options.watermark_every);
        }
        if state.closing || state.poisoned.is_some() {
            return;
        }
        drop(state);
        if let Err(reason) = core.write_marks() {
            core.poison(reason);
            return;
        }
    }
}

impl RaftLog for RocksLog {
    fn state(&self, group: GroupId) -> LogState {
        self.core.state.lock().groups.get(&group).map(|held| held.state()).unwrap_or_default()
    }

    fn read(&self, group: GroupId, range: Range<u64>, max_bytes: usize) -> Result<Vec<LogRecord>, LogError> {
        let mut out: Vec<LogRecord> = Vec::new();
        let mut budget = Budget::new(max_bytes);
        let mut next = range.start;
        loop {
            let (from_disk, removals) = {
                let state = self.core.state.lock();
                state.check()?;
                let Some(held) = state.groups.get(&group) else { return Ok(out) };
                let (start, end) = (next.max(held.held().start), range.end.min(held.held().end));
                if start >= end || (!out.is_empty() && start != next) {
                    return Ok(out);
                }
                if start >= held.tail_start() {
                    held.read_tail(start..end, &mut budget, &mut out);
                    return Ok(out);
                }
                (start..end.min(held.tail_start()), held.removals())
            };
            let mut read = Vec::new();
            self.read_disk(group, from_disk.clone(), &mut budget, &mut read)?;
            let complete = read.len() as u64 == from_disk.end - from_disk.start;
            next = from_disk.start + read.len() as u64;
            out.extend(read.into_iter().map(|(record, _)| record));
            if !complete {
                if budget.is_spent() {
                    return Ok(out);
                }
                // A gap: entries were removed meanwhile, or they are lost.
                let state = self.core.state.lock();
                if state.groups.get(&group).is_none_or(|held| held.removals() == removals) {
                    return Err(missing(group, next));
                }
            }
        }
    }

    fn append(&self, group: GroupId, records: Vec<LogRecord>, done: Done) {
        let cost = records.iter().map(|record| record.payload.len() + RECORD_OVERHEAD).sum();
        let mut state = self.core.state.lock();
        self.core.wait_for_room(&mut state, cost);
        let last = state.groups.get(&group).and_then(|held| held.last());
        let checked = check_consecutive(last, &records);
        if let Err(reason) = checked
            && state.poisoned.is_none()
        {
            state.poisoned = Some(reason);
        }
        // A poisoned log fails it in its order.
        let records = match state.poisoned {
            Some(_) => Vec::new(),
            None => {
                let (records, cost) = state.groups.entry(group).or_default().append(records);
                state.tail_bytes += cost;
                records
            }
        };
        self.core.enqueue(&mut state, Op::Append { group, records, done });
    }

    fn save_vote(&self, group: GroupId, vote: Vote, done: Done) {
        let mut state = self.core.state.lock();
        state.groups.entry(group).or_default().set_vote(vote);
        self.core.enqueue(&mut state, Op::Vote { group, vote, done });
    }

    fn save_committed(&self, group: GroupId, committed: Option<LogId>) {
        // Only a hint; a failure shows at the next call.
        let _ = self.submit(0, |state| {
            state.check()?;
            state.groups.entry(group).or_default().set_committed(committed);
            // Only the latest counts.
            if let Some(Op::Committed { group: of, committed: queued }) = state.queue.back_mut()
                && *of == group
            {
                *queued = committed;
                return Ok(None);
            }
            Ok(Some(Op::Committed { group, committed }))
        });
    }

    fn truncate_after(&self, group: GroupId, last: Option<LogId>) -> Result<(), LogError> {
        let index = last.map(|last| last.index);
        let cut = self.locate(group, index)?;
        {
            let mut state = self.core.state.lock();
            self.core.wait_for_room(&mut state, 0);
        }
        // Held until the truncation is queued, so that nobody writes a watermark behind the cut meanwhile. Never wait
        // for room while holding it: the committer needs it to make room.
        let mut marks = self.core.marks.lock();
        {
            let mut state = self.core.state.lock();
            state.check()?;
            let Some(held) = state.groups.get_mut(&group) else { return Ok(()) };
            if cut.id == held.last() {
                return Ok(());
            }
            held.announce_cut(cut.id);
        }
        let mut lowered = marks.written.clone();
        if let Some(mark) = lowered.get_mut(&group)
            && mark.last.map(|last| last.index) > cut.id.map(|cut| cut.index)
        {
            mark.last = cut.id;
            if let Err(reason) = marks.write(lowered) {
                self.core.poison(reason);
            }
        }
        let mut state = self.core.state.lock();
        state.check()?;
        let Some(held) = state.groups.get_mut(&group) else { return Ok(()) };
        let (removed, freed) = held.cut(cut);
        state.tail_bytes -= freed;
        self.core.enqueue(&mut state, Op::Truncate { group, cut: cut.id, removed });
        Ok(())
    }

    fn purge(&self, group: GroupId, upto: LogId) -> Result<(), LogError> {
        let place = self.locate(group, Some(upto.index))?;
        self.submit(0, |state| {
            state.check()?;
            let held = state.groups.entry(group).or_default();
            if !held.can_purge(upto) {
                return Ok(None);
            }
            let (removed, freed) = held.purge(upto, place.total);
            state.tail_bytes -= freed;
            Ok(Some(Op::Purge { group, upto, total: held_total(state, group), removed }))
        })
    }

    fn held_bytes(&self, group: GroupId) -> u64 {
        self.core.state.lock().groups.get(&group).map(|held| held.held_bytes()).unwrap_or_default()
    }
}

fn held_total(state: &State, group: GroupId) -> u64 {
    state.groups.get(&group).map(|held| held.purged_total()).unwrap_or_default()
}

impl Drop for RocksLog {
    fn drop(&mut self) {
        self.core.state.lock().closing = true;
        self.core.queued.notify_all();
        self.core.closed.notify_all();
        for thread in self.threads.drain(..) {
            // The last handle may go in a callback, on the committer itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the raft log panicked");
            }
        }
    }
}
