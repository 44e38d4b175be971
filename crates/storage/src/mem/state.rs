//! The applied state in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;
use ticketrail_core::{MemView, View, WriteSet};

use crate::state::{Applied, StateError, StateStore};

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
}

#[derive(Default)]
struct Inner {
    live: Half,
    durable: Half,
    /// Commits that `live` has and `durable` lacks.
    pending: VecDeque<(WriteSet, Applied)>,
    unflushed: u64,
    fail_flushes: Option<String>,
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

    fn read<R>(&self, read: impl FnOnce(&dyn View) -> R) -> R {
        // Recursive: a waiting writer must not lock out a read inside of a read.
        read(&self.inner.read_recursive().live.view)
    }

    fn applied(&self) -> Applied {
        self.inner.read_recursive().live.applied.clone()
    }

    fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), StateError> {
        let mut inner = self.inner.write();
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
        Ok(MemCheckpoint { half: Arc::new(inner.live.clone()) })
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
}
