//! What takes minutes or hours, in simulated time.

use std::time::Duration;

use ticketrail_core::{Rejection, RequestId, limits};
use ticketrail_node::call::CallError;

use crate::poll::pass;
use crate::rig::{Rig, enqueue, enqueued, receive};

#[tokio::test(start_paused = true)]
async fn the_nodes_own_sessions_outlive_an_idle_time_and_a_clients_does_not() {
    let rig = Rig::simulated().await;
    let session = rig.open_session().await;
    let id = RequestId { session, seq: 1, ..RequestId::default() };
    rig.call_as(id, false, enqueue("orders", &["one"], 0)).await.expect("an enqueue");
    pass(Duration::from_secs(40 * 60)).await;
    rig.enqueue("orders", "two").await;
    let id = RequestId { seq: 2, ..id };
    let late = rig.call_as(id, false, enqueue("orders", &["three"], 0)).await;
    assert!(matches!(late, Err(CallError::Rejected(Rejection::SessionExpired(_)))), "{late:?}");
    assert_eq!(rig.info("orders").await.expect("the queue").stats.enqueued, 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_delayed_by_an_hour_is_there_on_the_dot() {
    let rig = Rig::simulated().await;
    let sent = rig.call(enqueue("orders", &["one"], limits::HOUR_MS)).await.expect("an enqueue");
    let due = enqueued(&sent.reply)[0].available_at_ms;
    let got = loop {
        let got = rig.receive_call(receive("orders", 1, 60_000)).await.expect("a receive");
        if !got.deliveries.is_empty() {
            break got;
        }
        assert!(rig.clocks().await.cluster.0 < due + 1_000);
    };
    let at = got.reply.expect("an entry").at_ms;
    assert!((due..due + 1_000).contains(&at), "due at {due}, there at {at}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_nobody_finishes_ends_among_the_dead_letters() {
    let rig = Rig::simulated().await;
    rig.enqueue("orders", "one").await;
    let mut attempts = Vec::new();
    for _ in 0..limits::ATTEMPTS_DEFAULT {
        let mut call = receive("orders", 1, 60_000);
        call.receive.lease_ms = 1_000;
        let got = rig.receive_call(call).await.expect("a receive").deliveries;
        attempts.push((got[0].receive_count, got[0].failures));
    }
    assert_eq!(attempts, [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]);
    let dead = rig.receive("orders.dlq", 60_000).await;
    assert_eq!(dead[0].dead_letter.as_ref().map(|dead| dead.failures), Some(5));
    assert_eq!(rig.info("orders").await.expect("the queue").stats.moved_out, 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_keeps_little_log() {
    let rig = Rig::simulated().await;
    pass(Duration::from_secs(40 * 60)).await;
    let status = rig.handle.status();
    let last = status.last_log_index.expect("a log");
    assert!(last > 400, "a tick every five seconds: {last}");
    let kept = last - status.purged_index.expect("a purged log");
    assert!(kept < 200, "ten minutes of ticks and sessions: {kept}");
    rig.stop().await;
}
