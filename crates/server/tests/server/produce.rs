//! Enqueues over a stream.

use std::collections::BTreeMap;

use ticketrail_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use v1::produce_response::Outcome;

use crate::harness::*;

struct Producing {
    requests: Option<mpsc::Sender<v1::ProduceRequest>>,
    responses: Streaming<v1::ProduceResponse>,
}

impl Producing {
    async fn open(server: &Server) -> Self {
        let (requests, outgoing) = mpsc::channel(1_024);
        let responses = server.queues().await.produce(ReceiverStream::new(outgoing)).await.expect("a stream");
        Self { requests: Some(requests), responses: responses.into_inner() }
    }

    async fn send(&self, request: v1::ProduceRequest) {
        self.requests.as_ref().expect("open").send(request).await.expect("taken");
    }

    /// Half-closes.
    fn finish(&mut self) {
        self.requests = None;
    }

    async fn answer(&mut self) -> v1::ProduceResponse {
        self.responses.message().await.expect("no error").expect("an answer")
    }

    /// The error that ends the stream; what comes before is answered.
    async fn error(&mut self) -> Status {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("expected an error, but the stream ended well"),
                Err(status) => return status,
            }
        }
    }
}

fn id(session: u64, seq: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId { session, seq, acked_below: 1, ..Default::default() })
}

fn request(seq: u64, queue: &str, bodies: &[&str]) -> v1::ProduceRequest {
    v1::ProduceRequest {
        request_id: id(0, seq),
        queue: queue.into(),
        messages: bodies.iter().map(|body| message(body)).collect(),
        ..Default::default()
    }
}

fn range(response: &v1::ProduceResponse) -> &v1::EnqueuedRange {
    match &response.outcome {
        Some(Outcome::Enqueued(range)) => range,
        other => panic!("expected messages on their queue, but {other:?}"),
    }
}

fn error(response: &v1::ProduceResponse) -> &v1::ItemError {
    match &response.outcome {
        Some(Outcome::Error(error)) => error,
        other => panic!("expected a refusal, but {other:?}"),
    }
}

#[tokio::test]
async fn many_requests_are_answered_each_by_its_number() {
    let server = Server::start().await;
    let mut stream = Producing::open(&server).await;
    // The queue is named once; the answers come in any order.
    for seq in 1..=500 {
        stream.send(request(seq, if seq == 1 { "orders" } else { "" }, &["a", "b"])).await;
    }
    stream.finish();
    let mut answers = BTreeMap::new();
    while let Some(answer) = stream.responses.message().await.expect("no error") {
        assert!(answer.commit.is_some() && answer.session == 0);
        assert!(answers.insert(answer.seq, answer).is_none(), "answered once");
    }
    assert_eq!(answers.keys().copied().collect::<Vec<_>>(), (1..=500).collect::<Vec<_>>());
    let mut sequences = Vec::new();
    for answer in answers.values() {
        let range = range(answer);
        assert_eq!(range.count, 2);
        assert!(range.first_message_id.ends_with(&format!(".m4.{}", range.first_sequence)), "{range:?}");
        sequences.extend([range.first_sequence, range.first_sequence + 1]);
    }
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=1_000).collect::<Vec<_>>());
    let mut client = server.queues().await;
    assert_eq!(take(&mut client, "orders", 1_000).await.len(), 1_000);
    server.stop().await;
}

#[tokio::test]
async fn a_repeat_on_another_stream_has_no_second_effect() {
    let server = Server::start().await;
    let opened = server.queues().await.open_session(v1::OpenSessionRequest { renew: 0 }).await.expect("a session");
    let session = opened.into_inner().session;
    let named = |repeat| v1::ProduceRequest {
        request_id: Some(v1::RequestId { session, seq: 7, acked_below: 1, repeat, ..Default::default() }),
        ..request(7, "orders", &["a", "b"])
    };
    let mut first = Producing::open(&server).await;
    first.send(named(false)).await;
    let answer = first.answer().await;
    assert_eq!((answer.session, answer.seq), (session, 7));
    drop(first);
    let mut second = Producing::open(&server).await;
    second.send(named(true)).await;
    let again = second.answer().await;
    assert_eq!(range(&again), range(&answer));
    assert!(again.commit.expect("a commit").replayed);
    let mut client = server.queues().await;
    assert_eq!(take(&mut client, "orders", 10).await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn no_requests_failure_ends_the_stream() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let settings = v1::QueueSettings { max_depth: Some(2), ..Default::default() };
    let create = v1::CreateQueueRequest { queue: "small".into(), settings: Some(settings), ..Default::default() };
    admin.create_queue(create).await.expect("a queue");
    let mut stream = Producing::open(&server).await;

    // An item's: the others stand.
    stream.send(request(1, "small", &["a", "b", "c"])).await;
    let answer = stream.answer().await;
    let Some(Outcome::Results(results)) = &answer.outcome else { panic!("{answer:?}") };
    let [a, b, c] = results.results.as_slice() else { panic!("{results:?}") };
    assert_eq!((enqueued(a).sequence, enqueued(b).sequence, refused(c).reason.as_str()), (1, 2, "FULL"));

    // The leader's, for all messages of the request.
    stream.send(request(2, "small", &["d"])).await;
    let answer = stream.answer().await;
    assert_eq!((answer.seq, answer.commit.is_none(), error(&answer).reason.as_str()), (2, true, "FULL"));
    assert_eq!(error(&answer).metadata["bound"], "max_depth");

    // Of what a request says.
    stream.send(request(3, "small", &[])).await;
    let answer = stream.answer().await;
    assert_eq!((error(&answer).reason.as_str(), error(&answer).metadata["field"].as_str()), ("INVALID", "messages"));
    stream.send(v1::ProduceRequest { request_id: id(999_999, 4), ..request(4, "orders", &["x"]) }).await;
    let answer = stream.answer().await;
    assert_eq!((answer.session, error(&answer).reason.as_str()), (999_999, "SESSION_EXPIRED"));

    // And the stream goes on.
    stream.send(request(5, "orders", &["y"])).await;
    assert_eq!(range(&stream.answer().await).first_sequence, 1);
    stream.finish();
    assert!(stream.responses.message().await.expect("no error").is_none());
    server.stop().await;
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_stream_once_all_is_answered() {
    let server = Server::start().await;
    let repeat = v1::RequestId { session: 0, seq: 9, acked_below: 1, repeat: true, ..Default::default() };
    let rows = [
        (v1::ProduceRequest { request_id: None, ..request(9, "", &["x"]) }, "request_id.seq"),
        (v1::ProduceRequest { request_id: Some(repeat), ..request(9, "", &["x"]) }, "request_id.repeat"),
        (request(9, "no name", &["x"]), "queue"),
        (v1::ProduceRequest { namespace: "no name".into(), ..request(9, "", &["x"]) }, "namespace"),
    ];
    for (wrong, field) in rows {
        let mut stream = Producing::open(&server).await;
        stream.send(request(1, "orders", &["a"])).await;
        stream.send(wrong).await;
        assert_eq!(range(&stream.answer().await).count, 1, "{field}: what came before is done");
        let status = stream.error().await;
        let (code, reason, metadata) = why(&status);
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID"));
        assert_eq!(metadata, [("field".to_owned(), field.to_owned())]);
    }
    // Nothing is known of where to.
    let mut stream = Producing::open(&server).await;
    stream.send(request(1, "", &["a"])).await;
    assert_eq!(code_and_reason(&stream.error().await), (Code::InvalidArgument, "INVALID".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_has_read_and_says_so() {
    let server = Server::start().await;
    let mut idle = Producing::open(&server).await;
    let mut busy = Producing::open(&server).await;
    for seq in 1..=100 {
        busy.send(request(seq, "orders", &["a"])).await;
    }
    let first = busy.answer().await;
    let stopping = server.begin_stop();
    let mut done = vec![first.seq];
    let status = loop {
        match busy.responses.message().await {
            Ok(Some(answer)) if answer.commit.is_some() => {
                assert_eq!(range(&answer).count, 1);
                done.push(answer.seq);
            }
            Ok(Some(answer)) => assert_eq!(error(&answer).reason, "DRAINING"),
            Ok(None) => panic!("expected to be told why the stream ended"),
            Err(status) => break status,
        }
    };
    assert_eq!(code_and_reason(&status), (Code::Unavailable, "DRAINING".into()));
    assert_eq!(code_and_reason(&idle.error().await), (Code::Unavailable, "DRAINING".into()));
    // What is not answered was not done.
    let dir = stopping.wait().await;
    let config = config(dir.path());
    let server = Server::start_in(dir, config).await;
    let mut client = server.queues().await;
    assert_eq!(take(&mut client, "orders", 1_000).await.len(), done.len());
    server.stop().await;
}
