//! What producers and workers do, round and round.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use ticketrail_proto::v1;
use v1::settle_result::Outcome;
use v1::settlement::Verdict;

use crate::harness::*;

#[tokio::test]
async fn a_message_goes_round() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let order = v1::NewMessage {
        body: Bytes::from_static(b"{\"total\":3}"),
        content_type: "application/json".into(),
        r#type: "order.placed".into(),
        tags: BTreeMap::from([("customer".into(), "alice".into())]),
        headers: BTreeMap::from([("traceparent".into(), "00-1".into())]),
        correlation_id: "c-1".into(),
        reply_to: "replies".into(),
        ..Default::default()
    };
    let sent = client.enqueue(enqueue("orders", vec![order.clone(), message("second")])).await.unwrap().into_inner();
    let commit = sent.commit.unwrap();
    assert!(commit.index > 0 && commit.term > 0 && commit.node == 1 && !commit.replayed, "{commit:?}");
    let first = enqueued(&sent.results[0]).clone();
    assert_eq!((first.sequence, enqueued(&sent.results[1]).sequence), (1, 2));

    let mut request = receive("orders", 10, Duration::from_secs(15));
    request.lease = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let received = client.receive(request).await.unwrap().into_inner();
    assert!(received.commit.unwrap().index > commit.index);
    assert_eq!(received.origin.unwrap().node, 1);
    let [delivery, second] = received.deliveries.as_slice() else { panic!("{:?}", received.deliveries) };
    let got = delivery.message.clone().unwrap();
    assert_eq!(
        (got.id.as_str(), got.queue.as_str(), got.namespace.as_str()),
        (&*first.message_id, "orders", "default")
    );
    assert_eq!((got.body, got.content_type, got.r#type), (order.body, order.content_type, order.r#type));
    assert_eq!((got.tags, got.headers), (order.tags, order.headers));
    assert_eq!((got.correlation_id, got.reply_to, got.dead_letter), (order.correlation_id, order.reply_to, None));
    assert_eq!((delivery.receive_count, delivery.failures, delivery.lease_token.len()), (1, 0, 37));
    let left = Duration::try_from(delivery.lease_remaining.unwrap()).unwrap();
    assert!(left > Duration::from_secs(25) && left <= Duration::from_secs(30), "{left:?}");
    assert_eq!(body(second), b"second");

    assert_eq!(settle(&mut client, vec![ack(delivery)]).await, [Outcome::Acked(v1::Acked {})]);
    let Outcome::Error(lost) = settle(&mut client, vec![ack(delivery)]).await.remove(0) else { panic!("a second ack") };
    assert_eq!((lost.code, lost.reason.as_str()), (9, "LEASE_LOST"));
    assert_eq!(lost.metadata, BTreeMap::new(), "the message is gone");

    let retry = Verdict::Retry(v1::Retry {
        code: "E_BUSY".into(),
        text: "try later".into(),
        delay: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
    });
    let [Outcome::Delayed(delayed)] = settle(&mut client, vec![settlement(second, retry)]).await[..] else {
        panic!("expected a delay")
    };
    assert!(delayed.due_at.is_some());
    let again = take(&mut client, "orders", 1).await;
    assert_eq!((body(&again[0]), again[0].receive_count, again[0].failures), (&b"second"[..], 2, 1));
    // The token of the first lease is void, and says how often the message has been leased.
    let Outcome::Error(lost) = settle(&mut client, vec![ack(second)]).await.remove(0) else { panic!("a stale ack") };
    assert_eq!((lost.reason.as_str(), lost.metadata["receive_count"].as_str()), ("LEASE_LOST", "2"));
    let release = settlement(&again[0], Verdict::Release(v1::Release {}));
    assert_eq!(settle(&mut client, vec![release]).await, [Outcome::Readied(v1::Readied {})]);
    let last = take(&mut client, "orders", 1).await;
    assert_eq!((last[0].receive_count, last[0].failures), (3, 1));
    assert_eq!(settle(&mut client, vec![ack(&last[0])]).await, [Outcome::Acked(v1::Acked {})]);
    assert!(glance(&mut client, "orders", 1).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_delayed_message_is_not_early() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let later = |available| v1::NewMessage { available: Some(available), ..message("later") };
    let delay = v1::new_message::Available::Delay(prost_types::Duration { seconds: 0, nanos: 300_000_000 });
    let past = v1::new_message::Available::DeliverAt(prost_types::Timestamp { seconds: 1, nanos: 0 });
    let sent = client.enqueue(enqueue("orders", vec![later(delay)])).await.unwrap().into_inner();
    let due = enqueued(&sent.results[0]).available_at.unwrap();
    let at = sent.commit.unwrap().cluster_time.unwrap();
    let wait = SystemTime::try_from(due).unwrap().duration_since(SystemTime::try_from(at).unwrap()).unwrap();
    assert_eq!(wait, Duration::from_millis(300));
    assert!(glance(&mut client, "orders", 1).await.is_empty(), "it came early");
    let peeked = peek(&mut client, "orders", v1::MessageState::Delayed).await;
    assert_eq!(peeked[0].due_at, Some(due));
    let response = client.receive(receive("orders", 1, Duration::from_secs(15))).await.unwrap().into_inner();
    let granted = response.commit.unwrap().cluster_time.unwrap();
    assert!((granted.seconds, granted.nanos) >= (due.seconds, due.nanos), "{granted:?} is before {due:?}");
    assert_eq!(response.deliveries.len(), 1);
    // A time that is over is now.
    let sent = client.enqueue(enqueue("orders", vec![later(past)])).await.unwrap().into_inner();
    assert_eq!(enqueued(&sent.results[0]).available_at, sent.commit.unwrap().cluster_time);
    assert_eq!(glance(&mut client, "orders", 1).await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_rejected_message_is_a_dead_letter_with_its_history() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let ids = send(&mut client, "orders", &["poison"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let reject = Verdict::Reject(v1::Reject { code: "E_TOTAL".into(), text: "a total of zero".into() });
    let outcome = settle(&mut client, vec![settlement(&delivery, reject)]).await.remove(0);
    assert!(matches!(outcome, Outcome::DeadLettered(v1::DeadLettered { sequence: 1, queue_id: 2.. })), "{outcome:?}");

    let found = client.get(v1::GetRequest { message_id: ids[0].clone(), ..Default::default() }).await.unwrap();
    let info = found.into_inner().message.unwrap();
    let shown = info.message.unwrap();
    assert_eq!((shown.id.as_str(), shown.queue.as_str()), (ids[0].as_str(), "orders.dlq"));
    let dead = shown.dead_letter.unwrap();
    assert_eq!((dead.source_queue.as_str(), dead.reason()), ("orders", v1::DeadReason::Rejected));
    assert_eq!((dead.receive_count, dead.failures), (1, 1));
    let [failure] = info.history.as_slice() else { panic!("{:?}", info.history) };
    assert_eq!((failure.code.as_str(), failure.text.as_str()), ("E_TOTAL", "a total of zero"));
    assert_eq!((failure.worker.as_str(), failure.class()), ("tester", v1::FailureClass::Permanent));

    let listed = take(&mut client, "orders.dlq", 1).await;
    assert_eq!(listed[0].message.as_ref().unwrap().dead_letter.as_ref().unwrap().source_queue, "orders");
    assert_eq!(listed[0].receive_count, 1, "counts restart in the dead-letter queue");
    server.stop().await;
}

#[tokio::test]
async fn an_extended_lease_lasts_longer() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["long work"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let extension =
        |lease_token, seconds| v1::Extension { lease_token, lease: Some(prost_types::Duration { seconds, nanos: 0 }) };
    let mut forged = delivery.lease_token.to_vec();
    forged[36] ^= 1;
    let request = v1::ExtendRequest {
        request_id: None,
        extensions: vec![extension(delivery.lease_token.clone(), 600), extension(forged.into(), 600)],
    };
    let results = client.extend(request).await.unwrap().into_inner().results;
    let Some(v1::extend_result::Outcome::Extended(extended)) = &results[0].outcome else { panic!("{results:?}") };
    assert_eq!(extended.lease_remaining, Some(prost_types::Duration { seconds: 600, nanos: 0 }));
    let Some(v1::extend_result::Outcome::Error(lost)) = &results[1].outcome else { panic!("{results:?}") };
    assert_eq!((lost.reason.as_str(), lost.metadata["receive_count"].as_str()), ("LEASE_LOST", "1"));
    let leased = peek(&mut client, "orders", v1::MessageState::Leased).await;
    let lease = leased[0].lease.clone().unwrap();
    assert_eq!(lease.worker, "tester");
    assert!(lease.remaining.unwrap().seconds > 590, "{lease:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_receiver_is_served_and_one_that_hangs_up_takes_nothing() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let mut waiting = client.clone();
    let gone = tokio::spawn(async move { waiting.receive(receive("orders", 1, Duration::from_secs(30))).await });
    parked(&server, 1).await;
    gone.abort();
    parked(&server, 0).await;
    let mut waiting = client.clone();
    let served = tokio::spawn(async move { take(&mut waiting, "orders", 1).await });
    parked(&server, 1).await;
    send(&mut client, "orders", &["for whom it waits"]).await;
    let deliveries = served.await.unwrap();
    assert_eq!((body(&deliveries[0]), deliveries[0].receive_count), (&b"for whom it waits"[..], 1));
    server.stop().await;
}

#[tokio::test]
async fn a_lease_begins_when_the_message_is_there_and_not_with_the_wait_for_it() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let delay = v1::new_message::Available::Delay(prost_types::Duration { seconds: 2, nanos: 0 });
    let late = v1::NewMessage { available: Some(delay), ..message("late") };
    client.enqueue(enqueue("orders", vec![late])).await.expect("an enqueue");
    let lease = Some(Duration::from_secs(1).try_into().expect("a lease"));
    let begun = Instant::now();
    let waiting = v1::ReceiveRequest { lease, ..receive("orders", 1, Duration::from_secs(15)) };
    let received = client.receive(waiting).await.expect("a receive").into_inner();
    let waited = Duration::try_from(received.waited.expect("a time")).expect("a time");
    assert!(waited > Duration::from_secs(1) && waited <= begun.elapsed(), "{waited:?}");
    let left = received.deliveries[0].lease_remaining.expect("a lease");
    assert!(Duration::try_from(left).expect("a lease") <= Duration::from_secs(1), "{left:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_deadline_shortens_a_wait_and_the_call_still_answers() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["x"]).await;
    take(&mut client, "orders", 1).await;
    let mut request = tonic::Request::new(receive("orders", 1, Duration::from_secs(60)));
    request.set_timeout(Duration::from_secs(1));
    let response = client.receive(request).await.expect("an empty answer, not an error").into_inner();
    assert!(response.deliveries.is_empty() && response.commit.is_none());
    server.stop().await;
}

#[tokio::test]
async fn pages_of_a_peek_follow_each_other() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let bodies: Vec<String> = (0..25).map(|n| format!("body {n}")).collect();
    send(&mut client, "orders", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request =
            v1::PeekRequest { queue: "orders".into(), page_size: 10, page_token: token, ..Default::default() };
        let page = client.peek(request).await.unwrap().into_inner();
        assert!(page.messages.len() <= 10);
        seen.extend(page.messages.into_iter().map(|info| info.message.unwrap().body));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, bodies);
    let request = v1::PeekRequest { queue: "orders".into(), omit_bodies: true, page_size: 1, ..Default::default() };
    let info = client.peek(request).await.unwrap().into_inner().messages.remove(0);
    assert_eq!((info.size_bytes, info.message.unwrap().body.len(), info.sequence), (6, 0, 1));
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_and_full_batches_pass() {
    let server = Server::start_with(|config| ticketrail_server::Config {
        max_body_bytes: ticketrail_server::config::Size::mib(4),
        ..config
    })
    .await;
    let mut client = server.queues().await;
    let large = v1::NewMessage { body: vec![7; 4 << 20].into(), ..Default::default() };
    client.enqueue(enqueue("large", vec![large])).await.unwrap();
    assert_eq!(body(&take(&mut client, "large", 1).await[0]).len(), 4 << 20);
    let batch = vec![v1::NewMessage { body: vec![7; 4_194].into(), ..Default::default() }; 1_000];
    let sent = client.enqueue(enqueue("batch", batch)).await.unwrap().into_inner();
    assert!(sent.results.iter().all(|result| enqueued(result).sequence > 0));
    let deliveries = take(&mut client, "batch", 1_000).await;
    assert_eq!(deliveries.len(), 1_000);
    let outcomes = settle(&mut client, deliveries.iter().map(ack).collect()).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Acked(_))));
    server.stop().await;
}

async fn peek(client: &mut Client, queue: &str, state: v1::MessageState) -> Vec<v1::MessageInfo> {
    let request = v1::PeekRequest { queue: queue.into(), state: state.into(), ..Default::default() };
    client.peek(request).await.unwrap().into_inner().messages
}

type Client = v1::queue_service_client::QueueServiceClient<tonic::transport::Channel>;

#[tokio::test]
async fn a_page_that_would_not_fit_a_reply_is_shorter() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let wide = || v1::NewMessage { headers: BTreeMap::from([("h".into(), "x".repeat(16_000))]), ..message("x") };
    for _ in 0..5 {
        client.enqueue(enqueue("orders", vec![wide(); 240])).await.unwrap();
    }
    let (mut sequences, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page_token = std::mem::take(&mut token);
        let request = v1::PeekRequest { queue: "orders".into(), page_size: 1_000, page_token, ..Default::default() };
        let page = client.peek(request).await.unwrap().into_inner();
        sequences.extend(page.messages.iter().map(|info| info.sequence));
        pages += 1;
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(sequences, (1..=1_200).collect::<Vec<_>>());
    assert!(pages >= 3, "{pages}");
    server.stop().await;
}
