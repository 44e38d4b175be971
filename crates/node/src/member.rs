//! Members of a group, and the group as its newest membership has it.

use std::collections::{BTreeMap, BTreeSet};

use ticketrail_storage::log::LogId;

/// A member: who it is and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// Its name, which outlives its disk: a newcomer under a member's name replaces it. Empty in a group of one.
    pub name: String,
    /// Where its peers reach it, as `HOST:PORT`.
    pub peer_address: String,
    /// Where clients reach it, as `HOST:PORT`; empty: not told.
    pub client_address: String,
}

/// A group, as the newest membership in this node's log has it, committed or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// The sets of voters: one, or two while one replaces the other.
    pub voters: Vec<BTreeSet<u64>>,
    /// All members by Raft id, voters or not.
    pub nodes: BTreeMap<u64, Member>,
    /// Whether it is known to be committed.
    pub committed: bool,
    /// The log entry that it came with.
    pub at: Option<LogId>,
}

/// A member, as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Its Raft id.
    pub node: u64,
    /// Who it is and where.
    pub member: Member,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it was heard within the last 3 s.
    pub alive: bool,
    /// The last entry that it has on its disk, as the leader knows.
    pub matched_index: Option<u64>,
    /// Whether its disk is past the low mark.
    pub disk_low: bool,
}

/// A cluster, as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Who leads, where known.
    pub leader: Option<u64>,
    /// The newest term it knows.
    pub term: u64,
    /// The members, in the order of their ids.
    pub members: Vec<MemberView>,
    /// Whether the membership is about to change.
    pub changing: bool,
}

impl Members {
    /// Whether `node` votes.
    pub fn is_voter(&self, node: u64) -> bool {
        self.voters.iter().any(|set| set.contains(&node))
    }

    /// The member of this name, if any: a voter before others.
    pub fn named(&self, name: &str) -> Option<(u64, &Member)> {
        let of_name = || self.nodes.iter().filter(|(_, member)| member.name == name);
        of_name().find(|(id, _)| self.is_voter(**id)).or_else(|| of_name().next()).map(|(id, member)| (*id, member))
    }
}
