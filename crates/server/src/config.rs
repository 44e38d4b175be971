//! What a server can be told: flags over environment over a TOML file over defaults.
//!
//! - `keys`: the one list of keys, with their docs and defaults;
//! - `load`: the layers, and what to say of a key that nobody knows;
//! - `check`: what the values must fulfil together;
//! - `size`: bytes and times as people write them.

mod check;
mod keys;
mod load;
mod size;

pub(crate) use check::DISK_SLACK;
pub use keys::{Config, Key, Overrides};
pub use load::ConfigError;
pub use size::{Age, Size};

use serde::{Deserialize, Serialize};

/// What the defaults are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `rail dev`: one node in the current directory, reached from this machine only.
    Dev,
    /// `rail serve`.
    Serve,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Pretty,
    /// For machines.
    Json,
}
