//! The door to a node's Raft: closed until there is one.

use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::raft_service_server::RaftService;
use tonic::{Request, Response, Status, Streaming};

use super::service::Answers;
use crate::peering::Peering;

/// Passes on to the Raft of the node, once it runs.
pub(crate) struct Gate(pub(crate) Peering);

#[tonic::async_trait]
impl RaftService for Gate {
    type StreamAppendStream = Answers;

    async fn stream_append(&self, request: Request<Streaming<pb::AppendRequest>>) -> Result<Response<Answers>, Status> {
        self.0.raft()?.stream_append(request).await
    }

    async fn append(&self, request: Request<pb::AppendRequest>) -> Result<Response<pb::AppendResponse>, Status> {
        self.0.raft()?.append(request).await
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        self.0.raft()?.vote(request).await
    }

    async fn pre_vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        self.0.raft()?.pre_vote(request).await
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        self.0.raft()?.transfer_leader(request).await
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotFrame>>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        self.0.raft()?.snapshot(request).await
    }
}
