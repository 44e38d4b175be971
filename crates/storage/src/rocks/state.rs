//! The applied state of one group on RocksDB.
//!
//! ```text
//! <dir>/CURRENT          which generation is live
//! <dir>/7/               the live generation: a RocksDB
//! <dir>/8/               one that is about to be live, or is no longer
//! <dir>/checkpoint-3/    a checkpoint taken here
//! <dir>/incoming-5/      one being received
//! ```
//!
//! Whatever is not the live generation is removed at the next start.

mod current;
mod generation;
mod incoming;
mod options;
mod segments;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rocksdb::checkpoint::Checkpoint;
use ticketrail_core::{View, WriteSet};

pub use self::incoming::StateIncoming;
pub use self::options::StateOptions;

use self::generation::{Generation, OwnedDir};
use self::view::RocksView;
use crate::error::OpenError;
use crate::files;
use crate::state::{Applied, StateError, StateFile, StateStore};

/// The applied state of one group on RocksDB.
pub struct RocksState {
    options: StateOptions,
    /// Numbers for generations and directories, never used twice by one process.
    next: AtomicU64,
    /// Held by whoever changes the state: a commit or an install.
    writer: Mutex<()>,
    live: RwLock<Live>,
    /// Closes the generation that was live before the last install: that takes longer than an install may.
    closer: Mutex<Option<JoinHandle<()>>>,
}

struct Live {
    generation: Arc<Generation>,
    applied: Applied,
    flushed: Applied,
    unflushed_bytes: u64,
}

/// A whole state apart from the live one, in a directory of its own that goes with it.
pub struct StateCheckpoint {
    dir: OwnedDir,
    applied: Applied,
    /// A generation made of it beforehand, so that installing it is only a swap.
    prepared: Mutex<Option<(PathBuf, Generation)>>,
}

impl StateCheckpoint {
    /// The directory with its files. Read them; change nothing.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl RocksState {
    /// Opens the state of `options`, or creates an empty one if there is none.
    ///
    /// Refuses a state that is damaged, of another group, or of a newer format. Reads no data.
    pub fn open(options: StateOptions) -> Result<RocksState, OpenError> {
        let dir = &options.dir;
        if !dir.exists() {
            create(&options)?;
        }
        let number = current::read(dir, options.group)?;
        let owned = OwnedDir::new(current::generation_path(dir, number));
        owned.set_stays(true);
        let (generation, applied) = Generation::open(&options, owned, number)?;
        // Only now: what is left beside a state that cannot be opened may still be of use.
        remove_leftovers(dir, number)?;
        let live =
            Live { generation: Arc::new(generation), applied: applied.clone(), flushed: applied, unflushed_bytes: 0 };
        Ok(RocksState {
            next: AtomicU64::new(number.saturating_add(1)),
            writer: Mutex::new(()),
            live: RwLock::new(live),
            closer: Mutex::new(None),
            options,
        })
    }

    /// A new directory to receive a checkpoint into, beside the live state.
    pub fn incoming(&self) -> Result<PathBuf, StateError> {
        let dir = self.options.dir.join(format!("incoming-{}", self.number()));
        fs::create_dir(&dir).map_err(|error| failed("receive", format!("{}: {error}", dir.display())))?;
        Ok(dir)
    }

    /// Makes a checkpoint of the files received in `dir`: makes them durable, verifies that they are a whole state, and
    /// prepares all but the swap. `dir` then belongs to the checkpoint, or is removed if it is refused.
    pub fn stage(&self, dir: PathBuf) -> Result<StateCheckpoint, StateError> {
        let dir = OwnedDir::new(dir);
        let staged = |error: OpenError| failed("stage", error.to_string());
        files::sync_all_in(dir.path())
            .map_err(|error| failed("stage", format!("{}: {error}", dir.path().display())))?;
        let applied = generation::read_applied(&self.options, dir.path()).map_err(staged)?;
        let prepared = self.prepare(dir.path(), &applied).map_err(staged)?;
        Ok(StateCheckpoint { dir, applied, prepared: Mutex::new(Some((self.options.dir.clone(), prepared))) })
    }

    /// Closes `old` on a thread of its own, once nobody reads it; the one before it must be closed by then.
    fn close(&self, old: Arc<Generation>) {
        let mut closer = self.closer.lock();
        join(closer.take());
        // If there is no thread to be had the old one is dropped here.
        *closer = thread::Builder::new().name("state-closer".into()).spawn(move || drop(old)).ok();
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a new generation with the files of `from`.
    fn prepare(&self, from: &Path, applied: &Applied) -> Result<Generation, OpenError> {
        let number = self.number();
        let dir = OwnedDir::new(current::generation_path(&self.options.dir, number));
        generation::link(from, dir.path()).map_err(|error| OpenError::io("copy", from, &error))?;
        let path = dir.path().to_path_buf();
        let (generation, found) = Generation::open(&self.options, dir, number)?;
        if found != *applied {
            let reason = format!("it is at {found:?} instead of {applied:?}");
            return Err(OpenError::corrupt(&path, reason, "send the checkpoint again"));
        }
        Ok(generation)
    }

    /// The live generation, how far it is, and how many bytes are not flushed.
    fn now(&self) -> (Arc<Generation>, Applied, u64) {
        let live = self.live.read();
        (Arc::clone(&live.generation), live.applied.clone(), live.unflushed_bytes)
    }

    /// Notes that `generation` is durable up to `applied`, and `bytes` fewer are not; unless another one is live.
    fn note_flushed(&self, generation: &Arc<Generation>, applied: Applied, bytes: u64) -> Applied {
        let mut live = self.live.write();
        if Arc::ptr_eq(&live.generation, generation) {
            if live.flushed.last.map(|last| last.index) <= applied.last.map(|last| last.index) {
                live.flushed = applied;
            }
            live.unflushed_bytes = live.unflushed_bytes.saturating_sub(bytes);
        }
        live.flushed.clone()
    }
}

fn join(closer: Option<JoinHandle<()>>) {
    if closer.is_some_and(|closer| closer.join().is_err()) {
        tracing::error!("an old generation of a state could not be closed");
    }
}

impl Drop for RocksState {
    fn drop(&mut self) {
        join(self.closer.lock().take());
    }
}

fn failed(action: &'static str, reason: impl Into<String>) -> StateError {
    StateError { action, reason: reason.into() }
}

/// Creates an empty state aside and renames it, so that one half created is never taken for one half lost.
fn create(options: &StateOptions) -> Result<(), OpenError> {
    let dir = &options.dir;
    let mut aside = dir.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let failed = |error: std::io::Error| OpenError::io("create", dir, &error);
    files::remove_dir(&aside).and_then(|()| fs::create_dir(&aside)).map_err(failed)?;
    Generation::create(options, &current::generation_path(&aside, 1))?;
    current::write(&aside, options.group, 1)
        .and_then(|()| fs::rename(&aside, dir))
        .and_then(|()| files::sync_dir(files::parent(dir)))
        .map_err(failed)
}

/// Removes what a crash left: generations that are not live, checkpoints, and what was being received.
fn remove_leftovers(dir: &Path, live: u64) -> Result<(), OpenError> {
    let failed = |error: std::io::Error| OpenError::io("clear", dir, &error);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let generation = name.parse::<u64>().is_ok_and(|number| number != live);
        if generation || name.starts_with("checkpoint-") || name.starts_with("incoming-") {
            files::remove_dir(&entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

impl StateStore for RocksState {
    type Checkpoint = StateCheckpoint;
    type Incoming = StateIncoming;

    fn read<R>(&self, read: impl FnOnce(&dyn View) -> R) -> R {
        let generation = Arc::clone(&self.live.read().generation);
        read(&RocksView::new(&generation))
    }

    fn applied(&self) -> Applied {
        self.live.read().applied.clone()
    }

    fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), StateError> {
        let _writer = self.writer.lock();
        let generation = Arc::clone(&self.live.read().generation);
        generation.commit(writes, applied).map_err(|reason| failed("commit", reason))?;
        let mut live = self.live.write();
        live.applied = applied.clone();
        live.unflushed_bytes = live.unflushed_bytes.saturating_add(writes.bytes() as u64);
        Ok(())
    }

    fn flush(&self) -> Result<Applied, StateError> {
        let (generation, applied, bytes) = self.now();
        generation.flush().map_err(|reason| failed("flush", reason))?;
        Ok(self.note_flushed(&generation, applied, bytes))
    }

    fn flushed(&self) -> Applied {
        self.live.read().flushed.clone()
    }

    fn unflushed_bytes(&self) -> u64 {
        self.live.read().unflushed_bytes
    }

    fn checkpoint(&self) -> Result<StateCheckpoint, StateError> {
        const ACTION: &str = "take a checkpoint of";
        let dir = OwnedDir::new(self.options.dir.join(format!("checkpoint-{}", self.number())));
        let (generation, _, bytes) = self.now();
        // Flushes first.
        Checkpoint::new(generation.db())
            .and_then(|checkpoint| checkpoint.create_checkpoint(dir.path()))
            .map_err(|error| failed(ACTION, String::from(error)))?;
        let applied =
            generation::read_applied(&self.options, dir.path()).map_err(|error| failed(ACTION, error.to_string()))?;
        self.note_flushed(&generation, applied.clone(), bytes);
        Ok(StateCheckpoint { dir, applied, prepared: Mutex::new(None) })
    }

    fn checkpoint_applied(&self, checkpoint: &StateCheckpoint) -> Applied {
        checkpoint.applied.clone()
    }

    fn install(&self, checkpoint: &StateCheckpoint) -> Result<(), StateError> {
        let prepared = checkpoint.prepared.lock().take_if(|(dir, _)| *dir == self.options.dir);
        let generation = match prepared {
            Some((_, generation)) => generation,
            None => self
                .prepare(checkpoint.path(), &checkpoint.applied)
                .map_err(|error| failed("install", error.to_string()))?,
        };
        let _writer = self.writer.lock();
        // If the file cannot be written nobody knows which generation is live: then both stay.
        generation.dir.set_stays(true);
        current::write(&self.options.dir, self.options.group, generation.number)
            .map_err(|error| failed("install", format!("{}: {error}", current::path(&self.options.dir).display())))?;
        let mut live = self.live.write();
        live.generation.dir.set_stays(false);
        let old = std::mem::replace(&mut live.generation, Arc::new(generation));
        live.applied = checkpoint.applied.clone();
        live.flushed = checkpoint.applied.clone();
        live.unflushed_bytes = 0;
        drop(live);
        self.close(old);
        Ok(())
    }

    fn checkpoint_files(&self, checkpoint: &StateCheckpoint) -> Result<Vec<StateFile>, StateError> {
        incoming::files_of(checkpoint.path())
    }

    fn read_chunk(
        &self,
        checkpoint: &StateCheckpoint,
        name: &str,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, StateError> {
        incoming::read_chunk(&checkpoint.path().join(name), offset, len)
    }

    fn begin_incoming(&self, files: &[StateFile]) -> Result<StateIncoming, StateError> {
        StateIncoming::begin(files, || self.incoming())
    }

    fn write_chunk(
        &self,
        incoming: &mut StateIncoming,
        file: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StateError> {
        incoming.write(file, offset, data)
    }

    fn finish_incoming(&self, incoming: StateIncoming) -> Result<StateCheckpoint, StateError> {
        self.stage(incoming.finish()?)
    }
}
