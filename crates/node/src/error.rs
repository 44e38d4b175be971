//! Why a node does not start or stop.

use crate::peering::SettleError;
use crate::work::LaneError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings contradict each other.
    #[error("expected settings that fit together, but {0}")]
    Config(String),
    /// The stores do not make a replica, or cannot be read.
    #[error("expected to start consensus on the stores, but {0}")]
    Consensus(String),
    /// The disk is not the one of this node, or has lost what it held.
    #[error("{0}")]
    Disk(String),
    /// What is kept beside the stores cannot be read.
    #[error(transparent)]
    Peering(#[from] SettleError),
    /// A thread cannot be started.
    #[error(transparent)]
    Thread(#[from] LaneError),
}

/// Why a node did not stop in order. What was acknowledged is safe all the same.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// The applied state was not flushed: the next start replays the log.
    #[error("expected to flush the applied state, but {0}; the next start replays the log")]
    Flush(String),
    /// The replica was broken before.
    #[error("expected a healthy replica, but {0}")]
    Broken(String),
}
