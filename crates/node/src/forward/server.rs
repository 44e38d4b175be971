//! The leader's side: carries out what followers hand in.
//!
//! All calls of a stream run inside the stream itself: it is polled by the transport, and where the transport ends they
//! end with it. So nothing is granted to a stream that is gone: an answer is either on its way to the follower or was
//! never given.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use prost::Message as _;
use ticketrail_core::reply::Invalid;
use ticketrail_core::{Command, Rejection, limits};
use ticketrail_proto::raft::{
    self as pb, ForwardReply, ForwardRequest, forward_reply::Outcome, forward_request::What,
    forward_service_server::ForwardService,
};
use tokio::sync::oneshot;
use tokio::time::sleep_until;
use tonic::{Request, Response, Status, Streaming};

use super::{sign_of_life, wire};
use crate::attempt::{Attempt, Place};
use crate::call::{CallError, Deliveries, Done, ReceiveCall};
use crate::clock::Instant;
use crate::consensus::Role;
use crate::peering::Peering;
use crate::peers::MESSAGE_BYTES;
use crate::receive::Receiving;
use crate::shared::Shared;

/// Calls of one stream at one time.
const CALLS: usize = 200_000;
/// How long a read index may take.
const READ: Duration = Duration::from_secs(5);
/// What an answer may have beside its messages.
const ENVELOPE: usize = 64 << 10;

/// Serves followers.
pub(crate) struct ForwardServer {
    pub(crate) shared: Arc<Shared>,
}

/// Serves followers once there is a node.
pub(crate) struct ForwardGate(pub(crate) Peering);

#[tonic::async_trait]
impl ForwardService for ForwardServer {
    type ForwardStream = Pin<Box<dyn Stream<Item = Result<ForwardReply, Status>> + Send>>;

    async fn forward(
        &self,
        requests: Request<Streaming<ForwardRequest>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        let answering = Answering::new(self.shared.clone(), requests.into_inner());
        Ok(Response::new(Box::pin(futures::stream::unfold(answering, |mut answering| async move {
            let answer = answering.next().await?;
            Some((answer, answering))
        }))))
    }
}

#[tonic::async_trait]
impl ForwardService for ForwardGate {
    type ForwardStream = <ForwardServer as ForwardService>::ForwardStream;

    async fn forward(
        &self,
        requests: Request<Streaming<ForwardRequest>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        ForwardServer { shared: self.0.calls()? }.forward(requests).await
    }
}

/// The newest stream of each follower.
#[derive(Default)]
pub(crate) struct Served(Mutex<BTreeMap<u64, Weak<Calls>>>);

impl Served {
    /// Takes note of a follower's stream, and ends the one before it together with its calls: what they asked for comes
    /// again, and nothing of the old stream may happen after it.
    fn replace(&self, follower: u64, calls: &Arc<Calls>) {
        let mut streams = self.0.lock();
        streams.retain(|_, calls| calls.strong_count() > 0);
        let old = streams.insert(follower, Arc::downgrade(calls)).and_then(|old| old.upgrade());
        drop(streams);
        if let Some(old) = old {
            old.end();
        }
    }
}

/// A call on its way to its answer.
type Running = BoxFuture<'static, (u64, Outcome)>;

/// The calls of one stream.
#[derive(Default)]
struct Calls(Mutex<State>);

#[derive(Default)]
struct State {
    ended: bool,
    running: FuturesUnordered<Running>,
    /// How to tell a call that its caller has gone.
    cancels: BTreeMap<u64, oneshot::Sender<()>>,
    stream: Option<Waker>,
}

/// What a stream does next.
enum Next {
    Answer(u64, Outcome),
    Ended,
}

impl Calls {
    fn start(&self, call: u64, work: impl Future<Output = Outcome> + Send + 'static) {
        let (cancel, cancelled) = oneshot::channel();
        let mut state = self.0.lock();
        if state.ended {
            return;
        }
        state.cancels.insert(call, cancel);
        state.running.push(Box::pin(async move {
            tokio::select! {
                biased;
                // Dropping the work gives back what it is granted.
                Ok(()) = cancelled => (call, wire::unknown()),
                outcome = work => (call, outcome),
            }
        }));
    }

    /// The caller has gone.
    fn cancel(&self, call: u64) {
        if let Some(cancel) = self.0.lock().cancels.remove(&call) {
            // The call may have its answer.
            let _ = cancel.send(());
        }
    }

    fn count(&self) -> usize {
        self.0.lock().running.len()
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.0.lock();
        if state.ended {
            return Poll::Ready(Next::Ended);
        }
        match state.running.poll_next_unpin(context) {
            Poll::Ready(Some((call, outcome))) => {
                state.cancels.remove(&call);
                Poll::Ready(Next::Answer(call, outcome))
            }
            Poll::Ready(None) | Poll::Pending => {
                state.stream = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Drops all calls. What they were granted and nobody was told is given back.
    fn end(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        let State { running, stream, .. } = std::mem::take(&mut *state);
        state.ended = true;
        drop(state);
        drop(running);
        if let Some(stream) = stream {
            stream.wake();
        }
    }
}

/// One stream of a follower.
struct Answering {
    shared: Arc<Shared>,
    requests: Streaming<ForwardRequest>,
    follower: Option<u64>,
    calls: Arc<Calls>,
    next_sign: Instant,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.calls.end();
    }
}

impl Answering {
    fn new(shared: Arc<Shared>, requests: Streaming<ForwardRequest>) -> Self {
        let next_sign = shared.config.clock.now();
        Self { shared, requests, follower: None, calls: Arc::default(), next_sign }
    }

    /// The next answer; `None`: the stream is over.
    async fn next(&mut self) -> Option<Result<ForwardReply, Status>> {
        loop {
            let busy = self.calls.count() > 0;
            tokio::select! {
                biased;
                next = std::future::poll_fn(|context| self.calls.poll(context)) => match next {
                    Next::Answer(call, outcome) => return Some(Ok(self.answer(call, Some(outcome)))),
                    Next::Ended => return Some(Err(Status::aborted("a newer stream of the same node has taken over"))),
                },
                request = self.requests.message() => match request {
                    Ok(Some(request)) => {
                        if let Err(status) = self.take(request) {
                            return Some(Err(status));
                        }
                    }
                    Ok(None) | Err(_) => return None,
                },
                () = sleep_until(self.next_sign), if busy => return Some(Ok(self.answer(0, None))),
            }
        }
    }

    fn answer(&mut self, call: u64, outcome: Option<Outcome>) -> ForwardReply {
        self.next_sign = self.shared.config.clock.now() + sign_of_life(&self.shared.config);
        let header = self.follower.and_then(|follower| self.shared.peers.header(follower));
        ForwardReply { header, call, outcome }
    }

    fn take(&mut self, request: ForwardRequest) -> Result<(), Status> {
        let from = self.shared.peers.check(request.header.as_ref())?;
        match self.follower {
            None => {
                self.follower = Some(from);
                self.shared.served.replace(from, &self.calls);
            }
            Some(known) if known == from => {}
            Some(known) => {
                let text = format!("expected a stream of node {known} alone, but node {from} speaks on it");
                return Err(Status::invalid_argument(text));
            }
        }
        if self.calls.count() == 0 {
            self.next_sign = self.shared.config.clock.now() + sign_of_life(&self.shared.config);
        }
        let (call, shared) = (request.call, self.shared.clone());
        match request.what {
            Some(What::Cancel(_)) => self.calls.cancel(call),
            Some(_) if self.calls.count() >= CALLS => {
                let queued_bytes = shared.queue.bytes();
                let full: Attempt<Done> = Attempt::Over(CallError::Overloaded { queued_bytes });
                self.calls.start(call, async move { wire::of_done(full) });
            }
            Some(What::Propose(propose)) => {
                self.calls.start(call, async move { wire::of_done(propose_for(&shared, propose).await) });
            }
            Some(What::Poll(poll)) => self.calls.start(call, poll_for(shared, poll)),
            Some(What::ReadIndex(_)) => self.calls.start(call, async move {
                let deadline = shared.config.clock.now() + READ;
                let attempt = match not_here(&shared) {
                    Some(refused) => refused,
                    None => shared.read_point_here(deadline).await,
                };
                wire::of_read_point(attempt)
            }),
            None => {
                let text = "expected a call that this node knows, but it is of a newer version; upgrade this node";
                let refused: Attempt<Done> = Attempt::Rejected(invalid("call", text.into()));
                self.calls.start(call, async move { wire::of_done(refused) });
            }
        }
        Ok(())
    }
}

/// Refuses what could not be served here: nothing has happened.
fn not_here<T>(shared: &Shared) -> Option<Attempt<T>> {
    if let Err(error) = shared.admit() {
        return Some(Attempt::Over(error));
    }
    let standing = *shared.standing.borrow();
    match (shared.place(), standing.role) {
        (Place::At(leader), _) => Some(Attempt::Elsewhere(Some(leader))),
        (Place::Here, Role::Leader) => None,
        (Place::Here, Role::Follower | Role::Learner | Role::Candidate | Role::Stopped) | (Place::Stopped, _) => {
            Some(Attempt::Elsewhere(None))
        }
    }
}

async fn propose_for(shared: &Arc<Shared>, propose: pb::Propose) -> Attempt<Done> {
    if let Some(refused) = not_here(shared) {
        return refused;
    }
    let pb::Propose { request, repeat, timeout_ms } = propose;
    let request = match wire::decode_request(request) {
        Ok(request) => request,
        Err(reason) => return Attempt::Rejected(invalid("request", reason)),
    };
    let deadline = shared.config.clock.now() + Duration::from_millis(timeout_ms.min(limits::HOUR_MS));
    let Some(command) = &request.command else { return Attempt::Rejected(invalid("request", NO_COMMAND.into())) };
    let admitted = match shared.check(command, request.id.as_ref(), repeat) {
        Ok(admitted) => admitted,
        Err(error) => return Attempt::Over(error),
    };
    shared.propose_here(request, None, repeat, admitted, deadline).await
}

const NO_COMMAND: &str = "expected a command, but there is none";

async fn poll_for(shared: Arc<Shared>, poll: pb::Poll) -> Outcome {
    let attempt = receive_for(&shared, poll).await;
    let tokens = match &attempt {
        Attempt::Done(deliveries) => deliveries.deliveries.iter().map(|delivery| delivery.token.clone()).collect(),
        Attempt::Rejected(_) | Attempt::Elsewhere(_) | Attempt::InDoubt | Attempt::Over(_) => Vec::new(),
    };
    let outcome = wire::of_deliveries(attempt);
    let size = match &outcome {
        Outcome::Polled(polled) => polled.encoded_len(),
        Outcome::Replied(_) | Outcome::ReadAt(_) | Outcome::Refused(_) => 0,
    };
    if size + ENVELOPE > MESSAGE_BYTES {
        shared.releases.give_back(tokens);
        let reason = format!("expected messages of at most {MESSAGE_BYTES} bytes together, but got {size}");
        let refused: Attempt<Deliveries> = Attempt::Rejected(invalid("max_bytes", reason));
        return wire::of_deliveries(refused);
    }
    outcome
}

async fn receive_for(shared: &Arc<Shared>, poll: pb::Poll) -> Attempt<Deliveries> {
    if let Some(refused) = not_here(shared) {
        return refused;
    }
    let pb::Poll { request, repeat, wait_ms, auto_create } = poll;
    let request = match wire::decode_request(request) {
        Ok(request) => request,
        Err(reason) => return Attempt::Rejected(invalid("request", reason)),
    };
    let (Some(id), Some(Command::Receive(receive))) = (request.id, request.command) else {
        let reason = "expected a receive with a request id, but got something else";
        return Attempt::Rejected(invalid("request", reason.into()));
    };
    if let Err(error) = Shared::check_receive(&receive) {
        return Attempt::Over(error);
    }
    let wait = Duration::from_millis(wait_ms.min(limits::WAIT_MAX_MS));
    let begun = shared.config.clock.now();
    let call = ReceiveCall { receive, id: Some(id), repeat, wait, auto_create };
    shared.receive_here(&mut Receiving::new(call, begun), begun + wait).await
}

fn invalid(field: &str, reason: String) -> Rejection {
    Rejection::Invalid(Invalid { field: field.into(), reason })
}
