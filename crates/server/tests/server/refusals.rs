//! Each "no", with its code, its reason and its data.

use std::time::Duration;

use bytes::Bytes;
use ticketrail_proto::v1;
use ticketrail_server::Config;
use ticketrail_server::config::Size;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::harness::*;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[tokio::test]
async fn without_auto_create_an_unknown_queue_is_not_found() {
    let server = Server::start_with(|config| Config { auto_create: false, ..config }).await;
    let mut client = server.queues().await;
    let response = client.enqueue(enqueue("orders", vec![message("a"), message("b")])).await.unwrap().into_inner();
    for result in &response.results {
        let error = refused(result);
        assert_eq!((error.code, error.reason.as_str()), (5, "QUEUE_NOT_FOUND"));
        assert_eq!(error.metadata["queue"], "orders");
        assert!(error.message.contains("rail queue create orders"), "{}", error.message);
    }
    let named = pairs(&[("namespace", "default"), ("queue", "orders")]);
    let status = client.receive(receive("orders", 1, Duration::from_secs(5))).await.unwrap_err();
    assert_eq!(why(&status), (Code::NotFound, "QUEUE_NOT_FOUND".into(), named.clone()));
    let peek = v1::PeekRequest { queue: "orders".into(), ..Default::default() };
    assert_eq!(why(&client.peek(peek).await.unwrap_err()), (Code::NotFound, "QUEUE_NOT_FOUND".into(), named));
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_says_which_bound_and_when_to_come_back() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let mut admin = server.admin().await;
    let settings = v1::QueueSettings { max_depth: Some(2), ..Default::default() };
    let create = |queue: &str, settings| v1::CreateQueueRequest {
        queue: queue.into(),
        settings: Some(settings),
        ..Default::default()
    };
    admin.create_queue(create("deep", settings)).await.unwrap();
    // Decided in the log, as a part of the batch fits.
    let batch = vec![message("a"), message("b"), message("c")];
    let response = client.enqueue(enqueue("deep", batch)).await.unwrap().into_inner();
    assert!(response.commit.is_some());
    assert_eq!((enqueued(&response.results[0]).sequence, enqueued(&response.results[1]).sequence), (1, 2));
    let check = |error: &v1::ItemError, bound: &str, limit: &str, held: &str| {
        assert_eq!((error.code, error.reason.as_str()), (8, "FULL"), "{error:?}");
        let data = |name: &str| error.metadata[name].clone();
        assert_eq!((data("bound"), data("limit"), data("held")), (bound.into(), limit.into(), held.into()));
        let after = Duration::try_from(error.retry_after.unwrap()).unwrap();
        assert!(after >= Duration::from_millis(100) && after <= Duration::from_secs(60), "{after:?}");
        assert!(error.message.contains(bound), "{}", error.message);
    };
    check(refused(&response.results[2]), "max_depth", "2", "2");
    // Decided by the leader, without an entry.
    let response = client.enqueue(enqueue("deep", vec![message("d")])).await.unwrap().into_inner();
    assert!(response.commit.is_none());
    check(refused(&response.results[0]), "max_depth", "2", "2");

    let settings = v1::QueueSettings { max_bytes: Some(10), ..Default::default() };
    admin.create_queue(create("wide", settings)).await.unwrap();
    send(&mut client, "wide", &["12345678"]).await;
    let response = client.enqueue(enqueue("wide", vec![message("123")])).await.unwrap().into_inner();
    check(refused(&response.results[0]), "max_bytes", "10", "8");
    // Room again, and in.
    let delivery = take(&mut client, "wide", 1).await.remove(0);
    settle(&mut client, vec![ack(&delivery)]).await;
    send(&mut client, "wide", &["123"]).await;
    server.stop().await;
}

#[tokio::test]
async fn a_malformed_request_is_refused_whole_with_the_field() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let long = v1::NewMessage { body: vec![0; (1 << 20) + 1].into(), ..Default::default() };
    let status = client.enqueue(enqueue("orders", vec![message("a"), long])).await.unwrap_err();
    assert_eq!(why(&status), (Code::InvalidArgument, "INVALID".into(), pairs(&[("field", "messages[1].body")])));
    let details = status.get_error_details();
    let violation = &details.bad_request().unwrap().field_violations[0];
    assert_eq!(violation.field, "messages[1].body");
    assert_eq!(violation.description, "expected at most 1048576 bytes, but got 1048577");
    assert!(glance(&mut client, "orders", 1).await.is_empty(), "a sibling of the refused message was enqueued");

    let field = |status: tonic::Status| {
        let (code, reason, metadata) = why(&status);
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID"), "{status:?}");
        metadata[0].1.clone()
    };
    let status = client.enqueue(enqueue("orders", vec![])).await.unwrap_err();
    assert_eq!(field(status), "messages");
    let status = client.enqueue(enqueue("a b", vec![message("a")])).await.unwrap_err();
    assert_eq!(field(status), "queue");
    let settlement = v1::Settlement { lease_token: Bytes::from_static(b"forged"), verdict: None };
    let request = v1::SettleRequest { settlements: vec![settlement], ..Default::default() };
    assert_eq!(field(client.settle(request).await.unwrap_err()), "settlements[0].lease_token");
    let request = v1::GetRequest { message_id: "1.2.3".into(), ..Default::default() };
    assert_eq!(field(client.get(request).await.unwrap_err()), "message_id");
    let request = v1::PeekRequest { queue: "orders".into(), page_token: "xyz".into(), ..Default::default() };
    assert_eq!(field(client.peek(request).await.unwrap_err()), "page_token");
    let status = client.receive(receive("orders", 1_001, Duration::ZERO)).await.unwrap_err();
    assert_eq!(field(status), "max_messages");
    let far = prost_types::Timestamp { seconds: 200_000_000_000, nanos: 0 };
    let later = v1::NewMessage { available: Some(v1::new_message::Available::DeliverAt(far)), ..message("a") };
    // Only the log knows what time it is.
    let response = client.enqueue(enqueue("orders", vec![later])).await.unwrap().into_inner();
    assert_eq!((refused(&response.results[0]).code, refused(&response.results[0]).reason.as_str()), (3, "INVALID"));
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_message_is_not_found_in_any_namespace() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let ids = send(&mut client, "orders", &["a"]).await;
    let get = |id: &str, namespace: &str| v1::GetRequest {
        message_id: id.into(),
        namespace: namespace.into(),
        ..Default::default()
    };
    assert!(client.get(get(&ids[0], "")).await.is_ok());
    for request in [get(&ids[0], "shop"), get("1.99.m4.1", ""), get("7.1.m4.1", "")] {
        let id = request.message_id.clone();
        let status = client.get(request).await.unwrap_err();
        assert_eq!(why(&status), (Code::NotFound, "MESSAGE_NOT_FOUND".into(), pairs(&[("message_id", &id)])));
    }
    server.stop().await;
}

#[tokio::test]
async fn what_the_transport_refuses_is_told_too() {
    let server = Server::start().await;
    let mut client = server.queues().await.max_encoding_message_size(usize::MAX);
    let large = v1::NewMessage { body: vec![0; 17 << 20].into(), ..Default::default() };
    let status = client.enqueue(enqueue("orders", vec![large])).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_full_disk_refuses_enqueues_and_lets_work_be_finished() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let server = Server::start_in(dir, config.clone()).await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a", "b"]).await;
    let dir = server.stop().await;
    // No disk has so much free.
    let server = Server::start_in(dir, Config { disk_low_bytes: Size(u64::MAX), ..config.clone() }).await;
    let mut client = server.queues().await;
    let status = client.enqueue(enqueue("orders", vec![message("c")])).await.unwrap_err();
    assert_eq!(code_and_reason(&status), (Code::ResourceExhausted, "DISK_LOW".into()));
    let after = status.get_error_details().retry_info().and_then(|retry| retry.retry_delay).unwrap();
    assert!(after > Duration::ZERO);
    let mut admin = server.admin().await;
    let status = admin.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert!(status.disk.unwrap().low);
    let deliveries = take(&mut client, "orders", 10).await;
    let outcomes = settle(&mut client, deliveries.iter().map(ack).collect()).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, v1::settle_result::Outcome::Acked(_))), "{outcomes:?}");
    let dir = server.stop().await;
    // Space comes back.
    let server = Server::start_in(dir, config).await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["c"]).await;
    server.stop().await;
}
