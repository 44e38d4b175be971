//! Where a replica keeps its data, in types of our own. A map of the house:
//!
//! - [`log`]: the Raft log, vote and committed position of every group;
//! - [`state`]: the applied state of one group, its generations and checkpoints;
//! - [`mem`] and `rocks` (feature `rocksdb`): both, in memory and on RocksDB;
//! - [`identity`], [`lock`], [`watermark`], [`disk`]: whose directory it is, that one process uses it, what must be in
//!   it, and how much room is left;
//! - [`histogram`]: how often which values came, counted without a lock;
//! - `dir` (feature `rocksdb`): a data directory, put together;
//! - [`error`]: why a directory is refused, and the way out.
//!
//! The twins in memory model what is durable and what is not.

pub mod disk;
pub mod error;
mod files;
pub mod histogram;
pub mod home;
pub mod identity;
pub mod lock;
pub mod log;
pub mod mem;
mod sealed;
pub mod state;
pub mod watermark;

#[cfg(feature = "rocksdb")]
pub mod dir;
#[cfg(feature = "rocksdb")]
pub mod rocks;

pub use error::OpenError;
pub use identity::{ClusterId, Identity};
