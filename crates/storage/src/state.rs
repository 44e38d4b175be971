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

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateFile {
    /// Its name: 1 to 255 of `A-Z a-z 0-9 . _ -`, and not only dots.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

impl StateFile {
    /// Whether the name can stand in a directory of ours and lead nowhere else.
    pub fn has_plain_name(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=255).contains(&self.name.len())
            && self.name.bytes().all(plain)
            && self.name.bytes().any(|byte| byte != b'.')
    }
}

/// The applied state of one group. One writer, any number of readers.
pub trait StateStore: Send + Sync + 'static {
    /// A whole state apart from the live one: taken here, or received and staged. Removed from the disk when dropped.
    type Checkpoint: Send + Sync + 'static;
    /// A checkpoint that is being received. Removed from the disk when dropped.
    type Incoming: Send + Sync + 'static;

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

    /// The files of `checkpoint`, in order of their names: all that another store needs to make the same one of them.
    fn checkpoint_files(&self, checkpoint: &Self::Checkpoint) -> Result<Vec<StateFile>, StateError>;

    /// Up to `len` bytes of a file of `checkpoint` from `offset` on; fewer only at its end. Blocks.
    fn read_chunk(
        &self,
        checkpoint: &Self::Checkpoint,
        name: &str,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, StateError>;

    /// Begins to receive a checkpoint of these files. Refuses names that are not plain, or come twice.
    fn begin_incoming(&self, files: &[StateFile]) -> Result<Self::Incoming, StateError>;

    /// Writes bytes of the file `file` of the list given at the beginning. Refuses what lies outside of it. Blocks.
    fn write_chunk(
        &self,
        incoming: &mut Self::Incoming,
        file: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StateError>;

    /// Makes what was received a checkpoint: durable, verified to be whole, and prepared so that installing it is only
    /// a swap. Blocks.
    fn finish_incoming(&self, incoming: Self::Incoming) -> Result<Self::Checkpoint, StateError>;
}

/// Refuses files that cannot be of one checkpoint.
pub(crate) fn check_files(files: &[StateFile]) -> Result<(), StateError> {
    let refused = |reason| StateError { action: "receive", reason };
    let mut names = std::collections::BTreeSet::new();
    for file in files {
        if !file.has_plain_name() {
            return Err(refused(format!("the file name {:?} is not plain", file.name)));
        }
        if !names.insert(&file.name) {
            return Err(refused(format!("the file {} comes twice", file.name)));
        }
    }
    Ok(())
}
