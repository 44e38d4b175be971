//! What operators do.

use std::time::Duration;

use prost_types::Duration as Wire;
use ticketrail_proto::v1;
use tonic::Code;
use v1::settlement::Verdict;

use crate::harness::*;

fn seconds(seconds: i64) -> Option<Wire> {
    Some(Wire { seconds, nanos: 0 })
}

fn create(queue: &str, settings: v1::QueueSettings) -> v1::CreateQueueRequest {
    v1::CreateQueueRequest { queue: queue.into(), settings: Some(settings), ..Default::default() }
}

fn get(queue: &str) -> v1::GetQueueRequest {
    v1::GetQueueRequest { queue: queue.into(), ..Default::default() }
}

#[tokio::test]
async fn a_queue_is_made_changed_shown_and_deleted() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let mut client = server.queues().await;
    let settings = v1::QueueSettings { max_depth: Some(7), lease: seconds(30), ..Default::default() };
    let made = admin.create_queue(create("orders", settings)).await.unwrap().into_inner();
    assert!(made.queue_id > 0 && made.commit.is_some());
    let again = admin.create_queue(create("orders", v1::QueueSettings::default())).await.unwrap_err();
    assert_eq!(code_and_reason(&again), (Code::AlreadyExists, "QUEUE_EXISTS".into()));

    let changed = v1::QueueSettings { max_attempts: Some(9), backoff_cap: seconds(90), ..Default::default() };
    let update = v1::UpdateQueueRequest { queue: "orders".into(), settings: Some(changed), ..Default::default() };
    assert_eq!(admin.update_queue(update).await.unwrap().into_inner().queue_id, made.queue_id);

    send(&mut client, "orders", &["a", "bb", "ccc"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let reject = Verdict::Reject(v1::Reject { code: "E".into(), text: String::new() });
    settle(&mut client, vec![settlement(&delivery, reject)]).await;
    take(&mut client, "orders", 1).await;

    let shown = admin.get_queue(get("orders")).await.unwrap().into_inner();
    assert_eq!(shown.origin.unwrap().node, 1);
    let info = shown.queue.unwrap();
    assert_eq!((info.namespace.as_str(), info.name.as_str(), info.id), ("default", "orders", made.queue_id));
    assert_eq!((info.dead, info.closed, info.pause), (1, false, None));
    let settings = info.settings.unwrap();
    assert_eq!((settings.max_depth, settings.lease), (Some(7), seconds(30)));
    assert_eq!((settings.max_attempts, settings.backoff_cap), (Some(9), seconds(90)));
    assert_eq!((settings.max_bytes, settings.failure_window), (Some(0), seconds(86_400)));
    assert_eq!((settings.backoff_base, settings.dead_letter_queue), (seconds(1), Some(String::new())));
    let stats = info.stats.unwrap();
    assert_eq!((stats.ready, stats.leased, stats.delayed, stats.bytes), (1, 1, 0, 5));
    assert_eq!((stats.enqueued, stats.moved_out, stats.received, stats.failed), (3, 1, 2, 1));
    assert!(stats.oldest_ready_age.is_some() && stats.oldest_ready_at.is_some());

    let purge = v1::PurgeQueueRequest { queue: "orders".into(), ..Default::default() };
    assert_eq!(admin.purge_queue(purge).await.unwrap().into_inner().messages, 1);
    let delete = v1::DeleteQueueRequest { queue: "orders".into(), ..Default::default() };
    assert_eq!(admin.delete_queue(delete.clone()).await.unwrap().into_inner().messages, 1);
    let gone = admin.get_queue(get("orders")).await.unwrap_err();
    let named = vec![("namespace".to_owned(), "default".to_owned()), ("queue".to_owned(), "orders".to_owned())];
    assert_eq!(why(&gone), (Code::NotFound, "QUEUE_NOT_FOUND".into(), named));
    let gone = admin.delete_queue(delete).await.unwrap_err();
    assert_eq!(code_and_reason(&gone), (Code::NotFound, "QUEUE_NOT_FOUND".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_message_leased_before_a_purge_is_counted_once() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a", "b"]).await;
    let delivery = take(&mut client, "orders", 1).await.remove(0);
    let purge = v1::PurgeQueueRequest { queue: "orders".into(), ..Default::default() };
    assert_eq!(admin.purge_queue(purge).await.unwrap().into_inner().messages, 1);
    let release = settlement(&delivery, Verdict::Release(v1::Release {}));
    let outcomes = settle(&mut client, vec![release]).await;
    assert_eq!(outcomes, [v1::settle_result::Outcome::Purged(v1::Purged {})]);
    let stats = admin.get_queue(get("orders")).await.unwrap().into_inner().queue.unwrap().stats.unwrap();
    assert_eq!((stats.enqueued, stats.purged, stats.ready, stats.leased, stats.acked), (2, 2, 0, 0, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_paused_queue_takes_but_does_not_deliver() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a"]).await;
    let pause = v1::Pause { reason: "partner down".into(), author: "ops".into(), until: None };
    let request = v1::PauseQueueRequest { queue: "orders".into(), pause: Some(pause.clone()), ..Default::default() };
    admin.pause_queue(request).await.unwrap();
    send(&mut client, "orders", &["b"]).await;
    assert!(glance(&mut client, "orders", 1).await.is_empty());
    let info = admin.get_queue(get("orders")).await.unwrap().into_inner().queue.unwrap();
    assert_eq!((info.pause, info.stats.unwrap().ready), (Some(pause), 2));
    let past = v1::Pause { until: Some(prost_types::Timestamp { seconds: 5, nanos: 0 }), ..Default::default() };
    let request = v1::PauseQueueRequest { queue: "orders".into(), pause: Some(past), ..Default::default() };
    let refused = admin.pause_queue(request).await.unwrap_err();
    assert_eq!(code_and_reason(&refused), (Code::InvalidArgument, "INVALID".into()));
    let resume = v1::ResumeQueueRequest { queue: "orders".into(), ..Default::default() };
    admin.resume_queue(resume).await.unwrap();
    assert_eq!(take(&mut client, "orders", 10).await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_closed_queue_delivers_but_does_not_take() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a"]).await;
    let close = v1::CloseQueueRequest { queue: "orders".into(), ..Default::default() };
    admin.close_queue(close).await.unwrap();
    let response = client.enqueue(enqueue("orders", vec![message("b")])).await.unwrap().into_inner();
    let error = refused(&response.results[0]);
    assert_eq!((error.code, error.reason.as_str(), error.metadata["queue"].as_str()), (9, "QUEUE_CLOSED", "orders"));
    assert_eq!(take(&mut client, "orders", 1).await.len(), 1);
    let reopen = v1::ReopenQueueRequest { queue: "orders".into(), ..Default::default() };
    admin.reopen_queue(reopen).await.unwrap();
    send(&mut client, "orders", &["c"]).await;
    server.stop().await;
}

#[tokio::test]
async fn queues_are_listed_by_name_in_pages_of_their_namespace() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    for name in ["b", "a", "c", "a.dlq"] {
        admin.create_queue(create(name, v1::QueueSettings::default())).await.unwrap();
    }
    let other = v1::CreateQueueRequest { namespace: "shop".into(), ..create("z", v1::QueueSettings::default()) };
    admin.create_queue(other).await.unwrap();
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListQueuesRequest { page_size: 3, page_token: token, ..Default::default() };
        let page = admin.list_queues(request).await.unwrap().into_inner();
        names.extend(page.queues.into_iter().map(|queue| queue.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "a.dlq", "b", "c"]);
    let request = v1::ListQueuesRequest { namespace: "shop".into(), stale_ok: true, ..Default::default() };
    let page = admin.list_queues(request).await.unwrap().into_inner();
    assert_eq!(page.queues.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_node_shows_itself() {
    let server = Server::start().await;
    let mut admin = server.admin().await;
    send(&mut server.queues().await, "orders", &["a"]).await;
    let status = admin.get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.node, status.leader, status.role()), (1, 1, v1::NodeRole::Leader));
    assert!(status.serving && !status.draining && status.broken.is_empty(), "{status:?}");
    assert_eq!((status.version.as_str(), status.cluster_id.len()), (env!("CARGO_PKG_VERSION"), 32));
    assert!(status.applied_index > 0 && status.applied_index <= status.last_log_index, "{status:?}");
    assert!(status.term > 0 && status.cluster_time.is_some_and(|time| time.seconds > 1_600_000_000), "{status:?}");
    let disk = status.disk.unwrap();
    assert!(disk.free_bytes > 0 && disk.free_bytes <= disk.total_bytes && !disk.low, "{disk:?}");
    assert_eq!(disk.low_watermark_bytes, 64 << 20);
    assert!(Duration::try_from(status.uptime.unwrap()).unwrap() < DEADLINE);
    server.stop().await;
}
