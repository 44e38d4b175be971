//! Faults that stay until they are cleared.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use regex::Regex;

use crate::command::Op;
use crate::rng::Rng;

/// Decides about errors and delays: which, not whether a test can repeat them, since requests come as they come.
const SEED: u64 = 0x10_55;

#[derive(Debug)]
pub(crate) struct Faults {
    /// Whether fsync answers OK and does nothing.
    pub(crate) lie: bool,
    /// Bytes that files may have, all together.
    pub(crate) room: Option<u64>,
    errors: Vec<(Op, Regex, f64)>,
    gates: Vec<Regex>,
    delays: Vec<(Op, RangeInclusive<u64>)>,
    /// How often faults were cleared: those that wait stop waiting.
    pub(crate) cleared: u64,
    rng: Rng,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self {
            lie: false,
            room: None,
            errors: Vec::new(),
            gates: Vec::new(),
            delays: Vec::new(),
            cleared: 0,
            rng: Rng::new(SEED),
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { cleared: self.cleared + 1, rng: self.rng.clone(), ..Self::new() };
    }

    pub(crate) fn fail(&mut self, op: Op, paths: Regex, chance: f64) {
        self.errors.push((op, paths, chance));
    }

    pub(crate) fn gate(&mut self, paths: Regex) {
        self.gates.push(paths);
    }

    pub(crate) fn delay(&mut self, op: Op, ms: RangeInclusive<u64>) {
        self.delays.retain(|(other, _)| *other != op);
        self.delays.push((op, ms));
    }

    /// Whether any fault could hit an operation, so that its path matters.
    pub(crate) fn may_fail(&self, op: Op) -> bool {
        self.errors.iter().any(|(other, ..)| *other == op)
    }

    /// Whether this one fails.
    pub(crate) fn fails(&mut self, op: Op, path: &Path) -> bool {
        let path = path.to_string_lossy();
        let hit = |(other, paths, _): &&(Op, Regex, f64)| *other == op && paths.is_match(&path);
        match self.errors.iter().find(hit) {
            Some((_, _, chance)) => self.rng.chance(*chance),
            None => false,
        }
    }

    /// Whether this fsync of a file fails and drops its pages: once for each gate.
    pub(crate) fn drops(&mut self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        let at = self.gates.iter().position(|paths| paths.is_match(&path));
        at.map(|at| self.gates.remove(at)).is_some()
    }

    /// How much longer this one takes.
    pub(crate) fn pause(&mut self, op: Op) -> Option<Duration> {
        let (_, ms) = self.delays.iter().find(|(other, _)| *other == op)?;
        let span = ms.end() - ms.start();
        Some(Duration::from_millis(ms.start() + self.rng.below(span.saturating_add(1))))
    }
}
