//! Tests of Ticketrail from outside, as its users see it. A map of the house:
//!
//! - [`server`]: starts, kills and stops a `rail serve` process;
//! - [`faults`]: kills a process, fills a disk;
//! - [`deployment`], [`dockerfile`]: reads `deploy/` and holds it against our rules;
//! - [`poll`]: waits until something has happened;
//! - [`replay`]: replays a stopped node's log and compares the result with its state.

pub mod deployment;
pub mod dockerfile;
pub mod faults;
pub mod poll;
pub mod replay;
pub mod server;
