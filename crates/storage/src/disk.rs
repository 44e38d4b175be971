//! How much room the disk has left, and a ballast file that gives some back when there is next to none.
//!
//! ```text
//! free ≥ low + slack     Ok: the ballast is put back if it was given up and still fits
//! free < low             Low: take nothing new in; finishing, deleting and compacting go on
//! free < critical        Critical: as Low, and the ballast is given up so that they can
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;

use crate::error::OpenError;
use crate::files;

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskState {
    /// Enough.
    Ok,
    /// Less than the first mark: take nothing new in.
    Low,
    /// Less than the second mark: the ballast has been given up.
    Critical,
}

/// The marks, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Below it the disk is low. At least `critical + ballast + slack`, so that giving up the ballast does not look like
    /// recovery.
    pub low: u64,
    /// Below it the ballast is given up.
    pub critical: u64,
    /// A state is left only with so much more than its mark.
    pub slack: u64,
    /// The size of the ballast; 0: none.
    pub ballast: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { low: 1 << 30, critical: 256 << 20, slack: 64 << 20, ballast: 256 << 20 }
    }
}

/// Tells the free bytes of a disk: those that this process may use.
pub trait FreeSpace: Send + Sync + 'static {
    /// The free bytes.
    fn free(&self) -> io::Result<u64>;
}

/// Asks the file system of a directory.
#[derive(Debug, Clone)]
pub struct FileSystem(pub PathBuf);

impl FreeSpace for FileSystem {
    fn free(&self) -> io::Result<u64> {
        let stat = statvfs(&self.0).map_err(io::Error::from)?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }
}

/// Watches one disk. Ask it now and then; it has no thread.
pub struct DiskGuard {
    ballast: PathBuf,
    options: DiskOptions,
    free: Box<dyn FreeSpace>,
    state: Mutex<DiskState>,
}

impl DiskGuard {
    /// Watches the disk that `free` tells of, with its ballast in the file `ballast`, and looks for the first time.
    pub fn open(ballast: &Path, options: DiskOptions, free: Box<dyn FreeSpace>) -> Result<DiskGuard, OpenError> {
        let least = options.critical.saturating_add(options.ballast).saturating_add(options.slack);
        if options.low < least {
            return Err(OpenError::Io {
                action: "guard the disk by",
                path: ballast.to_path_buf(),
                reason: format!(
                    "its low mark of {} bytes is below critical + ballast + slack = {least} bytes; raise it",
                    options.low
                ),
            });
        }
        let guard = DiskGuard { ballast: ballast.to_path_buf(), options, free, state: Mutex::new(DiskState::Ok) };
        guard.check().map_err(|error| OpenError::io("look after", ballast, &error))?;
        Ok(guard)
    }

    /// What the last look saw.
    pub fn state(&self) -> DiskState {
        *self.state.lock()
    }

    /// Looks again; gives up the ballast or puts it back.
    pub fn check(&self) -> io::Result<DiskState> {
        let mut state = self.state.lock();
        let free = self.free.free()?;
        let next = self.options.next(*state, free);
        if next != *state {
            tracing::warn!(free, from = ?*state, to = ?next, "the disk's room has changed");
        }
        *state = next;
        match next {
            DiskState::Ok => self.put_back_ballast(free)?,
            DiskState::Low => {}
            DiskState::Critical => self.release_ballast()?,
        }
        Ok(next)
    }

    /// Gives up the ballast, whatever the state. It comes back by itself when there is room.
    pub fn release_ballast(&self) -> io::Result<()> {
        match fs::remove_file(&self.ballast) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn put_back_ballast(&self, free: u64) -> io::Result<()> {
        let size = self.options.ballast;
        let whole = fs::metadata(&self.ballast)
            .is_ok_and(|found| found.len() == size && found.blocks().saturating_mul(512) >= size);
        let fits = free >= self.options.low.saturating_add(self.options.slack).saturating_add(size);
        if size == 0 || whole || !fits {
            return Ok(());
        }
        match allocate(&self.ballast, size) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.release_ballast(),
            other => other,
        }
    }
}

impl DiskOptions {
    fn next(&self, now: DiskState, free: u64) -> DiskState {
        let below = |mark: u64, in_it: bool| free < if in_it { mark.saturating_add(self.slack) } else { mark };
        if below(self.critical, now == DiskState::Critical) {
            DiskState::Critical
        } else if below(self.low, now >= DiskState::Low) {
            DiskState::Low
        } else {
            DiskState::Ok
        }
    }
}

/// Creates a file whose blocks are there.
fn allocate(path: &Path, size: u64) -> io::Result<()> {
    let file = File::create(path)?;
    let size = i64::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    posix_fallocate(&file, 0, size).map_err(io::Error::from)?;
    file.sync_all()?;
    files::sync_dir(files::parent(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const KIB: u64 = 1024;
    const OPTIONS: DiskOptions =
        DiskOptions { low: 1000 * KIB, critical: 200 * KIB, slack: 50 * KIB, ballast: 100 * KIB };

    #[derive(Clone)]
    struct Pretend(Arc<AtomicU64>);

    impl FreeSpace for Pretend {
        fn free(&self) -> io::Result<u64> {
            Ok(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn marks_ballast_and_recovery() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = dir.path().join("ballast");
        let free = Pretend(Arc::new(AtomicU64::new(5000 * KIB)));
        let guard = DiskGuard::open(&ballast, OPTIONS, Box::new(free.clone())).unwrap();
        let look = |bytes: u64| {
            free.0.store(bytes, Ordering::SeqCst);
            assert_eq!(guard.check().unwrap(), guard.state());
            (guard.state(), ballast.exists())
        };
        assert_eq!((guard.state(), ballast.exists()), (DiskState::Ok, true));
        assert!(fs::metadata(&ballast).unwrap().blocks() * 512 >= OPTIONS.ballast);
        assert_eq!(look(1000 * KIB), (DiskState::Ok, true));
        assert_eq!(look(999 * KIB), (DiskState::Low, true));
        assert_eq!(look(1020 * KIB), (DiskState::Low, true));
        assert_eq!(look(199 * KIB), (DiskState::Critical, false));
        assert_eq!(look(240 * KIB), (DiskState::Critical, false));
        assert_eq!(look(299 * KIB), (DiskState::Low, false));
        assert_eq!(look(1049 * KIB), (DiskState::Low, false));
        assert_eq!(look(1050 * KIB), (DiskState::Ok, false), "the ballast does not fit yet");
        assert_eq!(look(1150 * KIB), (DiskState::Ok, true));
        guard.release_ballast().unwrap();
        assert_eq!(look(1100 * KIB), (DiskState::Ok, false));
    }

    #[test]
    fn marks_that_flap_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = DiskOptions { low: 300 * KIB, ..OPTIONS };
        let free = Pretend(Arc::new(AtomicU64::new(5000 * KIB)));
        let refused = DiskGuard::open(&dir.path().join("ballast"), options, Box::new(free)).err().unwrap();
        assert!(refused.to_string().contains("raise it"), "{refused}");
    }

    #[test]
    fn a_real_file_system_tells_its_room() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FileSystem(dir.path().to_path_buf()).free().unwrap() > 0);
        assert!(FileSystem(dir.path().join("absent")).free().is_err());
    }
}
