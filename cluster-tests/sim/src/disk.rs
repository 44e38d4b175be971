//! The disks of the nodes: twins in memory, how fast they are, what they lose in a crash, and how they fail.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ticketrail_storage::home::MemHome;
use ticketrail_storage::mem::{MemLog, MemState};

use crate::poll::pause;
use crate::rng::Rng;

/// What is on a disk.
#[derive(Clone, Default)]
pub struct Contents {
    /// Whose it is.
    pub home: MemHome,
    /// The Raft log.
    pub log: Arc<MemLog>,
    /// The applied state.
    pub state: Arc<MemState>,
}

/// The disk of one place.
#[derive(Default)]
pub struct Disk {
    contents: Mutex<Contents>,
    /// A sync takes from so many microseconds …
    sync_from_us: AtomicU64,
    /// … to so many.
    sync_to_us: AtomicU64,
    /// Nearly full: enqueues are refused.
    low: AtomicBool,
    /// Full: nothing can be written.
    full: AtomicBool,
}

/// How a disk fails once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The next sync of the log.
    Sync,
    /// The next write of the log.
    Append,
    /// The next commit of the state.
    Commit,
    /// The next flush of the state.
    Flush,
}

impl Failure {
    /// All of them.
    pub const ALL: [Failure; 4] = [Failure::Sync, Failure::Append, Failure::Commit, Failure::Flush];
}

/// What a crash leaves of what was not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Operations of the log, of so many.
    pub log: (usize, usize),
    /// Commits of the state, of so many.
    pub state: (usize, usize),
}

const NO_SPACE: &str = "No space left on device (os error 28)";
const BROKEN: &str = "Input/output error (os error 5)";

impl Disk {
    /// A disk that syncs within this many microseconds.
    pub fn new(sync_us: (u64, u64)) -> Self {
        let disk = Self::default();
        disk.set_speed(sync_us);
        disk.contents.lock().log.hold_syncs();
        disk
    }

    /// What is on it.
    pub fn contents(&self) -> Contents {
        self.contents.lock().clone()
    }

    /// How long a sync takes, from and to, in microseconds.
    pub fn set_speed(&self, (from, to): (u64, u64)) {
        self.sync_from_us.store(from, Ordering::Relaxed);
        self.sync_to_us.store(to, Ordering::Relaxed);
    }

    /// Whether it is nearly full.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Makes it nearly full, or gives it room.
    pub fn set_low(&self, low: bool) {
        self.low.store(low, Ordering::Relaxed);
    }

    /// Fills it up, or gives it room again.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
        self.set_low(full);
        let reason = full.then_some(NO_SPACE);
        let contents = self.contents();
        contents.log.fail_writes(reason);
        contents.state.fail_flushes(reason);
    }

    /// Fails soon. A new start finds it working, until it fails again.
    pub fn fail(&self, failure: Failure) {
        let contents = self.contents();
        match failure {
            Failure::Sync => contents.log.fail_next_sync(BROKEN),
            Failure::Append => contents.log.fail_writes(Some(BROKEN)),
            Failure::Commit => contents.state.fail_commits(Some(BROKEN)),
            Failure::Flush => contents.state.fail_flushes(Some(BROKEN)),
        }
    }

    /// Loses what was not durable, or all of it but a beginning that the disk happened to write.
    pub fn crash(&self, rng: &mut Rng) -> Kept {
        let mut contents = self.contents.lock();
        let unsynced = contents.log.pending();
        let unflushed = contents.state.pending();
        let some = |rng: &mut Rng, all: usize| {
            if rng.chance(50) { 0 } else { usize::try_from(rng.below(all as u64 + 1)).unwrap_or(0) }
        };
        let kept = Kept { log: (some(rng, unsynced), unsynced), state: (some(rng, unflushed), unflushed) };
        // A state never holds more than the log: what it applied is committed, and synced here or elsewhere.
        contents.log = Arc::new(contents.log.crash_keeping(kept.log.0));
        contents.state = Arc::new(contents.state.crash_keeping(kept.state.0));
        contents.log.hold_syncs();
        drop(contents);
        if self.full.load(Ordering::Relaxed) {
            self.set_full(true);
        }
        kept
    }

    /// A new and empty disk in its place.
    pub fn wipe(&self) {
        let contents = Contents::default();
        contents.log.hold_syncs();
        *self.contents.lock() = contents;
        self.set_full(false);
    }
}

/// Syncs the log each time that somebody waits for it: the disk at work.
pub async fn work(disk: Arc<Disk>, log: Arc<MemLog>, mut rng: Rng) {
    loop {
        let unsynced = poll_fn(|context| log.poll_unsynced(context)).await;
        let (from, to) = (disk.sync_from_us.load(Ordering::Relaxed), disk.sync_to_us.load(Ordering::Relaxed));
        pause(rng.micros(from, to)).await;
        log.sync(unsynced);
    }
}
