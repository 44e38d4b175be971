//! Calls of clients, handed to the leader: one stream from each follower, many calls on it at a time.
//!
//! `client` is the follower's side, `server` the leader's, `wire` what stands on the stream.

pub(crate) mod client;
pub(crate) mod server;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

use crate::config::NodeConfig;

/// The longest silence of a stream with calls on it: past it the follower takes it for dead.
fn longest_silence(config: &NodeConfig) -> Duration {
    Duration::from_millis((4 * config.heartbeat_ms).max(2_000))
}

/// How often the leader says something on a stream with calls on it.
fn sign_of_life(config: &NodeConfig) -> Duration {
    longest_silence(config) / 4
}
