//! Walks the applied entries of a log.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use ticketrail_core::command::QueueRef;
use ticketrail_core::query::LeaseInfo;
use ticketrail_core::{
    Answer, Command, Entry, GroupId, LogPosition, MemView, Outcome, Query, QueueId, View, answer, apply,
};
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
    /// What was there before it.
    pub before: &'a Before,
    /// The state after it.
    pub view: &'a MemView,
}

/// What an entry speaks of and may end, as it was before.
#[derive(Debug, Default)]
pub struct Before {
    /// The leases that it names as run out, by queue and sequence.
    pub leases: BTreeMap<(u64, u64), LeaseInfo>,
    /// The ids of the queues that it removes.
    pub removed: BTreeMap<QueueRef, u64>,
}

impl Before {
    /// Looks into the state that `entry` is about to be applied to.
    pub fn of(view: &dyn View, entry: &Entry) -> anyhow::Result<Self> {
        let mut before = Self::default();
        for request in &entry.requests {
            if let Some(Command::Expire(expire)) = &request.command {
                for named in &expire.leases {
                    // Leases of a queue that is gone lie about until they are swept.
                    if answer(view, &Query::QueueById(QueueId(named.queue)))? == Answer::Queue(None) {
                        continue;
                    }
                    let place = (named.queue, named.sequence);
                    let after = Some((QueueId(named.queue), named.sequence.saturating_sub(1)));
                    let Answer::Leases(found) = answer(view, &Query::Leases { after, limit: 1 })? else {
                        bail!("expected leases");
                    };
                    let found = found.into_iter().find(|lease| (lease.queue.0, lease.sequence) == place);
                    before.leases.extend(found.map(|lease| (place, lease)));
                }
            }
            if let Some(Command::DeleteQueue(delete)) = &request.command
                && let Some(name) = &delete.queue
                && let Answer::Queue(Some(queue)) = answer(view, &Query::Queue(name.clone()))?
            {
                before.removed.insert(name.clone(), queue.id.0);
            }
        }
        Ok(before)
    }
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
            let before = Before::of(view, &entry)?;
            let outcome = apply(view, at, &entry).with_context(|| format!("apply entry {at:?}"))?;
            view.commit(&outcome.writes);
            walked.entries += 1;
            walked.requests += entry.requests.len() as u64;
            look(Step { at, bytes: &bytes, entry: &entry, outcome: &outcome, before: &before, view })?;
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
