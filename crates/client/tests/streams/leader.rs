//! Following the leader.

use std::time::Duration;

use ticketrail_client::{Client, RetryPolicy};

use crate::poll::{DEADLINE, poll};
use crate::proxy::Proxy;
use crate::server::{Server, client};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn calls_and_streams_go_where_replies_say_that_the_leader_is() {
    let (follower, leader) = (Server::start(LEASE).await, Server::start(LEASE).await);
    follower.lock().leader = Some(leader.address.to_string());
    // The leader's address is not among those that were given.
    let client = client(&[follower.address]);
    client.queue("orders").send("a").await.expect("sent");
    let before = follower.lock().calls;
    assert!(before > 0);
    client.queue("orders").send("b").await.expect("sent");
    let producer = client.queue("orders").producer();
    producer.send("c").await.expect("taken").await.expect("sent");
    assert_eq!(follower.lock().calls, before, "all later calls go to the leader");
    assert!(leader.held() >= 2 && leader.streams() == 1);
}

#[tokio::test]
async fn a_stream_opened_elsewhere_moves_to_the_leader() {
    let (follower, leader) = (Server::start(LEASE).await, Server::start(LEASE).await);
    follower.lock().leader = Some(leader.address.to_string());
    leader.fill(["x".to_owned()]);
    let mut consumer = client(&[follower.address, leader.address]).queue("orders").consumer();
    let delivery = consumer.next().await.expect("no error").expect("a delivery");
    delivery.ack().await.expect("acked");
    assert_eq!((follower.streams(), leader.streams()), (1, 1));
}

#[tokio::test]
async fn an_address_that_nobody_is_at_gives_way_to_the_next() {
    let server = Server::start(LEASE).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let client = client(&[nobody, server.address]);
    client.queue("orders").send("a").await.expect("sent");
    let producer = client.queue("orders").producer();
    producer.send("b").await.expect("taken").await.expect("sent");
    assert_eq!(server.held(), 2);
}

/// A leader that says nothing any more and keeps its connections, a follower that does not know it yet, and a client that
/// waits for each answer for longer than any test.
async fn silent_leader() -> (Proxy, Server, Client) {
    let (leader, follower) = (Server::start(LEASE).await, Server::start(LEASE).await);
    let way = Proxy::to(leader.address, []).await;
    follower.lock().leader = Some(way.address.to_string());
    let policy = RetryPolicy { timeout: 4 * DEADLINE, attempt_timeout: 4 * DEADLINE, ..RetryPolicy::default() };
    let addresses = [way.address, follower.address].map(|address| address.to_string());
    let client = Client::builder().addresses(addresses).retry(policy).connect().expect("addresses");
    client.queue("orders").send("before").await.expect("sent");
    assert_eq!((leader.held(), follower.held()), (1, 0));
    (way, follower, client)
}

/// Makes `follower` the leader, once it has said twice that another one leads.
async fn elect(follower: &Server) {
    poll("the follower to be asked who leads", || (follower.lock().asked >= 2).then_some(())).await;
    assert_eq!(follower.held(), 0, "nobody goes elsewhere while the silent one leads");
    follower.lock().leader = None;
}

#[tokio::test]
async fn nobody_waits_for_a_silent_leader_once_another_one_leads() {
    let (way, next, client) = silent_leader().await;
    let orders = client.queue("orders");
    let producer = orders.producer();
    producer.send("over a stream").await.expect("taken").await.expect("sent");
    way.stall();
    let confirm = producer.send("over the stream").await.expect("taken");
    let calls = (0..50).map(|n| {
        let orders = orders.clone();
        tokio::spawn(async move { orders.send(format!("call {n}")).await })
    });
    let calls: Vec<_> = calls.collect();
    elect(&next).await;
    confirm.await.expect("confirmed");
    for call in calls {
        call.await.expect("no panic").expect("sent");
    }
    assert_eq!((next.held(), next.doubles()), (51, 0));
    let asked = next.lock().asked;
    assert!(asked < 20, "fifty calls ask for one answer, not {asked} times");
}

#[tokio::test]
async fn an_idle_stream_leaves_with_the_calls() {
    let (way, next, client) = silent_leader().await;
    let mut consumer = client.queue("orders").consumer();
    consumer.next().await.expect("no error").expect("a delivery");
    way.stall();
    let orders = client.queue("orders");
    let sending = tokio::spawn(async move { orders.send("after").await });
    elect(&next).await;
    sending.await.expect("no panic").expect("sent");
    let delivery = consumer.next().await.expect("no error").expect("a delivery");
    assert_eq!(delivery.message.body, "after");
    assert_eq!(next.streams(), 1);
}

#[tokio::test]
async fn a_slow_leader_is_waited_for() {
    let (way, next, client) = silent_leader().await;
    let orders = client.queue("orders");
    way.stall();
    let sending = tokio::spawn(async move { orders.send("late").await });
    poll("the follower to be asked who leads", || (next.lock().asked >= 3).then_some(())).await;
    assert!(!sending.is_finished(), "the follower says that the silent one leads");
    sending.abort();
}
