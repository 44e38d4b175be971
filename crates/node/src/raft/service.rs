//! What the other members ask of this one's Raft.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use openraft::errors::{Fatal, RaftError};
use openraft::raft::{StreamAppendError, StreamAppendResult};
use openraft::{AsyncRuntime, Raft};
use parking_lot::Mutex;
use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::raft_service_server::RaftService;
use ticketrail_storage::state::StateStore;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::machine::Machine;
use super::receive::Receiver;
use super::runtime::Runtime;
use super::types::{LogId, Types};
use super::wire;
use crate::peers::Peers;
use crate::random::Random;

/// The service of one group.
pub(crate) struct Service<R: AsyncRuntime, S: StateStore> {
    pub(crate) raft: Raft<Types<R>, Machine<R, S>>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) receiver: Arc<Receiver<S>>,
    /// Whether enough others know this disk as the one of this node: before that it promises nothing.
    pub(crate) cleared: watch::Receiver<bool>,
    /// What Raft draws of while it serves a call.
    pub(crate) random: Random,
}

/// The answers to a stream of appends.
pub(crate) type Answers = Pin<Box<dyn Stream<Item = Result<pb::AppendResponse, Status>> + Send>>;

impl<R: Runtime, S: StateStore> Service<R, S> {
    /// Runs what a call asks of Raft.
    fn enter<F: Future + Send>(&self, asked: F) -> impl Future<Output = F::Output> + Send {
        R::enter(|| self.random.seed(), asked)
    }

    fn admit(&self, header: Option<&pb::Header>) -> Result<u64, Status> {
        let from = self.peers.check(header)?;
        if *self.cleared.borrow() {
            Ok(from)
        } else {
            Err(Status::unavailable("this node is starting: it waits until a majority of the members know its disk"))
        }
    }
}

fn stopped<R: AsyncRuntime>(error: &RaftError<Types<R>>) -> Status {
    Status::unavailable(format!("raft has stopped: {error}"))
}

fn fatal<R: AsyncRuntime>(error: &Fatal<Types<R>>) -> Status {
    Status::unavailable(format!("raft has stopped: {error}"))
}

#[tonic::async_trait]
impl<R: Runtime, S: StateStore> RaftService for Service<R, S> {
    type StreamAppendStream = Answers;

    async fn stream_append(&self, request: Request<Streaming<pb::AppendRequest>>) -> Result<Response<Answers>, Status> {
        let mut requests = request.into_inner();
        // The first says who sends, and whether to serve at all.
        let Some(first) = requests.message().await? else {
            return Ok(Response::new(futures::stream::empty().boxed()));
        };
        let from = self.admit(first.header.as_ref())?;
        let first = wire::append_from::<R>(first)?;
        // A message that makes no sense ends the stream, and nothing after it is taken in.
        let broken = Arc::new(Mutex::new(None));
        let (peers, ending) = (self.peers.clone(), broken.clone());
        let rest = requests
            .map(move |request| {
                let request = request?;
                peers.check(request.header.as_ref())?;
                Ok::<_, Status>(wire::append_from::<R>(request)?)
            })
            .scan((), move |(), request| {
                let request = request.map_err(|status| *ending.lock() = Some(status)).ok();
                futures::future::ready(request)
            });
        let input = futures::stream::iter([first]).chain(rest).boxed();
        let results: Pin<Box<dyn Stream<Item = Result<StreamAppendResult<Types<R>>, Fatal<Types<R>>>> + Send>> =
            Box::pin(self.enter(async { self.raft.stream_append(input) }).await);
        let peers = self.peers.clone();
        let answers = results.map(move |result| match result {
            Ok(result) => Ok(wire::append_result(peers.header(from), &result)),
            Err(error) => Err(fatal::<R>(&error)),
        });
        let last = futures::stream::once(async move { broken.lock().take() }).filter_map(futures::future::ready);
        Ok(Response::new(answers.chain(last.map(Err)).boxed()))
    }

    async fn append(&self, request: Request<pb::AppendRequest>) -> Result<Response<pb::AppendResponse>, Status> {
        let request = request.into_inner();
        let from = self.admit(request.header.as_ref())?;
        let request = wire::append_from::<R>(request)?;
        let previous = request.prev_log_id;
        let last: Option<LogId> = request.entries.last().map(|entry| entry.log_id).or(previous);
        let response = self.enter(self.raft.append_entries(request)).await.map_err(|error| stopped::<R>(&error))?;
        let result = response.into_stream_result(previous, last);
        if !matches!(result, Err(StreamAppendError::HigherVote(_))) {
            self.peers.note_led();
        }
        Ok(Response::new(wire::append_result(self.peers.header(from), &result)))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let request = request.into_inner();
        let from = self.admit(request.header.as_ref())?;
        let asked = wire::vote_request_from::<R>(request)?;
        let response = self.enter(self.raft.vote(asked)).await.map_err(|error| stopped::<R>(&error))?;
        Ok(Response::new(wire::vote_response(self.peers.header(from), &response)))
    }

    async fn pre_vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let request = request.into_inner();
        let from = self.admit(request.header.as_ref())?;
        let asked = wire::vote_request_from::<R>(request)?;
        let response = self.enter(self.raft.pre_vote(asked)).await.map_err(|error| stopped::<R>(&error))?;
        Ok(Response::new(wire::vote_response(self.peers.header(from), &response)))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let request = request.into_inner();
        let from = self.admit(request.header.as_ref())?;
        let asked = wire::transfer_from::<R>(request)?;
        let result = self.enter(self.raft.handle_transfer_leader(asked)).await.map_err(|error| fatal::<R>(&error))?;
        Ok(Response::new(wire::transferred::<R>(self.peers.header(from), result)))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotFrame>>,
    ) -> Result<Response<pb::SnapshotResponse>, Status> {
        if !*self.cleared.borrow() {
            return Err(Status::unavailable("this node is starting"));
        }
        let staged = self.receiver.receive(&self.peers, request.into_inner()).await?;
        let from = staged.vote.leader_id.node_id;
        let at = staged.snapshot.meta.clone();
        let installed = self.enter(self.raft.install_full_snapshot(staged.vote, staged.snapshot)).await;
        let response = installed.map_err(|error| fatal::<R>(&error))?;
        if response.vote == staged.vote {
            tracing::info!(snapshot = %at, "installed a snapshot");
            self.receiver.installed();
        }
        let (header, vote) = (self.peers.header(from), Some(wire::vote(&response.vote)));
        Ok(Response::new(pb::SnapshotResponse { header, vote }))
    }
}
