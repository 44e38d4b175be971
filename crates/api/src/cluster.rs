//! `ClusterService`: who belongs to the cluster.

use ticketrail_node::{ClusterView, Handle, MemberChange, MemberView};
use ticketrail_proto::v1;
use ticketrail_proto::v1::cluster_service_server::ClusterService;
use tonic::{Request, Response, Status};

use crate::convert::field::page_token;
use crate::status::{FieldError, Refusal};

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct ClusterApi {
    handle: Handle,
}

impl ClusterApi {
    /// The service on the node behind `handle`.
    pub fn new(handle: Handle) -> Self {
        Self { handle }
    }

    async fn change(&self, change: MemberChange) -> Result<u64, Status> {
        self.handle.change_members(change).await.map_err(|error| Refusal::from(error).into())
    }
}

fn node(node: u64) -> Result<u64, Status> {
    if node == 0 {
        return Err(Refusal::from(FieldError::new("node", "expected a member's Raft id, but it is 0")).into());
    }
    Ok(node)
}

fn member(view: MemberView) -> v1::ClusterMember {
    let MemberView { node, member, voter, alive, matched_index, disk_low } = view;
    v1::ClusterMember {
        node,
        name: member.name,
        peer_address: member.peer_address,
        client_address: member.client_address,
        voter,
        alive,
        matched_index,
        disk_low,
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn get_cluster(
        &self,
        _request: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::GetClusterResponse>, Status> {
        let status = self.handle.status();
        let ClusterView { leader, term, members, changing } = self.handle.cluster();
        Ok(Response::new(v1::GetClusterResponse {
            cluster_id: page_token(&status.cluster_id),
            leader: leader.unwrap_or(0),
            term,
            answered_by: status.node_id,
            members: members.into_iter().map(member).collect(),
            changing,
        }))
    }

    async fn add_member(
        &self,
        request: Request<v1::AddMemberRequest>,
    ) -> Result<Response<v1::AddMemberResponse>, Status> {
        let v1::AddMemberRequest { peer_address } = request.into_inner();
        let port = peer_address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        if port.is_none_or(|(host, port)| host.is_empty() || port == 0) {
            let reason = format!("expected HOST:PORT of the empty node's port for peers, but got {peer_address:?}");
            return Err(Refusal::from(FieldError::new("peer_address", reason)).into());
        }
        let node = self.change(MemberChange::Add(peer_address)).await?;
        Ok(Response::new(v1::AddMemberResponse { node }))
    }

    async fn promote_member(
        &self,
        request: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        self.change(MemberChange::Promote(node(request.into_inner().node)?)).await?;
        Ok(Response::new(v1::PromoteMemberResponse {}))
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        self.change(MemberChange::Remove(node(request.into_inner().node)?)).await?;
        Ok(Response::new(v1::RemoveMemberResponse {}))
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        let to = request.into_inner().node;
        let leader = self.change(MemberChange::TransferLeader((to != 0).then_some(to))).await?;
        Ok(Response::new(v1::TransferLeaderResponse { leader }))
    }
}
