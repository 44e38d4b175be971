//! Who leads, as openraft compares it: a term has one leader.
//!
//! openraft brings two kinds of identity. `leader_id_adv` orders candidates of one term by their nodes, so that a second
//! one may win the term while the first one leads it: but the clocks of the applied state, the positions that callers are
//! told and the judgement of a run all take a term for one leader. `leader_id_std` has one leader a term, but leaves the
//! node out of the log. So this is the second with the node kept: candidates of one term are not comparable, and no vote
//! for one replaces a vote for another.

use std::cmp::Ordering;
use std::fmt;

use openraft::vote::{LeaderIdCompare, RaftLeaderId};

/// A candidate, or the leader that became of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaderId {
    pub(crate) term: u64,
    pub(crate) node_id: u64,
}

/// A leader: a candidate that a majority has voted for. There is one a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Elected {
    pub(crate) term: u64,
    pub(crate) node_id: u64,
}

impl RaftLeaderId for LeaderId {
    type Term = u64;
    type NodeId = u64;
    type Committed = Elected;

    fn new(term: u64, node_id: u64) -> Self {
        Self { term, node_id }
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn node_id(&self) -> &u64 {
        &self.node_id
    }

    fn to_committed(&self) -> Elected {
        Elected { term: self.term, node_id: self.node_id }
    }
}

impl PartialOrd for LeaderId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        LeaderIdCompare::std(self, other)
    }
}

/// A candidate is never an elected leader.
impl PartialEq<Elected> for LeaderId {
    fn eq(&self, _: &Elected) -> bool {
        false
    }
}

/// In one term the elected leader is the greater.
impl PartialOrd<Elected> for LeaderId {
    fn partial_cmp(&self, other: &Elected) -> Option<Ordering> {
        Some(self.term.cmp(&other.term).then(Ordering::Less))
    }
}

impl fmt::Display for LeaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}-N{}", self.term, self.node_id)
    }
}

impl fmt::Display for Elected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}-N{}", self.term, self.node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::Vote;

    fn leader(term: u64, node_id: u64) -> LeaderId {
        LeaderId { term, node_id }
    }

    #[test]
    fn no_candidate_outbids_another_of_its_term() {
        assert_eq!(leader(2, 1).partial_cmp(&leader(2, 3)), None);
        assert_eq!(leader(2, 3).partial_cmp(&leader(2, 1)), None);
        assert!(leader(2, 3) == leader(2, 3));
        assert!(leader(2, 3) < leader(3, 1));
    }

    #[test]
    fn a_vote_that_is_given_stands_for_its_term() {
        // What openraft asks before it grants one.
        let grants = |asked: Vote, given: Vote| asked >= given;
        assert!(!grants(Vote::new(2, 3), Vote::new(2, 1)), "a second vote in one term makes a second leader");
        assert!(!grants(Vote::new(2, 3), Vote::new_committed(2, 1)));
        assert!(grants(Vote::new(2, 1), Vote::new(2, 1)));
        assert!(grants(Vote::new_committed(2, 1), Vote::new(2, 3)), "whoever lost the election follows who won it");
        assert!(grants(Vote::new(3, 1), Vote::new_committed(2, 3)));
    }

    #[test]
    fn an_elected_leader_is_greater_than_the_candidates_of_its_term() {
        let elected = leader(2, 1).to_committed();
        assert_eq!(elected, Elected { term: 2, node_id: 1 });
        assert!(leader(2, 1) != elected && leader(2, 1) < elected && leader(2, 3) < elected);
        assert!(leader(1, 3) < elected && leader(3, 1) > elected);
    }
}
