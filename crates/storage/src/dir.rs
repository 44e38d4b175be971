//! A data directory, put together.
//!
//! ```text
//! <dir>/LOCK        one process
//! <dir>/IDENTITY    whose it is; written first
//! <dir>/FOUNDING    a cluster that the node is about to found
//! <dir>/PEERS       the newest start of each other node
//! <dir>/WATERMARK   what the log must hold
//! <dir>/raft/       the log of all groups
//! <dir>/sm/<group>/ the applied state of each group
//! <dir>/ballast     room for a full disk
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ticketrail_core::GroupId;

use crate::disk::{DiskGuard, DiskOptions, FileSystem};
use crate::error::{OpenError, TREAT_AS_LOST};
use crate::files;
use crate::home::{FileHome, Home as _};
use crate::identity::Identity;
use crate::lock::DirLock;
use crate::log::{LogId, LogState, RaftLog};
use crate::rocks::{LogOptions, RocksLog, RocksState, StateOptions};
use crate::state::{Applied, StateStore};

/// A data directory of which this process is the only user.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    home: FileHome,
    _lock: DirLock,
}

/// The stores of a data directory.
pub struct Store {
    /// The log of all groups.
    pub log: Arc<RocksLog>,
    /// The applied state of the group of all queues.
    pub state: Arc<RocksState>,
    /// How much room is left.
    pub disk: DiskGuard,
    // Released last.
    dir: DataDir,
}

impl DataDir {
    /// Locks the directory `path`, creating it if it is not there, and reads whose it is.
    ///
    /// Refuses one that another process uses, whose identity cannot be trusted, or that holds data but no identity.
    pub fn open(path: &Path) -> Result<DataDir, OpenError> {
        files::create_dir(path).map_err(|error| OpenError::io("create", path, &error))?;
        let lock = DirLock::acquire(&path.join("LOCK"))?;
        let identity_path = path.join("IDENTITY");
        let home = FileHome::open(path)?;
        let identity = home.identity();
        let dir = DataDir { path: path.to_path_buf(), home, _lock: lock };
        let data = [dir.watermark(), dir.raft(), dir.sm()].into_iter().find(|path| path.exists());
        match (identity, data) {
            (None, Some(data)) => {
                let reason = format!("it is missing beside {}", data.display());
                Err(OpenError::corrupt(&identity_path, reason, TREAT_AS_LOST))
            }
            (Some(_), _) | (None, None) => Ok(dir),
        }
    }

    /// Whose it is; `None` while it is empty.
    pub fn identity(&self) -> Option<Identity> {
        self.home.identity()
    }

    /// What stands beside the stores. Shared with this directory.
    pub fn home(&self) -> FileHome {
        self.home.clone()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the empty directory its identity, durably, before anything else is written.
    ///
    /// `OpenError::Foreign` if it already has another one.
    pub fn found(&mut self, identity: Identity) -> Result<(), OpenError> {
        self.home.set_identity(identity)
    }

    /// Opens, or creates, the stores.
    ///
    /// `OpenError::Foreign` if the directory has no identity yet, and whatever the stores refuse.
    pub fn open_store(self, disk: DiskOptions) -> Result<Store, OpenError> {
        let identity = self.identity();
        if identity.is_none() {
            return Err(OpenError::Foreign {
                path: self.path.clone(),
                expected: "a node".into(),
                found: "nobody yet".into(),
                way_out: "found a cluster with it, or let it join one",
            });
        }
        let free = Box::new(FileSystem(self.path.clone()));
        let disk = DiskGuard::open(&self.path.join("ballast"), disk, free)?;
        let log = RocksLog::open(LogOptions { owner: identity, ..LogOptions::new(self.raft(), self.watermark()) })?;
        let sm = self.sm();
        files::create_dir(&sm).map_err(|error| OpenError::io("create", &sm, &error))?;
        let group = GroupId::QUEUES;
        let state = RocksState::open(StateOptions::new(sm.join(group.0.to_string()), group))?;
        self.require_one_history(&log.state(group), &state.applied())?;
        Ok(Store { log: Arc::new(log), state: Arc::new(state), disk, dir: self })
    }

    /// Refuses a log and a state that cannot be of one history, because one of them was lost or replaced.
    fn require_one_history(&self, log: &LogState, applied: &Applied) -> Result<(), OpenError> {
        let index = |id: Option<LogId>| id.map_or("nothing".to_string(), |id| format!("entry {}", id.index));
        if applied.last.map(|last| last.index) < log.purged.map(|purged| purged.index) {
            let reason =
                format!("it is at {}, and the raft log was purged up to {}", index(applied.last), index(log.purged));
            return Err(OpenError::corrupt(&self.sm(), reason, TREAT_AS_LOST));
        }
        // A node votes, or follows a vote, before it applies anything.
        if applied.last.is_some() && log.vote.is_none() {
            let reason = format!("it knows of no vote, and the applied state is at {}", index(applied.last));
            return Err(OpenError::corrupt(&self.raft(), reason, TREAT_AS_LOST));
        }
        Ok(())
    }

    fn watermark(&self) -> PathBuf {
        self.path.join("WATERMARK")
    }

    fn raft(&self) -> PathBuf {
        self.path.join("raft")
    }

    fn sm(&self) -> PathBuf {
        self.path.join("sm")
    }
}

impl Store {
    /// The directory they are in.
    pub fn dir(&self) -> &DataDir {
        &self.dir
    }
}
