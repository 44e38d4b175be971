//! The peers of a node that has none: every call is answered `Unreachable`.

use std::future::Future;
use std::marker::PhantomData;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{AsyncRuntime, BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2, Snapshot};

use super::types::{LeaderId, Types, Vote};

/// Makes peers that cannot be reached, for a snapshot type `D`.
pub(crate) struct NoPeers<D>(PhantomData<fn() -> D>);

impl<D> NoPeers<D> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

/// A peer that cannot be reached.
pub(crate) struct Nobody<D> {
    target: u64,
    snapshot: PhantomData<fn() -> D>,
}

impl<D> Nobody<D> {
    fn unreachable<R: AsyncRuntime>(&self) -> Unreachable<Types<R>> {
        Unreachable::from_string(format!(
            "expected no peers, but node {} was called: this node has one voter",
            self.target
        ))
    }
}

impl<R: AsyncRuntime, D: OptionalSend + 'static> RaftNetworkFactory<Types<R>> for NoPeers<D> {
    type Network = Nobody<D>;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Nobody<D> {
        Nobody { target, snapshot: PhantomData }
    }
}

impl<R: AsyncRuntime, D: OptionalSend + 'static> RaftNetworkV2<Types<R>> for Nobody<D> {
    type SnapshotData = D;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<R>>, RPCError<Types<R>>> {
        Err(RPCError::Unreachable(self.unreachable::<R>()))
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        Err(RPCError::Unreachable(self.unreachable::<R>()))
    }

    async fn pre_vote(
        &mut self,
        _request: VoteRequest<Types<R>>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        Err(RPCError::Unreachable(self.unreachable::<R>()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot<LeaderId, u64, BasicNode, D>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<R>>, StreamingError<Types<R>>> {
        Err(StreamingError::Unreachable(self.unreachable::<R>()))
    }
}
