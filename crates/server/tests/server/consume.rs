//! Deliveries over a stream.

use std::time::Duration;

use ticketrail_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use v1::consume_response::Part;
use v1::settlement::Verdict;

use crate::harness::*;

struct Consuming {
    requests: Option<mpsc::Sender<v1::ConsumeRequest>>,
    responses: Streaming<v1::ConsumeResponse>,
}

impl Consuming {
    async fn open(server: &Server) -> Self {
        let (requests, outgoing) = mpsc::channel(64);
        let responses = server.queues().await.consume(ReceiverStream::new(outgoing)).await.expect("a stream");
        Self { requests: Some(requests), responses: responses.into_inner() }
    }

    /// Opens one on `queue` with `credits`.
    async fn start(server: &Server, queue: &str, credits: u32) -> Self {
        let stream = Self::open(server).await;
        stream.send(v1::ConsumeRequest { add_credits: credits, ..start(queue) }).await;
        stream
    }

    async fn send(&self, request: v1::ConsumeRequest) {
        self.requests.as_ref().expect("open").send(request).await.expect("taken");
    }

    async fn credits(&self, add_credits: u32) {
        self.send(v1::ConsumeRequest { add_credits, ..Default::default() }).await;
    }

    fn finish(&mut self) {
        self.requests = None;
    }

    async fn part(&mut self) -> Part {
        let response = self.responses.message().await.expect("no error").expect("a response");
        response.part.expect("a part")
    }

    async fn deliveries(&mut self) -> v1::Deliveries {
        let part = self.part().await;
        let Part::Deliveries(deliveries) = part else { panic!("expected deliveries, but {part:?}") };
        deliveries
    }

    /// As many deliveries as `count`, in whatever parts they come.
    async fn take(&mut self, count: usize) -> Vec<v1::Delivery> {
        let mut taken = Vec::new();
        while taken.len() < count {
            taken.extend(self.deliveries().await.deliveries);
        }
        assert_eq!(taken.len(), count, "no more than there are credits for");
        taken
    }

    async fn settled(&mut self) -> v1::Settled {
        let part = self.part().await;
        let Part::Settled(settled) = part else { panic!("expected settlements, but {part:?}") };
        settled
    }

    async fn error(&mut self) -> Status {
        self.responses.message().await.expect_err("an error")
    }
}

fn start(queue: &str) -> v1::ConsumeRequest {
    let start = v1::ConsumeStart { queue: queue.into(), worker: "tester".into(), ..Default::default() };
    v1::ConsumeRequest { start: Some(start), ..Default::default() }
}

fn id(seq: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId { seq, acked_below: 1, ..Default::default() })
}

fn settles(seq: u64, settlements: Vec<v1::Settlement>) -> v1::ConsumeRequest {
    let settle = v1::SettleRequest { request_id: id(seq), settlements };
    v1::ConsumeRequest { settle: Some(settle), ..Default::default() }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

async fn fill(server: &Server, count: usize) {
    let bodies = numbers(count);
    send(&mut server.queues().await, "orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

async fn stats(server: &Server) -> v1::QueueStats {
    let get = v1::GetQueueRequest { queue: "orders".into(), ..Default::default() };
    let answer = server.admin().await.get_queue(get).await.expect("a queue").into_inner();
    answer.queue.expect("a queue").stats.expect("figures")
}

#[tokio::test]
async fn credits_are_never_exceeded() {
    let server = Server::start().await;
    fill(&server, 100).await;
    let mut stream = Consuming::start(&server, "orders", 7).await;
    let mut bodies: Vec<_> = stream.take(7).await.iter().map(|delivery| body(delivery).to_vec()).collect();
    // An answer to a settlement comes behind whatever was delivered before it: there was nothing.
    stream.send(settles(1, vec![])).await;
    let settled = stream.settled().await;
    let Some(v1::settled::Outcome::Error(error)) = settled.outcome else { panic!("{settled:?}") };
    assert_eq!((settled.seq, error.reason.as_str()), (1, "INVALID"));
    assert_eq!((stats(&server).await.leased, stats(&server).await.ready), (7, 93));
    stream.credits(3).await;
    bodies.extend(stream.take(3).await.iter().map(|delivery| body(delivery).to_vec()));
    stream.credits(90).await;
    bodies.extend(stream.take(90).await.iter().map(|delivery| body(delivery).to_vec()));
    let expected: Vec<_> = numbers(100).into_iter().map(String::into_bytes).collect();
    bodies.sort_by_key(|body| String::from_utf8_lossy(body).parse::<usize>().expect("a number"));
    assert_eq!(bodies, expected, "each once");
    server.stop().await;
}

#[tokio::test]
async fn a_message_goes_round_on_one_stream() {
    let server = Server::start().await;
    let mut stream = Consuming::open(&server).await;
    let lease = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let start = v1::ConsumeStart { queue: "orders".into(), lease, worker: "tester".into(), ..Default::default() };
    stream.send(v1::ConsumeRequest { start: Some(start), add_credits: 10, stamp: 41, ..Default::default() }).await;
    // It waits for the queue to appear.
    parked(&server, 1).await;
    stream.send(v1::ConsumeRequest { stamp: 42, ..Default::default() }).await;
    fill(&server, 3).await;
    let mut came = Vec::new();
    while came.len() < 3 {
        let deliveries = stream.deliveries().await;
        assert!((41..=42).contains(&deliveries.stamp) && deliveries.commit.is_some(), "{deliveries:?}");
        came.extend(deliveries.deliveries);
    }
    let left = Duration::try_from(came[0].lease_remaining.expect("a lease")).expect("a duration");
    assert!(left > Duration::from_secs(25) && left <= Duration::from_secs(30), "{left:?}");

    // An ack, a retry and a forged token in one list: each has its own result.
    let delay = Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 });
    let retry = Verdict::Retry(v1::Retry { delay, ..Default::default() });
    let mut forged = ack(&came[2]);
    forged.lease_token = {
        let mut token = forged.lease_token.to_vec();
        token[36] ^= 1;
        token.into()
    };
    stream.send(settles(1, vec![ack(&came[0]), settlement(&came[1], retry), forged])).await;
    let (mut again, mut outcomes) = (None, None);
    while again.is_none() || outcomes.is_none() {
        match stream.part().await {
            Part::Settled(settled) => outcomes = Some(settled),
            Part::Deliveries(mut deliveries) => again = deliveries.deliveries.pop(),
            other @ (Part::Extended(_) | Part::Drained(_)) => panic!("{other:?}"),
        }
    }
    let Some(v1::settled::Outcome::Response(response)) = outcomes.expect("settled").outcome else { panic!("refused") };
    assert!(response.commit.is_some());
    let [acked, delayed, lost] = response.results.as_slice() else { panic!("{response:?}") };
    assert_eq!(acked.outcome, Some(v1::settle_result::Outcome::Acked(v1::Acked {})));
    assert!(matches!(delayed.outcome, Some(v1::settle_result::Outcome::Delayed(_))), "{delayed:?}");
    let Some(v1::settle_result::Outcome::Error(lost)) = &lost.outcome else { panic!("{lost:?}") };
    assert_eq!(lost.reason, "LEASE_LOST");
    let again = again.expect("the retried one");
    assert_eq!((body(&again), again.receive_count, again.failures), (body(&came[1]), 2, 1));

    let extension = v1::Extension {
        lease_token: again.lease_token.clone(),
        lease: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
    };
    let extend = v1::ExtendRequest { request_id: id(2), extensions: vec![extension] };
    stream.send(v1::ConsumeRequest { extend: Some(extend), ..Default::default() }).await;
    let Part::Extended(extended) = stream.part().await else { panic!("expected an extension") };
    let Some(v1::leases_extended::Outcome::Response(response)) = &extended.outcome else { panic!("{extended:?}") };
    let Some(v1::extend_result::Outcome::Extended(left)) = &response.results[0].outcome else { panic!("{response:?}") };
    assert_eq!((extended.seq, left.lease_remaining.map(|left| left.seconds)), (2, Some(600)));

    // In order: all that was said is answered, then the end.
    stream.send(settles(3, vec![ack(&again), ack(&came[2])])).await;
    stream.finish();
    assert_eq!(stream.settled().await.seq, 3);
    assert!(stream.responses.message().await.expect("no error").is_none());
    let stats = stats(&server).await;
    assert_eq!((stats.acked, stats.ready, stats.leased, stats.delayed), (3, 0, 0, 0));
    server.stop().await;
}

#[tokio::test]
async fn who_hangs_up_takes_nothing_along() {
    let server = Server::start().await;
    // Parked receives go with the stream.
    let stream = Consuming::start(&server, "orders", 10).await;
    parked(&server, 1).await;
    drop(stream);
    parked(&server, 0).await;
    // What was sent stays leased; what was not is ready.
    fill(&server, 20).await;
    let mut stream = Consuming::start(&server, "orders", 5).await;
    stream.take(5).await;
    drop(stream);
    let mut client = server.queues().await;
    let others = take(&mut client, "orders", 100).await;
    assert_eq!(others.len(), 15);
    assert!(others.iter().all(|delivery| delivery.receive_count == 1), "{others:?}");
    assert_eq!(stats(&server).await.leased, 20);
    server.stop().await;
}

#[tokio::test]
async fn a_drain_ends_deliveries_and_not_settlements() {
    let server = Server::start().await;
    fill(&server, 1).await;
    let mut stream = Consuming::start(&server, "orders", 10).await;
    let taken = stream.take(1).await;
    parked(&server, 1).await;
    stream.send(v1::ConsumeRequest { drain: true, add_credits: 5, ..Default::default() }).await;
    assert_eq!(stream.part().await, Part::Drained(v1::Drained {}));
    parked(&server, 0).await;
    fill(&server, 1).await;
    stream.credits(5).await;
    stream.send(settles(1, vec![ack(&taken[0])])).await;
    assert_eq!(stream.settled().await.seq, 1);
    stream.finish();
    assert!(stream.responses.message().await.expect("no error").is_none());
    assert_eq!((stats(&server).await.ready, stats(&server).await.acked), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_stream() {
    let server = Server::start().await;
    let wrong_name = |queue: &str| {
        let mut request = start(queue);
        request.add_credits = 1;
        request
    };
    let rows = [
        (vec![v1::ConsumeRequest { add_credits: 1, ..Default::default() }], "start"),
        (vec![v1::ConsumeRequest::default()], "start"),
        (vec![wrong_name("no name")], "queue"),
        (vec![wrong_name("")], "queue"),
        (vec![start("orders"), start("orders")], "start"),
        (vec![v1::ConsumeRequest { add_credits: 10_001, ..start("orders") }], "add_credits"),
        (
            vec![
                start("orders"),
                v1::ConsumeRequest { settle: Some(v1::SettleRequest::default()), ..Default::default() },
            ],
            "request_id.seq",
        ),
    ];
    for (requests, field) in rows {
        let mut stream = Consuming::open(&server).await;
        for request in requests {
            stream.send(request).await;
        }
        let (code, reason, metadata) = why(&stream.error().await);
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID"), "{field}");
        assert_eq!(metadata, [("field".to_owned(), field.to_owned())]);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_queue_that_must_not_be_made_is_told() {
    let server = Server::start_with(|config| ticketrail_server::Config { auto_create: false, ..config }).await;
    let mut stream = Consuming::start(&server, "nowhere", 1).await;
    assert_eq!(code_and_reason(&stream.error().await), (Code::NotFound, "QUEUE_NOT_FOUND".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_says_so_to_busy_and_to_idle_consumers() {
    let server = Server::start().await;
    fill(&server, 3).await;
    let mut busy = Consuming::start(&server, "orders", 10).await;
    busy.take(3).await;
    let mut idle = Consuming::start(&server, "orders", 0).await;
    parked(&server, 1).await;
    let stopping = server.begin_stop();
    for stream in [&mut busy, &mut idle] {
        assert_eq!(code_and_reason(&stream.error().await), (Code::Unavailable, "DRAINING".into()));
    }
    stopping.wait().await;
}
