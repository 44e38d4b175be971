//! Request ids: a repeat has no second effect.

use std::time::Duration;

use ticketrail_proto::v1;
use tonic::Code;

use crate::harness::*;

type Client = v1::queue_service_client::QueueServiceClient<tonic::transport::Channel>;

async fn open(client: &mut Client) -> u64 {
    let response = client.open_session(v1::OpenSessionRequest { renew: 0 }).await.unwrap().into_inner();
    assert_eq!(response.idle_timeout, Some(prost_types::Duration { seconds: 600, nanos: 0 }));
    assert_eq!(response.window, 1_024);
    assert!(response.commit.is_some());
    response.session
}

fn id(session: u64, seq: u64, acked_below: u64) -> Option<v1::RequestId> {
    Some(v1::RequestId { session, seq, acked_below, ..Default::default() })
}

fn repeat(id: Option<v1::RequestId>) -> Option<v1::RequestId> {
    id.map(|id| v1::RequestId { repeat: true, ..id })
}

#[tokio::test]
async fn a_repeated_enqueue_gets_the_first_outcome() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let session = open(&mut client).await;
    let request = |request_id, body: &str| v1::EnqueueRequest { request_id, ..enqueue("orders", vec![message(body)]) };
    let first = client.enqueue(request(id(session, 1, 1), "a")).await.unwrap().into_inner();
    let again = client.enqueue(request(repeat(id(session, 1, 1)), "a")).await.unwrap().into_inner();
    assert_eq!(first.results, again.results);
    let (first, again) = (first.commit.unwrap(), again.commit.unwrap());
    assert_eq!((first.index, first.ordinal, first.cluster_time), (again.index, again.ordinal, again.cluster_time));
    assert_eq!((first.replayed, again.replayed), (false, true));
    // Also where the client did not say that it repeats.
    let unsaid = client.enqueue(request(id(session, 1, 1), "a")).await.unwrap().into_inner();
    assert!(unsaid.commit.unwrap().replayed);

    let reused = client.enqueue(request(id(session, 1, 1), "b")).await.unwrap_err();
    assert_eq!(code_and_reason(&reused), (Code::InvalidArgument, "REQUEST_ID_REUSED".into()));
    client.enqueue(request(id(session, 2, 2), "b")).await.unwrap();
    let old = client.enqueue(request(repeat(id(session, 1, 1)), "a")).await.unwrap_err();
    let data = vec![("acked_below".to_owned(), "2".to_owned())];
    assert_eq!(why(&old), (Code::FailedPrecondition, "REQUEST_ID_OLD".into(), data));
    assert_eq!(take(&mut client, "orders", 10).await.len(), 2, "each request took effect once");
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_receive_gets_the_live_leases_once_more() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let session = open(&mut client).await;
    send(&mut client, "orders", &["a", "b", "c"]).await;
    let request = |request_id| v1::ReceiveRequest { request_id, ..receive("orders", 2, Duration::from_secs(5)) };
    let first = client.receive(request(id(session, 1, 1))).await.unwrap().into_inner();
    assert_eq!(first.deliveries.len(), 2);
    settle(&mut client, vec![ack(&first.deliveries[0])]).await;
    let again = client.receive(request(repeat(id(session, 1, 1)))).await.unwrap().into_inner();
    assert!(again.commit.unwrap().replayed);
    let [delivery] = again.deliveries.as_slice() else { panic!("{:?}", again.deliveries) };
    assert_eq!((delivery.message.clone(), delivery.receive_count), (first.deliveries[1].message.clone(), 1));
    assert_eq!(delivery.lease_token, first.deliveries[1].lease_token);
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_settle_finishes_nothing_twice() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let session = open(&mut client).await;
    send(&mut client, "orders", &["a"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let request = |request_id| v1::SettleRequest { request_id, settlements: vec![ack(&delivery)] };
    let first = client.settle(request(id(session, 1, 1))).await.unwrap().into_inner();
    let again = client.settle(request(repeat(id(session, 1, 1)))).await.unwrap().into_inner();
    assert_eq!(first.results, again.results);
    assert!(again.commit.unwrap().replayed);
    let mut admin = server.admin().await;
    let get = v1::GetQueueRequest { queue: "orders".into(), ..Default::default() };
    let stats = admin.get_queue(get).await.unwrap().into_inner().queue.unwrap().stats.unwrap();
    assert_eq!((stats.enqueued, stats.acked), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn a_repeat_survives_a_restart_and_an_unknown_session_is_told() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let session = open(&mut client).await;
    let request = |request_id| v1::EnqueueRequest { request_id, ..enqueue("orders", vec![message("a")]) };
    let first = client.enqueue(request(id(session, 1, 1))).await.unwrap().into_inner();
    let dir = server.stop().await;
    let config = config(dir.path());
    let server = Server::start_in(dir, config).await;
    let mut client = server.queues().await;
    let again = client.enqueue(request(repeat(id(session, 1, 1)))).await.unwrap().into_inner();
    assert_eq!(first.results, again.results);
    assert!(again.commit.unwrap().replayed);
    let renewed = client.open_session(v1::OpenSessionRequest { renew: session }).await.unwrap().into_inner();
    assert_eq!(renewed.session, session);
    for unknown in [session + 1, u64::MAX] {
        let status = client.enqueue(request(id(unknown, 1, 1))).await.unwrap_err();
        assert_eq!(code_and_reason(&status), (Code::FailedPrecondition, "SESSION_EXPIRED".into()), "{unknown}");
        let status = client.open_session(v1::OpenSessionRequest { renew: unknown }).await.unwrap_err();
        assert_eq!(code_and_reason(&status), (Code::FailedPrecondition, "SESSION_EXPIRED".into()), "{unknown}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_says_nothing_of_what_it_saw_runs_out_of_room() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let session = open(&mut client).await;
    let request = |seq, acked_below| v1::EnqueueRequest {
        request_id: id(session, seq, acked_below),
        ..enqueue("orders", vec![message("a")])
    };
    let mut calls = tokio::task::JoinSet::new();
    for seq in 1..=1_024 {
        let (mut client, request) = (client.clone(), request(seq, 1));
        calls.spawn(async move { client.enqueue(request).await.map(drop) });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap().unwrap();
    }
    let status = client.enqueue(request(1_025, 1)).await.unwrap_err();
    let data = vec![("limit".to_owned(), "1024".to_owned())];
    assert_eq!(why(&status), (Code::FailedPrecondition, "SESSION_WINDOW".into(), data));
    client.enqueue(request(1_025, 1_025)).await.unwrap();
    server.stop().await;
}
