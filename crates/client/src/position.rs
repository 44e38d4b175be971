//! Where in the log a change took effect.

use std::time::SystemTime;

use ticketrail_proto::v1;

use crate::{Refusal, wire};

/// Where in the log a change took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The log index, from 1.
    pub index: u64,
    /// Which request of that entry it was, from 0.
    pub ordinal: u32,
    /// Cluster time at which it took effect.
    pub at: SystemTime,
    /// The node that answered: the leader.
    pub node: u64,
    /// The leader's term.
    pub term: u64,
    /// True where an earlier attempt of the call had this outcome: a duplicate was absorbed.
    pub replayed: bool,
}

impl Position {
    pub(crate) fn from_wire(commit: Option<v1::Commit>) -> Self {
        let commit = commit.unwrap_or_default();
        Self {
            index: commit.index,
            ordinal: commit.ordinal,
            at: wire::some_time(commit.cluster_time),
            node: commit.node,
            term: commit.term,
            replayed: commit.replayed,
        }
    }
}

/// The results of a list, in the list's order. A refused item had no effect; its siblings stand.
#[derive(Debug, Clone)]
pub struct Batch<T> {
    /// One for each item.
    pub results: Vec<Result<T, Refusal>>,
    /// Where in the log the change took effect.
    pub position: Position,
}

impl<T> Batch<T> {
    /// How many items were refused.
    pub fn refused(&self) -> usize {
        self.results.iter().filter(|result| result.is_err()).count()
    }
}
