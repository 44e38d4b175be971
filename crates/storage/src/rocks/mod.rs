//! The stores on RocksDB. The only place that names it.

mod codec;
mod log;
mod state;

pub use log::{LogOptions, RocksLog, Syncs};
pub use state::{RocksState, StateCheckpoint, StateIncoming, StateOptions};
