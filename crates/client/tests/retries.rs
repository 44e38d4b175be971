//! The SDK against a server that misbehaves on command: what it sends again, under which id, and what it gives up.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ticketrail_client::{Client, Effect, Error, Part, Reason, RetryPolicy, SettledPart, Settlement};
use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_server::{CommitService, CommitServiceServer};
use ticketrail_proto::v1::queue_service_server::{QueueService, QueueServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What the server does with the next call.
#[derive(Debug, Clone)]
enum Act {
    /// Does it.
    Do,
    /// Does it, and tells that it was done before.
    Replay,
    /// Says no to the whole call.
    Refuse(Code, &'static str),
    /// Says no to the only item, with a time to come back.
    RefuseItem(Code, &'static str),
    /// Never answers.
    Hang,
}

#[derive(Debug, Default)]
struct Script {
    acts: VecDeque<Act>,
    sessions: u64,
    opened: usize,
    /// The ids that came, in order.
    ids: Vec<v1::RequestId>,
}

#[derive(Debug, Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn of(acts: impl IntoIterator<Item = Act>) -> Self {
        let acts = acts.into_iter().collect();
        Self(Arc::new(Mutex::new(Script { acts, ..Script::default() })))
    }

    fn ids(&self) -> Vec<v1::RequestId> {
        self.0.lock().expect("the script").ids.clone()
    }

    fn opened(&self) -> usize {
        self.0.lock().expect("the script").opened
    }

    async fn act(&self, id: Option<v1::RequestId>) -> Result<Act, Status> {
        let act = {
            let mut script = self.0.lock().expect("the script");
            script.ids.push(id.ok_or_else(|| Status::invalid_argument("no request id"))?);
            script.acts.pop_front().unwrap_or(Act::Do)
        };
        match act {
            Act::Refuse(code, "") => Err(Status::new(code, "bare")),
            Act::Refuse(code, reason) => {
                let mut details = ErrorDetails::new();
                details.set_error_info(reason, "ticketrail", std::collections::HashMap::<String, String>::new());
                Err(Status::with_error_details(code, "no", details))
            }
            Act::Hang => std::future::pending().await,
            act @ (Act::Do | Act::Replay | Act::RefuseItem(..)) => Ok(act),
        }
    }
}

fn commit(act: &Act) -> Option<v1::Commit> {
    Some(v1::Commit { index: 1, replayed: matches!(act, Act::Replay), ..Default::default() })
}

fn item_error(act: &Act) -> Option<v1::ItemError> {
    match act {
        Act::RefuseItem(code, reason) => Some(v1::ItemError {
            code: *code as i32,
            reason: (*reason).to_owned(),
            message: "no".to_owned(),
            retry_after: Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 }),
            ..Default::default()
        }),
        Act::Do | Act::Replay | Act::Refuse(..) | Act::Hang => None,
    }
}

#[tonic::async_trait]
impl QueueService for Scripted {
    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Result<Response<v1::EnqueueResponse>, Status> {
        use v1::enqueue_result::Outcome;
        let act = self.act(request.into_inner().request_id).await?;
        let outcome = match item_error(&act) {
            Some(error) => Outcome::Error(error),
            None => Outcome::Enqueued(v1::Enqueued { message_id: "1.1.m4.1".to_owned(), ..Default::default() }),
        };
        let results = vec![v1::EnqueueResult { outcome: Some(outcome) }];
        Ok(Response::new(v1::EnqueueResponse { commit: commit(&act), results }))
    }

    async fn receive(&self, request: Request<v1::ReceiveRequest>) -> Result<Response<v1::ReceiveResponse>, Status> {
        let act = self.act(request.into_inner().request_id).await?;
        let lease_remaining = Some(prost_types::Duration { seconds: 30, nanos: 0 });
        let delivery =
            v1::Delivery { lease_token: vec![7].into(), lease_remaining, receive_count: 1, ..Default::default() };
        let deliveries = vec![delivery];
        Ok(Response::new(v1::ReceiveResponse { deliveries, commit: commit(&act), ..Default::default() }))
    }

    async fn settle(&self, request: Request<v1::SettleRequest>) -> Result<Response<v1::SettleResponse>, Status> {
        use v1::settle_result::Outcome;
        let request = request.into_inner();
        let act = self.act(request.request_id).await?;
        let result = || v1::SettleResult {
            outcome: Some(item_error(&act).map_or(Outcome::Acked(v1::Acked {}), Outcome::Error)),
        };
        let results = request.settlements.iter().map(|_| result()).collect();
        Ok(Response::new(v1::SettleResponse { commit: commit(&act), results }))
    }

    type ProduceStream = tokio_stream::Empty<Result<v1::ProduceResponse, Status>>;

    async fn produce(
        &self,
        _: Request<Streaming<v1::ProduceRequest>>,
    ) -> Result<Response<Self::ProduceStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    type ConsumeStream = tokio_stream::Empty<Result<v1::ConsumeResponse, Status>>;

    async fn consume(
        &self,
        _: Request<Streaming<v1::ConsumeRequest>>,
    ) -> Result<Response<Self::ConsumeStream>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn extend(&self, _: Request<v1::ExtendRequest>) -> Result<Response<v1::ExtendResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn peek(&self, _: Request<v1::PeekRequest>) -> Result<Response<v1::PeekResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn reschedule(&self, _: Request<v1::RescheduleRequest>) -> Result<Response<v1::RescheduleResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn open_session(
        &self,
        _: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let mut script = self.0.lock().expect("the script");
        script.sessions += 1;
        script.opened += 1;
        let session = 100 + script.sessions;
        Ok(Response::new(v1::OpenSessionResponse { session, window: 1_024, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl CommitService for Scripted {
    async fn commit(&self, request: Request<v1::CommitRequest>) -> Result<Response<v1::CommitResponse>, Status> {
        let request = request.into_inner();
        let act = self.act(request.request_id).await?;
        if let Some(error) = item_error(&act) {
            let mut details = ErrorDetails::new();
            let part = [("part", "enqueue"), ("index", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
            details.set_error_info(error.reason, "ticketrail", part);
            return Err(Status::with_error_details(Code::from_i32(error.code), error.message, details));
        }
        let acked = || v1::SettledPart { outcome: Some(v1::settled_part::Outcome::Acked(v1::Acked {})) };
        let enqueued = |part: &v1::EnqueuePart| v1::Enqueued { message_id: part.queue.clone(), ..Default::default() };
        Ok(Response::new(v1::CommitResponse {
            commit: commit(&act),
            settled: request.settle.iter().map(|_| acked()).collect(),
            enqueued: request.enqueue.iter().map(enqueued).collect(),
            ..Default::default()
        }))
    }
}

async fn serve(scripted: &Scripted) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (queues, commits) = (QueueServiceServer::new(scripted.clone()), CommitServiceServer::new(scripted.clone()));
    let incoming = TcpListenerStream::new(listener);
    // Ends with the test's runtime.
    let server = tonic::transport::Server::builder().add_service(queues).add_service(commits);
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn client(scripted: &Scripted) -> Client {
    let policy = RetryPolicy {
        timeout: Duration::from_secs(5),
        attempt_timeout: Duration::from_millis(300),
        backoff_base: Duration::from_millis(1),
        ..RetryPolicy::default()
    };
    let address = serve(scripted).await;
    Client::builder().address(address.to_string()).retry(policy).connect().expect("an address")
}

fn id(session: u64, seq: u64, acked_below: u64, repeat: bool) -> v1::RequestId {
    v1::RequestId { session, seq, acked_below, repeat, ..Default::default() }
}

#[tokio::test]
async fn an_unknown_outcome_is_repeated_under_the_same_id_and_marked() {
    for unknown in [
        Act::Refuse(Code::Unavailable, ""),
        Act::Refuse(Code::DeadlineExceeded, "UNKNOWN_OUTCOME"),
        Act::Refuse(Code::Internal, "BROKEN"),
        Act::Hang,
    ] {
        let scripted = Scripted::of([unknown.clone(), Act::Replay]);
        let sent = client(&scripted).await.queue("orders").send("x").await.expect("sent");
        assert!(sent.position.replayed, "{unknown:?}");
        assert_eq!(scripted.ids(), [id(101, 1, 1, false), id(101, 1, 1, true)], "{unknown:?}");
    }
}

#[tokio::test]
async fn where_nothing_happened_the_next_attempt_is_no_repeat() {
    for reason in ["NOT_LEADER", "NO_QUORUM", "DRAINING", "NOT_INITIALIZED"] {
        let scripted = Scripted::of([Act::Refuse(Code::Unavailable, reason)]);
        client(&scripted).await.queue("orders").send("x").await.expect("sent");
        assert_eq!(scripted.ids(), [id(101, 1, 1, false), id(101, 1, 1, false)], "{reason}");
    }
}

#[tokio::test]
async fn once_in_doubt_a_request_stays_a_repeat() {
    let acts = [Act::Refuse(Code::Unavailable, ""), Act::Refuse(Code::Unavailable, "NO_QUORUM")];
    let scripted = Scripted::of(acts);
    client(&scripted).await.queue("orders").send("x").await.expect("sent");
    assert_eq!(scripted.ids().iter().map(|id| id.repeat).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn an_expired_session_is_opened_anew_only_without_doubt() {
    let scripted = Scripted::of([Act::Refuse(Code::FailedPrecondition, "SESSION_EXPIRED")]);
    client(&scripted).await.queue("orders").send("x").await.expect("sent in a new session");
    assert_eq!(scripted.ids(), [id(101, 1, 1, false), id(102, 1, 1, false)]);

    let acts = [Act::Refuse(Code::Unavailable, ""), Act::Refuse(Code::FailedPrecondition, "SESSION_EXPIRED")];
    let scripted = Scripted::of(acts);
    let client = client(&scripted).await;
    let error = client.queue("orders").send("x").await.expect_err("in doubt");
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert_eq!(error.effect(), Effect::Unknown);
    client.queue("orders").send("y").await.expect("the next call has a new session");
    assert_eq!(scripted.ids().last(), Some(&id(102, 1, 1, false)));
}

#[tokio::test]
async fn a_full_queue_is_waited_for_under_a_new_number() {
    let full = || Act::RefuseItem(Code::ResourceExhausted, "FULL");
    let scripted = Scripted::of([full(), full()]);
    client(&scripted).await.queue("orders").send("x").await.expect("sent when there was room");
    assert_eq!(scripted.ids(), [id(101, 1, 1, false), id(101, 2, 2, false), id(101, 3, 3, false)]);
}

#[tokio::test]
async fn a_full_queue_is_said_at_once_where_the_policy_does_not_wait() {
    let scripted = Scripted::of([Act::RefuseItem(Code::ResourceExhausted, "FULL")]);
    let policy = RetryPolicy { wait_for_room: false, ..RetryPolicy::default() };
    let address = serve(&scripted).await.to_string();
    let client = Client::builder().address(address).retry(policy).connect().expect("an address");
    let error = client.queue("orders").send("x").await.expect_err("full");
    assert_eq!(error.reason(), Some(&Reason::Full));
    assert_eq!(error.effect(), Effect::Nothing);
    assert_eq!(scripted.ids().len(), 1);
}

#[tokio::test]
async fn a_lost_lease_is_never_tried_again() {
    let scripted = Scripted::of([Act::Do, Act::RefuseItem(Code::FailedPrecondition, "LEASE_LOST")]);
    let received = client(&scripted).await.queue("orders").receive().await.expect("received");
    let [delivery] = <[_; 1]>::try_from(received.deliveries).expect("one delivery");
    assert!(delivery.lease_left() > Duration::from_secs(20));
    let error = delivery.ack().await.expect_err("lost");
    assert_eq!(error.reason(), Some(&Reason::LeaseLost));
    assert_eq!(scripted.ids().len(), 2, "a receive and one ack");
}

#[tokio::test]
async fn a_commit_is_repeated_under_its_id_until_it_happened() {
    let scripted =
        Scripted::of([Act::Refuse(Code::Unavailable, "NOT_LEADER"), Act::Hang, Act::Refuse(Code::Unknown, "")]);
    let client = client(&scripted).await;
    let ack = Settlement::ack_token(vec![7].into());
    let done = client.commit().settle(ack).enqueue("payment", "x").enqueue("mail", "y").send().await.expect("done");
    assert_eq!(done.settled, [SettledPart::Acked]);
    let ids: Vec<_> = done.enqueued.iter().map(|sent| sent.message_id.as_str()).collect();
    assert_eq!(ids, ["payment", "mail"]);
    let attempt = |repeat| id(101, 1, 1, repeat);
    assert_eq!(scripted.ids(), [attempt(false), attempt(false), attempt(true), attempt(true)]);
}

#[tokio::test]
async fn a_refused_commit_names_its_part() {
    let scripted = Scripted::of([
        Act::RefuseItem(Code::FailedPrecondition, "QUEUE_CLOSED"),
        Act::RefuseItem(Code::ResourceExhausted, "FULL"),
        Act::Do,
        Act::Refuse(Code::InvalidArgument, "INVALID"),
    ]);
    let client = client(&scripted).await;
    let commit = || client.commit().enqueue("payment", "x").enqueue("mail", "y");
    let error = commit().send().await.expect_err("closed");
    assert_eq!((error.reason(), error.effect()), (Some(&Reason::QueueClosed), Effect::Nothing));
    assert_eq!(error.refusal().and_then(|refusal| refusal.part()), Some(Part::Enqueue(1)));
    // A full queue is waited for.
    commit().send().await.expect("done when there was room");
    let error = commit().send().await.expect_err("invalid");
    assert_eq!(error.refusal().and_then(|refusal| refusal.part()), None, "it was the whole that was wrong");
}

#[tokio::test]
async fn a_batch_keeps_the_refusals_of_its_items() {
    let scripted = Scripted::of([Act::RefuseItem(Code::FailedPrecondition, "LEASE_LOST"), Act::Do]);
    let client = client(&scripted).await;
    let token = || Settlement::ack_token(vec![7].into());
    let batch = client.settle([token(), token()]).await.expect("answered");
    assert_eq!((batch.results.len(), batch.refused()), (2, 2));
    let batch = client.settle([token()]).await.expect("answered");
    assert_eq!(batch.refused(), 0);
    assert_eq!(scripted.ids(), [id(101, 1, 1, false), id(101, 2, 2, false)]);
}

#[tokio::test]
async fn a_burst_of_first_calls_opens_one_session_and_acked_below_follows() {
    let scripted = Scripted::default();
    let client = client(&scripted).await;
    let queue = client.queue("orders");
    let calls = (0..50).map(|_| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.send("x").await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("joined").expect("sent");
    }
    assert_eq!(scripted.opened(), 1);
    let mut seqs: Vec<u64> = scripted.ids().iter().map(|id| id.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>(), "each number once");
    queue.send("x").await.expect("sent");
    assert_eq!(scripted.ids().last(), Some(&id(101, 51, 51, false)), "all before it have been seen");
}

#[tokio::test]
async fn a_dropped_call_does_not_hold_acked_below() {
    let scripted = Scripted::of([Act::Hang]);
    let client = client(&scripted).await;
    let queue = client.queue("orders");
    let hanging = tokio::time::timeout(Duration::from_millis(50), async { queue.send("x").await }).await;
    assert!(hanging.is_err(), "it hangs until it is dropped");
    queue.send("y").await.expect("sent");
    assert_eq!(scripted.ids().last(), Some(&id(101, 2, 2, false)));
}

#[tokio::test]
async fn past_the_deadline_a_doubt_stays_a_doubt() {
    let scripted = Scripted::of(std::iter::repeat_n(Act::Hang, 100));
    let policy = RetryPolicy {
        timeout: Duration::from_millis(200),
        attempt_timeout: Duration::from_millis(50),
        ..RetryPolicy::default()
    };
    let address = serve(&scripted).await.to_string();
    let client = Client::builder().address(address).retry(policy).connect().expect("an address");
    let error = client.queue("orders").send("x").await.expect_err("never answered");
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(scripted.ids().len() > 1, "it was tried again");
}
