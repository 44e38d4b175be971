//! Reads what a stopped node's log holds, replays it, and compares replicas. Any store will do: this knows storage by its
//! interfaces alone. A map of the house:
//!
//! - [`log`]: walks the applied entries of a log;
//! - [`mod@replay`]: replays a log and compares the result with the state beside it; compares replicas;
//! - [`lines`]: the applied requests of a log in the words of a history;
//! - [`words`]: how commands and outcomes are put into those words;
//! - [`chain`]: rolling hashes over a log and its writes, and the comparison of those of several nodes.

pub mod chain;
pub mod lines;
pub mod log;
pub mod replay;
pub mod words;

pub use chain::Chain;
pub use lines::write_audit;
pub use replay::{Agreement, Replay, agree, check};
