//! What a server can be told: flags over environment over a TOML file over defaults.
//!
//! - `keys`: the one list of keys, with their docs and defaults;
//! - `load`: the layers, and what to say of a key that nobody knows;
//! - `check`: what the values must fulfil together;
//! - `peers`: the named peers of a cluster;
//! - `size`: bytes and times as people write them; `address`: an address that may be none.

mod address;
mod check;
mod keys;
mod load;
mod peers;
mod size;

pub use address::MaybeAddress;
pub(crate) use check::DISK_SLACK;
pub use keys::{Config, Key, Overrides};
pub use load::ConfigError;
pub use peers::PeerList;
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

/// What a node is that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinAs {
    /// It gets a vote once it has caught up.
    #[default]
    Voter,
    /// It follows, and does not vote.
    Learner,
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
