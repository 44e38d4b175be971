//! The applied state of one group: the interface.

use bytes::Bytes;
use ticketrail_core::{View, WriteSet};

use crate::log::LogId;

/// How far a state is: committed in the same batch as the effects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The last entry whose effects it holds.
    pub last: Option<LogId>,
    /// The membership it holds, encoded by the caller; empty before the first.
    pub membership: Bytes,
}

/// What went wrong in a state store. The node that sees one stops.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected to {action} the applied state, but {reason}")]
pub struct StateError {
    /// What was tried: "open", "commit", "flush", …
    pub action: &'static str,
    /// What came instead, with the file where one is to blame.
    pub reason: String,
}

/// The applied state of one group. One writer, any number of readers.
pub trait StateStore: Send + Sync + 'static {
    /// A whole state apart from the live one: taken here, or received and staged. Removed from the disk when dropped.
    type Checkpoint: Send + Sync + 'static;

    /// Runs `read` on a consistent view of the latest committed state.
    fn read<R>(&self, read: impl FnOnce(&dyn View) -> R) -> R;

    /// How far the state is.
    fn applied(&self) -> Applied;

    /// Commits the effects of one or more entries and how far the state is with them, together. Not durable until
    /// flushed: the synced log replays it.
    fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), StateError>;

    /// Makes everything committed so far durable; returns how far that is.
    fn flush(&self) -> Result<Applied, StateError>;

    /// How far the durable part is. The log may be purged up to here.
    fn flushed(&self) -> Applied;

    /// The bytes of the write sets committed since the last flush, for deciding when the next is due.
    fn unflushed_bytes(&self) -> u64;

    /// Takes a checkpoint of the state as it is now, while commits go on.
    fn checkpoint(&self) -> Result<Self::Checkpoint, StateError>;

    /// How far `checkpoint` is, read from inside it.
    fn checkpoint_applied(&self, checkpoint: &Self::Checkpoint) -> Applied;

    /// Makes `checkpoint` the live state, durably: after a crash at any point the old state or the new one is there.
    fn install(&self, checkpoint: &Self::Checkpoint) -> Result<(), StateError>;
}
