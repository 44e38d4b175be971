//! Twins of the stores in memory. Each has a durable half and a volatile one, and a crash that drops the latter.

mod log;
mod state;

pub use log::MemLog;
pub use state::{MemCheckpoint, MemIncoming, MemState};
