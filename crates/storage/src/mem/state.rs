//! The applied state in memory.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use parking_lot::RwLock;
use ticketrail_core::planted::{Bug, is_planted};
use ticketrail_core::{MemView, View, Write, WriteSet};

use crate::log::{LeaderId, LogId};
use crate::state::{Applied, StateError, StateFile, StateStore, check_files};

/// The applied state of one group in memory, with a durable and a volatile half: a flush makes durable what was
/// committed before it.
///
/// A commit inside of a `read` would wait for itself.
#[derive(Default)]
pub struct MemState {
    inner: RwLock<Inner>,
}

/// A whole state apart from the live one.
pub struct MemCheckpoint {
    half: Arc<Half>,
    /// Its one file, once somebody wants it.
    file: OnceLock<Bytes>,
}

/// A checkpoint that is being received, file by file.
pub struct MemIncoming {
    files: Vec<(StateFile, BytesMut)>,
}

/// The one file of a checkpoint.
const FILE: &str = "state";

#[derive(Default)]
struct Inner {
    live: Half,
    durable: Half,
    /// Commits that `live` has and `durable` lacks.
    pending: VecDeque<(WriteSet, Applied)>,
    unflushed: u64,
    fail_flushes: Option<String>,
    fail_commits: Option<String>,
}

#[derive(Clone, Default)]
struct Half {
    view: MemView,
    applied: Applied,
}

impl Half {
    fn commit(&mut self, writes: &WriteSet, applied: &Applied) {
        self.view.commit(writes);
        self.applied = applied.clone();
    }

    /// The half as the bytes of a file: how far it is, then each pair, all with their lengths in front.
    fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        let last = self.applied.last.unwrap_or_default();
        bytes.put_u8(u8::from(self.applied.last.is_some()));
        for number in [last.leader.term, last.leader.node, last.index] {
            bytes.put_u64(number);
        }
        put(&mut bytes, &self.applied.membership);
        for (number, (key, value)) in self.view.iter().enumerate() {
            if is_lost(number, key) {
                continue;
            }
            put(&mut bytes, key);
            put(&mut bytes, value);
        }
        bytes.freeze()
    }

    /// Reads what `to_bytes` wrote; `None` for anything else.
    fn from_bytes(mut bytes: Bytes) -> Option<Half> {
        let has_last = bytes.try_get_u8().ok()? == 1;
        let (term, node) = (bytes.try_get_u64().ok()?, bytes.try_get_u64().ok()?);
        let last = LogId { leader: LeaderId { term, node }, index: bytes.try_get_u64().ok()? };
        let applied = Applied { last: has_last.then_some(last), membership: take(&mut bytes)? };
        let mut half = Half { applied, ..Half::default() };
        let mut writes = WriteSet::new();
        while bytes.has_remaining() {
            writes.push(Write::Put { key: take(&mut bytes)?, value: take(&mut bytes)? });
        }
        half.view.commit(&writes);
        Some(half)
    }
}

/// Whether a planted bug leaves a pair out of a snapshot. `o` begins the keys of requests' outcomes.
fn is_lost(number: usize, key: &[u8]) -> bool {
    (is_planted(Bug::SnapshotWithoutSessions) && key.starts_with(b"o"))
        || (is_planted(Bug::SnapshotLacksRecords) && number % 50 == 49)
}

fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u64(part.len() as u64);
    bytes.put_slice(part);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(bytes.try_get_u64().ok()?).ok()?;
    (len <= bytes.len()).then(|| bytes.split_to(len))
}

impl MemCheckpoint {
    fn of(half: Half) -> Self {
        Self { half: Arc::new(half), file: OnceLock::new() }
    }

    fn file(&self) -> &Bytes {
        self.file.get_or_init(|| self.half.to_bytes())
    }
}

impl MemState {
    /// An empty state.
    pub fn new() -> MemState {
        MemState::default()
    }

    /// How many commits are not durable.
    pub fn pending(&self) -> usize {
        self.inner.read().pending.len()
    }

    /// From now on each flush, checkpoint and install fails for `reason`; `None`: no longer.
    pub fn fail_flushes(&self, reason: Option<&str>) {
        self.inner.write().fail_flushes = reason.map(str::to_string);
    }

    /// From now on each commit fails for `reason`; `None`: no longer.
    pub fn fail_commits(&self, reason: Option<&str>) {
        self.inner.write().fail_commits = reason.map(str::to_string);
    }

    /// What a restart finds after the power went: the durable half.
    pub fn crash(&self) -> MemState {
        self.crash_keeping(0)
    }

    /// As [`MemState::crash`], but the store happened to have flushed the next `count` commits by itself.
    pub fn crash_keeping(&self, count: usize) -> MemState {
        let inner = self.inner.read();
        let mut half = inner.durable.clone();
        for (writes, applied) in inner.pending.iter().take(count) {
            half.commit(writes, applied);
        }
        MemState { inner: RwLock::new(Inner { live: half.clone(), durable: half, ..Inner::default() }) }
    }
}

impl Inner {
    fn flush(&mut self, action: &'static str) -> Result<(), StateError> {
        if let Some(reason) = &self.fail_flushes {
            return Err(StateError { action, reason: reason.clone() });
        }
        for (writes, applied) in std::mem::take(&mut self.pending) {
            self.durable.commit(&writes, &applied);
        }
        self.unflushed = 0;
        Ok(())
    }
}

impl StateStore for MemState {
    type Checkpoint = MemCheckpoint;
    type Incoming = MemIncoming;

    fn read<R>(&self, read: impl FnOnce(&dyn View) -> R) -> R {
        // Recursive: a waiting writer must not lock out a read inside of a read.
        read(&self.inner.read_recursive().live.view)
    }

    fn applied(&self) -> Applied {
        self.inner.read_recursive().live.applied.clone()
    }

    fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), StateError> {
        let mut inner = self.inner.write();
        if let Some(reason) = &inner.fail_commits {
            return Err(StateError { action: "commit", reason: reason.clone() });
        }
        inner.live.commit(writes, applied);
        inner.pending.push_back((writes.clone(), applied.clone()));
        inner.unflushed += writes.bytes() as u64;
        Ok(())
    }

    fn flush(&self) -> Result<Applied, StateError> {
        let mut inner = self.inner.write();
        inner.flush("flush")?;
        Ok(inner.durable.applied.clone())
    }

    fn flushed(&self) -> Applied {
        self.inner.read_recursive().durable.applied.clone()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.inner.read_recursive().unflushed
    }

    fn checkpoint(&self) -> Result<MemCheckpoint, StateError> {
        let mut inner = self.inner.write();
        inner.flush("take a checkpoint of")?;
        Ok(MemCheckpoint::of(inner.live.clone()))
    }

    fn checkpoint_applied(&self, checkpoint: &MemCheckpoint) -> Applied {
        checkpoint.half.applied.clone()
    }

    fn install(&self, checkpoint: &MemCheckpoint) -> Result<(), StateError> {
        let mut inner = self.inner.write();
        if let Some(reason) = &inner.fail_flushes {
            return Err(StateError { action: "install", reason: reason.clone() });
        }
        inner.live = Half::clone(&checkpoint.half);
        inner.durable = Half::clone(&checkpoint.half);
        inner.pending.clear();
        inner.unflushed = 0;
        Ok(())
    }

    fn checkpoint_files(&self, checkpoint: &MemCheckpoint) -> Result<Vec<StateFile>, StateError> {
        Ok(vec![StateFile { name: FILE.into(), size: checkpoint.file().len() as u64 }])
    }

    fn read_chunk(&self, checkpoint: &MemCheckpoint, name: &str, offset: u64, len: usize) -> Result<Bytes, StateError> {
        let file = checkpoint.file();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if name != FILE || start > file.len() {
            return Err(StateError { action: "read a checkpoint of", reason: format!("{name} has no byte {offset}") });
        }
        Ok(file.slice(start..file.len().min(start.saturating_add(len))))
    }

    fn begin_incoming(&self, files: &[StateFile]) -> Result<MemIncoming, StateError> {
        check_files(files)?;
        Ok(MemIncoming { files: files.iter().map(|file| (file.clone(), BytesMut::new())).collect() })
    }

    fn write_chunk(&self, incoming: &mut MemIncoming, file: usize, offset: u64, data: &[u8]) -> Result<(), StateError> {
        let refused = |reason: String| Err(StateError { action: "receive", reason });
        let Some((file, bytes)) = incoming.files.get_mut(file) else {
            return refused(format!("there is no file {file}"));
        };
        let end = offset + data.len() as u64;
        if offset != bytes.len() as u64 || end > file.size {
            return refused(format!("bytes {offset}..{end} of {} are not the next of {} bytes", file.name, file.size));
        }
        bytes.extend_from_slice(data);
        Ok(())
    }

    fn finish_incoming(&self, incoming: MemIncoming) -> Result<MemCheckpoint, StateError> {
        let refused = |reason: &str| StateError { action: "stage", reason: reason.into() };
        let [(file, bytes)] = <[_; 1]>::try_from(incoming.files).map_err(|_| refused("it is not one file"))?;
        if bytes.len() as u64 != file.size {
            return Err(refused("its file is not whole"));
        }
        let half = Half::from_bytes(bytes.freeze()).ok_or_else(|| refused("its file makes no sense"))?;
        Ok(MemCheckpoint::of(half))
    }
}
