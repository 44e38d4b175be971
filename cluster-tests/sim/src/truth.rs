//! What was committed, as the first replica that applied it saw it; every other one has to see the same.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use ticketrail_core::{Command, GroupId, View, Write, WriteSet};
use ticketrail_storage::log::{LogId, LogRecord, Payload, RaftLog as _};
use ticketrail_storage::mem::{MemCheckpoint, MemIncoming, MemLog, MemState};
use ticketrail_storage::state::{Applied, StateError, StateFile, StateStore};

use crate::trace::Trace;

/// What was committed. Clones are the same.
#[derive(Clone, Default)]
pub struct Truth(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    entries: BTreeMap<u64, Committed>,
    leaders: BTreeMap<u64, u64>,
    breaches: Vec<String>,
    commands: BTreeMap<&'static str, u64>,
}

/// One entry.
struct Committed {
    record: LogRecord,
    /// A hash of what applying it wrote.
    writes: u64,
    by: Arc<str>,
}

impl Truth {
    /// Takes note that `host` has applied an entry, and compares.
    fn applied(&self, host: &Arc<str>, log: &MemLog, at: LogId, writes: &WriteSet, trace: &Trace) {
        let hash = hash(writes);
        let record = log.read(GroupId::QUEUES, at.index..at.index + 1, usize::MAX).ok().and_then(|mut it| it.pop());
        let mut inner = self.0.lock();
        let Some(record) = record.filter(|record| record.id == at) else {
            let breach =
                format!("{host} applied entry {} of term {}, but its log does not hold it", at.index, at.leader.term);
            inner.breaches.push(breach);
            return;
        };
        inner.lead(host, at);
        match inner.entries.get(&at.index) {
            None => {
                inner.count(&record, trace);
                inner.entries.insert(at.index, Committed { record, writes: hash, by: host.clone() });
            }
            Some(known) if known.record == record && known.writes == hash => {}
            Some(known) => {
                let what = if known.record == record { "wrote something else" } else { "another entry" };
                let breach = format!(
                    "{host} applied entry {} (term {}, node {}), but {} applied {what} there (term {}, node {})",
                    at.index,
                    at.leader.term,
                    at.leader.node,
                    known.by,
                    known.record.id.leader.term,
                    known.record.id.leader.node
                );
                inner.breaches.push(breach);
            }
        }
    }

    /// Takes note of who led in a term.
    pub fn led(&self, host: &Arc<str>, term: u64, node: u64) {
        let leader = ticketrail_storage::log::LeaderId { term, node };
        self.0.lock().lead(host, LogId { leader, index: 0 });
    }

    /// What does not fit together.
    pub fn breaches(&self) -> Vec<String> {
        self.0.lock().breaches.clone()
    }

    /// The last entry that any replica has applied.
    pub fn last(&self) -> Option<u64> {
        self.0.lock().entries.last_key_value().map(|(index, _)| *index)
    }

    /// Terms in which somebody led.
    pub fn terms(&self) -> u64 {
        self.0.lock().leaders.len() as u64
    }

    /// How often each command was committed.
    pub fn commands(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().commands.clone()
    }

    /// All entries that were committed, in their order.
    pub fn records(&self) -> Vec<LogRecord> {
        self.0.lock().entries.values().map(|committed| committed.record.clone()).collect()
    }
}

impl Inner {
    fn lead(&mut self, host: &Arc<str>, at: LogId) {
        let (term, node) = (at.leader.term, at.leader.node);
        let known = *self.leaders.entry(term).or_insert(node);
        if known != node {
            self.breaches.push(format!("two leaders in term {term}: node {known}, and as {host} sees it node {node}"));
        }
    }

    fn count(&mut self, record: &LogRecord, trace: &Trace) {
        let name = match &record.payload {
            Payload::Blank => "blank",
            Payload::Membership(_) => "membership",
            Payload::Normal(bytes) => {
                let Ok(entry) = ticketrail_core::Entry::from_bytes(bytes.clone()) else {
                    self.breaches.push(format!("entry {} was committed, but it does not decode", record.id.index));
                    return;
                };
                for request in &entry.requests {
                    trace.tell("log", format_args!("{} at {} ms: {request:?}", record.id.index, entry.proposed_at_ms));
                }
                for command in entry.requests.iter().filter_map(|request| request.command.as_ref()) {
                    *self.commands.entry(name_of(command)).or_default() += 1;
                }
                "entry"
            }
        };
        *self.commands.entry(name).or_default() += 1;
    }
}

fn name_of(command: &Command) -> &'static str {
    match command {
        Command::Commit(_) => "commit",
        Command::Receive(_) => "receive",
        Command::Expire(_) => "expire",
        Command::Tick(_) => "tick",
        Command::InitCluster(_) => "init cluster",
        Command::OpenSession(_) => "open session",
        Command::CreateQueue(_) => "create queue",
        Command::UpdateQueue(_) => "update queue",
        Command::DeleteQueue(_) => "delete queue",
        Command::PurgeQueue(_) => "purge queue",
        Command::PauseQueue(_) => "pause queue",
        Command::CloseQueue(_) => "close queue",
        Command::SetNamespace(_) => "set namespace",
        Command::DeleteNamespace(_) => "delete namespace",
    }
}

fn hash(writes: &WriteSet) -> u64 {
    let mut hasher = SipHasher13::new();
    let mut put = |tag: u8, parts: &[&Bytes]| {
        hasher.write_u8(tag);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
    };
    for write in writes.iter() {
        match write {
            Write::Put { key, value } => put(0, &[key, value]),
            Write::Delete { key } => put(1, &[key]),
            Write::DeleteRange { from, to } => put(2, &[from, to]),
        }
    }
    hasher.finish()
}

/// The applied state of a replica, whose commits are held against those of the others.
pub struct Witnessed {
    /// Which replica.
    pub host: Arc<str>,
    /// Its state.
    pub state: Arc<MemState>,
    /// Its log.
    pub log: Arc<MemLog>,
    /// What is held against it.
    pub truth: Truth,
    /// Where it is told.
    pub trace: Trace,
}

impl StateStore for Witnessed {
    type Checkpoint = MemCheckpoint;
    type Incoming = MemIncoming;

    fn read<R>(&self, read: impl FnOnce(&dyn View) -> R) -> R {
        self.state.read(read)
    }

    fn applied(&self) -> Applied {
        self.state.applied()
    }

    fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), StateError> {
        let before = self.state.applied().last.map(|id| id.index);
        self.state.commit(writes, applied)?;
        if let Some(at) = applied.last {
            self.trace.tell(&self.host, format_args!("applies {} of term {}", at.index, at.leader.term));
            if before.map_or(0, |before| before + 1) != at.index {
                let breach = format!("{} applied entry {} after {before:?}: one was left out", self.host, at.index);
                self.truth.0.lock().breaches.push(breach);
            }
            self.truth.applied(&self.host, &self.log, at, writes, &self.trace);
        }
        Ok(())
    }

    fn flush(&self) -> Result<Applied, StateError> {
        self.state.flush()
    }

    fn flushed(&self) -> Applied {
        self.state.flushed()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.state.unflushed_bytes()
    }

    fn checkpoint(&self) -> Result<MemCheckpoint, StateError> {
        self.state.checkpoint()
    }

    fn checkpoint_applied(&self, checkpoint: &MemCheckpoint) -> Applied {
        self.state.checkpoint_applied(checkpoint)
    }

    fn install(&self, checkpoint: &MemCheckpoint) -> Result<(), StateError> {
        let at = self.state.checkpoint_applied(checkpoint).last.map(|id| id.index);
        self.trace.tell(&self.host, format_args!("installs a snapshot of {at:?}"));
        *self.truth.0.lock().commands.entry("snapshots installed").or_default() += 1;
        self.state.install(checkpoint)
    }

    fn checkpoint_files(&self, checkpoint: &MemCheckpoint) -> Result<Vec<StateFile>, StateError> {
        self.state.checkpoint_files(checkpoint)
    }

    fn read_chunk(&self, checkpoint: &MemCheckpoint, name: &str, offset: u64, len: usize) -> Result<Bytes, StateError> {
        self.state.read_chunk(checkpoint, name, offset, len)
    }

    fn begin_incoming(&self, files: &[StateFile]) -> Result<MemIncoming, StateError> {
        self.state.begin_incoming(files)
    }

    fn write_chunk(&self, incoming: &mut MemIncoming, file: usize, offset: u64, data: &[u8]) -> Result<(), StateError> {
        self.state.write_chunk(incoming, file, offset, data)
    }

    fn finish_incoming(&self, incoming: MemIncoming) -> Result<MemCheckpoint, StateError> {
        self.state.finish_incoming(incoming)
    }
}
