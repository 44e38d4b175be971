//! Producers.

use std::time::Duration;

use ticketrail_client::{Error, NewMessage, Producer, Reason};

use crate::poll::poll;
use crate::proxy::Proxy;
use crate::server::{Server, State, client};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn each_message_is_confirmed_with_its_place() {
    let server = Server::start(LEASE).await;
    let producer = server.client().queue("orders").producer();
    let mut confirms = Vec::new();
    for n in 0..1_000 {
        confirms.push(producer.send(n.to_string()).await.expect("taken"));
    }
    for (confirm, n) in confirms.into_iter().zip(0..) {
        let sent = confirm.await.expect("confirmed");
        assert_eq!((sent.sequence, sent.message_id), (n + 1, format!("1.1.m4.{}", n + 1)));
    }
    producer.close().await.expect("closed");
    let inner = server.lock();
    assert_eq!((inner.messages.len(), inner.doubles(), inner.repeats, inner.streams), (1_000, 0, 0, 1));
    assert!(inner.messages.values().zip(0..).all(|(held, n): (_, u32)| held.body == n.to_string()), "in order");
}

#[tokio::test]
async fn cut_connections_lose_nothing_and_double_nothing() {
    let server = Server::start(LEASE).await;
    let proxy = Proxy::to(server.address, (1..=12).map(|n| 90 + 30 * n)).await;
    let client = client(&[proxy.address]);
    let producer = Producer::builder(&client.queue("orders")).unconfirmed(64).start();
    let mut confirms = Vec::new();
    for n in 0..3_000 {
        confirms.push(producer.send(n.to_string()).await.expect("taken"));
    }
    for confirm in confirms {
        confirm.await.expect("confirmed");
    }
    producer.close().await.expect("closed");
    assert_eq!(proxy.cuts_left(), 0, "all were cut");
    let inner = server.lock();
    assert_eq!((inner.messages.len(), inner.doubles(), inner.unmarked), (3_000, 0, 0));
    assert!(inner.repeats > 0, "some answers were lost on their way");
}

#[tokio::test]
async fn only_so_many_are_unconfirmed() {
    // Nobody answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = client(&[listener.local_addr().expect("an address")]);
    let producer = Producer::builder(&client.queue("orders")).unconfirmed(3).start();
    for n in 0..3 {
        drop(producer.send(n.to_string()).await.expect("room"));
    }
    let fourth = tokio::time::timeout(Duration::from_millis(50), producer.send("3")).await;
    assert!(fourth.is_err(), "there is no room for a fourth");
    // And as many bytes.
    let producer = Producer::builder(&client.queue("orders")).unconfirmed_bytes(3_000).start();
    drop(producer.send(vec![0; 2_000]).await.expect("room"));
    let second = tokio::time::timeout(Duration::from_millis(50), producer.send(vec![0; 2_000])).await;
    assert!(second.is_err(), "there is no room for as many bytes");
    let huge = producer.send(vec![0; 16 << 20]).await.expect_err("no server takes it");
    assert!(matches!(huge, Error::Config { .. }), "{huge}");
}

#[tokio::test]
async fn a_bad_message_spoils_no_other() {
    let server = Server::start(LEASE).await;
    let producer = server.client().queue("orders").producer();
    let mut confirms = Vec::new();
    for n in 0..100 {
        let message = NewMessage::from(n.to_string());
        let message = if n == 37 { message.message_type("bad") } else { message };
        confirms.push((n, producer.send(message).await.expect("taken")));
    }
    for (n, confirm) in confirms {
        match confirm.await {
            Ok(_) => assert_ne!(n, 37),
            Err(error) => assert_eq!((n, error.reason()), (37, Some(&Reason::Invalid)), "{error}"),
        }
    }
    assert_eq!((server.held(), server.doubles()), (99, 0));
}

#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let server = Server::start(LEASE).await;
    server.lock().depth = Some(5);
    let producer = server.client().queue("orders").producer();
    let mut confirms = Vec::new();
    for n in 0..20 {
        confirms.push(producer.send(n.to_string()).await.expect("taken"));
    }
    for room in 1..=4 {
        poll("a full queue", || (server.held() == 5 * room).then_some(())).await;
        server.lock().messages.values_mut().for_each(|held| held.state = State::Acked);
    }
    for confirm in confirms {
        confirm.await.expect("confirmed when there was room");
    }
    producer.flush().await.expect("nothing is left");
    assert_eq!((server.held(), server.doubles()), (20, 0));
}

#[tokio::test]
async fn what_is_handed_over_outlives_the_producer() {
    let server = Server::start(LEASE).await;
    let confirm = server.client().queue("orders").producer().send("x").await.expect("taken");
    confirm.await.expect("confirmed");
    assert_eq!(server.held(), 1);
}

#[tokio::test]
async fn nobody_there_means_that_nothing_happened() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let client = ticketrail_client::Client::builder()
        .address(port.to_string())
        .timeout(Duration::from_millis(200))
        .connect()
        .expect("an address");
    let producer = client.queue("orders").producer();
    let error = producer.send("x").await.expect("taken").await.expect_err("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    producer.close().await.expect("closed");
}
