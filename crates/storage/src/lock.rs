//! One process on a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::OpenError;

/// An exclusive lock on a directory, held until dropped or until the process ends, however it ends.
#[derive(Debug)]
pub struct DirLock {
    // The lock goes with the open file.
    _file: File,
}

impl DirLock {
    /// Locks by the file `path`, which then holds this process's id.
    ///
    /// `OpenError::Locked` with the holder's pid if another process, or this one, holds it.
    pub fn acquire(path: &Path) -> Result<DirLock, OpenError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| OpenError::io("open", path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(OpenError::Locked { path: path.to_path_buf(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(OpenError::io("lock", path, &error)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()));
        written.map_err(|error| OpenError::io("write", path, &error))?;
        Ok(DirLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let first = DirLock::acquire(&path).unwrap();
        let refused = DirLock::acquire(&path).unwrap_err();
        assert_eq!(refused, OpenError::Locked { path: path.clone(), pid: Some(std::process::id()) });
        let text = refused.to_string();
        assert!(text.contains("LOCK") && text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(first);
        DirLock::acquire(&path).unwrap();
    }
}
