//! Where a replica keeps its data, in types of our own. A map of the house:
//!
//! - [`log`]: the Raft log, vote and committed position of every group;
//! - [`state`]: the applied state of one group, its generations and checkpoints.
//!
//! Each has an implementation on RocksDB and a twin in memory that models what is durable and what is not.

pub mod log;
pub mod state;
