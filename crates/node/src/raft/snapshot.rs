//! Snapshots: "building" one is a flush, and its data is the live state until somebody needs a checkpoint of it.

use std::io;
use std::sync::Arc;

use openraft::{AsyncRuntime, RaftSnapshotBuilder};
use ticketrail_storage::state::{Applied, StateError, StateStore};

use super::codec::{log_id_from_store, stored_membership_from_bytes};
use super::types::{Snapshot, SnapshotMeta, Types};
use crate::work::Work;

/// What openraft calls a snapshot: how far a state is.
pub(crate) fn meta(applied: &Applied) -> Result<SnapshotMeta, io::Error> {
    Ok(SnapshotMeta {
        last_log_id: applied.last.as_ref().map(log_id_from_store),
        last_membership: stored_membership_from_bytes(applied.membership.clone()).map_err(io::Error::other)?,
    })
}

/// The data of a snapshot.
pub(crate) enum SnapshotData<S: StateStore> {
    /// The state that it is taken of when it is needed. It may have gone on by then: whoever takes the checkpoint reads
    /// from inside of it how far it is.
    Live(Arc<S>),
    /// One that was received, and is ready to be swapped in.
    Received(S::Checkpoint),
}

impl<S: StateStore> SnapshotData<S> {
    /// The checkpoint, taken now unless there is one. Blocks.
    pub(crate) fn checkpoint(self) -> Result<S::Checkpoint, StateError> {
        match self {
            SnapshotData::Live(store) => store.checkpoint(),
            SnapshotData::Received(checkpoint) => Ok(checkpoint),
        }
    }
}

/// Flushes the state, so that the log before it may be purged.
pub(crate) struct FlushBuilder<S> {
    store: Arc<S>,
    work: Work,
}

impl<S: StateStore> FlushBuilder<S> {
    pub(crate) fn new(store: Arc<S>, work: Work) -> Self {
        Self { store, work }
    }
}

impl<R: AsyncRuntime, S: StateStore> RaftSnapshotBuilder<Types<R>> for FlushBuilder<S> {
    type SnapshotData = SnapshotData<S>;

    async fn build_snapshot(&mut self) -> Result<Snapshot<SnapshotData<S>>, io::Error> {
        let store = self.store.clone();
        let flushed = self.work.run(move || store.flush()).await.map_err(io::Error::other)?;
        Ok(Snapshot { meta: meta(&flushed)?, snapshot: SnapshotData::Live(self.store.clone()) })
    }
}
