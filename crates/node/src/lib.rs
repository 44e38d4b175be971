//! One replica of Ticketrail as a library. A map of the house:
//!
//! - [`Node`] owns the tasks; [`Handle`] is how callers reach it; [`call`] is what they hand in and get back;
//!   [`NodeConfig`], [`Clock`], [`Disk`] and [`Work`] are what it is told at its start.
//! - A call: `propose` follows it from its arrival to its answer, `attempt` says where each try goes; `precheck` refuses
//!   what needs no log entry, `sessions` gives it an id, `queue` holds it, `proposer` puts it into an entry, `raft`
//!   commits and applies it. `forward` hands it to the leader, where that is another node.
//! - A receive: `receive` follows it from its arrival to its messages, `waiters` parks it, `release` gives back what its
//!   receiver did not take.
//! - A leader: `lead` is what it does first, `scheduler` what it does when something is due, `signals` what `apply` tells
//!   it, `flight` what is on its way, `keeper` its own sessions.
//! - A cluster: `member` is who belongs to it, `peers` where they are and how they are reached,
//!   `peering` how a node comes to it, `record` what it knows of the others, `reach` whether it can do without them.
//! - A replica: `retention` flushes and purges, `read` answers, `status` tells, `broken` ends it.
//! - `raft` alone names openraft; `consensus` is what the others see of it; `clock` alone reads clocks, `random` alone
//!   draws random bytes, `work` alone has threads.

mod attempt;
mod broken;
pub mod call;
mod clock;
mod config;
mod consensus;
mod disk;
mod error;
mod flight;
mod forward;
mod handle;
mod keeper;
mod lead;
mod member;
mod node;
mod peering;
mod peers;
mod precheck;
mod propose;
mod proposer;
mod queue;
mod raft;
mod random;
mod reach;
mod read;
mod receive;
mod record;
mod release;
mod retention;
mod scheduler;
mod sessions;
mod shared;
mod signals;
mod status;
mod waiters;
mod work;

pub use clock::Clock;
pub use config::NodeConfig;
pub use consensus::Role;
pub use disk::Disk;
pub use error::{ShutdownError, StartError};
pub use handle::{Handle, Leader};
pub use member::{ClusterView, Member, MemberView, Members};
pub use node::Node;
pub use peering::{ChangeError, MemberChange, Peering, PeeringConfig, SettleError};
pub use peers::{Connector, tuned};
pub use raft::{Production, Runtime, Simulated};
pub use random::{Random, RandomError};
pub use status::NodeStatus;
pub use work::{LaneError, Work};
