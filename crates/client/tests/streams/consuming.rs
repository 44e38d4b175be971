//! Consumers.

use std::collections::BTreeMap;
use std::time::Duration;

use ticketrail_client::{Consumer, Reason};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::poll::poll;
use crate::proxy::Proxy;
use crate::server::{Server, State, client};

const LEASE: Duration = Duration::from_secs(30);

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| n.to_string())
}

#[tokio::test]
async fn no_more_are_held_than_the_prefetch_says() {
    let server = Server::start(LEASE).await;
    server.fill(numbers(200));
    let mut consumer = Consumer::builder(&server.client().queue("orders")).prefetch(10).start();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(consumer.next().await.expect("no error").expect("a delivery"));
    }
    let more = tokio::time::timeout(Duration::from_millis(50), consumer.next()).await;
    assert!(more.is_err(), "ten are in hand");
    assert!(held.iter().all(|delivery| delivery.lease_left() > LEASE / 2 && delivery.lease_left() <= LEASE));
    for delivery in held {
        delivery.ack().await.expect("acked");
    }
    for _ in 10..200 {
        let delivery = consumer.next().await.expect("no error").expect("a delivery");
        // Not waited for: it goes out all the same.
        drop(delivery.ack());
    }
    consumer.close().await.expect("closed");
    assert_eq!(server.count(|state| *state == State::Acked), 200);
    assert!(server.most_leased() <= 10, "{}", server.most_leased());
    assert_eq!(server.lock().streams, 1);
}

#[tokio::test]
async fn cut_connections_lose_nothing_and_settle_nothing_twice() {
    // What was sent and never came is leased until then.
    let server = Server::start(Duration::from_secs(1)).await;
    server.fill(numbers(1_000));
    let proxy = Proxy::to(server.address, (1..=12).map(|n| 400 + 353 * n)).await;
    let client = client(&[proxy.address]);
    let mut consumer = Consumer::builder(&client.queue("orders")).prefetch(32).start();
    let mut acked: BTreeMap<String, usize> = BTreeMap::new();
    while acked.len() < 1_000 {
        let delivery = consumer.next().await.expect("no error").expect("a delivery");
        let body = String::from_utf8_lossy(&delivery.message.body).into_owned();
        match delivery.ack().await {
            Ok(_) => *acked.entry(body).or_default() += 1,
            // It came, but so late that somebody else had it.
            Err(error) => assert_eq!(error.reason(), Some(&Reason::LeaseLost), "{error}"),
        }
    }
    consumer.close().await.expect("closed");
    assert_eq!(proxy.cuts_left(), 0, "all were cut");
    assert!(acked.values().all(|times| *times == 1), "each once");
    assert_eq!(server.count(|state| *state == State::Acked), 1_000);
    let inner = server.lock();
    assert_eq!(inner.unmarked, 0);
    assert_eq!(inner.verdicts.iter().filter(|verdict| *verdict == "ack").count(), 1_000);
}

#[tokio::test]
async fn each_verdict_rides_on_the_stream() {
    let server = Server::start(LEASE).await;
    server.fill(numbers(4));
    let mut consumer = server.client().queue("orders").consumer();
    let mut next = async || consumer.next().await.expect("no error").expect("a delivery");
    let (mut a, b, c, d) = (next().await, next().await, next().await, next().await);
    let left = a.extend(Some(Duration::from_secs(60))).await.expect("extended");
    assert!(left <= LEASE && left > LEASE / 2, "as the server said: {left:?}");
    a.ack().await.expect("acked");
    b.reject("BAD", "no good").await.expect("rejected");
    c.release().await.expect("released");
    d.retry("BUSY", "later", None).await.expect("to be retried");
    let again = [next().await, next().await];
    assert!(again.iter().all(|delivery| delivery.receive_count == 2));
    // A text that is too long is refused by the server, alone.
    let [e, f] = again;
    let long = e.retry("LONG", "x".repeat(20_000), None);
    let error = long.await.expect_err("these tests settle over streams alone");
    assert_eq!(error.refusal().map(|refusal| refusal.code), Some(Code::Unimplemented), "{error}");
    f.ack().await.expect("acked");
    assert_eq!(server.verdicts(), ["ack", "reject BAD", "release", "retry BUSY", "ack"]);
    assert_eq!(server.extensions(), 1);
}

#[tokio::test]
async fn closing_releases_what_nobody_took_and_waits_for_what_somebody_has() {
    let server = Server::start(LEASE).await;
    server.fill(numbers(20));
    let mut consumer = Consumer::builder(&server.client().queue("orders")).prefetch(8).start();
    let mine = consumer.next().await.expect("no error").expect("a delivery");
    poll("a full prefetch", || (server.count(|state| matches!(state, State::Leased(_))) == 8).then_some(())).await;
    let closing = tokio::spawn(consumer.close());
    poll("released messages", || (server.count(|state| *state == State::Ready) == 19).then_some(())).await;
    assert!(!closing.is_finished(), "one is in my hands");
    mine.ack().await.expect("acked");
    closing.await.expect("joined").expect("closed");
    assert_eq!((server.count(|state| *state == State::Ready), server.most_leased()), (19, 8));
}

#[tokio::test]
async fn a_dropped_delivery_makes_room_and_a_dropped_consumer_releases() {
    let server = Server::start(LEASE).await;
    server.fill(numbers(3));
    let mut consumer = Consumer::builder(&server.client().queue("orders")).prefetch(1).start();
    drop(consumer.next().await.expect("no error").expect("a delivery"));
    drop(consumer.next().await.expect("no error").expect("another one"));
    poll("a third", || (server.count(|state| matches!(state, State::Leased(_))) == 3).then_some(())).await;
    drop(consumer);
    poll("a release", || (server.verdicts() == ["release"]).then_some(())).await;
}

#[tokio::test]
async fn what_nobody_took_until_its_lease_ended_is_not_handed_out() {
    let server = Server::start(Duration::from_millis(150)).await;
    server.fill(numbers(1));
    let mut consumer = Consumer::builder(&server.client().queue("orders")).prefetch(1).start();
    // It waits in the consumer's own buffer.
    let is_over = |state: &State| matches!(state, State::Leased(until) if *until < std::time::Instant::now());
    poll("the end of its lease", || (server.count(is_over) == 1).then_some(())).await;
    let delivery = consumer.next().await.expect("no error").expect("a delivery");
    assert!(delivery.receive_count == 2 && !delivery.lease_left().is_zero(), "{delivery:?}");
    delivery.ack().await.expect("acked");
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_refusal_for_good_is_told_once() {
    let server = Server::start(LEASE).await;
    let mut details = ErrorDetails::new();
    details.set_error_info("QUEUE_NOT_FOUND", "ticketrail", std::collections::HashMap::<String, String>::new());
    server.lock().refuse = Some(Status::with_error_details(Code::NotFound, "no queue", details));
    let mut consumer = server.client().queue("orders").consumer();
    let error = consumer.next().await.expect_err("refused");
    assert_eq!(error.reason(), Some(&Reason::QueueNotFound));
    assert!(consumer.next().await.expect("no second error").is_none());
    consumer.close().await.expect("closed");
}
