//! Why a data directory cannot be used. Each text names the file and the way out.

use std::io;
use std::path::{Path, PathBuf};

use ticketrail_core::GroupId;

/// What to do when synced data of a replica is gone or cannot be trusted.
pub(crate) const TREAT_AS_LOST: &str = "the disk has lost synced records; treat it as lost: remove the member from the \
    cluster, empty the data directory and let the node join again (a node that stands alone: restore a backup)";

/// Why a data directory cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A call of the operating system failed.
    #[error("expected to {action} {}, but {reason}: see that the disk is mounted, writable and not full", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// Another process uses the directory.
    #[error(
        "expected to be the only user of {}, but {} holds it: stop that process, or give this one a directory of its own",
        path.display(),
        match pid { Some(pid) => format!("process {pid}"), None => "another process".to_string() }
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder, if it could be told.
        pid: Option<u32>,
    },
    /// A file is damaged, truncated or absent.
    #[error("expected {} to be whole, but {reason}: {way_out}", path.display())]
    Corrupt {
        /// The file or directory to blame.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        way_out: &'static str,
    },
    /// A file is of something else: another cluster, another node, another program.
    #[error("expected {} to belong to {expected}, but it belongs to {found}: {way_out}", path.display())]
    Foreign {
        /// The file or directory to blame.
        path: PathBuf,
        /// Whose it should be.
        expected: String,
        /// Whose it is.
        found: String,
        /// What to do.
        way_out: &'static str,
    },
    /// A file was written by a later version.
    #[error(
        "expected {} to have format {known} or older, but it has format {found}: run the version of Ticketrail that \
         wrote it, or a later one",
        path.display()
    )]
    Newer {
        /// The file or directory to blame.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The log is behind what it had synced.
    #[error(
        "expected the raft log {} to hold {expected} of group {} as {} says, but {found}: {TREAT_AS_LOST}",
        path.display(),
        group.0,
        watermark.display()
    )]
    Behind {
        /// The log's directory.
        path: PathBuf,
        /// The file that knows better.
        watermark: PathBuf,
        /// The group.
        group: GroupId,
        /// What was synced.
        expected: String,
        /// What is there.
        found: String,
    },
}

impl OpenError {
    pub(crate) fn io(action: &'static str, path: &Path, error: &io::Error) -> OpenError {
        OpenError::Io { action, path: path.to_path_buf(), reason: error.to_string() }
    }

    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>, way_out: &'static str) -> OpenError {
        OpenError::Corrupt { path: path.to_path_buf(), reason: reason.into(), way_out }
    }
}
