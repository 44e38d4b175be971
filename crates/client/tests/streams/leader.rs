//! Following the leader.

use std::time::Duration;

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
