//! Walks the applied entries of a log.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use ticketrail_core::{Entry, GroupId, LogPosition, MemView, Outcome, apply};
use ticketrail_storage::log::{Payload, RaftLog};

/// Bytes of entries read at once.
const CHUNK: usize = 4 << 20;

/// An entry that was applied again.
#[derive(Debug)]
pub struct Step<'a> {
    /// Where it stands.
    pub at: LogPosition,
    /// Its bytes, as they stand in the log.
    pub bytes: &'a Bytes,
    /// What they say.
    pub entry: &'a Entry,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// The state after it.
    pub view: &'a MemView,
}

/// How much was walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Entries applied.
    pub entries: u64,
    /// Requests in them.
    pub requests: u64,
}

/// Applies the entries from `next` to `last` of a log to `view`, and shows each to `look`.
pub fn walk(
    view: &mut MemView,
    log: &impl RaftLog,
    mut next: u64,
    last: u64,
    mut look: impl FnMut(Step<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Walked> {
    let mut walked = Walked::default();
    while next <= last {
        let records = log.read(GroupId::QUEUES, next..last + 1, CHUNK)?;
        ensure!(!records.is_empty(), "expected entry {next} in the log, but it ends there");
        for record in records {
            ensure!(record.id.index == next, "expected entry {next} in the log, but got {:?}", record.id);
            next = record.id.index + 1;
            let Payload::Normal(bytes) = record.payload else { continue };
            let entry = Entry::from_bytes(bytes.clone())?;
            let at = LogPosition { term: record.id.leader.term, index: record.id.index };
            let outcome = apply(view, at, &entry).with_context(|| format!("apply entry {at:?}"))?;
            view.commit(&outcome.writes);
            walked.entries += 1;
            walked.requests += entry.requests.len() as u64;
            look(Step { at, bytes: &bytes, entry: &entry, outcome: &outcome, view })?;
        }
    }
    Ok(walked)
}

/// Refuses a log whose first entries are gone.
pub fn ensure_whole(log: &impl RaftLog) -> anyhow::Result<()> {
    let held = log.state(GroupId::QUEUES);
    ensure!(held.purged.is_none(), "expected a whole log, but it is purged up to {:?}", held.purged);
    Ok(())
}
