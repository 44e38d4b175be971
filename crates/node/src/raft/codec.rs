//! From openraft's types to those of storage and back. What is stored is encoded by prost, so that openraft may change
//! its structs without changing a disk.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use prost::Message as _;
use ticketrail_storage::log as store;

use super::leader::{Elected, LeaderId};
use super::types::{Entry, LogId, Membership, Proposal, StoredMembership, Vote};
use crate::member::Member;

/// Bytes that are no membership.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an encoded membership, but {0}")]
pub(crate) struct CodecError(String);

pub(crate) fn leader_to_store(leader: &LeaderId) -> store::LeaderId {
    store::LeaderId { term: leader.term, node: leader.node_id }
}

fn leader_from_store(leader: &store::LeaderId) -> LeaderId {
    LeaderId { term: leader.term, node_id: leader.node }
}

pub(crate) fn elected_from_store(leader: &store::LeaderId) -> Elected {
    Elected { term: leader.term, node_id: leader.node }
}

pub(crate) fn log_id_to_store(id: &LogId) -> store::LogId {
    let leader = store::LeaderId { term: id.leader_id.term, node: id.leader_id.node_id };
    store::LogId { leader, index: id.index }
}

pub(crate) fn log_id_from_store(id: &store::LogId) -> LogId {
    LogId::new(elected_from_store(&id.leader), id.index)
}

pub(crate) fn vote_to_store(vote: &Vote) -> store::Vote {
    store::Vote { leader: leader_to_store(&vote.leader_id), committed: vote.committed }
}

pub(crate) fn vote_from_store(vote: &store::Vote) -> Vote {
    Vote { leader_id: leader_from_store(&vote.leader), committed: vote.committed }
}

pub(crate) fn entry_to_store(entry: Entry) -> store::LogRecord {
    let id = log_id_to_store(&entry.log_id);
    let payload = match entry.payload {
        EntryPayload::Blank => store::Payload::Blank,
        EntryPayload::Normal(proposal) => store::Payload::Normal(proposal.0),
        EntryPayload::Membership(membership) => store::Payload::Membership(membership_to_bytes(&membership)),
    };
    store::LogRecord { id, payload }
}

pub(crate) fn entry_from_store(record: store::LogRecord) -> Result<Entry, CodecError> {
    let payload = match record.payload {
        store::Payload::Blank => EntryPayload::Blank,
        store::Payload::Normal(bytes) => EntryPayload::Normal(Proposal(bytes)),
        store::Payload::Membership(bytes) => EntryPayload::Membership(membership_from_bytes(bytes)?),
    };
    Ok(Entry::new(log_id_from_store(&record.id), payload))
}

/// A membership in the log.
#[derive(Clone, PartialEq, prost::Message)]
struct MembershipRecord {
    /// One set of voters, or two while one replaces the other.
    #[prost(message, repeated, tag = "1")]
    voters: Vec<VotersRecord>,
    /// All members, voters or not.
    #[prost(message, repeated, tag = "2")]
    nodes: Vec<NodeRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct VotersRecord {
    #[prost(uint64, repeated, tag = "1")]
    ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NodeRecord {
    #[prost(uint64, tag = "1")]
    id: u64,
    /// Where its peers reach it.
    #[prost(string, tag = "2")]
    peer_address: String,
    /// Where clients reach it.
    #[prost(string, tag = "3")]
    client_address: String,
    /// Its name.
    #[prost(string, tag = "4")]
    name: String,
}

impl NodeRecord {
    fn of(id: u64, member: &Member) -> Self {
        let Member { name, peer_address, client_address } = member.clone();
        Self { id, peer_address, client_address, name }
    }

    fn member(self) -> (u64, Member) {
        let Self { id, peer_address, client_address, name } = self;
        (id, Member { name, peer_address, client_address })
    }
}

/// A membership in the applied state, with the entry that it came from.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredMembershipRecord {
    #[prost(message, optional, tag = "1")]
    at: Option<LogIdRecord>,
    #[prost(message, optional, tag = "2")]
    membership: Option<MembershipRecord>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct LogIdRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
}

impl MembershipRecord {
    fn of(membership: &Membership) -> Self {
        let voters = membership.get_joint_config().iter();
        let nodes = membership.nodes();
        Self {
            voters: voters.map(|ids| VotersRecord { ids: ids.iter().copied().collect() }).collect(),
            nodes: nodes.map(|(id, member)| NodeRecord::of(*id, member)).collect(),
        }
    }

    fn membership(self) -> Result<Membership, CodecError> {
        let voters: Vec<BTreeSet<u64>> = self.voters.into_iter().map(|set| set.ids.into_iter().collect()).collect();
        let nodes: BTreeMap<u64, Member> = self.nodes.into_iter().map(NodeRecord::member).collect();
        if voters.is_empty() && nodes.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(voters, nodes).map_err(|e| CodecError(format!("it makes no sense: {e}")))
    }
}

pub(crate) fn membership_to_bytes(membership: &Membership) -> Bytes {
    MembershipRecord::of(membership).encode_to_vec().into()
}

pub(crate) fn membership_from_bytes(bytes: Bytes) -> Result<Membership, CodecError> {
    MembershipRecord::decode(bytes).map_err(|e| CodecError(e.to_string()))?.membership()
}

pub(crate) fn stored_membership_to_bytes(stored: &StoredMembership) -> Bytes {
    let at = stored.log_id().as_ref().map(|id| LogIdRecord {
        term: id.leader_id.term,
        node: id.leader_id.node_id,
        index: id.index,
    });
    let membership = Some(MembershipRecord::of(stored.membership()));
    StoredMembershipRecord { at, membership }.encode_to_vec().into()
}

/// Reads what `stored_membership_to_bytes` wrote; no bytes are the membership before the first.
pub(crate) fn stored_membership_from_bytes(bytes: Bytes) -> Result<StoredMembership, CodecError> {
    let record = StoredMembershipRecord::decode(bytes).map_err(|e| CodecError(e.to_string()))?;
    let at = record.at.map(|at| LogId::new(Elected { term: at.term, node_id: at.node }, at.index));
    let membership = record.membership.map_or_else(|| Ok(Membership::default()), MembershipRecord::membership)?;
    Ok(StoredMembership::new(at, membership))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64) -> Member {
        Member {
            name: format!("rail-{id}"),
            peer_address: format!("rail-{id}.peers:50001"),
            client_address: format!("rail-{id}.clients:50000"),
        }
    }

    fn joint() -> Membership {
        let nodes: BTreeMap<u64, Member> = (1..=4).map(|id| (id, member(id))).collect();
        Membership::new(vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3])], nodes).expect("a lawful membership")
    }

    #[test]
    fn entries_read_back_as_written() {
        let id = LogId::new(Elected { term: 3, node_id: 7 }, 42);
        for payload in [
            EntryPayload::Blank,
            EntryPayload::Normal(Proposal(Bytes::from_static(b"batch"))),
            EntryPayload::Membership(joint()),
        ] {
            let entry = Entry::new(id, payload);
            assert_eq!(entry_from_store(entry_to_store(entry.clone())), Ok(entry));
        }
    }

    #[test]
    fn stored_memberships_read_back_as_written() {
        let id = LogId::new(Elected { term: 3, node_id: 7 }, 42);
        for stored in [StoredMembership::default(), StoredMembership::new(Some(id), joint())] {
            assert_eq!(stored_membership_from_bytes(stored_membership_to_bytes(&stored)), Ok(stored));
        }
        assert_eq!(stored_membership_from_bytes(Bytes::new()), Ok(StoredMembership::default()));
    }

    #[test]
    fn other_bytes_are_refused() {
        let cut = membership_to_bytes(&joint()).slice(..9);
        assert!(membership_from_bytes(cut).is_err());
        let voter_without_node = MembershipRecord { voters: vec![VotersRecord { ids: vec![1] }], nodes: vec![] };
        assert!(membership_from_bytes(voter_without_node.encode_to_vec().into()).is_err());
    }
}
