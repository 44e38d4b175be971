//! Ticketrail's nodes and clients in a deterministic simulation. A map of the house:
//!
//! - [`options`]: what a run is made of, all of it from the seed; [`rng`]: the seed's random numbers;
//! - [`world`]: the hosts and the network; [`place`]: where a node runs; [`disk`]: what it keeps; [`net`]: gRPC over the
//!   simulated network; [`clients`]: who uses the nodes; [`operator`]: changes the membership;
//! - [`nemesis`]: what goes wrong;
//! - [`truth`]: what was committed, and whether the replicas agree; [`checks`]: what must hold in the end; [`trace`]: what
//!   happened when;
//! - [`mod@run`]: one seed; [`report`]: what is said of it; [`fleet`]: many seeds; [`args`]: what is asked for;
//! - [`planted`]: bugs on purpose, and the hunt for each.

pub mod args;
pub mod checks;
pub mod clients;
pub mod disk;
pub mod fleet;
pub mod nemesis;
pub mod net;
pub mod operator;
pub mod options;
pub mod place;
pub mod planted;
mod poll;
pub mod report;
pub mod rng;
pub mod run;
pub mod trace;
pub mod truth;
pub mod world;
