//! A rolling hash over a node's log and what it wrote: equal on replicas that agree, at every index.

use std::path::Path;

use anyhow::{Context as _, bail};
use ticketrail_core::{MemView, Write, WriteSet};
use ticketrail_history::format::{ChainLine, Hash};
use ticketrail_history::recorder::JsonLines;
use ticketrail_history::run::chain_file;
use ticketrail_storage::log::RaftLog;

use crate::log::{Step, walk};

/// A line is written each so many indexes.
pub const EVERY: u64 = 256;

/// The rolling hash, and a line of it now and then.
#[derive(Debug, Clone)]
pub struct Chain {
    hash: u64,
    last: u64,
    /// Lines so far.
    lines: Vec<ChainLine>,
}

impl Default for Chain {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, last: 0, lines: Vec::new() }
    }
}

impl Chain {
    /// The chain of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with an applied entry.
    pub fn push(&mut self, index: u64, entry: &[u8], writes: &WriteSet) {
        // All nodes write their lines at the same indexes: after the last entry below a multiple.
        if index / EVERY > self.last / EVERY && self.last > 0 {
            self.mark();
        }
        self.bytes(&index.to_be_bytes());
        self.bytes(entry);
        for write in writes.iter() {
            match write {
                Write::Put { key, value } => {
                    self.bytes(b"put");
                    self.bytes(key);
                    self.bytes(value);
                }
                Write::Delete { key } => {
                    self.bytes(b"delete");
                    self.bytes(key);
                }
                Write::DeleteRange { from, to } => {
                    self.bytes(b"range");
                    self.bytes(from);
                    self.bytes(to);
                }
            }
        }
        self.last = index;
    }

    /// Goes on with a step of a walk.
    pub fn step(&mut self, step: &Step<'_>) {
        self.push(step.at.index, step.bytes, &step.outcome.writes);
    }

    /// All lines, the last one after the last entry.
    pub fn finish(mut self) -> Vec<ChainLine> {
        if self.lines.last().is_none_or(|line| line.index < self.last) {
            self.mark();
        }
        self.lines
    }

    fn mark(&mut self) {
        self.lines.push(ChainLine { index: self.last, hash: Hash(self.hash) });
    }

    /// FNV-1a, eight bytes at a time, with the length first so that no two lists of parts read the same.
    fn bytes(&mut self, bytes: &[u8]) {
        let mut word = |word: u64| {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        };
        word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            word(u64::from_be_bytes(padded));
        }
    }
}

/// The chain of a log that holds all entries from the first on, up to `last`.
pub fn of_log(log: &impl RaftLog, last: u64) -> anyhow::Result<Vec<ChainLine>> {
    crate::log::ensure_whole(log)?;
    let mut chain = Chain::new();
    walk(&mut MemView::new(), log, 0, last, |step| {
        chain.step(&step);
        Ok(())
    })?;
    Ok(chain.finish())
}

/// Writes the chain of a node into a run's directory.
pub fn write(dir: &Path, node: u64, lines: &[ChainLine]) -> anyhow::Result<()> {
    let mut file = JsonLines::create(&dir.join(chain_file(node)))?;
    lines.iter().for_each(|line| file.write(line));
    Ok(file.finish()?)
}

/// Compares chains at the indexes that they share; returns at how many.
pub fn compare(chains: &[(String, Vec<ChainLine>)]) -> anyhow::Result<u64> {
    let mut compared = 0;
    let (first, rest) = chains.split_first().context("expected a chain")?;
    for other in rest {
        let theirs: std::collections::BTreeMap<u64, Hash> = other.1.iter().map(|l| (l.index, l.hash)).collect();
        for line in &first.1 {
            match theirs.get(&line.index) {
                Some(hash) if *hash == line.hash => compared += 1,
                Some(hash) => bail!(
                    "expected {} and {} to have one hash at index {}, but they have {} and {hash}",
                    first.0,
                    other.0,
                    line.index,
                    line.hash
                ),
                None => {}
            }
        }
    }
    Ok(compared)
}
