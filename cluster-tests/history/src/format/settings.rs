//! A queue's settings.

use serde::{Deserialize, Serialize};

/// A queue's settings. Absent: the default, or in an update as it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Messages at most; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u64>,
    /// Bytes at most; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The lease in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// Failures until a message is dead-lettered; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The window in which failures are counted, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The backoff's base in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The backoff's cap in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The dead-letter queue in the same namespace; empty: `<queue>.dlq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dlq: Option<String>,
    /// How long a message may have to wait, in milliseconds; 0: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<u64>,
    /// What the workers finish until it has been measured, in thousandths of a message a second; 0: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_rate: Option<u64>,
    /// What a dead-lettered head does to its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_group: Option<OnGroup>,
    /// Which messages are refused as the queue fills: `[above percent of max_depth, below priority]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shed: Option<Vec<(u32, u32)>>,
    /// The time to live of messages without one, in milliseconds; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// How long outcomes of acks can be read, in milliseconds; 0: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain: Option<u64>,
    /// For how long dedup ids are remembered, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup: Option<u64>,
    /// What becomes of expired messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expired: Option<Remains>,
    /// What becomes of messages whose attempts are used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<Remains>,
}

/// What a dead-lettered head does to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnGroup {
    /// The next of the line goes on.
    Continue,
    /// All wait until the dead letter is gone.
    Block,
    /// All that are in the line follow it.
    Follow,
}

/// What remains of a message that is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remains {
    /// Nothing: it is gone, and counted.
    Nothing,
    /// A dead letter.
    DeadLetter,
}
