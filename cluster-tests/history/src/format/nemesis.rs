//! A line of `nemesis.jsonl`.

use serde::{Deserialize, Serialize};

/// A fault: that it begins, that it was seen to take effect, that it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NemesisLine {
    /// When, in nanoseconds since the run's begin.
    pub t: u64,
    /// The fault's name, such as `kill`.
    pub fault: String,
    /// Whom it hits, such as `node 2`.
    #[serde(default)]
    pub target: String,
    /// Begin, effect or end.
    pub phase: Phase,
    /// For a person; of an effect: what was seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What of a fault a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It begins.
    Begin,
    /// It was seen to take effect.
    Effect,
    /// It is over.
    End,
}
