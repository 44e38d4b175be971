//! `meta.json`: what a run was, and what it must have shown to count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::call::Kind;

/// What a run was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Meta {
    /// The seed.
    pub seed: u64,
    /// What was chosen, by name.
    pub options: BTreeMap<String, String>,
    /// Versions of what took part, by name.
    pub versions: BTreeMap<String, String>,
    /// How far cluster time and the recorder's clock may drift apart, in parts of a million.
    pub drift_ppm: u64,
    /// How far cluster time may jump against the recorder's clock at faults that were planned, in milliseconds: all
    /// jumps together.
    pub jump_ms: u64,
    /// When the last fault was over, in nanoseconds since the run's begin; absent: there was none.
    pub healed_at: Option<u64>,
    /// Whether the clients received until nothing was left: then each message must have been seen.
    pub drained: bool,
    /// What the run must have shown, or it is invalid.
    pub expect: Expect,
}

/// What a run must have shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Operations of each kind that must have succeeded, at least.
    pub ok: BTreeMap<Kind, u64>,
    /// The least share of operations begun outside of faults that must have succeeded, 0 to 1. Refusals of single
    /// parts are successes.
    pub success: f64,
    /// Faults that must have begun and taken effect, at least so often, by name. Of every other fault that began, an
    /// effect is demanded too.
    pub faults: BTreeMap<String, u64>,
    /// How soon after the last fault an enqueue must succeed, in milliseconds; absent: not looked at.
    pub heal_ms: Option<u64>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            seed: 0,
            options: BTreeMap::new(),
            versions: BTreeMap::new(),
            drift_ppm: 50_000,
            jump_ms: 0,
            healed_at: None,
            drained: false,
            expect: Expect::default(),
        }
    }
}

impl Default for Expect {
    fn default() -> Self {
        Self { ok: BTreeMap::new(), success: 0.0, faults: BTreeMap::new(), heal_ms: None }
    }
}
