//! Changes that stand or fall together.

use std::time::Duration;

use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_client::CommitServiceClient;
use ticketrail_proto::v1::settle_part::Verdict;
use ticketrail_proto::v1::settled_part::Outcome;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::*;

fn settle_part(delivery: &v1::Delivery, verdict: Verdict) -> v1::SettlePart {
    v1::SettlePart { lease_token: delivery.lease_token.clone(), verdict: Some(verdict) }
}

fn acked(delivery: &v1::Delivery) -> v1::SettlePart {
    settle_part(delivery, Verdict::Ack(v1::Ack::default()))
}

fn enqueue_part(queue: &str, body: &str) -> v1::EnqueuePart {
    v1::EnqueuePart { queue: queue.into(), message: Some(message(body)) }
}

fn request(settle: Vec<v1::SettlePart>, enqueue: Vec<v1::EnqueuePart>) -> v1::CommitRequest {
    v1::CommitRequest { settle, enqueue, ..Default::default() }
}

async fn commits(server: &Server) -> CommitServiceClient<Channel> {
    CommitServiceClient::new(server.channel().await)
}

async fn create(server: &Server, queue: &str, settings: v1::QueueSettings) {
    let create = v1::CreateQueueRequest { queue: queue.into(), settings: Some(settings), ..Default::default() };
    server.admin().await.create_queue(create).await.expect("a queue");
}

/// Code, reason, part and its number.
fn part(status: &Status) -> (Code, String, String, String) {
    let (code, reason, metadata) = why(status);
    let text = |name: &str| metadata.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value).to_owned();
    (code, reason, text("part"), text("index"))
}

fn named(code: Code, reason: &str, kind: &str, index: &str) -> (Code, String, String, String) {
    (code, reason.into(), kind.into(), index.into())
}

#[tokio::test]
async fn a_commit_acks_and_enqueues_in_one_step() {
    let server = Server::start().await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    send(&mut client, "orders", &["a", "b", "c", "d", "e"]).await;
    let got = take(&mut client, "orders", 5).await;
    let retry = v1::Retry { delay: Some(prost_types::Duration { seconds: 600, nanos: 0 }), ..Default::default() };
    let lease = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let settle = vec![
        acked(&got[0]),
        settle_part(&got[1], Verdict::Retry(retry)),
        settle_part(&got[2], Verdict::Reject(v1::Reject::default())),
        settle_part(&got[3], Verdict::Release(v1::Release {})),
        settle_part(&got[4], Verdict::Extend(v1::ExtendLease { lease })),
    ];
    let enqueue = vec![enqueue_part("payment", "p"), enqueue_part("mail", "m"), enqueue_part("payment", "q")];
    let done = commits.commit(request(settle, enqueue)).await.unwrap().into_inner();
    let outcomes: Vec<_> = done.settled.into_iter().filter_map(|part| part.outcome).collect();
    assert!(
        matches!(
            outcomes.as_slice(),
            [
                Outcome::Acked(_),
                Outcome::Delayed(_),
                Outcome::DeadLettered(_),
                Outcome::Readied(_),
                Outcome::Extended(v1::Extended { lease_remaining: Some(left) }),
            ] if left.seconds > 590
        ),
        "{outcomes:?}"
    );
    assert_eq!(done.enqueued.iter().map(|enqueued| enqueued.sequence).collect::<Vec<_>>(), [1, 1, 2]);
    assert!(!done.commit.unwrap().replayed);
    let payment = take(&mut client, "payment", 10).await;
    assert_eq!(payment.iter().map(body).collect::<Vec<_>>(), [b"p", b"q"]);
    assert_eq!(payment[0].message.as_ref().unwrap().id, done.enqueued[0].message_id);
    assert_eq!(take(&mut client, "mail", 10).await.len(), 1);
    assert_eq!(take(&mut client, "orders.dlq", 10).await.len(), 1);
    assert_eq!(take(&mut client, "orders", 10).await.len(), 1, "the one that was released");
    server.stop().await;
}

#[tokio::test]
async fn a_refused_part_is_named_and_nothing_happened() {
    let server = Server::start().await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    create(&server, "full", v1::QueueSettings { max_depth: Some(1), ..Default::default() }).await;
    send(&mut client, "full", &["x"]).await;
    send(&mut client, "orders", &["a", "b"]).await;
    let got = take(&mut client, "orders", 2).await;
    let mut forged = acked(&got[1]);
    let mut token = forged.lease_token.to_vec();
    *token.last_mut().unwrap() ^= 1;
    forged.lease_token = token.into();
    let rows = [
        // Decided by the leader where nothing is settled, else in the log.
        (
            request(vec![], vec![enqueue_part("payment", "p"), enqueue_part("full", "y")]),
            named(Code::ResourceExhausted, "FULL", "enqueue", "1"),
        ),
        (
            request(vec![acked(&got[0])], vec![enqueue_part("payment", "p"), enqueue_part("full", "y")]),
            named(Code::ResourceExhausted, "FULL", "enqueue", "1"),
        ),
        (
            request(vec![acked(&got[0]), forged], vec![enqueue_part("payment", "p")]),
            named(Code::FailedPrecondition, "LEASE_LOST", "settle", "1"),
        ),
        // Decided before it is proposed.
        (
            request(vec![acked(&got[0])], vec![enqueue_part("payment", "p"), enqueue_part("no name", "y")]),
            named(Code::InvalidArgument, "INVALID", "enqueue", "1"),
        ),
        (
            request(vec![acked(&got[0])], vec![enqueue_part("payment", &"x".repeat((1 << 20) + 1))]),
            named(Code::InvalidArgument, "INVALID", "enqueue", "0"),
        ),
        (request(vec![], vec![]), named(Code::InvalidArgument, "INVALID", "", "")),
    ];
    for (request, expected) in rows {
        let status = commits.commit(request).await.unwrap_err();
        assert_eq!(part(&status), expected, "{}", status.message());
        assert!(status.message().contains("expected "), "{}", status.message());
        let retry = status.get_error_details().retry_info().is_some();
        assert_eq!(retry, expected.1 == "FULL");
    }
    assert!(glance(&mut client, "payment", 10).await.is_empty(), "nothing was enqueued");
    // The leases are as they were.
    let done = commits.commit(request(vec![acked(&got[0]), acked(&got[1])], vec![])).await.unwrap().into_inner();
    assert_eq!(done.settled.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_queue_that_is_closed_or_missing_refuses_the_whole() {
    let server = Server::start_with(|config| ticketrail_server::Config { auto_create: false, ..config }).await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    for queue in ["orders", "closed"] {
        create(&server, queue, v1::QueueSettings::default()).await;
    }
    let close = v1::CloseQueueRequest { queue: "closed".into(), ..Default::default() };
    server.admin().await.close_queue(close).await.unwrap();
    send(&mut client, "orders", &["a"]).await;
    let got = take(&mut client, "orders", 1).await;
    for (queue, code, reason) in
        [("closed", Code::FailedPrecondition, "QUEUE_CLOSED"), ("missing", Code::NotFound, "QUEUE_NOT_FOUND")]
    {
        let enqueue = vec![enqueue_part("orders", "b"), enqueue_part(queue, "c")];
        let status = commits.commit(request(vec![acked(&got[0])], enqueue)).await.unwrap_err();
        assert_eq!(part(&status), named(code, reason, "enqueue", "1"));
    }
    assert!(glance(&mut client, "orders", 10).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_commit_takes_the_place_it_frees() {
    let server = Server::start().await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    create(&server, "orders", v1::QueueSettings { max_depth: Some(1), ..Default::default() }).await;
    send(&mut client, "orders", &["a"]).await;
    let got = take(&mut client, "orders", 1).await;
    let turn = || request(vec![acked(&got[0])], vec![enqueue_part("orders", "b")]);
    commits.commit(turn()).await.unwrap();
    assert_eq!(body(&take(&mut client, "orders", 10).await[0]), b"b");
    // Without a request id it is another commit: its lease is gone.
    let status = commits.commit(turn()).await.unwrap_err();
    assert_eq!(part(&status), named(Code::FailedPrecondition, "LEASE_LOST", "settle", "0"));
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_commit_gets_the_first_outcome_also_after_a_restart() {
    let mut server = Server::start().await;
    let mut client = server.queues().await;
    let session = client.open_session(v1::OpenSessionRequest { renew: 0 }).await.unwrap().into_inner().session;
    send(&mut client, "orders", &["a"]).await;
    let got = take(&mut client, "orders", 1).await;
    let turn = |repeat| v1::CommitRequest {
        request_id: Some(v1::RequestId { session, seq: 1, acked_below: 1, repeat, ..Default::default() }),
        ..request(vec![acked(&got[0])], vec![enqueue_part("payment", "p")])
    };
    let first = commits(&server).await.commit(turn(false)).await.unwrap().into_inner();
    let again = commits(&server).await.commit(turn(true)).await.unwrap().into_inner();
    assert_eq!((&again.settled, &again.enqueued), (&first.settled, &first.enqueued));
    assert!(again.commit.unwrap().replayed);
    let dir = server.stop().await;
    let config = config(dir.path());
    server = Server::start_in(dir, config).await;
    let again = commits(&server).await.commit(turn(true)).await.unwrap().into_inner();
    assert_eq!((&again.settled, &again.enqueued), (&first.settled, &first.enqueued));
    assert_eq!(again.commit.unwrap().index, first.commit.unwrap().index);
    let mut client = server.queues().await;
    let response = client.receive(receive("payment", 10, Duration::from_secs(15))).await.unwrap().into_inner();
    assert_eq!(response.deliveries.len(), 1);
    server.stop().await;
}

fn by_id(id: &str) -> v1::Target {
    v1::Target { which: Some(v1::target::Which::MessageId(id.into())) }
}

#[tokio::test]
async fn a_commit_cancels_and_reschedules_before_it_enqueues() {
    let server = Server::start().await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    let named = v1::NewMessage { dedup_id: "reminder".into(), ..message("old") };
    client.enqueue(enqueue("mail", vec![named.clone()])).await.unwrap();
    let later = send(&mut client, "later", &["x"]).await.remove(0);
    let key = v1::DedupKey { queue: "mail".into(), dedup_id: "reminder".into() };
    let delay = v1::new_time::Available::Delay(prost_types::Duration { seconds: 600, nanos: 0 });
    let new = v1::NewMessage { body: "new".into(), ..named };
    let change = v1::CommitRequest {
        cancel: vec![v1::Target { which: Some(v1::target::Which::Dedup(key)) }],
        reschedule: vec![v1::NewTime { target: Some(by_id(&later)), available: Some(delay) }],
        enqueue: vec![v1::EnqueuePart { queue: "mail".into(), message: Some(new) }],
        ..Default::default()
    };
    let done = commits.commit(change.clone()).await.unwrap().into_inner();
    assert!(matches!(done.cancelled[0].outcome, Some(v1::cancel_result::Outcome::Cancelled(_))), "{done:?}");
    assert!(matches!(done.rescheduled[0].outcome, Some(v1::reschedule_result::Outcome::Rescheduled(_))), "{done:?}");
    assert!(!done.enqueued[0].duplicate, "the cancel freed the dedup id");
    let got = take(&mut client, "mail", 10).await;
    assert_eq!(got.iter().map(body).collect::<Vec<_>>(), [b"new"]);
    // It is with a receiver now: a part that is too late refuses the whole.
    let status = commits.commit(change).await.unwrap_err();
    assert_eq!(part(&status), named_part("TOO_LATE", "cancel", "0"));
    server.stop().await;
}

fn named_part(reason: &str, kind: &str, index: &str) -> (Code, String, String, String) {
    named(Code::FailedPrecondition, reason, kind, index)
}

#[tokio::test]
async fn independent_parts_stand_alone() {
    let server = Server::start().await;
    let (mut client, mut commits) = (server.queues().await, commits(&server).await);
    create(&server, "full", v1::QueueSettings { max_depth: Some(1), ..Default::default() }).await;
    send(&mut client, "full", &["x"]).await;
    let ids = send(&mut client, "orders", &["a", "b"]).await;
    let got = take(&mut client, "orders", 1).await;
    let change = v1::CommitRequest {
        settle: vec![acked(&got[0]), acked(&got[0])],
        cancel: vec![by_id(&ids[1]), by_id(&ids[1])],
        enqueue: vec![enqueue_part("full", "y"), enqueue_part("payment", "p")],
        independent: true,
        ..Default::default()
    };
    let done = commits.commit(change).await.unwrap().into_inner();
    assert!(matches!(done.settled[0].outcome, Some(Outcome::Acked(_))), "{done:?}");
    let Some(Outcome::Error(lost)) = &done.settled[1].outcome else { panic!("{done:?}") };
    assert_eq!(lost.reason, "LEASE_LOST");
    assert!(matches!(done.cancelled[0].outcome, Some(v1::cancel_result::Outcome::Cancelled(_))), "{done:?}");
    assert!(matches!(done.cancelled[1].outcome, Some(v1::cancel_result::Outcome::Gone(_))), "{done:?}");
    assert!(done.enqueued.is_empty());
    assert_eq!(refused(&done.enqueue_results[0]).reason, "FULL");
    assert_eq!(enqueued(&done.enqueue_results[1]).sequence, 1);
    server.stop().await;
}
