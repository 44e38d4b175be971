//! What the SDK asks for, as a server sees it, and what it makes of the answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ticketrail_client::{
    Cancelled, Client, Found, MessageState, NewMessage, OnExpired, Part, QueueSettings, Reason, Rescheduled,
    RetryPolicy, Settlement, When,
};
use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_server::{AdminService, AdminServiceServer};
use ticketrail_proto::v1::commit_service_server::{CommitService, CommitServiceServer};
use ticketrail_proto::v1::queue_service_server::{QueueService, QueueServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

/// What came, the newest last, request ids taken out.
#[derive(Debug, Default)]
struct Came {
    enqueues: Vec<v1::EnqueueRequest>,
    receives: Vec<v1::ReceiveRequest>,
    settles: Vec<v1::SettleRequest>,
    peeks: Vec<v1::PeekRequest>,
    gets: Vec<v1::GetRequest>,
    cancels: Vec<v1::CancelRequest>,
    reschedules: Vec<v1::RescheduleRequest>,
    commits: Vec<v1::CommitRequest>,
    namespaces: Vec<v1::SetNamespaceRequest>,
}

/// Answers as a server would that has one message, `1.1.m4.1`, which has been acked.
#[derive(Debug, Clone, Default)]
struct Server(Arc<Mutex<Came>>);

type Answer<T> = Result<Response<T>, Status>;

impl Server {
    fn note<T>(&self, note: impl FnOnce(&mut Came) -> T) -> T {
        note(&mut self.0.lock().expect("what came"))
    }

    /// The newest of what came.
    fn last<T: Clone>(&self, of: impl FnOnce(&Came) -> &Vec<T>) -> T {
        self.note(|came| of(came).last().cloned()).expect("one came")
    }
}

fn late() -> v1::ItemError {
    let metadata = [("receive_count".to_owned(), "2".to_owned())].into();
    v1::ItemError { code: 9, reason: "TOO_LATE".into(), message: "too late".into(), metadata, retry_after: None }
}

fn elsewhere<T>() -> Answer<T> {
    Err(Status::unimplemented("not in these tests"))
}

/// The first target is gone, the second one is with somebody, all others are there.
fn cancelled(at: usize) -> v1::CancelResult {
    use v1::cancel_result::Outcome;
    let outcome = match at {
        0 => Outcome::Gone(v1::Gone {}),
        1 => Outcome::Error(late()),
        _ => Outcome::Cancelled(v1::Cancelled { message_id: "1.1.m4.1".into() }),
    };
    v1::CancelResult { outcome: Some(outcome) }
}

fn rescheduled() -> v1::RescheduleResult {
    let available_at = Some(prost_types::Timestamp { seconds: 9, nanos: 0 });
    let moved = v1::Rescheduled { message_id: "1.1.m4.1".into(), available_at };
    v1::RescheduleResult { outcome: Some(v1::reschedule_result::Outcome::Rescheduled(moved)) }
}

#[tonic::async_trait]
impl QueueService for Server {
    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Answer<v1::EnqueueResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let all_or_nothing = request.all_or_nothing;
        let result = |message: &v1::NewMessage| {
            let duplicate = !message.dedup_id.is_empty();
            let enqueued = v1::Enqueued { message_id: "1.1.m4.1".into(), duplicate, ..Default::default() };
            v1::EnqueueResult { outcome: Some(v1::enqueue_result::Outcome::Enqueued(enqueued)) }
        };
        let results = request.messages.iter().map(result).collect();
        self.note(|came| came.enqueues.push(request));
        if all_or_nothing {
            let mut details = ErrorDetails::new();
            let part = [("part", "enqueue"), ("index", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
            details.set_error_info("QUEUE_CLOSED", "ticketrail", part);
            return Err(Status::with_error_details(Code::FailedPrecondition, "closed", details));
        }
        Ok(Response::new(v1::EnqueueResponse { commit: Some(v1::Commit::default()), results }))
    }

    async fn receive(&self, request: Request<v1::ReceiveRequest>) -> Answer<v1::ReceiveResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let leased = !request.auto_ack;
        let message = v1::Message { id: "1.1.m4.1".into(), group: "g".into(), priority: 9, ..Default::default() };
        let delivery = v1::Delivery {
            message: Some(message),
            lease_token: if leased { vec![7; 37].into() } else { Default::default() },
            lease_remaining: leased.then_some(prost_types::Duration { seconds: 30, nanos: 0 }),
            receive_count: 3,
            failures: 1,
        };
        self.note(|came| came.receives.push(request));
        let commit = Some(v1::Commit { index: 5, ..Default::default() });
        Ok(Response::new(v1::ReceiveResponse { deliveries: vec![delivery], commit, ..Default::default() }))
    }

    async fn settle(&self, request: Request<v1::SettleRequest>) -> Answer<v1::SettleResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let outcomes = [
            v1::settle_result::Outcome::Acked(v1::Acked {}),
            v1::settle_result::Outcome::Expired(v1::Expired {}),
            v1::settle_result::Outcome::Dropped(v1::Dropped {}),
        ];
        let results = request.settlements.iter().zip(outcomes);
        let results = results.map(|(_, outcome)| v1::SettleResult { outcome: Some(outcome) }).collect();
        self.note(|came| came.settles.push(request));
        Ok(Response::new(v1::SettleResponse { commit: Some(v1::Commit::default()), results }))
    }

    async fn extend(&self, _: Request<v1::ExtendRequest>) -> Answer<v1::ExtendResponse> {
        elsewhere()
    }

    async fn peek(&self, request: Request<v1::PeekRequest>) -> Answer<v1::PeekResponse> {
        let info = v1::MessageInfo {
            state: v1::MessageState::Blocked.into(),
            line: 4,
            dedup_id: "d".into(),
            expires_at: Some(prost_types::Timestamp { seconds: 9, nanos: 0 }),
            retry: Some(v1::RetryPolicy { max_attempts: Some(2), ..Default::default() }),
            dead_letter_queue: "morgue".into(),
            ..Default::default()
        };
        self.note(|came| came.peeks.push(request.into_inner()));
        Ok(Response::new(v1::PeekResponse { messages: vec![info], ..Default::default() }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        self.note(|came| came.gets.push(request.into_inner()));
        let outcome = v1::Outcome { message_id: "1.1.m4.1".into(), output: "42".into(), ..Default::default() };
        Ok(Response::new(v1::GetResponse { outcome: Some(outcome), ..Default::default() }))
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Answer<v1::CancelResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let results = (0..request.targets.len()).map(cancelled).collect();
        self.note(|came| came.cancels.push(request));
        Ok(Response::new(v1::CancelResponse { commit: Some(v1::Commit::default()), results }))
    }

    async fn reschedule(&self, request: Request<v1::RescheduleRequest>) -> Answer<v1::RescheduleResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let results = request.messages.iter().map(|_| rescheduled()).collect();
        self.note(|came| came.reschedules.push(request));
        Ok(Response::new(v1::RescheduleResponse { commit: Some(v1::Commit::default()), results }))
    }

    type ProduceStream = tokio_stream::Empty<Result<v1::ProduceResponse, Status>>;

    async fn produce(&self, _: Request<Streaming<v1::ProduceRequest>>) -> Answer<Self::ProduceStream> {
        elsewhere()
    }

    type ConsumeStream = tokio_stream::Empty<Result<v1::ConsumeResponse, Status>>;

    async fn consume(&self, _: Request<Streaming<v1::ConsumeRequest>>) -> Answer<Self::ConsumeStream> {
        elsewhere()
    }

    async fn open_session(&self, _: Request<v1::OpenSessionRequest>) -> Answer<v1::OpenSessionResponse> {
        Ok(Response::new(v1::OpenSessionResponse { session: 7, window: 1_024, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl CommitService for Server {
    async fn commit(&self, request: Request<v1::CommitRequest>) -> Answer<v1::CommitResponse> {
        let mut request = request.into_inner();
        request.request_id = None;
        let enqueued = v1::Enqueued { message_id: "1.2.m4.1".into(), ..Default::default() };
        let dropped = v1::SettledPart { outcome: Some(v1::settled_part::Outcome::Dropped(v1::Dropped {})) };
        let mut response = v1::CommitResponse {
            commit: Some(v1::Commit { index: 5, ..Default::default() }),
            settled: request.settle.iter().map(|_| dropped.clone()).collect(),
            rescheduled: request.reschedule.iter().map(|_| rescheduled()).collect(),
            ..Default::default()
        };
        if request.independent {
            let full = v1::ItemError { code: 8, reason: "FULL".into(), ..Default::default() };
            let full = v1::EnqueueResult { outcome: Some(v1::enqueue_result::Outcome::Error(full)) };
            response.cancelled = (0..request.cancel.len()).map(cancelled).collect();
            response.enqueue_results = request.enqueue.iter().map(|_| full.clone()).collect();
        } else {
            response.cancelled = request.cancel.iter().map(|_| cancelled(2)).collect();
            response.enqueued = request.enqueue.iter().map(|_| enqueued.clone()).collect();
        }
        self.note(|came| came.commits.push(request));
        Ok(Response::new(response))
    }
}

/// Stubs for all of a service but what these tests speak of.
macro_rules! elsewhere {
    ($($method:ident($request:ident) -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl AdminService for Server {
            $(async fn $method(&self, _: Request<v1::$request>) -> Answer<v1::$response> {
                elsewhere()
            })*

            async fn set_namespace(&self, request: Request<v1::SetNamespaceRequest>) -> Answer<v1::SetNamespaceResponse> {
                let mut request = request.into_inner();
                request.request_id = None;
                self.note(|came| came.namespaces.push(request));
                Ok(Response::new(v1::SetNamespaceResponse::default()))
            }

            async fn delete_namespace(&self, _: Request<v1::DeleteNamespaceRequest>) -> Answer<v1::DeleteNamespaceResponse> {
                let mut details = ErrorDetails::new();
                details.set_error_info("NAMESPACE_NOT_FOUND", "ticketrail", [("namespace".to_owned(), "shop".to_owned())]);
                Err(Status::with_error_details(Code::NotFound, "none", details))
            }

            async fn get_namespace(&self, request: Request<v1::GetNamespaceRequest>) -> Answer<v1::GetNamespaceResponse> {
                let name = request.into_inner().namespace;
                let namespace = Some(v1::NamespaceInfo { name, auto_create: true, ..Default::default() });
                Ok(Response::new(v1::GetNamespaceResponse { namespace, origin: None }))
            }

            async fn list_namespaces(&self, request: Request<v1::ListNamespacesRequest>) -> Answer<v1::ListNamespacesResponse> {
                let token = request.into_inner().page_token;
                let name = if token.is_empty() { "lab" } else { "shop" }.to_owned();
                let info = v1::NamespaceInfo { name, configured: true, ..Default::default() };
                let next_page_token = if token.is_empty() { "next".to_owned() } else { String::new() };
                Ok(Response::new(v1::ListNamespacesResponse { namespaces: vec![info], next_page_token, origin: None }))
            }
        }
    };
}

elsewhere! {
    create_queue(CreateQueueRequest) -> CreateQueueResponse;
    update_queue(UpdateQueueRequest) -> UpdateQueueResponse;
    delete_queue(DeleteQueueRequest) -> DeleteQueueResponse;
    purge_queue(PurgeQueueRequest) -> PurgeQueueResponse;
    pause_queue(PauseQueueRequest) -> PauseQueueResponse;
    resume_queue(ResumeQueueRequest) -> ResumeQueueResponse;
    close_queue(CloseQueueRequest) -> CloseQueueResponse;
    reopen_queue(ReopenQueueRequest) -> ReopenQueueResponse;
    get_queue(GetQueueRequest) -> GetQueueResponse;
    list_queues(ListQueuesRequest) -> ListQueuesResponse;
    get_status(GetStatusRequest) -> GetStatusResponse;
}

/// A client in the namespace `shop`, and its server.
async fn shop() -> (Client, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let server = Server::default();
    // Ends with the test's runtime.
    let serving = tonic::transport::Server::builder()
        .add_service(QueueServiceServer::new(server.clone()))
        .add_service(CommitServiceServer::new(server.clone()))
        .add_service(AdminServiceServer::new(server.clone()));
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    let policy = RetryPolicy { timeout: Duration::from_secs(5), wait_for_room: false, ..RetryPolicy::default() };
    let client = Client::builder().address(address.to_string()).namespace("shop").retry(policy).connect();
    (client.expect("a client"), server)
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

#[tokio::test]
async fn all_that_is_said_of_a_message_goes_out() {
    let (client, server) = shop().await;
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
    let sent = client
        .queue("orders")
        .send("x")
        .group("g")
        .priority(9)
        .dedup("d")
        .ttl(Duration::from_secs(60))
        .expires_at(at)
        .max_attempts(2)
        .backoff(Duration::from_secs(1), Duration::from_secs(5))
        .dead_letter_queue("morgue")
        .await
        .expect("sent");
    assert!(sent.duplicate);
    let request = server.last(|came| &came.enqueues);
    assert_eq!((request.namespace.as_str(), request.queue.as_str(), request.all_or_nothing), ("shop", "orders", false));
    let retry = v1::RetryPolicy { max_attempts: Some(2), backoff_base: seconds(1), backoff_cap: seconds(5) };
    let expected = v1::NewMessage {
        body: "x".into(),
        group: "g".into(),
        priority: Some(9),
        dedup_id: "d".into(),
        ttl: seconds(60),
        expires_at: Some(at.into()),
        retry: Some(retry),
        dead_letter_queue: "morgue".into(),
        ..Default::default()
    };
    assert_eq!(request.messages, [expected]);
}

#[tokio::test]
async fn all_or_nothing_names_the_message_for_whose_sake_nothing_was_sent() {
    let (client, server) = shop().await;
    let error = client.queue("orders").send_all_or_nothing(["a", "b"]).await.expect_err("refused");
    assert_eq!(error.reason(), Some(&Reason::QueueClosed));
    assert_eq!(error.refusal().and_then(|refusal| refusal.part()), Some(Part::Enqueue(1)));
    assert!(server.last(|came| &came.enqueues).all_or_nothing);
}

#[tokio::test]
async fn receives_name_all_queues_and_may_ack_at_once() {
    let (client, server) = shop().await;
    let received = client.queue("urgent").receive().also("orders").also("reports").await.expect("received");
    let message = &received.deliveries[0].message;
    assert_eq!((message.group.as_str(), message.priority), ("g", 9));
    let request = server.last(|came| &came.receives);
    assert_eq!(
        (request.queue.as_str(), request.more_queues.as_slice()),
        ("urgent", &["orders".into(), "reports".into()][..])
    );
    assert!(!request.auto_ack);

    let taken = client.queue("urgent").receive().max(5).auto_ack().await.expect("taken");
    assert!(server.last(|came| &came.receives).auto_ack);
    let first = &taken.messages[0];
    assert_eq!((first.message.id.as_str(), first.receive_count, first.failures), ("1.1.m4.1", 3, 1));
    assert_eq!(taken.position.map(|position| position.index), Some(5));
}

#[tokio::test]
async fn acks_carry_an_output_and_settlements_tell_all_outcomes() {
    let (client, server) = shop().await;
    let token = bytes::Bytes::from_static(b"t");
    let settlements = [
        Settlement::ack_token_with(token.clone(), "42"),
        Settlement::release_token(token.clone()),
        Settlement::retry_token(token, "E", "again", None),
    ];
    let done = client.settle(settlements).await.expect("settled");
    let names: Vec<_> = done.results.iter().map(|result| result.as_ref().map(|settled| settled.as_str())).collect();
    assert_eq!(names, [Ok("acked"), Ok("expired"), Ok("dropped")]);
    let first = server.last(|came| &came.settles).settlements.remove(0).verdict;
    assert_eq!(first, Some(v1::settlement::Verdict::Ack(v1::Ack { output: "42".into() })));
}

#[tokio::test]
async fn a_peek_has_filters_and_shows_all_there_is() {
    let (client, server) = shop().await;
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
    let queue = client.queue("orders");
    let look = queue.peek().state(MessageState::Blocked).group("g").message_type("t").tag("a", "b").priority(3);
    let page = look.enqueued_until(at).min_failures(2).await.expect("a page");
    let filter = server.last(|came| &came.peeks).filter.expect("a filter");
    let expected = v1::PeekFilter {
        group: "g".into(),
        r#type: "t".into(),
        tags: [("a".to_owned(), "b".to_owned())].into(),
        priority: Some(3),
        enqueued_until: Some(at.into()),
        min_failures: 2,
    };
    assert_eq!(filter, expected);
    let info = &page.messages[0];
    assert_eq!((info.line, info.dedup_id.as_str(), info.expires_at), (Some(4), "d", Some(at)));
    assert_eq!(info.retry.and_then(|retry| retry.max_attempts), Some(2));
    assert_eq!(info.dead_letter_queue, "morgue");
    queue.peek().await.expect("a page");
    assert_eq!(server.last(|came| &came.peeks).filter, None);
}

#[tokio::test]
async fn a_message_is_found_by_either_of_its_ids_or_what_came_of_it() {
    let (client, server) = shop().await;
    let Found::Done(outcome) = client.get("1.1.m4.1").await.expect("known") else { panic!("it has been acked") };
    assert_eq!(outcome.output, "42");
    let request = server.last(|came| &came.gets);
    assert_eq!((request.message_id.as_str(), request.namespace.as_str()), ("1.1.m4.1", "shop"));
    let found = client.get(client.queue("orders").dedup("o-1")).await.expect("known");
    assert!(found.outcome().is_some() && found.message().is_none());
    let request = server.last(|came| &came.gets);
    assert_eq!((request.queue.as_str(), request.dedup_id.as_str(), request.message_id.as_str()), ("orders", "o-1", ""));
}

#[tokio::test]
async fn messages_are_cancelled_and_rescheduled_by_either_id() {
    use v1::target::Which;
    let (client, server) = shop().await;
    let orders = client.queue("orders");
    assert_eq!(client.cancel("1.1.m4.1").await.expect("an outcome"), Cancelled::Gone);
    let targets = ["a", "b", "c"].map(|dedup_id| orders.dedup(dedup_id));
    let batch = client.cancel_batch(targets).await.expect("outcomes");
    assert_eq!(batch.refused(), 1);
    let late = batch.results[1].as_ref().expect_err("too late");
    assert_eq!((&late.reason, late.receive_count()), (&Reason::TooLate, Some(2)));
    assert_eq!(batch.results[2], Ok(Cancelled::Cancelled { message_id: "1.1.m4.1".into() }));
    let request = server.last(|came| &came.cancels);
    let key = v1::DedupKey { queue: "orders".into(), dedup_id: "c".into() };
    assert_eq!((request.namespace.as_str(), request.targets[2].which.clone()), ("shop", Some(Which::Dedup(key))));

    let moved = client.reschedule(orders.dedup("a"), When::After(Duration::from_secs(60))).await.expect("moved");
    let available_at = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
    assert_eq!(moved, Rescheduled { message_id: "1.1.m4.1".into(), available_at });
    let wire = server.last(|came| &came.reschedules).messages.remove(0);
    assert_eq!(wire.available, seconds(60).map(v1::new_time::Available::Delay));
    let both = [(orders.dedup("a"), When::Now), ("1.1.m4.1".into(), When::At(available_at))];
    assert_eq!(client.reschedule_batch(both).await.expect("moved").results.len(), 2);
    assert_eq!(server.last(|came| &came.reschedules).messages[0].available, None);
}

#[tokio::test]
async fn a_commit_has_four_kinds_of_parts_together_or_alone() {
    let (client, server) = shop().await;
    let orders = client.queue("orders");
    let commit = || {
        client
            .commit()
            .settle(Settlement::ack_token("t".into()))
            .cancel(orders.dedup("a"))
            .reschedule("1.1.m4.1", When::Now)
            .enqueue("mail", NewMessage::new("x"))
    };
    let done = commit().send().await.expect("done");
    assert_eq!((done.settled.len(), done.rescheduled.len()), (1, 1));
    assert_eq!(done.cancelled, [Cancelled::Cancelled { message_id: "1.1.m4.1".into() }]);
    assert_eq!(done.enqueued[0].message_id, "1.2.m4.1");
    assert!(!server.last(|came| &came.commits).independent);

    let done = commit().cancel(orders.dedup("b")).send_each().await.expect("done");
    assert_eq!(done.cancelled[0], Ok(Cancelled::Gone));
    assert_eq!(done.cancelled[1].as_ref().expect_err("too late").reason, Reason::TooLate);
    assert_eq!(done.enqueued[0].as_ref().expect_err("full").reason, Reason::Full);
    assert_eq!(done.refused(), 2);
    assert!(server.last(|came| &came.commits).independent);
}

#[tokio::test]
async fn namespaces_are_set_shown_listed_and_deleted() {
    let (client, server) = shop().await;
    let admin = client.admin();
    let defaults = QueueSettings {
        ttl: Some(Duration::from_secs(60)),
        on_expired: Some(OnExpired::DeadLetter),
        expected_rate: Some(2.5),
        ..Default::default()
    };
    admin.set_namespace("lab", defaults, false).await.expect("set");
    let request = server.last(|came| &came.namespaces);
    assert_eq!((request.namespace.as_str(), request.auto_create), ("lab", Some(false)));
    let wire = request.defaults.expect("defaults");
    assert_eq!((wire.ttl, wire.on_expired(), wire.expected_rate), (seconds(60), v1::OnExpired::DeadLetter, Some(2.5)));
    let info = admin.namespace("lab").await.expect("shown");
    assert_eq!((info.name.as_str(), info.configured, info.auto_create), ("lab", false, true));
    let names: Vec<_> = admin.namespaces().await.expect("listed").into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["lab", "shop"]);
    let error = admin.delete_namespace("shop").await.expect_err("not there");
    assert_eq!(error.reason(), Some(&Reason::NamespaceNotFound));
}
