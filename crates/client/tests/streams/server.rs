//! A small server: one queue in memory, with leases, sessions and streams, under the rules of the real one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketrail_client::{Client, RetryPolicy};
use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_server::AdminServiceServer;
use ticketrail_proto::v1::queue_service_server::{QueueService, QueueServiceServer};
use ticketrail_proto::v1::settlement::Verdict;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::status::TellsStatus;

/// A message of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) body: Bytes,
    pub(crate) state: State,
    pub(crate) receive_count: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Ready,
    Leased(Instant),
    Acked,
    /// With its code.
    Dead(String),
}

/// What the server holds, and what it has seen.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) messages: BTreeMap<u64, Held>,
    sessions: u64,
    enqueued: HashMap<(u64, u64), v1::ProduceResponse>,
    settled: HashMap<(u64, u64), v1::Settled>,
    /// Requests that came again and did not say so.
    pub(crate) unmarked: usize,
    /// Requests that came again.
    pub(crate) repeats: usize,
    /// Names of the verdicts that took effect, in order.
    pub(crate) verdicts: Vec<String>,
    pub(crate) extensions: usize,
    pub(crate) streams: usize,
    pub(crate) calls: usize,
    /// The largest numbers of unused credits and of leased messages at any time.
    pub(crate) most_leased: usize,
    /// As many messages are on the queue at most.
    pub(crate) depth: Option<usize>,
    /// What is told of the leader; without it this one leads.
    pub(crate) leader: Option<String>,
    /// How often it was asked for its status.
    pub(crate) asked: usize,
    /// The error that streams of deliveries end with.
    pub(crate) refuse: Option<Status>,
}

#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
    lease: Duration,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start(lease: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Self { inner: Arc::default(), changed: Arc::default(), lease, address };
        let service = QueueServiceServer::new(server.clone());
        // Ends with the test's runtime.
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .add_service(AdminServiceServer::new(TellsStatus(server.clone())))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        server
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("the server's state")
    }

    pub(crate) fn fill(&self, bodies: impl IntoIterator<Item = String>) {
        let mut inner = self.lock();
        for body in bodies {
            inner.put(body.into());
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    pub(crate) fn count(&self, state: impl Fn(&State) -> bool) -> usize {
        self.lock().messages.values().filter(|held| state(&held.state)).count()
    }

    // Each takes the lock for itself: two guards in one expression would wait for each other.
    pub(crate) fn held(&self) -> usize {
        self.lock().messages.len()
    }

    /// Bodies that stand more than once on the queue.
    pub(crate) fn doubles(&self) -> usize {
        self.lock().doubles()
    }

    pub(crate) fn most_leased(&self) -> usize {
        self.lock().most_leased
    }

    pub(crate) fn verdicts(&self) -> Vec<String> {
        self.lock().verdicts.clone()
    }

    pub(crate) fn extensions(&self) -> usize {
        self.lock().extensions
    }

    pub(crate) fn streams(&self) -> usize {
        self.lock().streams
    }

    pub(crate) fn client(&self) -> Client {
        client(&[self.address])
    }

    /// With the leader's name, where one is told.
    pub(crate) fn answer<T>(&self, message: T) -> Response<T> {
        let mut response = Response::new(message);
        let mut inner = self.lock();
        inner.calls += 1;
        if let Some(leader) = &inner.leader {
            response.metadata_mut().insert("ticketrail-leader", leader.parse().expect("a value"));
        }
        response
    }

    fn produce_one(&self, request: v1::ProduceRequest) -> v1::ProduceResponse {
        use v1::produce_response::Outcome;
        let id = request.request_id.expect("a request id");
        let mut inner = self.lock();
        if let Some(known) = inner.enqueued.get(&(id.session, id.seq)).cloned() {
            inner.repeats += 1;
            inner.unmarked += usize::from(!id.repeat);
            return known;
        }
        let outcome = if request.messages.iter().any(|message| message.r#type == "bad") {
            Outcome::Error(error(3, "INVALID"))
        } else {
            let first_sequence = inner.messages.len() as u64 + 1;
            let mut results = Vec::new();
            for message in &request.messages {
                let waiting = inner.messages.values().filter(|held| held.state != State::Acked).count();
                let full = inner.depth.is_some_and(|depth| waiting >= depth);
                let outcome = if full {
                    v1::enqueue_result::Outcome::Error(error(8, "FULL"))
                } else {
                    let sequence = inner.put(message.body.clone());
                    let message_id = format!("1.1.m4.{sequence}");
                    v1::enqueue_result::Outcome::Enqueued(v1::Enqueued { message_id, sequence, ..Default::default() })
                };
                results.push(v1::EnqueueResult { outcome: Some(outcome) });
            }
            let all = results.iter().all(|r| matches!(r.outcome, Some(v1::enqueue_result::Outcome::Enqueued(_))));
            if all {
                Outcome::Enqueued(v1::EnqueuedRange {
                    first_message_id: format!("1.1.m4.{first_sequence}"),
                    first_sequence,
                    count: results.len() as u32,
                    available_at: None,
                })
            } else {
                Outcome::Results(v1::EnqueueResults { results })
            }
        };
        let response =
            v1::ProduceResponse { session: id.session, seq: id.seq, commit: None, outcome: Some(outcome.clone()) };
        if !matches!(outcome, Outcome::Error(_)) {
            inner.enqueued.insert((id.session, id.seq), response.clone());
        }
        drop(inner);
        self.changed.notify_waiters();
        response
    }

    fn settle(&self, request: v1::SettleRequest) -> v1::Settled {
        use v1::settle_result::Outcome;
        let id = request.request_id.expect("a request id");
        let mut inner = self.lock();
        if let Some(known) = inner.settled.get(&(id.session, id.seq)).cloned() {
            inner.repeats += 1;
            inner.unmarked += usize::from(!id.repeat);
            return known;
        }
        let mut results = Vec::new();
        for part in request.settlements {
            let Some(held) = inner.leased(&part.lease_token) else {
                results.push(v1::SettleResult { outcome: Some(Outcome::Error(error(9, "LEASE_LOST"))) });
                continue;
            };
            let (state, name, outcome) = match part.verdict.expect("a verdict") {
                Verdict::Ack(_) => (State::Acked, "ack".to_owned(), Outcome::Acked(v1::Acked {})),
                Verdict::Retry(retry) => {
                    (State::Ready, format!("retry {}", retry.code), Outcome::Delayed(v1::Delayed::default()))
                }
                Verdict::Reject(reject) => {
                    let name = format!("reject {}", reject.code);
                    (State::Dead(reject.code), name, Outcome::DeadLettered(v1::DeadLettered::default()))
                }
                Verdict::Release(_) => (State::Ready, "release".to_owned(), Outcome::Readied(v1::Readied {})),
            };
            held.state = state;
            inner.verdicts.push(name);
            results.push(v1::SettleResult { outcome: Some(outcome) });
        }
        let response = v1::SettleResponse { commit: None, results };
        let outcome = Some(v1::settled::Outcome::Response(response));
        let settled = v1::Settled { session: id.session, seq: id.seq, outcome };
        inner.settled.insert((id.session, id.seq), settled.clone());
        drop(inner);
        self.changed.notify_waiters();
        settled
    }

    fn extend(&self, request: v1::ExtendRequest) -> v1::LeasesExtended {
        use v1::extend_result::Outcome;
        let id = request.request_id.expect("a request id");
        let lease = self.lease;
        let mut inner = self.lock();
        let mut results = Vec::new();
        for part in request.extensions {
            inner.extensions += 1;
            let outcome = match inner.leased(&part.lease_token) {
                Some(held) => {
                    held.state = State::Leased(Instant::now() + lease);
                    Outcome::Extended(v1::Extended { lease_remaining: lease.try_into().ok() })
                }
                None => Outcome::Error(error(9, "LEASE_LOST")),
            };
            results.push(v1::ExtendResult { outcome: Some(outcome) });
        }
        let outcome = Some(v1::leases_extended::Outcome::Response(v1::ExtendResponse { commit: None, results }));
        v1::LeasesExtended { session: id.session, seq: id.seq, outcome }
    }

    /// Leases as many as `max`.
    fn lease(&self, max: usize, stamp: u64) -> Option<v1::Deliveries> {
        let lease = self.lease;
        let mut inner = self.lock();
        let mut deliveries = Vec::new();
        let now = Instant::now();
        for (sequence, held) in &mut inner.messages {
            if deliveries.len() >= max {
                break;
            }
            match held.state {
                State::Leased(until) if until < now => {}
                State::Ready => {}
                State::Leased(_) | State::Acked | State::Dead(_) => continue,
            }
            held.state = State::Leased(now + lease);
            held.receive_count += 1;
            let message =
                v1::Message { id: format!("1.1.m4.{sequence}"), body: held.body.clone(), ..Default::default() };
            deliveries.push(v1::Delivery {
                message: Some(message),
                lease_token: token(*sequence, held.receive_count),
                lease_remaining: lease.try_into().ok(),
                receive_count: held.receive_count,
                failures: 0,
            });
        }
        let leased = inner.messages.values().filter(|held| matches!(held.state, State::Leased(at) if at >= now));
        let leased = leased.count();
        inner.most_leased = inner.most_leased.max(leased);
        (!deliveries.is_empty()).then_some(v1::Deliveries { deliveries, commit: None, stamp })
    }
}

impl Inner {
    fn put(&mut self, body: Bytes) -> u64 {
        let sequence = self.messages.len() as u64 + 1;
        self.messages.insert(sequence, Held { body, state: State::Ready, receive_count: 0 });
        sequence
    }

    /// The message that a token leases, if the lease is live.
    fn leased(&mut self, token: &Bytes) -> Option<&mut Held> {
        let (sequence, count) = token.split_at(8);
        let sequence = u64::from_be_bytes(sequence.try_into().ok()?);
        let count = u32::from_be_bytes(count.try_into().ok()?);
        let held = self.messages.get_mut(&sequence)?;
        let live = matches!(held.state, State::Leased(until) if until >= Instant::now());
        (live && held.receive_count == count).then_some(held)
    }

    /// Bodies that stand more than once on the queue.
    pub(crate) fn doubles(&self) -> usize {
        let bodies: BTreeSet<_> = self.messages.values().map(|held| held.body.clone()).collect();
        self.messages.len() - bodies.len()
    }
}

fn token(sequence: u64, receive_count: u32) -> Bytes {
    [&sequence.to_be_bytes()[..], &receive_count.to_be_bytes()[..]].concat().into()
}

fn error(code: i32, reason: &str) -> v1::ItemError {
    let retry_after = (reason == "FULL").then_some(prost_types::Duration { seconds: 0, nanos: 5_000_000 });
    v1::ItemError { code, reason: reason.to_owned(), message: "no".to_owned(), retry_after, ..Default::default() }
}

/// A client of `addresses` that is quick to try again.
pub(crate) fn client(addresses: &[SocketAddr]) -> Client {
    let policy = RetryPolicy {
        timeout: Duration::from_secs(20),
        attempt_timeout: Duration::from_secs(2),
        backoff_base: Duration::from_millis(1),
        backoff_cap: Duration::from_millis(20),
        ..RetryPolicy::default()
    };
    let addresses = addresses.iter().map(SocketAddr::to_string);
    Client::builder().addresses(addresses).retry(policy).connect().expect("addresses")
}

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl QueueService for Server {
    type ProduceStream = Answers<v1::ProduceResponse>;

    async fn produce(
        &self,
        request: Request<Streaming<v1::ProduceRequest>>,
    ) -> Result<Response<Self::ProduceStream>, Status> {
        let mut requests = request.into_inner();
        let (answers, answered) = mpsc::channel(64);
        let server = self.clone();
        server.lock().streams += 1;
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                if answers.send(Ok(server.produce_one(request))).await.is_err() {
                    return;
                }
            }
        });
        Ok(self.answer(ReceiverStream::new(answered)))
    }

    type ConsumeStream = Answers<v1::ConsumeResponse>;

    async fn consume(
        &self,
        request: Request<Streaming<v1::ConsumeRequest>>,
    ) -> Result<Response<Self::ConsumeStream>, Status> {
        let mut requests = request.into_inner();
        let (answers, answered) = mpsc::channel(64);
        let server = self.clone();
        server.lock().streams += 1;
        tokio::spawn(async move {
            use v1::consume_response::Part;
            let say = async |part| answers.send(Ok(v1::ConsumeResponse { part: Some(part) })).await.is_ok();
            let refuse = server.lock().refuse.clone();
            if let Some(status) = refuse {
                let _ = answers.send(Err(status)).await;
                return;
            }
            let (mut credits, mut stamp) = (0, 0);
            // Leases end by themselves.
            let mut tick = tokio::time::interval(Duration::from_millis(20));
            loop {
                let changed = server.changed.notified();
                if let Some(deliveries) = server.lease(credits, stamp) {
                    credits -= deliveries.deliveries.len();
                    if !say(Part::Deliveries(deliveries)).await {
                        return;
                    }
                }
                tokio::select! {
                    request = requests.message() => {
                        let Ok(Some(request)) = request else { return };
                        credits += request.add_credits as usize;
                        stamp = stamp.max(request.stamp);
                        if let Some(settle) = request.settle && !say(Part::Settled(server.settle(settle))).await {
                            return;
                        }
                        if let Some(extend) = request.extend && !say(Part::Extended(server.extend(extend))).await {
                            return;
                        }
                        if request.drain {
                            credits = 0;
                            if !say(Part::Drained(v1::Drained {})).await {
                                return;
                            }
                        }
                    }
                    () = changed => {}
                    _ = tick.tick() => {}
                    () = answers.closed() => return,
                }
            }
        });
        Ok(self.answer(ReceiverStream::new(answered)))
    }

    async fn open_session(
        &self,
        _: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let session = {
            let mut inner = self.lock();
            inner.sessions += 1;
            inner.sessions
        };
        Ok(self.answer(v1::OpenSessionResponse { session, window: 1_024, ..Default::default() }))
    }

    async fn enqueue(&self, request: Request<v1::EnqueueRequest>) -> Result<Response<v1::EnqueueResponse>, Status> {
        use v1::enqueue_result::Outcome;
        let mut results = Vec::new();
        for message in request.into_inner().messages {
            let sequence = self.lock().put(message.body);
            let message_id = format!("1.1.m4.{sequence}");
            let outcome = Outcome::Enqueued(v1::Enqueued { message_id, sequence, ..Default::default() });
            results.push(v1::EnqueueResult { outcome: Some(outcome) });
        }
        Ok(self.answer(v1::EnqueueResponse { commit: None, results }))
    }

    async fn receive(&self, _: Request<v1::ReceiveRequest>) -> Result<Response<v1::ReceiveResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn settle(&self, _: Request<v1::SettleRequest>) -> Result<Response<v1::SettleResponse>, Status> {
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
}
