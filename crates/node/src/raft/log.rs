//! openraft's log storage, on a [`RaftLog`].

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::channel::oneshot;
use futures::{Stream, StreamExt as _, stream};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{AsyncRuntime, OptionalSend, RaftLogReader};
use ticketrail_core::GroupId;
use ticketrail_core::planted::{Bug, is_planted};
use ticketrail_storage::log::{self as store, LogRecord, RaftLog};

use super::codec::{
    entry_from_store, entry_to_store, log_id_from_store, log_id_to_store, vote_from_store, vote_to_store,
};
use super::types::{Entry, LogId, Types, Vote};

/// Payload bytes read at once for applying, and at most sent in one append: two entries of full size.
const READ_BYTES: usize = 2 << 20;

/// One group's part of a [`RaftLog`], as openraft sees it. Clones share it.
pub(crate) struct GroupLog<L> {
    log: Arc<L>,
    group: GroupId,
    appended: Arc<AtomicU64>,
}

impl<L> Clone for GroupLog<L> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), group: self.group, appended: self.appended.clone() }
    }
}

impl<L: RaftLog> GroupLog<L> {
    pub(crate) fn new(log: Arc<L>, group: GroupId) -> Self {
        Self { log, group, appended: Arc::default() }
    }

    /// Payload bytes appended since the start.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Up to where it is purged.
    pub(crate) fn purged(&self) -> Option<u64> {
        self.log.state(self.group).purged.map(|id| id.index)
    }

    /// Payload bytes that the log holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.log.held_bytes(self.group)
    }

    /// Cuts off what a snapshot has replaced. A snapshot is put in place before the log is cut: a crash between the two
    /// leaves entries of an earlier leader at and after `applied`, the last entry in the state, and openraft takes them
    /// for a corrupt store. A log that ends before it is left to openraft.
    ///
    /// Fails where log and state are not of one history.
    pub(crate) fn cut_replaced(&self, applied: Option<store::LogId>) -> Result<(), String> {
        let held = self.log.state(self.group);
        let Some(applied) = applied.filter(|applied| held.last.is_some_and(|last| last.index >= applied.index)) else {
            return Ok(());
        };
        let before = applied.index.saturating_sub(1);
        let records = self.log.read(self.group, before..applied.index.saturating_add(1), usize::MAX);
        let records = records.map_err(|error| error.to_string())?;
        let at = |index| records.iter().map(|record| record.id).chain(held.purged).find(|id| id.index == index);
        match at(applied.index) {
            Some(found) if found == applied => Ok(()),
            Some(found) if found < applied && held.purged < Some(found) => {
                tracing::info!("the log is cut before entry {}, which came by snapshot", applied.index);
                let last = at(before).filter(|id| id.index < applied.index);
                self.log.truncate_after(self.group, last).map_err(|error| error.to_string())?;
                self.log.purge(self.group, applied).map_err(|error| error.to_string())
            }
            found => Err(format!(
                "the raft log and the applied state are not of one history: at index {} one has {}, the other {}; \
                 treat this disk as lost: remove the member from the cluster, empty the data directory and let the node \
                 join again",
                applied.index,
                in_words(found),
                in_words(Some(applied)),
            )),
        }
    }

    fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.log.read(self.group, range, max_bytes).map_err(io::Error::other)?;
        records.into_iter().map(|record| entry_from_store(record).map_err(io::Error::other)).collect()
    }
}

fn in_words(id: Option<store::LogId>) -> String {
    id.map_or("nothing".to_owned(), |id| format!("an entry of term {} by node {}", id.leader.term, id.leader.node))
}

fn half_open(range: impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end.max(start)
}

impl<R: AsyncRuntime, L: RaftLog> RaftLogReader<Types<R>> for GroupLog<L> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(half_open(range), usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let entries = self.read(start..end, READ_BYTES)?;
        // Where the first ones have been purged meanwhile there is a gap: what is behind it must not be sent.
        Ok(if entries.first().is_some_and(|first| first.log_id.index > start) { Vec::new() } else { entries })
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let log = self.clone();
        let chunks = stream::try_unfold(half_open(range), move |rest| {
            let chunk = log.read(rest.clone(), READ_BYTES);
            async move {
                let chunk = chunk?;
                let next = chunk.last().map(|entry| entry.log_id.index.saturating_add(1));
                Ok::<_, io::Error>(next.map(|next| (chunk, next..rest.end.max(next))))
            }
        });
        chunks.flat_map(|chunk| {
            let (entries, error) = match chunk {
                Ok(entries) => (entries, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            stream::iter(entries.into_iter().map(Ok).chain(error.map(Err)))
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.state(self.group).vote.as_ref().map(vote_from_store))
    }
}

impl<R: AsyncRuntime, L: RaftLog> RaftLogStorage<Types<R>> for GroupLog<L> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types<R>>, io::Error> {
        let state = self.log.state(self.group);
        Ok(LogState {
            last_purged_log_id: state.purged.as_ref().map(log_id_from_store),
            last_log_id: state.last.as_ref().map(log_id_from_store),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, saved) = oneshot::channel();
        let done: store::Done = Box::new(move |result| {
            // Whoever asked may be gone when the process stops.
            let _ = done.send(result);
        });
        self.log.save_vote(self.group, vote_to_store(vote), done);
        if is_planted(Bug::VoteNotSynced) {
            return Ok(());
        }
        match saved.await {
            Ok(result) => result.map_err(io::Error::other),
            Err(oneshot::Canceled) => Err(io::Error::other("expected the vote to be saved, but the log was closed")),
        }
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.log.save_committed(self.group, committed.as_ref().map(log_id_to_store));
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.log.state(self.group).committed.as_ref().map(log_id_from_store))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types<R>>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records: Vec<LogRecord> = entries.into_iter().map(entry_to_store).collect();
        let bytes: usize = records.iter().map(|record| record.payload.len()).sum();
        self.appended.fetch_add(bytes as u64, Ordering::Relaxed);
        let done: store::Done = if is_planted(Bug::AnswerBeforeSync) {
            callback.io_completed(Ok(()));
            Box::new(|_| {})
        } else {
            Box::new(move |result| callback.io_completed(result.map_err(io::Error::other)))
        };
        self.log.append(self.group, records, done);
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.log.truncate_after(self.group, last.as_ref().map(log_id_to_store)).map_err(io::Error::other)
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.log.purge(self.group, log_id_to_store(&upto)).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use ticketrail_storage::log::{LeaderId, Payload};
    use ticketrail_storage::mem::MemLog;

    use super::*;

    fn id(term: u64, index: u64) -> store::LogId {
        store::LogId { leader: LeaderId { term, node: term }, index }
    }

    /// A log with entries of `terms` from index 1 on, the first of them purged.
    fn log(terms: &[u64]) -> GroupLog<MemLog> {
        let log = GroupLog::new(Arc::new(MemLog::new()), GroupId::QUEUES);
        let records = (1..).zip(terms).map(|(index, term)| LogRecord { id: id(*term, index), payload: Payload::Blank });
        log.log.append(GroupId::QUEUES, records.collect(), Box::new(|_| {}));
        log.log.purge(GroupId::QUEUES, id(terms[0], 1)).unwrap();
        log
    }

    fn range(log: &GroupLog<MemLog>) -> (Option<store::LogId>, Option<store::LogId>) {
        let state = log.log.state(GroupId::QUEUES);
        (state.purged, state.last)
    }

    #[test]
    fn entries_that_a_snapshot_replaced_are_cut() {
        for applied in 2..=5 {
            // The entries of term 4 lost to those of the leader that sent the snapshot.
            let log = log(&[1, 4, 4, 4, 4]);
            log.cut_replaced(Some(id(5, applied))).unwrap();
            assert_eq!(range(&log), (Some(id(5, applied)), Some(id(5, applied))), "applied up to {applied}");
        }
    }

    #[test]
    fn a_log_of_the_same_history_is_kept() {
        for applied in [None, Some(id(1, 1)), Some(id(1, 2)), Some(id(2, 3)), Some(id(5, 4)), Some(id(5, 9))] {
            let log = log(&[1, 1, 2]);
            log.cut_replaced(applied).unwrap();
            assert_eq!(range(&log), (Some(id(1, 1)), Some(id(2, 3))), "applied up to {applied:?}");
        }
    }

    #[test]
    fn another_history_is_refused_and_kept() {
        // A later leader has all that is applied; what is purged was applied.
        for (applied, other) in [(id(3, 2), "term 4"), (id(2, 1), "term 1")] {
            let log = log(&[1, 4, 4]);
            let refused = log.cut_replaced(Some(applied)).unwrap_err();
            assert!(refused.contains("one history") && refused.contains(other), "{refused}");
            assert_eq!(range(&log), (Some(id(1, 1)), Some(id(4, 3))));
        }
    }
}
