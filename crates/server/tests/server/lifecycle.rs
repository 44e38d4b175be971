//! Start, health, restart, stop; what is in the way is named.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ticketrail_server::Config;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

use crate::harness::*;

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let server = Server::start().await;
    let ready = server.dir.path().join("ready");
    assert_eq!(std::fs::read_to_string(&ready).unwrap(), server.address);
    let mut client = server.queues().await;
    let ids = send(&mut client, "orders", &["a", "b"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let dir = server.stop().await;
    assert!(!ready.exists(), "a server that is gone says that it is ready");
    let config = config(dir.path());
    let server = Server::start_in(dir, config).await;
    let mut client = server.queues().await;
    assert_eq!(settle(&mut client, vec![ack(&delivery)]).await.len(), 1);
    let rest = take(&mut client, "orders", 10).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].message.as_ref().unwrap().id, ids[1]);
    server.stop().await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = Config { listen: address, ..config(dir.path()) };
    let error = ticketrail_server::run(config, std::future::pending()).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains(&address.to_string()) && text.contains("TICKETRAIL_LISTEN"), "{text}");
    assert!(!dir.path().join("data").exists(), "nothing is made by a server that cannot start");
    let elsewhere = Config { listen: SocketAddr::from(([203, 0, 113, 1], 0)), ..self::config(dir.path()) };
    let error = ticketrail_server::run(elsewhere, std::future::pending()).await.unwrap_err();
    assert!(format!("{error:#}").contains("no such address"), "{error:#}");
}

#[tokio::test]
async fn a_second_server_on_one_directory_is_refused_with_the_pid_of_the_first() {
    let server = Server::start().await;
    let second = Config { ready_file: "".into(), http_ready_file: "".into(), ..config(server.dir.path()) };
    let error = ticketrail_server::run(second, std::future::pending()).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("LOCK") && text.contains(&format!("process {}", std::process::id())), "{text}");
    // The first goes on.
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a"]).await;
    server.stop().await;
}

#[tokio::test]
async fn a_bad_configuration_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { parked_receives: 0, ..config(dir.path()) };
    let error = ticketrail_server::run(config, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().starts_with("parked_receives"), "{error:#}");
}

#[tokio::test]
async fn a_stop_ends_waiting_receives_with_draining() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let mut health = HealthClient::new(server.channel().await);
    let mut waiting = client.clone();
    let poll = tokio::spawn(async move { waiting.receive(receive("orders", 1, Duration::from_secs(60))).await });
    parked(&server, 1).await;
    let mut changes =
        health.watch(HealthCheckRequest { service: "ticketrail.v1.QueueService".into() }).await.unwrap().into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let begun = Instant::now();
    let stopping = server.begin_stop();
    let status = poll.await.unwrap().unwrap_err();
    assert_eq!(code_and_reason(&status), (Code::Unavailable, "DRAINING".into()));
    assert_eq!(changes.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    drop((changes, health));
    // Later calls are told the same, or find nobody any more.
    if let Err(status) = client.enqueue(enqueue("orders", vec![message("late")])).await {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    } else {
        panic!("expected a stopping server to take nothing");
    }
    drop(client);
    stopping.wait().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn health_and_reflection_know_the_services() {
    let server = Server::start().await;
    let mut health = HealthClient::new(server.channel().await);
    for service in ["", "ticketrail.v1.QueueService", "ticketrail.v1.AdminService"] {
        poll(service, async || {
            let request = HealthCheckRequest { service: service.into() };
            let status = health.check(request).await.unwrap().into_inner().status();
            (status == ServingStatus::Serving).then_some(())
        })
        .await;
    }
    let unknown = health.check(HealthCheckRequest { service: "no.such.Service".into() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut reflection = ServerReflectionClient::new(server.channel().await);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = services.service.into_iter().map(|ServiceResponse { name }| name).collect();
    for expected in ["ticketrail.v1.QueueService", "ticketrail.v1.AdminService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    drop((answers, reflection, health));
    server.stop().await;
}
