//! openraft's way to the other members.
//!
//! Entries go over a bidirectional stream, heartbeats and votes over a connection of their own, snapshots over a third.
//! Where a member does not answer it is `Unreachable`, which starts openraft's backoff.

use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, future::BoxFuture};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{AsyncRuntime, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use parking_lot::Mutex;
use ticketrail_proto::raft as pb;
use ticketrail_proto::raft::raft_service_client::RaftServiceClient;
use ticketrail_storage::state::StateStore;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::send::Sender;
use super::snapshot::SnapshotData;
use super::types::{Snapshot, Types, Vote};
use super::wire;
use crate::clock::{Clock, Instant};
use crate::member::Member;
use crate::peers::{Lane, MESSAGE_BYTES, Peers};
use crate::record::Record;

/// Payload bytes on their way to one follower.
const IN_FLIGHT_BYTES: usize = 16 << 20;
/// What a request counts at least, so that empty ones are bounded as well.
const REQUEST_BYTES: usize = 1 << 10;

/// What all connections of a node share.
pub(crate) struct Links<S> {
    pub(crate) peers: Arc<Peers>,
    pub(crate) record: Arc<Record>,
    pub(crate) sender: Sender<S>,
    pub(crate) clock: Clock,
    /// How long a follower with requests out may be silent.
    pub(crate) silence: Duration,
    /// Up to where this node's log is purged.
    pub(crate) purged: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
}

/// Makes the ways to the members.
pub(crate) struct Network<S> {
    pub(crate) links: Arc<Links<S>>,
}

/// The way to one member.
pub(crate) struct Way<R, S> {
    target: u64,
    /// Where it was when this way was made.
    address: String,
    lane: Lane,
    links: Arc<Links<S>>,
    runtime: PhantomData<fn() -> R>,
}

impl<S: StateStore> Network<S> {
    fn way<R>(&self, target: u64, member: &Member, lane: Lane) -> Way<R, S> {
        let address = member.peer_address.clone();
        Way { target, address, lane, links: self.links.clone(), runtime: PhantomData }
    }
}

impl<R: AsyncRuntime, S: StateStore> RaftNetworkFactory<Types<R>> for Network<S> {
    type Network = Way<R, S>;

    async fn new_client(&mut self, target: u64, node: &Member) -> Way<R, S> {
        self.way(target, node, Lane::Append)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> Way<R, S> {
        self.way(target, node, Lane::Control)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> Way<R, S> {
        self.way(target, node, Lane::Snapshot)
    }
}

impl<R: AsyncRuntime, S: StateStore> Way<R, S> {
    fn client(&self, lane: Lane) -> Result<RaftServiceClient<Channel>, Unreachable<Types<R>>> {
        let Some(channel) = self.links.peers.channel_or(self.target, lane, Some(&self.address)) else {
            return Err(Unreachable::from_string(format!("node {} has no address", self.target)));
        };
        Ok(RaftServiceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES))
    }

    fn header(&self) -> Option<pb::Header> {
        self.links.peers.header(self.target)
    }

    fn heard(&self, header: Option<&pb::Header>) {
        if let Some(header) = header {
            self.links.peers.note(header);
        }
    }

    /// One call with a deadline, over the connection for what is short.
    async fn call<T>(
        &self,
        option: &RPCOption,
        call: impl AsyncFnOnce(RaftServiceClient<Channel>) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, RPCError<Types<R>>> {
        let client = self.client(Lane::Control).map_err(RPCError::Unreachable)?;
        match timeout(option.hard_ttl(), call(client)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(RPCError::Unreachable(self.unreachable(&status))),
            Err(_) => {
                let why = format!("node {} has not answered within {:?}", self.target, option.hard_ttl());
                Err(RPCError::Unreachable(Unreachable::from_string(why)))
            }
        }
    }

    fn unreachable(&self, status: &Status) -> Unreachable<Types<R>> {
        tracing::debug!(node = self.target, lane = ?self.lane, %status, "a peer cannot be reached");
        Unreachable::from_string(format!("node {}: {status}", self.target))
    }

    fn nonsense(&self, error: &wire::WireError) -> RPCError<Types<R>> {
        RPCError::Unreachable(Unreachable::from_string(format!("node {}: {error}", self.target)))
    }
}

/// A follower that has lost what it had acknowledged is not replicated to: openraft would stop the leader.
fn check_regression<R: AsyncRuntime, S: StateStore>(
    links: &Links<S>,
    target: u64,
    result: &StreamAppendResult<Types<R>>,
    asked: Asked,
) -> Result<(), Unreachable<Types<R>>> {
    match result {
        Ok(last) => {
            links.record.acknowledged(target, asked.term, last.map(|last| last.index), asked.committed);
            Ok(())
        }
        Err(StreamAppendError::Conflict(at)) => {
            links.record.check_conflict(target, asked.term, at.index).map_err(Unreachable::from_string)
        }
        Err(StreamAppendError::HigherVote(_)) => Ok(()),
    }
}

/// What a request says of the leader that sends it.
#[derive(Debug, Clone, Copy)]
struct Asked {
    term: u64,
    committed: Option<u64>,
}

impl Asked {
    fn of<R: AsyncRuntime>(request: &AppendEntriesRequest<Types<R>>) -> Self {
        Self { term: request.vote.leader_id.term, committed: request.leader_commit.map(|id| id.index) }
    }
}

/// The requests on their way to one follower, in their order.
struct Window {
    requests: Mutex<VecDeque<Sent>>,
    room: Arc<Semaphore>,
    owed: AtomicU64,
}

struct Sent {
    at: Instant,
    permits: u32,
    asked: Asked,
    /// The entry after it is purged: only a snapshot helps.
    behind: bool,
}

impl Window {
    fn new() -> Self {
        // The first request is taken before there is a window.
        let owed = AtomicU64::new(1);
        Self { requests: Mutex::default(), room: Arc::new(Semaphore::new(IN_FLIGHT_BYTES)), owed }
    }

    /// Waits for room, then notes a request.
    async fn push(&self, clock: &Clock, bytes: usize, asked: Asked, behind: bool) {
        let permits = u32::try_from(bytes.clamp(REQUEST_BYTES, IN_FLIGHT_BYTES)).unwrap_or(u32::MAX);
        // Never closed.
        if let Ok(permit) = self.room.acquire_many(permits).await {
            permit.forget();
        }
        self.requests.lock().push_back(Sent { at: clock.now(), permits, asked, behind });
    }

    /// Takes out the oldest request, which is answered.
    fn pop(&self) -> Option<Sent> {
        let sent = self.requests.lock().pop_front()?;
        self.owed.fetch_sub(1, Ordering::Relaxed);
        self.room.add_permits(usize::try_from(sent.permits).unwrap_or(0));
        Some(sent)
    }

    /// One more request was taken from openraft.
    fn owe(&self) {
        self.owed.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests taken from openraft that are not answered, whether they were sent or not.
    fn owed(&self) -> u64 {
        self.owed.load(Ordering::Relaxed)
    }

    /// When the oldest request was sent.
    fn oldest(&self) -> Option<Instant> {
        self.requests.lock().front().map(|sent| sent.at)
    }
}

fn bytes_of<R: AsyncRuntime>(request: &AppendEntriesRequest<Types<R>>) -> usize {
    let payloads = request.entries.iter().map(|entry| match &entry.payload {
        openraft::EntryPayload::Normal(proposal) => proposal.0.len(),
        openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => 0,
    });
    payloads.sum()
}

/// The answers of a follower, and what is needed to take them in.
struct Answers<S> {
    target: u64,
    links: Arc<Links<S>>,
    window: Arc<Window>,
    responses: Streaming<pb::AppendResponse>,
    ended: bool,
}

impl<S: StateStore> Answers<S> {
    /// The next answer. A follower that owes one and is silent for too long is given up: a stream that hangs would
    /// keep the log from being purged.
    async fn next<R: AsyncRuntime>(&mut self) -> Option<Result<StreamAppendResult<Types<R>>, RPCError<Types<R>>>> {
        if self.ended {
            return None;
        }
        let next = self.receive().await.transpose()?;
        let result = next.and_then(|(result, asked)| {
            check_regression(&self.links, self.target, &result, asked)?;
            Ok(result)
        });
        self.ended = !matches!(result, Ok(Ok(_)));
        Some(result.map_err(RPCError::Unreachable))
    }

    async fn receive<R: AsyncRuntime>(
        &mut self,
    ) -> Result<Option<(StreamAppendResult<Types<R>>, Asked)>, Unreachable<Types<R>>> {
        let unreachable = |why: String| Unreachable::from_string(format!("node {}: {why}", self.target));
        let response = loop {
            match timeout(self.links.silence, self.responses.message()).await {
                Ok(Ok(Some(response))) => break response,
                Ok(Ok(None)) if self.window.owed() == 0 => return Ok(None),
                // Told as an error: openraft takes a stream that ends in peace for one to go on with, keeps the log for
                // it, and may go on with what it had to send before a snapshot, which the log no longer has.
                Ok(Ok(None)) => return Err(unreachable("the stream has ended before the answer".into())),
                Ok(Err(status)) => return Err(unreachable(status.to_string())),
                Err(_) => {
                    let now = self.links.clock.now();
                    let oldest = self.window.oldest();
                    if oldest.is_some_and(|sent| now.saturating_duration_since(sent) >= self.links.silence) {
                        return Err(unreachable(format!("no answer for {:?}", self.links.silence)));
                    }
                }
            }
        };
        if let Some(header) = &response.header {
            self.links.peers.note(header);
        }
        let Some(sent) = self.window.pop() else {
            return Err(unreachable("an answer to nothing".into()));
        };
        if sent.behind {
            // openraft would go on asking the log for what is not there. A stream that ends is begun anew, with a snapshot.
            return Err(unreachable("the log is purged beyond what it has".into()));
        }
        let result = wire::append_result_from(response).map_err(|error| unreachable(error.to_string()))?;
        Ok(Some((result, sent.asked)))
    }
}

impl<R: AsyncRuntime, S: StateStore> RaftNetworkV2<Types<R>> for Way<R, S> {
    type SnapshotData = SnapshotData<S>;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<R>>, RPCError<Types<R>>> {
        let asked = Asked::of::<R>(&request);
        let request = wire::append(self.header(), request);
        let response = self.call(&option, async move |mut client| client.append(request).await).await?;
        self.heard(response.header.as_ref());
        let result = wire::append_result_from(response).map_err(|error| self.nonsense(&error))?;
        check_regression(&self.links, self.target, &result, asked).map_err(RPCError::Unreachable)?;
        Ok(result.into())
    }

    fn stream_append<'s, I>(
        &'s mut self,
        mut input: I,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types<R>>, RPCError<Types<R>>>>, RPCError<Types<R>>>,
    >
    where
        I: Stream<Item = AppendEntriesRequest<Types<R>>> + OptionalSend + Unpin + 'static,
    {
        if self.lane == Lane::Control {
            return stream_append_sequential(self, input, option);
        }
        Box::pin(async move {
            // Pulled before anything else: that is where openraft waits out its backoff.
            let Some(first) = input.next().await else { return Ok(stream::empty().boxed()) };
            let mut client = self.client(self.lane).map_err(RPCError::Unreachable)?;
            let window = Arc::new(Window::new());
            let (target, links, sent) = (self.target, self.links.clone(), window.clone());
            let owed = window.clone();
            let requests = stream::iter([first]).chain(input.inspect(move |_| owed.owe())).then(move |request| {
                let (links, sent) = (links.clone(), sent.clone());
                async move {
                    let asked = Asked::of::<R>(&request);
                    let behind = request.entries.is_empty()
                        && request.prev_log_id.is_some_and(|previous| Some(previous.index) < (links.purged)());
                    sent.push(&links.clock, bytes_of::<R>(&request), asked, behind).await;
                    wire::append(links.peers.header(target), request)
                }
            });
            let opening = timeout(self.links.silence, client.stream_append(requests)).await;
            let responses = match opening {
                Ok(Ok(response)) => response.into_inner(),
                Ok(Err(status)) => return Err(RPCError::Unreachable(self.unreachable(&status))),
                Err(_) => {
                    let why = format!("node {} has not opened a stream in time", self.target);
                    return Err(RPCError::Unreachable(Unreachable::from_string(why)));
                }
            };
            let links = self.links.clone();
            let answers = Answers { target, links, window, responses, ended: false };
            let answers =
                stream::unfold(answers, |mut answers| async move { Some((answers.next::<R>().await?, answers)) });
            Ok(answers.boxed())
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        let request = wire::vote_request(self.header(), &request);
        let response = self.call(&option, async move |mut client| client.vote(request).await).await?;
        self.heard(response.header.as_ref());
        wire::vote_response_from(response).map_err(|error| self.nonsense(&error))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        let request = wire::vote_request(self.header(), &request);
        let response = self.call(&option, async move |mut client| client.pre_vote(request).await).await?;
        self.heard(response.header.as_ref());
        wire::vote_response_from(response).map_err(|error| self.nonsense(&error))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<R>>, RPCError<Types<R>>> {
        let message = wire::transfer(self.header(), &request);
        let response = self.call(&option, async move |mut client| client.transfer_leader(message).await).await?;
        self.heard(response.header.as_ref());
        wire::transferred_from(&request, response).map_err(|error| self.nonsense(&error))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<SnapshotData<S>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<R>>, StreamingError<Types<R>>> {
        let client = self.client(Lane::Snapshot).map_err(StreamingError::Unreachable)?;
        let (links, target) = (self.links.clone(), self.target);
        let sending = async move { links.sender.send(client, &links.peers, target, vote, snapshot).await };
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sending => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => {
                    tracing::warn!(node = self.target, %error, "a snapshot was not sent");
                    Err(StreamingError::Unreachable(Unreachable::from_string(error.to_string())))
                }
            },
        }
    }
}
