//! Clients that record what they ask and are told. They run in a simulation and against processes alike: their channels
//! are handed in, they tell time by `tokio::time` alone, and all that they choose follows from a seed. A map of the house:
//!
//! - [`Caller`] makes one call at a time, over its attempts, and records it; `attempt` says what an attempt's end means;
//! - [`Plan`] says what is done, [`Load`] makes the clients of it: `producer`, `worker`, and one that looks; `shape` gives
//!   messages what not all have; `at_work`
//!   counts those whose calls may still put something on a queue;
//! - [`Meter`] measures for how long nobody could write; `wire` translates.

mod at_work;
mod attempt;
mod caller;
mod load;
mod looker;
mod meter;
mod plan;
mod poll;
mod producer;
mod shape;
mod tally;
mod wire;
mod worker;

pub use attempt::Ended;
pub use caller::{Caller, Dial, Part, Parts, Patience};
pub use load::{Client, Load, Phase};
pub use meter::Meter;
pub use plan::{Mix, Plan};
pub use tally::{Count, Tally};
