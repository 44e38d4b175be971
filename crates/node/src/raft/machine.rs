//! openraft's state machine: `ticketrail_core::apply` on a [`StateStore`].

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::oneshot;
use futures::{Stream, TryStreamExt as _};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{AsyncRuntime, EntryPayload, OptionalSend};
use ticketrail_core::{LogPosition, WriteSet};
use ticketrail_storage::state::{Applied, StateStore};

use super::codec::{log_id_from_store, log_id_to_store, stored_membership_from_bytes, stored_membership_to_bytes};
use super::snapshot::{FlushBuilder, SnapshotData, meta};
use super::types::{Entry, LogId, Replies, Snapshot, SnapshotMeta, StoredMembership, Types};
use crate::broken::Broken;
use crate::signals::Signals;
use crate::work::{Lane, LaneError, Work};

/// Entries applied at one go.
const CHUNK_ENTRIES: usize = 64;
/// Payload bytes at which a go is closed.
const CHUNK_BYTES: usize = 4 << 20;

/// The applied state of one group, as openraft sees it.
pub(crate) struct Machine<R: AsyncRuntime, S> {
    store: Arc<S>,
    signals: Arc<Signals>,
    lane: Lane<Chunk<R>>,
    work: Work,
    broken: Arc<Broken>,
}

/// Entries to apply, and who waits for it.
struct Chunk<R: AsyncRuntime> {
    entries: Vec<(Entry, Option<ApplyResponder<Types<R>>>)>,
    done: oneshot::Sender<Result<(), ApplyError>>,
}

/// Why an entry was not applied: this replica is broken.
#[derive(Debug, thiserror::Error)]
#[error("expected to apply entry {index}, but {reason}")]
struct ApplyError {
    index: u64,
    reason: String,
}

impl<R: AsyncRuntime, S: StateStore> Machine<R, S> {
    pub(crate) fn new(
        store: Arc<S>,
        signals: Arc<Signals>,
        broken: Arc<Broken>,
        work: Work,
    ) -> Result<Self, LaneError> {
        let applier = Applier { store: store.clone(), signals: signals.clone() };
        let lane = Lane::new(work, "apply", move |chunk: Chunk<R>| {
            let result = applier.apply_all(chunk.entries);
            // openraft waits for each chunk, unless its worker has been dropped.
            let _ = chunk.done.send(result);
        })?;
        Ok(Self { store, signals, lane, work, broken })
    }

    async fn apply_chunk(&mut self, entries: Vec<(Entry, Option<ApplyResponder<Types<R>>>)>) -> Result<(), io::Error> {
        let (done, applied) = oneshot::channel();
        self.lane.submit(Chunk { entries, done });
        let error = match applied.await {
            Ok(Ok(())) => {
                self.signals.reached();
                return Ok(());
            }
            Ok(Err(error)) => io::Error::other(error),
            Err(oneshot::Canceled) => io::Error::other("expected entries to be applied, but the applier has died"),
        };
        self.broken.report(error.to_string());
        Err(error)
    }
}

/// What runs on the lane.
struct Applier<S> {
    store: Arc<S>,
    signals: Arc<Signals>,
}

impl<S: StateStore> Applier<S> {
    fn apply_all<R: AsyncRuntime>(
        &self,
        entries: Vec<(Entry, Option<ApplyResponder<Types<R>>>)>,
    ) -> Result<(), ApplyError> {
        let mut membership = self.store.applied().membership;
        for (entry, responder) in entries {
            let index = entry.log_id.index;
            let replies = self
                .apply(entry, &mut membership)
                .map_err(|reason| ApplyError { index, reason: reason.to_string() })?;
            if let Some(responder) = responder {
                responder.send(replies);
            }
        }
        Ok(())
    }

    fn apply(&self, entry: Entry, membership: &mut Bytes) -> Result<Replies, Box<dyn std::error::Error>> {
        let last = Some(log_id_to_store(&entry.log_id));
        let position = LogPosition { term: entry.log_id.leader_id.term, index: entry.log_id.index };
        match entry.payload {
            EntryPayload::Blank => {
                self.store.commit(&WriteSet::new(), &Applied { last, membership: membership.clone() })?;
                Ok(Replies::default())
            }
            EntryPayload::Membership(new) => {
                *membership = stored_membership_to_bytes(&StoredMembership::new(Some(entry.log_id), new));
                self.store.commit(&WriteSet::new(), &Applied { last, membership: membership.clone() })?;
                Ok(Replies::default())
            }
            EntryPayload::Normal(proposal) => {
                let entry = ticketrail_core::Entry::from_bytes(proposal.0)?;
                let outcome = self.store.read(|view| ticketrail_core::apply(view, position, &entry))?;
                self.store.commit(&outcome.writes, &Applied { last, membership: membership.clone() })?;
                self.signals.applied(outcome.effects);
                Ok(Replies(outcome.replies))
            }
        }
    }
}

impl<R: AsyncRuntime, S: StateStore> RaftStateMachine<Types<R>> for Machine<R, S> {
    type SnapshotData = SnapshotData<S>;
    type SnapshotBuilder = FlushBuilder<S>;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let applied = self.store.applied();
        let membership = stored_membership_from_bytes(applied.membership).map_err(io::Error::other)?;
        Ok((applied.last.as_ref().map(log_id_from_store), membership))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types<R>>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while let Some((entry, responder)) = entries.try_next().await? {
            bytes += match &entry.payload {
                EntryPayload::Normal(proposal) => proposal.0.len(),
                EntryPayload::Blank | EntryPayload::Membership(_) => 0,
            };
            chunk.push((entry, responder));
            if chunk.len() >= CHUNK_ENTRIES || bytes >= CHUNK_BYTES {
                self.apply_chunk(std::mem::take(&mut chunk)).await?;
                bytes = 0;
            }
        }
        if chunk.is_empty() { Ok(()) } else { self.apply_chunk(chunk).await }
    }

    async fn get_snapshot_builder(&mut self) -> FlushBuilder<S> {
        FlushBuilder::new(self.store.clone(), self.work)
    }

    async fn install_snapshot(&mut self, expected: &SnapshotMeta, snapshot: SnapshotData<S>) -> Result<(), io::Error> {
        let checkpoint = self.work.run(move || snapshot.checkpoint()).await.map_err(io::Error::other)?;
        let found = meta(&self.store.checkpoint_applied(&checkpoint))?;
        if found != *expected {
            return Err(io::Error::other(format!("expected the snapshot {expected}, but its data is of {found}")));
        }
        self.store.install(&checkpoint).map_err(io::Error::other)?;
        self.signals.reached();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<SnapshotData<S>>>, io::Error> {
        let flushed = self.store.flushed();
        if flushed.last.is_none() {
            return Ok(None);
        }
        Ok(Some(Snapshot { meta: meta(&flushed)?, snapshot: SnapshotData::Live(self.store.clone()) }))
    }
}
