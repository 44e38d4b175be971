//! What is refused, and what is in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ticketrail_core::command::QueueSettings;
use ticketrail_core::reply::SettleOutcome;
use ticketrail_core::{Rejection, RequestId};
use ticketrail_node::call::{Call, CallError};
use ticketrail_node::{Disk, NodeConfig};

use crate::poll::until;
use crate::rig::{Rig, SOON, call, enqueue, enqueued, receive};

#[tokio::test]
async fn a_full_queue_refuses_without_a_log_entry() {
    let rig = Rig::start().await;
    rig.create("orders", QueueSettings { max_depth: Some(3), ..QueueSettings::default() }).await;
    let session = rig.open_session().await;
    let id = |seq| RequestId { session, seq, ..RequestId::default() };
    let first = rig.call_as(id(1), false, enqueue("orders", &["one"], 0)).await.expect("room");
    rig.call(enqueue("orders", &["two", "three"], 0)).await.expect("room");
    let before = rig.handle.status().last_log_index;
    match rig.call(enqueue("orders", &["four"], 0)).await {
        Err(CallError::Rejected(Rejection::Full(full))) => {
            assert_eq!((full.bound.as_str(), full.limit, full.held), ("max_depth", 3, 3));
            assert_eq!(full.queue.name, "orders");
            assert!(full.retry_after_ms > 0);
        }
        other => panic!("expected a refusal, but got {other:?}"),
    }
    assert_eq!(rig.handle.status().last_log_index, before);
    // The repeat of one that went in is no refusal, marked or not.
    for repeat in [true, false] {
        let again = rig.call_as(id(1), repeat, enqueue("orders", &["one"], 0)).await.expect("the first outcome");
        assert!(again.reply.replayed);
        assert_eq!((again.reply.index, enqueued(&again.reply)), (first.reply.index, enqueued(&first.reply)));
    }
    let got = rig.receive("orders", 0).await;
    rig.ack(&got[0]).await;
    rig.call(enqueue("orders", &["four"], 0)).await.expect("room again");
    rig.stop().await;
}

#[tokio::test]
async fn never_one_message_over_a_bound_however_many_come_at_once() {
    let rig = Rig::start().await;
    rig.create("orders", QueueSettings { max_depth: Some(100), ..QueueSettings::default() }).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let handle = rig.handle.clone();
        calls.spawn(async move { call(&handle, enqueue("orders", &["x"], 0)).await });
    }
    let outcomes = calls.join_all().await;
    let admitted = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused =
        outcomes.iter().filter(|outcome| matches!(outcome, Err(CallError::Rejected(Rejection::Full(_))))).count();
    assert_eq!((admitted, refused), (100, 200));
    assert_eq!(rig.info("orders").await.expect("the queue").stats.depth(), 100);
    rig.stop().await;
}

#[tokio::test]
async fn a_low_disk_refuses_enqueues_and_nothing_else() {
    let low = Arc::new(AtomicBool::new(false));
    let disk = Disk::watched({
        let low = low.clone();
        move || low.load(Ordering::SeqCst)
    });
    let rig = Rig::start_on(NodeConfig::default(), Arc::default(), Arc::default(), disk).await;
    rig.enqueue("orders", "one").await;
    low.store(true, Ordering::SeqCst);
    assert_eq!(rig.call(enqueue("orders", &["two"], 0)).await, Err(CallError::DiskLow));
    assert!(rig.handle.status().disk_low);
    let got = rig.receive("orders", 0).await;
    assert!(matches!(rig.ack(&got[0]).await, SettleOutcome::Acked(_)));
    low.store(false, Ordering::SeqCst);
    rig.enqueue("orders", "two").await;
    rig.stop().await;
}

#[tokio::test]
async fn malformed_calls_are_refused_at_once() {
    let rig = Rig::start().await;
    let before = rig.handle.status().last_log_index;
    let refused = rig.receive_call(receive("orders", 0, 20_000)).await;
    assert!(matches!(&refused, Err(CallError::Rejected(Rejection::Invalid(why))) if why.field == "max"), "{refused:?}");
    let refused = rig.call(enqueue("orders", &["x"; 1_001], 0)).await;
    assert!(matches!(&refused, Err(CallError::Rejected(Rejection::Invalid(why))) if why.field == "batch"));
    assert_eq!(rig.handle.status().last_log_index, before);
    rig.stop().await;
}

#[tokio::test]
async fn a_call_whose_outcome_is_late_is_in_doubt_and_happens_once() {
    let rig = Rig::start().await;
    let session = rig.open_session().await;
    rig.log.hold_syncs();
    let id = RequestId { session, seq: 1, ..RequestId::default() };
    let command = enqueue("orders", &["one"], 0);
    let timeout = Duration::from_millis(50);
    let late = rig.handle.call(Call { command: command.clone(), id: Some(id), repeat: false, timeout }).await;
    assert_eq!(late, Err(CallError::Unknown));
    rig.log.release_syncs();
    let again = rig.call_as(id, true, command).await.expect("an outcome");
    assert!(again.reply.replayed);
    assert_eq!(rig.info("orders").await.expect("the queue").stats.enqueued, 1);
    rig.stop().await;
}

/// Entries that may be on their way at one time.
const IN_FLIGHT: usize = 4;

#[tokio::test]
async fn too_much_that_waits_is_refused_and_what_waits_can_be_taken_back() {
    let config = NodeConfig { proposal_queue_bytes: 10_000, ..NodeConfig::default() };
    let rig = Rig::start_with(config).await;
    // The node has a session for the calls now.
    rig.enqueue("others", "one").await;
    rig.log.hold_syncs();
    let body = "x".repeat(4_000);
    let mut calls = tokio::task::JoinSet::new();
    // As many as there may be on their way; a tick of the node's own may be among them.
    while rig.handle.status().entries_in_flight < IN_FLIGHT {
        let (handle, command) = (rig.handle.clone(), enqueue("orders", &[&body], 0));
        calls.spawn(async move { call(&handle, command).await });
        let expected = calls.len().min(IN_FLIGHT);
        until("another entry on its way", || rig.handle.status().entries_in_flight >= expected).await;
    }
    let admitted = calls.len() as u64;
    let timeout = Duration::from_millis(100);
    let waits = Call { command: enqueue("orders", &[&body, &body], 0), id: None, repeat: false, timeout };
    let waiting = tokio::spawn({
        let handle = rig.handle.clone();
        async move { handle.call(waits).await }
    });
    until("bytes that wait", || rig.handle.status().queued_bytes > 8_000).await;
    let refused = rig.call(enqueue("orders", &[&body], 0)).await;
    assert!(matches!(refused, Err(CallError::Overloaded { queued_bytes }) if queued_bytes > 8_000), "{refused:?}");
    let taken_back = waiting.await.expect("no panic");
    assert!(matches!(taken_back, Err(CallError::Overloaded { .. })), "{taken_back:?}");
    rig.log.release_syncs();
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(rig.info("orders").await.expect("the queue").stats.enqueued, admitted);
    rig.stop().await;
}

#[tokio::test]
async fn a_failed_fsync_breaks_the_replica_and_acknowledges_nothing() {
    let rig = Rig::start().await;
    rig.log.fail_next_sync("the disk said EIO");
    let outcome = rig.call(enqueue("orders", &["one"], 0)).await;
    assert!(matches!(outcome, Err(CallError::Broken(_) | CallError::Unknown)), "{outcome:?}");
    let reason = tokio::time::timeout(SOON, rig.node.failed()).await.expect("a reason");
    assert!(reason.contains("EIO"), "{reason}");
    let refused = rig.call(enqueue("orders", &["two"], 0)).await;
    assert!(matches!(refused, Err(CallError::Broken(_))), "{refused:?}");
    assert!(rig.node.shutdown().await.is_err());
}
