//! A trivial log, and helpers to call a real one.

use std::collections::BTreeMap;
use std::sync::mpsc;
#[cfg(feature = "rocksdb")]
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::GroupId;
use ticketrail_storage::log::{Done, LeaderId, LogError, LogId, LogRecord, LogState, Payload, RaftLog, Vote};

#[cfg(feature = "rocksdb")]
/// How long anything may take before a test gives up.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// One change of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Append(GroupId, Vec<LogRecord>),
    Vote(GroupId, Vote),
    Committed(GroupId, Option<LogId>),
    Truncate(GroupId, Option<LogId>),
    Purge(GroupId, LogId),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ModelGroup {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) purged: Option<LogId>,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
}

impl ModelGroup {
    pub(crate) fn state(&self) -> LogState {
        let last = self.records.last().map(|record| record.id).or(self.purged);
        LogState { purged: self.purged, last, vote: self.vote, committed: self.committed }
    }

    pub(crate) fn next_index(&self) -> u64 {
        self.state().last.map_or(0, |last| last.index + 1)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.records.iter().map(|record| record.payload.len() as u64).sum()
    }

    pub(crate) fn read(&self, from: u64, to: u64, max_bytes: usize) -> Vec<LogRecord> {
        let mut bytes = 0;
        let mut out = Vec::new();
        for record in self.records.iter().filter(|record| from <= record.id.index && record.id.index < to) {
            bytes += record.payload.len();
            if bytes > max_bytes && !out.is_empty() {
                break;
            }
            out.push(record.clone());
        }
        out
    }
}

/// All groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<GroupId, ModelGroup>);

impl Model {
    pub(crate) fn group(&self, group: GroupId) -> ModelGroup {
        self.0.get(&group).cloned().unwrap_or_default()
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(group, records) => {
                self.0.entry(*group).or_default().records.extend(records.iter().cloned());
            }
            Op::Vote(group, vote) => self.0.entry(*group).or_default().vote = Some(*vote),
            Op::Committed(group, committed) => self.0.entry(*group).or_default().committed = *committed,
            Op::Truncate(group, last) => {
                let keep = last.map_or(0, |last| last.index + 1);
                self.0.entry(*group).or_default().records.retain(|record| record.id.index < keep);
            }
            Op::Purge(group, upto) => {
                let group = self.0.entry(*group).or_default();
                if group.purged.is_none_or(|purged| purged.index < upto.index) {
                    group.purged = Some(*upto);
                    group.records.retain(|record| record.id.index > upto.index);
                }
            }
        }
    }

    /// Whether `log` holds exactly this.
    pub(crate) fn matches(&self, log: &impl RaftLog, groups: &[GroupId]) -> Result<(), String> {
        for group in groups {
            let model = self.group(*group);
            let state = log.state(*group);
            if state != model.state() {
                return Err(format!("group {}: expected {:?}, got {state:?}", group.0, model.state()));
            }
            if log.held_bytes(*group) != model.held_bytes() {
                let held = log.held_bytes(*group);
                return Err(format!("group {}: expected {} bytes, got {held}", group.0, model.held_bytes()));
            }
            let read = log.read(*group, 0..u64::MAX, usize::MAX).map_err(|error| error.to_string())?;
            if read != model.records {
                let ids = |records: &[LogRecord]| records.iter().map(|record| record.id).collect::<Vec<_>>();
                return Err(format!("group {}: expected {:?}, got {:?}", group.0, ids(&model.records), ids(&read)));
            }
        }
        Ok(())
    }
}

pub(crate) fn id(term: u64, index: u64) -> LogId {
    LogId { leader: LeaderId { term, node: 1 }, index }
}

/// A record with a payload of `len` bytes that depend on its identity.
pub(crate) fn record(term: u64, index: u64, len: usize) -> LogRecord {
    let payload = match index % 7 {
        0 if len == 0 => Payload::Blank,
        3 => Payload::Membership(Bytes::from(vec![(term ^ index) as u8; len])),
        _ => Payload::Normal(Bytes::from(vec![(term ^ index) as u8; len])),
    };
    LogRecord { id: id(term, index), payload }
}

/// A callback, and the place where its answer comes out.
pub(crate) fn done() -> (Done, mpsc::Receiver<Result<(), LogError>>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |result| {
        // The test may have looked away.
        let _ = sender.send(result);
    });
    (done, receiver)
}

/// Calls `op`; the answer comes out of the receiver, if it has one.
pub(crate) fn call(log: &impl RaftLog, op: &Op) -> Option<mpsc::Receiver<Result<(), LogError>>> {
    let (done, answer) = done();
    match op.clone() {
        Op::Append(group, records) => log.append(group, records, done),
        Op::Vote(group, vote) => log.save_vote(group, vote, done),
        Op::Committed(group, committed) => {
            log.save_committed(group, committed);
            return None;
        }
        Op::Truncate(group, last) => {
            log.truncate_after(group, last).unwrap();
            return None;
        }
        Op::Purge(group, upto) => {
            log.purge(group, upto).unwrap();
            return None;
        }
    }
    Some(answer)
}

#[cfg(feature = "rocksdb")]
/// Calls `op` and waits until it is durable.
pub(crate) fn call_durably(log: &impl RaftLog, op: &Op) {
    if let Some(answer) = call(log, op) {
        answer.recv_timeout(DEADLINE).expect("an answer in time").unwrap();
    }
}
