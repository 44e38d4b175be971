//! The files of a checkpoint on their way to another store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::failed;
use super::generation::OwnedDir;
use crate::state::{StateError, StateFile, check_files};

/// A checkpoint that is being received, in a directory of its own that goes with it.
#[derive(Debug)]
pub struct StateIncoming {
    dir: OwnedDir,
    files: Vec<StateFile>,
    /// The file written last: they come one after the other.
    open: Option<(usize, File)>,
}

impl StateIncoming {
    pub(super) fn begin(
        files: &[StateFile],
        dir: impl FnOnce() -> Result<PathBuf, StateError>,
    ) -> Result<StateIncoming, StateError> {
        check_files(files)?;
        let dir = OwnedDir::new(dir()?);
        for file in files {
            let path = dir.path().join(&file.name);
            File::create_new(&path).map_err(|error| failed("receive", format!("{}: {error}", path.display())))?;
        }
        Ok(StateIncoming { dir, files: files.to_vec(), open: None })
    }

    pub(super) fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<(), StateError> {
        let Some(known) = self.files.get(file) else {
            return Err(failed("receive", format!("there is no file {file} of {}", self.files.len())));
        };
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > known.size) {
            let reason = format!("{} has {} bytes, and {} came for {offset}", known.name, known.size, data.len());
            return Err(failed("receive", reason));
        }
        let path = self.dir.path().join(&known.name);
        let wrong = |error: std::io::Error| failed("receive", format!("{}: {error}", path.display()));
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            self.open = Some((file, File::options().write(true).open(&path).map_err(wrong)?));
        }
        match &self.open {
            Some((_, open)) => open.write_all_at(data, offset).map_err(wrong),
            None => Ok(()),
        }
    }

    /// Verifies that every file has its size; the caller owns the directory from here on.
    pub(super) fn finish(self) -> Result<PathBuf, StateError> {
        for file in &self.files {
            let path = self.dir.path().join(&file.name);
            let found = fs::metadata(&path).map_err(|error| failed("stage", format!("{}: {error}", path.display())))?;
            if found.len() != file.size {
                let reason = format!("{} has {} bytes of {}", path.display(), found.len(), file.size);
                return Err(failed("stage", reason));
            }
        }
        self.dir.set_stays(true);
        Ok(self.dir.path().to_path_buf())
    }
}

/// The files of a checkpoint in `dir` that make a state, in order of their names.
pub(super) fn files_of(dir: &Path) -> Result<Vec<StateFile>, StateError> {
    let read = || {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let noise = name == "LOCK" || name.starts_with("LOG");
            if !noise && entry.file_type()?.is_file() {
                files.push(StateFile { name, size: entry.metadata()?.len() });
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    };
    read().map_err(|error: std::io::Error| failed("read a checkpoint of", format!("{}: {error}", dir.display())))
}

/// Up to `len` bytes of a file from `offset` on.
pub(super) fn read_chunk(path: &Path, offset: u64, len: usize) -> Result<Bytes, StateError> {
    let read = || {
        let file = File::open(path)?;
        let rest = file.metadata()?.len().saturating_sub(offset);
        let mut bytes = vec![0; len.min(usize::try_from(rest).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Bytes::from(bytes))
    };
    read().map_err(|error: std::io::Error| failed("read a checkpoint of", format!("{}: {error}", path.display())))
}
