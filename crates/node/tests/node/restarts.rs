//! A node that stops, or loses its power, and starts again.

use ticketrail_core::RequestId;
use ticketrail_core::reply::SettleOutcome;

use crate::rig::{Rig, body, enqueue, enqueued};

#[tokio::test]
async fn a_repeat_after_a_restart_has_no_second_effect() {
    let rig = Rig::start().await;
    let session = rig.open_session().await;
    let id = RequestId { session, seq: 1, ..RequestId::default() };
    let first = rig.call_as(id, false, enqueue("orders", &["one"], 0)).await.expect("an enqueue");
    let rig = rig.restart().await;
    let again = rig.call_as(id, true, enqueue("orders", &["one"], 0)).await.expect("the first outcome");
    assert!(again.reply.replayed);
    assert_eq!((again.reply.index, enqueued(&again.reply)), (first.reply.index, enqueued(&first.reply)));
    assert!(again.origin.term > first.origin.term);
    assert_eq!(rig.info("orders").await.expect("the queue").stats.enqueued, 1);
    rig.stop().await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_loss_of_power() {
    let mut rig = Rig::start().await;
    for round in 0..3 {
        for n in 0..10 {
            rig.enqueue("orders", &format!("{round}-{n}")).await;
        }
        let got = rig.receive("orders", 0).await;
        assert_eq!(body(&got[0]), format!("{round}-0"));
        let before = rig.clocks().await;
        rig = rig.crash().await;
        let after = rig.clocks().await;
        assert!(after.index > before.index && after.cluster >= before.cluster && after.lease >= before.lease);
        assert!(matches!(rig.ack(&got[0]).await, SettleOutcome::Acked(_)), "the lease is still good");
        for n in 1..10 {
            let got = rig.receive("orders", 0).await;
            assert_eq!(body(&got[0]), format!("{round}-{n}"));
            rig.ack(&got[0]).await;
        }
    }
    let stats = rig.info("orders").await.expect("the queue").stats;
    assert_eq!((stats.enqueued, stats.acked, stats.depth()), (30, 30, 0));
    rig.stop().await;
}

#[tokio::test]
async fn the_log_is_purged_once_its_effects_are_flushed() {
    let config = ticketrail_node::NodeConfig {
        log_retention_age_ms: 1,
        flush_age_ms: 100,
        ..ticketrail_node::NodeConfig::default()
    };
    let rig = Rig::start_with(config).await;
    for n in 0..20 {
        rig.enqueue("orders", &n.to_string()).await;
    }
    crate::poll::until("a purged log", || rig.handle.status().purged_index.is_some()).await;
    let status = rig.handle.status();
    assert!(status.purged_index <= status.flushed_index);
    let rig = rig.crash().await;
    assert_eq!(rig.info("orders").await.expect("the queue").stats.ready, 20);
    rig.stop().await;
}
