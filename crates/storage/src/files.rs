//! Small files and directories that survive a crash: written aside, fsynced, renamed, and the directory fsynced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces the file at `path` by `content`: after a crash the old one or the new one is there, whole.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = aside(path);
    let mut file = File::create(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&aside, path)?;
    sync_dir(parent(path))
}

/// Makes names created, renamed or removed in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes every file in `dir` (not below it) and its names durable.
#[cfg(feature = "rocksdb")]
pub(crate) fn sync_all_in(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_dir(dir)
}

/// Creates `dir` and what is missing above it, durably.
#[cfg(feature = "rocksdb")]
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = dir;
    while !at.exists() {
        missing.push(at);
        at = parent(at);
    }
    fs::create_dir_all(dir)?;
    for made in missing {
        sync_dir(parent(made))?;
    }
    Ok(())
}

/// Removes `dir` and all below it, if it is there.
#[cfg(feature = "rocksdb")]
pub(crate) fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The directory that holds `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}
