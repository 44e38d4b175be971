//! A run's directory: its files, and how they are read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::format::{AuditLine, ChainLine, Event, Meta, NemesisLine};

/// What clients asked and were told.
pub const HISTORY: &str = "history.jsonl";
/// The faults.
pub const NEMESIS: &str = "nemesis.jsonl";
/// What one node has applied.
pub const AUDIT: &str = "audit.jsonl";
/// What the run was.
pub const META: &str = "meta.json";

/// The file with the chain of a node, such as `chain-2.jsonl`.
pub fn chain_file(node: u64) -> String {
    format!("chain-{node}.jsonl")
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system failed.
    #[error("expected to read {path}, but {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line is none of the format.
    #[error("expected line {line} of {path} to be {what}, but {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What it should be.
        what: &'static str,
        /// Why it is not.
        source: serde_json::Error,
    },
    /// The last line has no end: its writer was stopped in the middle.
    #[error("expected line {line} of {path} to end with a line feed, but the file ends in the middle of it")]
    Torn {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
}

/// Reads one JSON document a line, one at a time. Ends after the first error.
pub struct Lines<T> {
    path: PathBuf,
    what: &'static str,
    input: Option<BufReader<Box<dyn Read>>>,
    line: u64,
    buffer: Vec<u8>,
    read: PhantomData<T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// Reads the file `path`; `what` names a line's meaning in errors.
    pub fn open(path: &Path, what: &'static str) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        Ok(Self::of(path, what, Box::new(file)))
    }

    /// Reads `input`, which errors call `path`.
    pub fn of(path: &Path, what: &'static str, input: Box<dyn Read>) -> Self {
        let input = Some(BufReader::with_capacity(1 << 20, input));
        Self { path: path.to_owned(), what, input, line: 0, buffer: Vec::new(), read: PhantomData }
    }

    fn read_line(&mut self) -> Result<Option<T>, ReadError> {
        let Some(input) = &mut self.input else { return Ok(None) };
        self.buffer.clear();
        let read = input.read_until(b'\n', &mut self.buffer);
        read.map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.last() != Some(&b'\n') {
            return Err(ReadError::Torn { path: self.path.clone(), line: self.line });
        }
        let parsed = serde_json::from_slice(&self.buffer);
        parsed.map(Some).map_err(|source| {
            let (path, line, what) = (self.path.clone(), self.line, self.what);
            ReadError::Line { path, line, what, source }
        })
    }
}

impl<T: DeserializeOwned> Iterator for Lines<T> {
    type Item = Result<T, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read_line().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.input = None;
        }
        read
    }
}

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDir {
    dir: PathBuf,
}

impl RunDir {
    /// The run in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// What clients asked and were told.
    pub fn history(&self) -> Result<Lines<Event>, ReadError> {
        Lines::open(&self.dir.join(HISTORY), "an event")
    }

    /// The faults; none where there is no such file.
    pub fn nemesis(&self) -> Result<Vec<NemesisLine>, ReadError> {
        match self.if_there::<NemesisLine>(NEMESIS, "a fault")? {
            Some(lines) => lines.collect(),
            None => Ok(Vec::new()),
        }
    }

    /// What one node has applied; `None` where there is no such file.
    pub fn audit(&self) -> Result<Option<Lines<AuditLine>>, ReadError> {
        self.if_there(AUDIT, "an applied request")
    }

    /// The chains of all nodes that have one, by the file's name.
    pub fn chains(&self) -> Result<Vec<(String, Vec<ChainLine>)>, ReadError> {
        let io = |source| ReadError::Io { path: self.dir.clone(), source };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(io)? {
            let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("chain-") && name.ends_with(".jsonl") {
                names.push(name);
            }
        }
        names.sort();
        let read = |name: String| {
            let lines = Lines::open(&self.dir.join(&name), "a hash of a chain")?.collect::<Result<_, _>>()?;
            Ok((name, lines))
        };
        names.into_iter().map(read).collect()
    }

    /// What the run was; the defaults where there is no such file.
    pub fn meta(&self) -> Result<Meta, ReadError> {
        let path = self.dir.join(META);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| {
                let line = u64::try_from(source.line()).unwrap_or(0);
                ReadError::Line { path, line, what: "a part of a run's description", source }
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Meta::default()),
            Err(source) => Err(ReadError::Io { path, source }),
        }
    }

    /// Writes what the run was.
    pub fn write_meta(&self, meta: &Meta) -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(meta)?;
        text.push('\n');
        std::fs::write(self.dir.join(META), text)
    }

    fn if_there<T: DeserializeOwned>(&self, name: &str, what: &'static str) -> Result<Option<Lines<T>>, ReadError> {
        match Lines::open(&self.dir.join(name), what) {
            Ok(lines) => Ok(Some(lines)),
            Err(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
