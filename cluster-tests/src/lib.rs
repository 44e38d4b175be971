//! Tests of Ticketrail from outside, as its users see it. A map of the house:
//!
//! - [`server`]: starts, kills and stops a `rail serve` process;
//! - [`cluster`]: several of them that belong together;
//! - [`load`]: producers and consumers with a ledger of what they were told, and the audit of it;
//! - [`faults`]: kills a process, fills a disk, copies one;
//! - [`deployment`], [`dockerfile`]: reads `deploy/` and holds it against our rules;
//! - [`ports`]: finds free ones;
//! - [`poll`]: waits until something has happened;
//! - [`replay`]: replays a stopped node's log and compares the result with its state; compares replicas;
//! - [`size`]: how large a test is.

pub mod cluster;
pub mod deployment;
pub mod dockerfile;
pub mod faults;
pub mod load;
pub mod poll;
pub mod ports;
pub mod replay;
pub mod server;
pub mod size;
