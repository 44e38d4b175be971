//! The replicated machine of Ticketrail. A map of the house:
//!
//! - [`apply`](apply()): the central contract; [`view`]: what it reads; [`writes`]: what it writes;
//! - [`command`]: what stands in the log; [`reply`]: what `apply` answers; [`query`]: what can be asked without an entry;
//! - [`ids`], [`names`], [`time`], [`limits`]: the words they share.
//!
//! Pure: no IO, clock, randomness, threads, logging, floats or hash map iteration. The same view and entry give the
//! same outcome on every replica.

#![warn(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod answer;
mod apply;
mod clock;
pub mod command;
mod commit;
pub mod ids;
#[allow(clippy::arithmetic_side_effects)] // on u64 counts of a test's state
pub mod invariants;
mod keys;
pub mod limits;
pub mod names;
mod namespace;
mod overlay;
pub mod planted;
pub mod query;
mod queue;
mod records;
pub mod reply;
mod secret;
mod session;
mod tick;
pub mod time;
mod token;
mod txn;
pub mod view;
pub mod writes;

pub use answer::query as answer;
pub use apply::{apply, next_due};
pub use command::{Command, Entry, Request, RequestId};
pub use ids::{GroupId, IdError, LeaseToken, MessageId, Place, QueueId, Space};
pub use names::{NameError, Namespace, QueueName};
pub use query::{Answer, Query};
pub use queue::bounds::{Newcomers, bound_passed};
pub use reply::{Answered, Effect, Fault, Outcome, Rejection, Reply};
pub use time::{LeaseTime, Timestamp};
pub use view::{MemView, View, ViewError};
pub use writes::{Write, WriteSet};

/// Where an entry stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The leader's term, from 1.
    pub term: u64,
    /// The entry's index, from 1 (0: the membership that founds the group).
    pub index: u64,
}

/// Which kind of value a key holds, so that a store may keep large bodies apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Small records: everything but bodies.
    Data,
    /// Message bodies over 4 KiB.
    Body,
}

impl Family {
    /// The first byte of every body key.
    pub const BODY_TAG: u8 = b'b';

    /// The family of `key`, by its first byte.
    pub fn of(key: &[u8]) -> Family {
        if key.first() == Some(&Self::BODY_TAG) { Family::Body } else { Family::Data }
    }
}
