//! `QueueService`: what producers and workers call.

use std::time::Duration;

use futures::TryStreamExt as _;
use ticketrail_core::command::{OpenSession, QueueRef, Receive};
use ticketrail_core::query::Page;
use ticketrail_core::reply::Committed;
use ticketrail_core::{Answer, Answered, Command, MessageId, Query, RequestId, limits};
use ticketrail_node::Handle;
use ticketrail_node::call::{Call, CallError, Deliveries, Freshness, ReceiveCall};
use ticketrail_proto::v1::queue_service_server::QueueService;
use ticketrail_proto::{reason, v1};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use crate::call::{self, Changed};
use crate::convert::field::{self, duration_of_ms};
use crate::convert::{cancel, message, receive, settle};
use crate::leader::{self, Leader};
use crate::status::{FieldError, Refusal};
use crate::stream::{Outgoing, consume, produce};
use crate::{MESSAGE_BYTES, Settings};

/// The service. Cheap to clone.
#[derive(Clone)]
pub struct QueueApi {
    pub(crate) handle: Handle,
    pub(crate) settings: Settings,
    streams: Streams,
}

/// What streams need to know of the server, which outlive a call.
#[derive(Clone)]
pub struct Streams {
    /// Becomes true when the server stops: streams answer what they have read, and end.
    pub closing: watch::Receiver<bool>,
    /// Who leads: named in the error that ends a stream.
    pub leader: Leader,
}

impl QueueApi {
    /// The service on the node behind `handle`.
    pub fn new(handle: Handle, settings: Settings, streams: Streams) -> Self {
        Self { handle, settings, streams }
    }

    async fn commit(
        &self,
        command: ticketrail_core::command::Commit,
        request_id: Option<v1::RequestId>,
        timeout: Duration,
    ) -> Result<(v1::Commit, Committed), Refusal> {
        let (id, repeat) = field::request_id(request_id)?;
        self.commit_as(command, id, repeat, timeout).await
    }

    /// Whether a receive waits where none of its queues is there.
    pub(crate) async fn waits_for_queues(&self, receive: &Receive, timeout: Duration) -> Result<bool, Refusal> {
        let Some(queue) = receive.queues.first().filter(|_| self.settings.auto_create) else { return Ok(false) };
        call::makes_queues(&self.handle, &queue.namespace, timeout).await
    }

    /// Puts a commit through the log, under an id that has been read already.
    pub(crate) async fn commit_as(
        &self,
        command: ticketrail_core::command::Commit,
        id: Option<RequestId>,
        repeat: bool,
        timeout: Duration,
    ) -> Result<(v1::Commit, Committed), Refusal> {
        let call = Call { command: Command::Commit(command), id, repeat, timeout };
        let Changed { commit, answered } = call::put(&self.handle, call).await?;
        let Answered::Committed(committed) = answered else {
            return Err(Refusal::mismatch("the results of a commit"));
        };
        Ok((commit, committed))
    }
}

/// The message that a `Get` names.
enum Named {
    ById { id: MessageId, namespace: String },
    ByDedupId { queue: QueueRef, dedup_id: String },
}

impl Named {
    fn read(request: v1::GetRequest) -> Result<Self, FieldError> {
        let v1::GetRequest { message_id, stale_ok: _, namespace, dedup_id, queue } = request;
        let namespace = field::namespace(namespace)?;
        if message_id.is_empty() && !(dedup_id.is_empty() && queue.is_empty()) {
            let queue = QueueRef { namespace, name: field::queue_name("queue", queue)? };
            return Ok(Self::ByDedupId { queue, dedup_id: cancel::dedup_id("dedup_id", dedup_id)? });
        }
        if !dedup_id.is_empty() || !queue.is_empty() {
            let reason = "expected a message_id, or a queue and a dedup_id, but got both";
            return Err(FieldError::new("message_id", reason));
        }
        Ok(Self::ById { id: field::message_id(&message_id)?, namespace })
    }

    fn namespace(&self) -> &str {
        match self {
            Self::ById { namespace, .. } => namespace,
            Self::ByDedupId { queue, .. } => &queue.namespace,
        }
    }

    fn message(&self) -> Query {
        match self {
            Self::ById { id, .. } => Query::Get(*id),
            Self::ByDedupId { queue, dedup_id } => {
                Query::GetByDedupId { queue: queue.clone(), dedup_id: dedup_id.clone() }
            }
        }
    }

    fn outcome(&self) -> Query {
        match self {
            Self::ById { id, .. } => Query::Outcome(*id),
            Self::ByDedupId { queue, dedup_id } => {
                Query::OutcomeByDedupId { queue: queue.clone(), dedup_id: dedup_id.clone() }
            }
        }
    }

    fn not_found(&self) -> Refusal {
        match self {
            Self::ById { id, .. } => Refusal::message_not_found(&id.to_string()),
            Self::ByDedupId { queue, dedup_id } => Refusal::dedup_id_not_found(queue, dedup_id),
        }
    }
}

/// Bytes of one page of messages: a reply with room to spare.
const PAGE_BYTES: usize = MESSAGE_BYTES / 2;

/// Translates each result of a commit; there must be as many as were asked for.
pub(crate) fn each<R, W>(
    asked: usize,
    results: &[R],
    to_wire: impl Fn(&R) -> Result<W, Refusal>,
) -> Result<Vec<W>, Refusal> {
    if results.len() != asked {
        return Err(Refusal::mismatch("a result for each part"));
    }
    results.iter().map(to_wire).collect()
}

/// Names the leader in the error that ends a stream.
fn naming<T: Send + 'static>(outgoing: Outgoing<T>, leader: Leader) -> Outgoing<T> {
    Box::pin(outgoing.map_err(move |mut status| {
        leader::name_in(&mut status, &leader);
        status
    }))
}

#[tonic::async_trait]
impl QueueService for QueueApi {
    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Result<Response<v1::EnqueueResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::EnqueueRequest { request_id, namespace, queue, messages, all_or_nothing } = request.into_inner();
        let mut command = message::enqueue(&self.settings, namespace, queue, messages)?;
        command.atomic = all_or_nothing;
        let asked = command.enqueue.len();
        let response = match self.commit(command, request_id, timeout).await {
            Ok((commit, committed)) => v1::EnqueueResponse {
                commit: Some(commit),
                results: each(asked, &committed.enqueued, message::enqueue_result)?,
            },
            // The leader refuses without a log entry where nothing fits; to the caller it is the same refusal.
            Err(refusal) if refusal.reason == reason::FULL && !all_or_nothing => {
                let error = v1::enqueue_result::Outcome::Error(refusal.into_item());
                v1::EnqueueResponse { commit: None, results: vec![v1::EnqueueResult { outcome: Some(error) }; asked] }
            }
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(Response::new(response))
    }

    type ProduceStream = Outgoing<v1::ProduceResponse>;

    async fn produce(
        &self,
        request: Request<Streaming<v1::ProduceRequest>>,
    ) -> Result<Response<Self::ProduceStream>, Status> {
        let Streams { closing, leader } = self.streams.clone();
        let outgoing = produce::serve(self.clone(), request.into_inner(), closing);
        Ok(Response::new(naming(outgoing, leader)))
    }

    type ConsumeStream = Outgoing<v1::ConsumeResponse>;

    async fn consume(
        &self,
        request: Request<Streaming<v1::ConsumeRequest>>,
    ) -> Result<Response<Self::ConsumeStream>, Status> {
        let Streams { closing, leader } = self.streams.clone();
        let outgoing = consume::serve(self.clone(), request.into_inner(), closing);
        Ok(Response::new(naming(outgoing, leader)))
    }

    async fn receive(&self, request: Request<v1::ReceiveRequest>) -> Result<Response<v1::ReceiveResponse>, Status> {
        let (deadline, timeout) = (call::deadline(request.metadata()), call::timeout(request.metadata()));
        let mut wire = request.into_inner();
        let (id, repeat) = field::request_id(wire.request_id.take())?;
        let (receive, wait) = receive::receive(wire)?;
        let wait = deadline.map_or(wait, |deadline| wait.min(call::wait_within(deadline)));
        let auto_create = self.waits_for_queues(&receive, timeout).await?;
        let receiving = self.handle.receive(ReceiveCall { receive, id, repeat, wait, auto_create });
        let Deliveries { deliveries, reply, origin, waited } = match deadline {
            // What was leased meanwhile is released with the dropped future.
            Some(deadline) => tokio::time::timeout(deadline, receiving).await.unwrap_or(Err(CallError::Unknown)),
            None => receiving.await,
        }
        .map_err(Refusal::from)?;
        Ok(Response::new(v1::ReceiveResponse {
            deliveries: deliveries.into_iter().map(message::delivery).collect(),
            commit: reply.map(|reply| call::commit(&reply, origin)),
            origin: Some(call::origin(origin)),
            waited: Some(field::duration(waited)),
        }))
    }

    async fn settle(&self, request: Request<v1::SettleRequest>) -> Result<Response<v1::SettleResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::SettleRequest { request_id, settlements } = request.into_inner();
        let command = settle::settle(settlements)?;
        let asked = command.settle.len();
        let (commit, committed) = self.commit(command, request_id, timeout).await?;
        let results = each(asked, &committed.settled, settle::settle_result)?;
        Ok(Response::new(v1::SettleResponse { commit: Some(commit), results }))
    }

    async fn extend(&self, request: Request<v1::ExtendRequest>) -> Result<Response<v1::ExtendResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::ExtendRequest { request_id, extensions } = request.into_inner();
        let command = settle::extend(extensions)?;
        let asked = command.settle.len();
        let (commit, committed) = self.commit(command, request_id, timeout).await?;
        let results = each(asked, &committed.settled, settle::extend_result)?;
        Ok(Response::new(v1::ExtendResponse { commit: Some(commit), results }))
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::CancelRequest { request_id, namespace, targets } = request.into_inner();
        let command = cancel::cancel(namespace, targets)?;
        let asked = command.cancel.len();
        let (commit, committed) = self.commit(command, request_id, timeout).await?;
        let results = each(asked, &committed.cancelled, cancel::cancel_result)?;
        Ok(Response::new(v1::CancelResponse { commit: Some(commit), results }))
    }

    async fn reschedule(
        &self,
        request: Request<v1::RescheduleRequest>,
    ) -> Result<Response<v1::RescheduleResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::RescheduleRequest { request_id, namespace, messages } = request.into_inner();
        let command = cancel::reschedule(namespace, messages)?;
        let asked = command.reschedule.len();
        let (commit, committed) = self.commit(command, request_id, timeout).await?;
        let results = each(asked, &committed.rescheduled, cancel::reschedule_result)?;
        Ok(Response::new(v1::RescheduleResponse { commit: Some(commit), results }))
    }

    async fn peek(&self, request: Request<v1::PeekRequest>) -> Result<Response<v1::PeekResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::PeekRequest { namespace, queue, state, page_size, page_token, omit_bodies, stale_ok, filter } =
            request.into_inner();
        let filter = message::filter(filter)?;
        let queue = field::queue(namespace, queue)?;
        let (state, after) = (message::message_state(state)?, field::cursor(&page_token)?);
        let mut limit = call::page_size(page_size)?;
        let (messages, next, origin) = loop {
            let (name, after, filter) = (queue.clone(), after.clone(), filter.clone());
            let query = Query::Peek { queue: name, state, after, limit, filter };
            let (answer, origin) = call::ask(&self.handle, query, call::freshness(stale_ok), timeout).await?;
            let Answer::Messages(page) = answer else { return Err(Refusal::mismatch("a page of messages").into()) };
            let Some(Page { messages, next }) = page else {
                return Err(Refusal::queue_not_found(&queue.namespace, &queue.name).into());
            };
            let fitting = message::fitting(&messages, PAGE_BYTES);
            if fitting >= messages.len() {
                break (messages, next, origin);
            }
            // Only the node knows where a shorter page ends.
            limit = fitting.max(1);
        };
        let clock = call::clock(&self.handle, timeout).await?;
        let messages = messages.into_iter().map(|info| {
            let mut info = message::message_info(info, &clock);
            if omit_bodies && let Some(message) = &mut info.message {
                message.body.clear();
            }
            info
        });
        Ok(Response::new(v1::PeekResponse {
            messages: messages.collect(),
            next_page_token: field::page_token(&next),
            origin: Some(call::origin(origin)),
        }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let wire = request.into_inner();
        let freshness = call::freshness(wire.stale_ok);
        let named = Named::read(wire)?;
        let (answer, origin) = call::ask(&self.handle, named.message(), freshness, timeout).await?;
        let Answer::Message(info) = answer else { return Err(Refusal::mismatch("a message").into()) };
        let mut response = v1::GetResponse { origin: Some(call::origin(origin)), ..Default::default() };
        if let Some(info) = info.filter(|info| info.queue.namespace == named.namespace()) {
            let clock = call::clock(&self.handle, timeout).await?;
            response.message = Some(message::message_info(info, &clock));
            return Ok(Response::new(response));
        }
        // What this node has applied is as new as the answer before.
        let (answer, _) = call::ask(&self.handle, named.outcome(), Freshness::StaleOk, timeout).await?;
        let Answer::Outcome(done) = answer else { return Err(Refusal::mismatch("an outcome").into()) };
        match done.filter(|done| done.queue.namespace == named.namespace()) {
            Some(done) => {
                response.outcome = Some(message::outcome(done));
                Ok(Response::new(response))
            }
            None => Err(named.not_found().into()),
        }
    }

    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let timeout = call::timeout(request.metadata());
        let v1::OpenSessionRequest { renew } = request.into_inner();
        let command = Command::OpenSession(OpenSession { renew });
        let Changed { commit, answered } = call::propose(&self.handle, command, None, timeout).await?;
        let Answered::SessionOpened(opened) = answered else {
            return Err(Refusal::mismatch("a session").into());
        };
        Ok(Response::new(v1::OpenSessionResponse {
            session: opened.session,
            idle_timeout: Some(duration_of_ms(limits::SESSION_IDLE_MS)),
            window: u32::try_from(limits::SESSION_OUTCOMES).unwrap_or(u32::MAX),
            commit: Some(commit),
        }))
    }
}
