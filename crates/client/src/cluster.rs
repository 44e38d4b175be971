//! Who belongs to the cluster.

use ticketrail_proto::v1;
use ticketrail_proto::v1::cluster_service_client::ClusterServiceClient;

use crate::call::service;
use crate::{Admin, Error};

/// A cluster, as the node that answered sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The cluster's id, in hexadecimal.
    pub cluster_id: String,
    /// The leader's Raft id, where known.
    pub leader: Option<u64>,
    /// The newest term that the answering node knows.
    pub term: u64,
    /// The Raft id of the answering node.
    pub answered_by: u64,
    /// The members, in the order of their ids.
    pub members: Vec<ClusterMember>,
    /// Whether the membership is about to change.
    pub changing: bool,
}

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its Raft id, which belongs to its disk.
    pub node: u64,
    /// Its name, which outlives its disk; empty in a cluster of one node.
    pub name: String,
    /// Where peers reach it.
    pub peer_address: String,
    /// Where clients reach it; empty: not told.
    pub client_address: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it was heard within the last 3 s. Only the leader hears all.
    pub alive: bool,
    /// The last entry that it has on its disk, as the leader knows.
    pub matched_index: Option<u64>,
    /// Whether its disk is past the low mark.
    pub disk_low: bool,
}

impl ClusterInfo {
    fn from_wire(info: v1::GetClusterResponse) -> Self {
        let member = |member: v1::ClusterMember| ClusterMember {
            node: member.node,
            name: member.name,
            peer_address: member.peer_address,
            client_address: member.client_address,
            voter: member.voter,
            alive: member.alive,
            matched_index: member.matched_index,
            disk_low: member.disk_low,
        };
        Self {
            cluster_id: info.cluster_id,
            leader: (info.leader != 0).then_some(info.leader),
            term: info.term,
            answered_by: info.answered_by,
            members: info.members.into_iter().map(member).collect(),
            changing: info.changing,
        }
    }
}

impl Admin {
    /// The cluster, as the leader sees it where one is known, which sees most; else as the node that answers does.
    ///
    /// # Errors
    /// As every read.
    pub async fn cluster(&self) -> Result<ClusterInfo, Error> {
        let info = self.cluster_seen().await?;
        // The first answer has named the leader, to whom the next call goes.
        if info.leader.is_some_and(|leader| leader != info.answered_by) { self.cluster_seen().await } else { Ok(info) }
    }

    async fn cluster_seen(&self) -> Result<ClusterInfo, Error> {
        let make = || v1::GetClusterRequest {};
        let send = async |channel, request| service!(ClusterServiceClient, channel).get_cluster(request).await;
        self.client().reading().read(make, send).await.map(ClusterInfo::from_wire)
    }

    /// Invites the empty node whose port for peers is `peer_address`, as `HOST:PORT`. Returns its Raft id. Again for a
    /// node that has joined it changes nothing.
    ///
    /// # Errors
    /// [`Reason::ClusterUnsafe`](crate::Reason::ClusterUnsafe) where no empty node waits there.
    pub async fn add_member(&self, peer_address: &str) -> Result<u64, Error> {
        let make = || v1::AddMemberRequest { peer_address: peer_address.to_owned() };
        let send = async |channel, request| service!(ClusterServiceClient, channel).add_member(request).await;
        self.client().reading().read(make, send).await.map(|answer| answer.node)
    }

    /// Gives a member a vote.
    ///
    /// # Errors
    /// [`Reason::MemberNotFound`](crate::Reason::MemberNotFound);
    /// [`Reason::ClusterUnsafe`](crate::Reason::ClusterUnsafe) where it has not caught up.
    pub async fn promote_member(&self, node: u64) -> Result<(), Error> {
        let make = || v1::PromoteMemberRequest { node };
        let send = async |channel, request| service!(ClusterServiceClient, channel).promote_member(request).await;
        self.client().reading().read(make, send).await.map(|_| ())
    }

    /// Removes a member for good: its disk is refused from then on.
    ///
    /// # Errors
    /// [`Reason::MemberNotFound`](crate::Reason::MemberNotFound), also where an earlier attempt has removed it;
    /// [`Reason::ClusterUnsafe`](crate::Reason::ClusterUnsafe) where too few of the voters that are left are alive.
    pub async fn remove_member(&self, node: u64) -> Result<(), Error> {
        let make = || v1::RemoveMemberRequest { node };
        let send = async |channel, request| service!(ClusterServiceClient, channel).remove_member(request).await;
        self.client().reading().read(make, send).await.map(|_| ())
    }

    /// Has another member lead: `node`, or the best of them. Returns who leads.
    ///
    /// # Errors
    /// [`Reason::MemberNotFound`](crate::Reason::MemberNotFound);
    /// [`Reason::ClusterUnsafe`](crate::Reason::ClusterUnsafe) where it does not take over.
    pub async fn transfer_leader(&self, node: Option<u64>) -> Result<u64, Error> {
        let make = || v1::TransferLeaderRequest { node: node.unwrap_or(0) };
        let send = async |channel, request| service!(ClusterServiceClient, channel).transfer_leader(request).await;
        self.client().reading().read(make, send).await.map(|answer| answer.leader)
    }
}
