//! What a message may say of its life: group, priority, dedup id, time to live; what is done to it before anybody has it; and
//! what is left of it.

use std::collections::BTreeMap;
use std::time::Duration;

use ticketrail_proto::v1;
use tonic::Code;
use v1::settle_result::Outcome;
use v1::settlement::Verdict;

use crate::harness::*;
use crate::poll::poll;

type Client = v1::queue_service_client::QueueServiceClient<tonic::transport::Channel>;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn millis(ms: i32) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds: 0, nanos: ms * 1_000_000 })
}

async fn create(server: &Server, queue: &str, settings: v1::QueueSettings) {
    let create = v1::CreateQueueRequest { queue: queue.into(), settings: Some(settings), ..Default::default() };
    server.admin().await.create_queue(create).await.expect("a queue");
}

async fn show(server: &Server, queue: &str) -> v1::QueueInfo {
    let get = v1::GetQueueRequest { queue: queue.into(), ..Default::default() };
    server.admin().await.get_queue(get).await.expect("a queue").into_inner().queue.expect("a queue")
}

async fn stats(server: &Server, queue: &str) -> v1::QueueStats {
    show(server, queue).await.stats.expect("figures")
}

async fn put(client: &mut Client, queue: &str, messages: Vec<v1::NewMessage>) -> Vec<v1::Enqueued> {
    let response = client.enqueue(enqueue(queue, messages)).await.expect("an enqueue").into_inner();
    response.results.iter().map(|result| enqueued(result).clone()).collect()
}

fn grouped(body: &str, group: &str) -> v1::NewMessage {
    v1::NewMessage { group: group.into(), ..message(body) }
}

fn named(body: &str, dedup_id: &str) -> v1::NewMessage {
    v1::NewMessage { dedup_id: dedup_id.into(), ..message(body) }
}

fn by_id(id: &str) -> v1::Target {
    v1::Target { which: Some(v1::target::Which::MessageId(id.into())) }
}

fn by_dedup(queue: &str, dedup_id: &str) -> v1::Target {
    let key = v1::DedupKey { queue: queue.into(), dedup_id: dedup_id.into() };
    v1::Target { which: Some(v1::target::Which::Dedup(key)) }
}

async fn cancel(client: &mut Client, targets: Vec<v1::Target>) -> Vec<v1::cancel_result::Outcome> {
    let request = v1::CancelRequest { targets, ..Default::default() };
    let response = client.cancel(request).await.expect("a cancel").into_inner();
    response.results.into_iter().map(|result| result.outcome.expect("an outcome")).collect()
}

async fn reschedule(
    client: &mut Client,
    target: v1::Target,
    available: Option<v1::new_time::Available>,
) -> v1::reschedule_result::Outcome {
    let messages = vec![v1::NewTime { target: Some(target), available }];
    let request = v1::RescheduleRequest { messages, ..Default::default() };
    let response = client.reschedule(request).await.expect("a reschedule").into_inner();
    response.results.into_iter().next().expect("a result").outcome.expect("an outcome")
}

async fn get(client: &mut Client, request: v1::GetRequest) -> v1::GetResponse {
    client.get(request).await.expect("something is known").into_inner()
}

fn bodies(deliveries: &[v1::Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(body(delivery)).into_owned()).collect()
}

#[tokio::test]
async fn of_a_group_only_the_first_is_received_and_priorities_go_first() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let high = |body: &str| v1::NewMessage { priority: Some(9), ..message(body) };
    let sent =
        put(&mut client, "orders", vec![grouped("a1", "a"), grouped("a2", "a"), grouped("b1", "b"), high("first")])
            .await;
    assert!(sent[3].message_id.contains(".m9."), "{}", sent[3].message_id);
    let got = take(&mut client, "orders", 10).await;
    assert_eq!(bodies(&got), ["first", "a1", "b1"]);
    let first = got[0].message.as_ref().expect("a message");
    assert_eq!((first.group.as_str(), first.priority), ("", 9));
    let a1 = got[1].message.as_ref().expect("a message");
    assert_eq!((a1.group.as_str(), a1.priority), ("a", 4));
    assert_eq!((stats(&server, "orders").await.blocked, stats(&server, "orders").await.leased), (1, 3));

    let shown = get(&mut client, v1::GetRequest { message_id: sent[1].message_id.clone(), ..Default::default() }).await;
    let info = shown.message.expect("a message");
    assert_eq!((info.state(), info.line > 0), (v1::MessageState::Blocked, true));
    assert_eq!(settle(&mut client, vec![ack(&got[1])]).await, [Outcome::Acked(v1::Acked {})]);
    assert_eq!(bodies(&take(&mut client, "orders", 10).await), ["a2"]);
    server.stop().await;
}

#[tokio::test]
async fn a_group_whose_head_died_waits_for_it_where_the_queue_says_so() {
    let server = Server::start().await;
    let block = v1::QueueSettings { on_group_failure: v1::OnGroupFailure::Block.into(), ..Default::default() };
    create(&server, "orders", block).await;
    let mut client = server.queues().await;
    put(&mut client, "orders", vec![grouped("a1", "a"), grouped("a2", "a")]).await;
    let got = take(&mut client, "orders", 10).await;
    let outcome = settle(&mut client, vec![settlement(&got[0], Verdict::Reject(v1::Reject::default()))]).await;
    assert!(matches!(outcome[..], [Outcome::DeadLettered(_)]), "{outcome:?}");
    assert!(glance(&mut client, "orders", 10).await.is_empty(), "the line has no head");
    assert_eq!(stats(&server, "orders").await.groups_blocked, 1);
    let dead = take(&mut client, "orders.dlq", 1).await;
    assert_eq!(dead[0].message.as_ref().expect("a message").group, "a");
    settle(&mut client, vec![ack(&dead[0])]).await;
    assert_eq!(bodies(&take(&mut client, "orders", 10).await), ["a2"]);
    assert_eq!(stats(&server, "orders").await.groups_blocked, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_dedup_id_is_sent_once() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let first = put(&mut client, "orders", vec![named("x", "o-1")]).await.remove(0);
    assert!(!first.duplicate);
    let sent = put(&mut client, "orders", vec![named("y", "o-1"), named("z", "o-2")]).await;
    assert_eq!((sent[0].duplicate, &sent[0].message_id), (true, &first.message_id));
    assert!(!sent[1].duplicate);
    let figures = stats(&server, "orders").await;
    assert_eq!((figures.ready, figures.duplicates, figures.dedup_ids), (2, 1, 2));

    let request = v1::GetRequest { queue: "orders".into(), dedup_id: "o-1".into(), ..Default::default() };
    let info = get(&mut client, request.clone()).await.message.expect("a message");
    assert_eq!((info.dedup_id.as_str(), info.message.expect("a message").id), ("o-1", first.message_id.clone()));
    // An ack keeps it for the window, a cancel frees it.
    let got = take(&mut client, "orders", 1).await;
    settle(&mut client, vec![ack(&got[0])]).await;
    assert!(put(&mut client, "orders", vec![named("again", "o-1")]).await[0].duplicate);
    let outcomes = cancel(&mut client, vec![by_dedup("orders", "o-2")]).await;
    assert!(matches!(outcomes[..], [v1::cancel_result::Outcome::Cancelled(_)]), "{outcomes:?}");
    assert!(!put(&mut client, "orders", vec![named("anew", "o-2")]).await[0].duplicate);
    // Nothing is kept of an ack where outcomes are not retained.
    let status = client.get(request).await.expect_err("gone");
    assert_eq!(code_and_reason(&status), (Code::NotFound, "MESSAGE_NOT_FOUND".into()));
    server.stop().await;
}

#[tokio::test]
async fn what_has_expired_is_dropped_or_dead_lettered() {
    let server = Server::start().await;
    let keep = v1::QueueSettings { on_expired: v1::OnExpired::DeadLetter.into(), ..Default::default() };
    create(&server, "kept", keep).await;
    let mut client = server.queues().await;
    let short = |body: &str| v1::NewMessage { ttl: millis(50), ..message(body) };
    put(&mut client, "dropped", vec![short("a"), message("b")]).await;
    put(&mut client, "kept", vec![short("a")]).await;
    poll("both have expired", async || {
        let dropped = stats(&server, "dropped").await.expired_dropped;
        let kept = stats(&server, "kept").await.moved_out;
        ((dropped, kept) == (1, 1)).then_some(())
    })
    .await;
    assert_eq!(bodies(&take(&mut client, "dropped", 10).await), ["b"]);
    let dead = take(&mut client, "kept.dlq", 1).await;
    let why = dead[0].message.as_ref().expect("a message").dead_letter.clone().expect("a dead letter");
    assert_eq!((why.reason(), why.source_queue.as_str()), (v1::DeadReason::Expired, "kept"));

    // A lease outlives the message: an ack is an ack, a release ends it.
    put(&mut client, "leased", vec![v1::NewMessage { ttl: millis(400), ..message("a") }; 2]).await;
    let got = take(&mut client, "leased", 2).await;
    let end = get(
        &mut client,
        v1::GetRequest { message_id: got[0].message.as_ref().expect("one").id.clone(), ..Default::default() },
    )
    .await
    .message
    .and_then(|info| info.expires_at)
    .expect("an end");
    poll("its end", async || {
        let status = server.admin().await.get_status(v1::GetStatusRequest {}).await.expect("a status").into_inner();
        let now = status.cluster_time.expect("a time");
        ((now.seconds, now.nanos) > (end.seconds, end.nanos)).then_some(())
    })
    .await;
    let verdicts = vec![ack(&got[0]), settlement(&got[1], Verdict::Release(v1::Release {}))];
    let outcomes = settle(&mut client, verdicts).await;
    assert_eq!(outcomes, [Outcome::Acked(v1::Acked {}), Outcome::Expired(v1::Expired {})]);
    server.stop().await;
}

#[tokio::test]
async fn a_message_may_have_a_policy_of_its_own() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let own = v1::NewMessage {
        retry: Some(v1::RetryPolicy { max_attempts: Some(1), ..Default::default() }),
        dead_letter_queue: "morgue".into(),
        ..message("fails")
    };
    let sent = put(&mut client, "orders", vec![own]).await;
    let shown = get(&mut client, v1::GetRequest { message_id: sent[0].message_id.clone(), ..Default::default() }).await;
    let info = shown.message.expect("a message");
    assert_eq!(info.retry.and_then(|retry| retry.max_attempts), Some(1));
    assert_eq!(info.dead_letter_queue, "morgue");
    let got = take(&mut client, "orders", 1).await;
    let outcome = settle(&mut client, vec![settlement(&got[0], Verdict::Retry(v1::Retry::default()))]).await;
    assert!(matches!(outcome[..], [Outcome::DeadLettered(_)]), "{outcome:?}");
    assert_eq!(bodies(&take(&mut client, "morgue", 1).await), ["fails"]);

    let drop =
        v1::QueueSettings { on_exhausted: v1::OnExhausted::Drop.into(), max_attempts: Some(1), ..Default::default() };
    create(&server, "dropping", drop).await;
    send(&mut client, "dropping", &["x"]).await;
    let got = take(&mut client, "dropping", 1).await;
    let outcome = settle(&mut client, vec![settlement(&got[0], Verdict::Retry(v1::Retry::default()))]).await;
    assert_eq!(outcome, [Outcome::Dropped(v1::Dropped {})]);
    assert_eq!(stats(&server, "dropping").await.dropped, 1);
    server.stop().await;
}

#[tokio::test]
async fn cancels_are_idempotent_and_too_late_once_leased() {
    use v1::cancel_result::Outcome as Cancel;
    let server = Server::start().await;
    let mut client = server.queues().await;
    let sent = put(&mut client, "orders", vec![message("a"), message("b"), named("c", "o-3")]).await;
    let outcomes = cancel(&mut client, vec![by_id(&sent[0].message_id), by_id(&sent[0].message_id)]).await;
    let gone = v1::Cancelled { message_id: sent[0].message_id.clone() };
    assert_eq!(outcomes, [Cancel::Cancelled(gone), Cancel::Gone(v1::Gone {})]);
    let got = take(&mut client, "orders", 10).await;
    assert_eq!(bodies(&got), ["b", "c"]);
    let outcomes = cancel(&mut client, vec![by_id(&sent[1].message_id), by_dedup("orders", "o-3")]).await;
    for outcome in &outcomes {
        let Cancel::Error(late) = outcome else { panic!("{outcome:?}") };
        assert_eq!((late.code, late.reason.as_str(), late.metadata["receive_count"].as_str()), (9, "TOO_LATE", "1"));
    }
    settle(&mut client, got.iter().map(ack).collect()).await;
    let outcomes = cancel(&mut client, vec![by_id(&sent[1].message_id), by_dedup("orders", "o-3")]).await;
    assert_eq!(outcomes[0], Cancel::Gone(v1::Gone {}));
    let Cancel::Error(late) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert_eq!((late.reason.as_str(), late.metadata.get("receive_count")), ("TOO_LATE", None));
    assert_eq!((stats(&server, "orders").await.cancelled, stats(&server, "orders").await.acked), (1, 2));

    let nonsense = v1::CancelRequest { targets: vec![by_id("nonsense")], ..Default::default() };
    let (code, reason, data) = why(&client.cancel(nonsense).await.expect_err("no id"));
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "INVALID"));
    assert_eq!(data, [("field".to_owned(), "targets[0].message_id".to_owned())]);
    server.stop().await;
}

#[tokio::test]
async fn a_message_is_ready_at_another_time() {
    use v1::new_time::Available;
    use v1::reschedule_result::Outcome as Moved;
    let server = Server::start().await;
    let mut client = server.queues().await;
    let later = v1::NewMessage {
        available: Some(v1::new_message::Available::Delay(prost_types::Duration { seconds: 600, nanos: 0 })),
        ..named("a", "o-1")
    };
    let sent = put(&mut client, "orders", vec![later, message("b")]).await;
    let moved = reschedule(&mut client, by_dedup("orders", "o-1"), None).await;
    let Moved::Rescheduled(now) = moved else { panic!("{moved:?}") };
    assert_eq!(now.message_id, sent[0].message_id);
    let moved = reschedule(&mut client, by_id(&sent[1].message_id), seconds(600).map(Available::Delay)).await;
    assert!(matches!(moved, Moved::Rescheduled(_)), "{moved:?}");
    let got = take(&mut client, "orders", 10).await;
    assert_eq!(bodies(&got), ["a"]);
    assert_eq!(stats(&server, "orders").await.delayed, 1);
    // Under its old id it is found, and comes when it is time.
    let shown = get(&mut client, v1::GetRequest { message_id: sent[1].message_id.clone(), ..Default::default() }).await;
    assert_eq!(shown.message.expect("a message").state(), v1::MessageState::Delayed);
    let moved = reschedule(&mut client, by_id(&sent[1].message_id), millis(50).map(Available::Delay)).await;
    assert!(matches!(moved, Moved::Rescheduled(_)), "{moved:?}");
    assert_eq!(bodies(&take(&mut client, "orders", 10).await), ["b"]);

    let late = reschedule(&mut client, by_dedup("orders", "o-1"), None).await;
    let Moved::Error(late) = late else { panic!("{late:?}") };
    assert_eq!(late.reason, "TOO_LATE");
    let missing = reschedule(&mut client, by_id("1.1.m4.4711"), None).await;
    let Moved::Error(missing) = missing else { panic!("{missing:?}") };
    assert_eq!((missing.code, missing.reason.as_str()), (5, "MESSAGE_NOT_FOUND"));
    let dying = put(&mut client, "orders", vec![v1::NewMessage { ttl: seconds(60), ..message("c") }]).await;
    let beyond = reschedule(&mut client, by_id(&dying[0].message_id), seconds(90).map(Available::Delay)).await;
    let Moved::Error(beyond) = beyond else { panic!("{beyond:?}") };
    assert_eq!((beyond.code, beyond.reason.as_str()), (3, "INVALID"));
    server.stop().await;
}

#[tokio::test]
async fn several_queues_are_received_from_in_their_order() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    send(&mut client, "reports", &["r"]).await;
    send(&mut client, "urgent", &["u"]).await;
    let from = |wait| v1::ReceiveRequest {
        more_queues: vec!["orders".into(), "reports".into()],
        ..receive("urgent", 10, wait)
    };
    let got = client.receive(from(Duration::ZERO)).await.expect("a receive").into_inner().deliveries;
    assert_eq!(bodies(&got), ["u", "r"]);
    assert_eq!(got[1].message.as_ref().expect("a message").queue, "reports");
    // It waits at all of them, also at one that is not there yet.
    let mut waiting = client.clone();
    let served = tokio::spawn(async move { waiting.receive(from(Duration::from_secs(15))).await });
    parked(&server, 1).await;
    send(&mut client, "orders", &["o"]).await;
    let got = served.await.expect("joined").expect("a receive").into_inner().deliveries;
    assert_eq!(bodies(&got), ["o"]);
    let twice = v1::ReceiveRequest { more_queues: vec!["orders".into()], ..receive("orders", 1, Duration::ZERO) };
    let status = client.receive(twice).await.expect_err("a queue twice");
    assert_eq!(code_and_reason(&status), (Code::InvalidArgument, "INVALID".into()));
    server.stop().await;
}

#[tokio::test]
async fn at_most_once_leaves_nothing_to_settle_and_nothing_for_a_repeat() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    put(&mut client, "orders", vec![grouped("a1", "a"), grouped("a2", "a"), message("b")]).await;
    let token = bytes::Bytes::from_static(b"0123456789abcdef");
    let take = |repeat| v1::ReceiveRequest {
        request_id: Some(v1::RequestId { token: token.clone(), repeat, ..Default::default() }),
        auto_ack: true,
        ..receive("orders", 10, Duration::from_secs(15))
    };
    let got = client.receive(take(false)).await.expect("a receive").into_inner();
    let mut came = bodies(&got.deliveries);
    came.sort();
    assert_eq!(came, ["a1", "a2", "b"]);
    let delivery = &got.deliveries[0];
    assert!(delivery.lease_token.is_empty() && delivery.lease_remaining.is_none(), "{delivery:?}");
    assert_eq!((delivery.receive_count, delivery.message.as_ref().map(|m| m.queue.as_str())), (1, Some("orders")));
    let figures = stats(&server, "orders").await;
    assert_eq!((figures.acked, figures.leased, figures.ready, figures.blocked), (3, 0, 0, 0));
    let again = client.receive(take(true)).await.expect("a receive").into_inner();
    assert!(again.deliveries.is_empty() && again.commit.expect("a commit").replayed, "a repeat gets nothing");
    server.stop().await;
}

#[tokio::test]
async fn the_outcome_of_an_ack_can_be_read_for_a_while() {
    let server = Server::start().await;
    let retain = v1::QueueSettings { retain_done: seconds(3_600), ..Default::default() };
    create(&server, "orders", retain).await;
    let mut client = server.queues().await;
    let sent = put(&mut client, "orders", vec![named("what is six times seven", "o-1")]).await;
    let got = take(&mut client, "orders", 1).await;
    let output = bytes::Bytes::from_static(b"42");
    let verdict = Verdict::Ack(v1::Ack { output: output.clone() });
    assert_eq!(settle(&mut client, vec![settlement(&got[0], verdict)]).await, [Outcome::Acked(v1::Acked {})]);
    for request in [
        v1::GetRequest { message_id: sent[0].message_id.clone(), ..Default::default() },
        v1::GetRequest { queue: "orders".into(), dedup_id: "o-1".into(), ..Default::default() },
    ] {
        let found = get(&mut client, request).await;
        assert_eq!(found.message, None);
        let outcome = found.outcome.expect("an outcome");
        assert_eq!((outcome.message_id.as_str(), outcome.queue.as_str()), (&*sent[0].message_id, "orders"));
        assert_eq!((&outcome.output, outcome.worker.as_str(), outcome.receive_count), (&output, "tester", 1));
        let kept = outcome.kept_until.expect("a time").seconds - outcome.finished_at.expect("a time").seconds;
        assert_eq!(kept, 3_600);
    }
    assert_eq!(stats(&server, "orders").await.retained, 1);
    let elsewhere =
        v1::GetRequest { message_id: sent[0].message_id.clone(), namespace: "shop".into(), ..Default::default() };
    let status = client.get(elsewhere).await.expect_err("another namespace");
    assert_eq!(code_and_reason(&status), (Code::NotFound, "MESSAGE_NOT_FOUND".into()));
    let both = v1::GetRequest { message_id: "1.1.m4.1".into(), dedup_id: "o-1".into(), ..Default::default() };
    assert_eq!(client.get(both).await.expect_err("both").code(), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn a_peek_shows_what_passes_its_filter() {
    let server = Server::start().await;
    let mut client = server.queues().await;
    let tagged = |body: &str, customer: &str, priority: u32| v1::NewMessage {
        tags: BTreeMap::from([("customer".into(), customer.into())]),
        r#type: "order".into(),
        priority: Some(priority),
        ..message(body)
    };
    let mut all = vec![tagged("a", "alice", 4), tagged("b", "bob", 4), tagged("c", "alice", 7)];
    all.extend((0..250).map(|n| message(&n.to_string())));
    put(&mut client, "orders", all).await;
    let alices = v1::PeekFilter {
        r#type: "order".into(),
        tags: BTreeMap::from([("customer".into(), "alice".into())]),
        ..Default::default()
    };
    let mut seen = |filter: v1::PeekFilter| {
        let mut client = client.clone();
        async move {
            let (mut seen, mut page_token) = (Vec::new(), String::new());
            loop {
                let request = v1::PeekRequest {
                    queue: "orders".into(),
                    page_size: 50,
                    page_token,
                    filter: Some(filter.clone()),
                    ..Default::default()
                };
                let page = client.peek(request).await.expect("a page").into_inner();
                let texts = page.messages.into_iter().map(|info| info.message.expect("a message").body);
                seen.extend(texts.map(|body| String::from_utf8_lossy(&body).into_owned()));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    seen.sort();
                    return seen;
                }
            }
        }
    };
    assert_eq!(seen(alices.clone()).await, ["a", "c"]);
    assert_eq!(seen(v1::PeekFilter { priority: Some(7), ..alices }).await, ["c"]);
    assert_eq!(seen(v1::PeekFilter::default()).await.len(), 253);
    assert!(seen(v1::PeekFilter { min_failures: 1, ..Default::default() }).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn low_priorities_are_shed_as_a_queue_fills() {
    let server = Server::start().await;
    let rules = vec![v1::ShedRule { above_percent: 50, below_priority: 5 }];
    let settings = v1::QueueSettings {
        max_depth: Some(4),
        shed: Some(v1::Shed { rules }),
        expected_rate: Some(2.0),
        ..Default::default()
    };
    create(&server, "orders", settings).await;
    let mut client = server.queues().await;
    send(&mut client, "orders", &["a", "b"]).await;
    let low = client.enqueue(enqueue("orders", vec![message("c")])).await.expect("an answer").into_inner();
    let error = refused(&low.results[0]);
    assert_eq!((error.reason.as_str(), error.metadata["bound"].as_str()), ("FULL", "shed"));
    let high = |body: &str| v1::NewMessage { priority: Some(5), ..message(body) };
    assert_eq!(put(&mut client, "orders", vec![high("c"), high("d")]).await.len(), 2);
    let full = client.enqueue(enqueue("orders", vec![high("e")])).await.expect("an answer").into_inner();
    let error = refused(&full.results[0]);
    assert_eq!(error.metadata["bound"], "max_depth");
    assert!(error.retry_after.is_some());
    assert_eq!(show(&server, "orders").await.settings.expect("settings").expected_rate, Some(2.0));
    server.stop().await;
}

#[tokio::test]
async fn all_or_nothing_means_that() {
    let server = Server::start().await;
    create(&server, "orders", v1::QueueSettings { max_depth: Some(2), ..Default::default() }).await;
    let mut client = server.queues().await;
    let all = |count: usize| v1::EnqueueRequest {
        all_or_nothing: true,
        ..enqueue("orders", (0..count).map(|n| message(&n.to_string())).collect())
    };
    let (code, reason, data) = why(&client.enqueue(all(3)).await.expect_err("too many"));
    assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "FULL"));
    let said = |name: &str| data.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!((said("part"), said("index"), said("bound")), (Some("enqueue"), Some("2"), Some("max_depth")));
    assert_eq!(stats(&server, "orders").await.enqueued, 0);
    assert_eq!(client.enqueue(all(2)).await.expect("two fit").into_inner().results.len(), 2);
    server.stop().await;
}
