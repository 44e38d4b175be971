//! What the synced writes of the log were like.

use std::time::Duration;

use crate::histogram::Histogram;

/// 100 µs to 10 s: a good disk syncs within one millisecond, a bad moment of a bad one takes seconds.
const MICROS: [u64; 15] =
    [100, 250, 500, 750, 1_000, 1_500, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];
/// 256 B to 16 MiB.
const BYTES: [u64; 9] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const ENTRIES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// What the synced writes of a log were like, since it was opened.
#[derive(Debug)]
pub struct Syncs {
    /// How long each took, in microseconds.
    pub micros: Histogram,
    /// How much each wrote, in bytes.
    pub bytes: Histogram,
    /// How many entries each made durable; a vote alone makes none.
    pub entries: Histogram,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { micros: Histogram::new(&MICROS), bytes: Histogram::new(&BYTES), entries: Histogram::new(&ENTRIES) }
    }
}

impl Syncs {
    /// One synced write has succeeded.
    pub(super) fn note(&self, took: Duration, bytes: usize, entries: usize) {
        self.micros.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.bytes.record(bytes as u64);
        self.entries.record(entries as u64);
    }
}
