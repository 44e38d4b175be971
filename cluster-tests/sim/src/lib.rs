//! Ticketrail's nodes and clients in a deterministic simulation. A map of the house:
//!
//! - [`options`]: what a run is made of, all of it from the seed; [`rng`]: the seed's random numbers;
//! - [`world`]: the hosts and the network; [`place`]: where a node runs; [`disk`]: what it keeps; [`net`]: gRPC over the
//!   simulated network; [`operator`]: changes the membership;
//! - [`nemesis`]: what goes wrong;
//! - [`planted`]: bugs on purpose, and the hunt for each;
//! - [`truth`]: what was committed, and whether the replicas agree; [`trace`]: what happened when.

pub mod args;
pub mod checks;
pub mod disk;
pub mod fleet;
pub mod load;
pub mod nemesis;
pub mod net;
pub mod operator;
pub mod options;
pub mod place;
pub mod planted;
pub mod report;
pub mod rng;
pub mod run;
pub mod trace;
pub mod truth;
pub mod world;
