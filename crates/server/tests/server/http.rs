//! Probes and metrics, asked as a kubelet and Prometheus ask.

use std::time::Duration;

use ticketrail_proto::v1;
use ticketrail_server::Config;
use ticketrail_server::config::{Age, MaybeAddress};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tower::ServiceExt as _;

use crate::exposition::Page;
use crate::harness::*;

/// The label of what belongs to a Raft group.
const GROUP: [(&str, &str); 1] = [("group", "1")];

/// An answer: its status, its content type and its body.
#[derive(Debug)]
struct Answer {
    status: u16,
    content_type: String,
    body: String,
}

/// Asks once, on a connection of its own.
async fn ask(address: &str, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let header = |name: &str| {
        let line = head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        });
        line.unwrap_or_default()
    };
    Answer { status, content_type: header("content-type"), body: body.to_owned() }
}

async fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path).await
}

async fn page(address: &str) -> Page {
    let answer = get(address, "/metrics").await;
    assert_eq!((answer.status, answer.content_type.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    Page::read(&answer.body).unwrap_or_else(|why| panic!("{why}\n{}", answer.body))
}

#[tokio::test]
async fn a_server_that_serves_is_live_and_ready() {
    let server = Server::start().await;
    let http = server.http();
    let live = get(&http, "/livez").await;
    assert_eq!((live.status, live.body.as_str()), (200, "live\n"));
    let ready = get(&http, "/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
    let verbose = get(&http, "/readyz?verbose").await;
    let lines: Vec<&str> = verbose.body.lines().collect();
    let checks =
        ["started", "not-stopping", "healthy", "voter", "leader", "caught-up"].map(|name| format!("[+] {name}"));
    assert_eq!(lines, [checks.as_slice(), &["ready".to_owned()]].concat());
    server.stop().await;
}

#[tokio::test]
async fn other_paths_and_methods_are_answered() {
    let server = Server::start().await;
    let http = server.http();
    let head = ask(&http, "HEAD", "/readyz").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let unknown = get(&http, "/healthz").await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.body, "expected /livez, /readyz or /metrics, but got /healthz\n");
    assert_eq!(ask(&http, "POST", "/metrics").await.status, 405);
    server.stop().await;
}

#[tokio::test]
async fn a_node_that_waits_for_a_leader_is_live_and_not_ready() {
    let dir = Server::start().await.stop().await;
    // A node that has been in a cluster waits for others before it campaigns: long enough to look, unless the machine is
    // busy. Then it starts once more.
    let (unready, live, page) = poll("a look at a node without a leader", async || {
        let config = Config {
            election_timeout_min: Age::millis(2_300),
            election_timeout_max: Age::millis(2_400),
            ..config(dir.path())
        };
        let http_file = config.http_ready_file.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(ticketrail_server::run(config, async {
            let _ = stopped.await;
        }));
        let http = poll("the HTTP address", async || std::fs::read_to_string(&http_file).ok()).await;
        let looked = poll("a node without a leader, or one that is ready", async || {
            let before = get(&http, "/readyz").await;
            let (live, page) = (get(&http, "/livez").await, page(&http).await);
            let after = get(&http, "/readyz").await;
            let leaderless = |answer: &Answer| answer.body.contains("[-] leader: expected a leader");
            if leaderless(&before) && leaderless(&after) {
                return Some(Some((before, live, page)));
            }
            (after.status == 200).then_some(None)
        })
        .await;
        stop.send(()).expect("a running server");
        task.await.expect("no panic").expect("an orderly stop");
        assert!(!http_file.exists());
        looked
    })
    .await;
    assert_eq!(unready.status, 503, "{unready:?}");
    assert!(unready.body.ends_with("\nnot ready\n"), "{unready:?}");
    assert_eq!(live.status, 200, "liveness depends on nobody else");
    assert_eq!(page.value("ticketrail_raft_has_leader", &GROUP), Some(0.0));
    assert_eq!(page.kinds.get("ticketrail_queue_messages"), None, "a leader alone tells");
}

#[tokio::test]
async fn a_server_that_stops_is_live_and_not_ready() {
    let server = Server::start().await;
    let http = server.http();
    let mut client = server.queues().await;
    let mut health = tonic_health::pb::health_client::HealthClient::new(server.channel().await);
    // An open stream keeps the gRPC server busy for a while after the node has stopped.
    let watch = tonic_health::pb::HealthCheckRequest { service: String::new() };
    let changes = health.watch(watch).await.expect("a stream").into_inner();
    send(&mut client, "orders", &["a"]).await;
    let stopping = server.begin_stop();
    let answer = poll("a server that is not ready", async || {
        let answer = get(&http, "/readyz").await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert!(answer.body.contains("[-] not-stopping: expected a server that stays"), "{answer:?}");
    assert_eq!(get(&http, "/livez").await.status, 200);
    drop((changes, health, client));
    stopping.wait().await;
}

#[tokio::test]
async fn the_http_port_can_be_in_use_or_off() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = Config { http_listen: MaybeAddress(Some(address)), ..config(dir.path()) };
    let error = ticketrail_server::run(config, std::future::pending()).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains(&address.to_string()) && text.contains("TICKETRAIL_HTTP_LISTEN"), "{text}");
    assert!(text.contains("--http-listen") && !dir.path().join("data").exists(), "{text}");

    let server = Server::start_with(|config| Config { http_listen: MaybeAddress(None), ..config }).await;
    assert!(!server.dir.path().join("http").exists());
    send(&mut server.queues().await, "orders", &["a"]).await;
    server.stop().await;
}

#[tokio::test]
async fn figures_follow_the_traffic() {
    let server = Server::start().await;
    let http = server.http();
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a", "bb", "ccc", "dddd"]).await;
    let deliveries = take(&mut client, "orders", 3).await;
    assert_eq!(deliveries.len(), 3);
    let reject = v1::settlement::Verdict::Reject(v1::Reject { code: "E".into(), text: String::new() });
    settle(&mut client, vec![ack(&deliveries[0]), settlement(&deliveries[1], reject)]).await;
    let missing = v1::GetQueueRequest { queue: "none".into(), ..Default::default() };
    server.admin().await.get_queue(missing).await.unwrap_err();

    let page = page(&http).await;
    let orders = |name: &str| page.value(name, &[("namespace", "default"), ("queue", "orders")]);
    let messages = |queue: &str, state: &str| {
        page.value("ticketrail_queue_messages", &[("namespace", "default"), ("queue", queue), ("state", state)])
    };
    assert_eq!((messages("orders", "ready"), messages("orders", "leased")), (Some(1.0), Some(1.0)));
    assert_eq!((messages("orders", "delayed"), messages("orders.dlq", "ready")), (Some(0.0), Some(1.0)));
    assert_eq!(orders("ticketrail_queue_bytes"), Some(7.0));
    assert!(orders("ticketrail_queue_oldest_ready_age_seconds").is_some_and(|age| (0.0..20.0).contains(&age)));
    assert_eq!(orders("ticketrail_messages_enqueued_total"), Some(4.0));
    assert_eq!(orders("ticketrail_messages_delivered_total"), Some(3.0));
    assert_eq!(orders("ticketrail_messages_acked_total"), Some(1.0));
    assert_eq!(orders("ticketrail_messages_dead_lettered_total"), Some(1.0));
    assert_eq!(orders("ticketrail_leases_expired_total"), Some(0.0));
    assert_eq!(page.value("ticketrail_queues", &[]), Some(2.0));

    let calls = |method: &str, code: &str| {
        let service = if method == "GetQueue" { "ticketrail.v1.AdminService" } else { "ticketrail.v1.QueueService" };
        let labels = [("grpc_service", service), ("grpc_method", method), ("grpc_code", code)];
        page.value("ticketrail_grpc_calls_total", &labels)
    };
    assert_eq!(
        (calls("Enqueue", "OK"), calls("Receive", "OK"), calls("Settle", "OK")),
        (Some(1.0), Some(1.0), Some(1.0))
    );
    assert_eq!((calls("GetQueue", "NOT_FOUND"), calls("GetQueue", "OK")), (Some(1.0), None));
    let enqueue = [("grpc_service", "ticketrail.v1.QueueService"), ("grpc_method", "Enqueue")];
    assert_eq!(page.value("ticketrail_grpc_call_duration_seconds_count", &enqueue), Some(1.0));
    assert_eq!(page.value("ticketrail_grpc_calls_in_progress", &[]), Some(0.0));

    assert_eq!(page.value("ticketrail_raft_role", &[GROUP[0], ("role", "leader")]), Some(1.0));
    assert_eq!(page.value("ticketrail_raft_role", &[GROUP[0], ("role", "follower")]), Some(0.0));
    assert_eq!(page.value("ticketrail_raft_leader_id", &GROUP), Some(1.0));
    assert_eq!(page.value("ticketrail_raft_elections_total", &GROUP), Some(1.0), "its first start");
    let applied = page.value("ticketrail_raft_applied_index", &GROUP);
    assert!(applied > Some(3.0) && applied <= page.value("ticketrail_raft_last_log_index", &GROUP), "{applied:?}");
    assert!(page.value("ticketrail_raft_log_held_bytes", &GROUP) > Some(0.0));
    assert!(page.value("ticketrail_scheduler_idle_seconds", &GROUP).is_some());
    assert_eq!(page.value("ticketrail_leases_watched", &GROUP), Some(1.0));
    let syncs = page.value("ticketrail_log_sync_duration_seconds_count", &[]);
    assert!(syncs >= Some(4.0), "a vote, and an entry for each call that changed something: {syncs:?}");
    assert!(page.value("ticketrail_log_sync_size_entries_sum", &[]) >= Some(4.0));
    assert!(page.value("ticketrail_log_sync_size_bytes_sum", &[]) > Some(100.0));
    assert!(page.value("ticketrail_disk_free_bytes", &[]) > Some(0.0));
    assert_eq!(page.value("ticketrail_disk_low_watermark_bytes", &[]), Some(f64::from(64 << 20)));
    assert_eq!(page.value("ticketrail_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), Some(1.0));
    for name in page.kinds.keys() {
        assert!(name.starts_with("ticketrail_") || name.starts_with("process_"), "{name}");
        assert!(!name.contains("_ms") && !name.contains("milli"), "{name} is not in seconds");
    }
    server.stop().await;
}

#[tokio::test]
async fn no_caller_can_add_a_series() {
    let server = Server::start().await;
    let http = server.http();
    let (origin, channel) = (format!("http://{}", server.address), server.channel().await);
    for n in 0..3 {
        let request = axum::http::Request::post(format!("{origin}/no.such.Service/Method{n}"))
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty())
            .expect("a request");
        let refused = channel.clone().oneshot(request).await.expect("an answer");
        assert_eq!(refused.headers().get("grpc-status").map(|code| code.as_bytes()), Some(b"12".as_slice()));
    }
    let page = page(&http).await;
    let other = [("grpc_service", "_other"), ("grpc_method", "_other"), ("grpc_code", "UNIMPLEMENTED")];
    assert_eq!(page.value("ticketrail_grpc_calls_total", &other), Some(3.0));
    let services = page.samples.iter().filter_map(|sample| sample.labels.get("grpc_service"));
    assert!(services.into_iter().all(|service| service == "_other"));
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_is_counted_as_cancelled() {
    let server = Server::start().await;
    let http = server.http();
    let mut client = server.queues().await;
    let poll_call = tokio::spawn(async move { client.receive(receive("orders", 1, Duration::from_secs(60))).await });
    parked(&server, 1).await;
    assert_eq!(page(&http).await.value("ticketrail_parked_receives", &GROUP), Some(1.0));
    poll_call.abort();
    let labels =
        [("grpc_service", "ticketrail.v1.QueueService"), ("grpc_method", "Receive"), ("grpc_code", "CANCELLED")];
    poll("a call that was cancelled", async || {
        (page(&http).await.value("ticketrail_grpc_calls_total", &labels) == Some(1.0)).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn queues_past_the_first_five_hundred_are_summed_up() {
    let server = Server::start().await;
    let http = server.http();
    let mut client = server.queues().await;
    for n in 0..505 {
        send(&mut client, &format!("q{:03}", 999 - n), &["x"]).await;
    }
    let page = page(&http).await;
    let ready = |namespace: &str, queue: &str| {
        page.value("ticketrail_queue_messages", &[("namespace", namespace), ("queue", queue), ("state", "ready")])
    };
    assert_eq!(
        (ready("default", "q999"), ready("default", "q500")),
        (Some(1.0), Some(1.0)),
        "the oldest have their own"
    );
    assert_eq!((ready("default", "q499"), ready("_other", "_other")), (None, Some(5.0)));
    assert_eq!(page.value("ticketrail_queues", &[]), Some(505.0));
    assert_eq!(page.value("ticketrail_queues_cut", &[]), Some(0.0));
    let enqueued = |labels: &[(&str, &str)]| page.value("ticketrail_messages_enqueued_total", labels);
    assert_eq!(enqueued(&[("namespace", "default"), ("queue", "q999")]), Some(1.0));
    assert_eq!(enqueued(&[("namespace", "_other"), ("queue", "_other")]), None, "a sum of counters may fall");
    server.stop().await;
}
