//! What happens by the clock, and what a wall clock that leaps does not do.

use std::time::{Duration, Instant};

use ticketrail_core::command::{Extend, Verdict};
use ticketrail_core::reply::SettleOutcome;

use crate::poll::pause;
use crate::rig::{Rig, enqueue, enqueued, receive, until};

#[tokio::test]
async fn a_lease_that_runs_out_brings_the_message_back() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let mut call = receive("orders", 1, 0);
    call.receive.lease_ms = 1_000;
    let first = rig.receive_call(call).await.expect("a receive");
    let granted = first.reply.expect("an entry").at_ms;
    let second = rig.receive_call(receive("orders", 1, 20_000)).await.expect("a receive");
    let delivery = &second.deliveries[0];
    assert_eq!((delivery.receive_count, delivery.failures), (2, 1));
    let waited = second.reply.expect("an entry").at_ms - granted;
    assert!((1_000..2_500).contains(&waited), "{waited} ms");
    assert!(matches!(rig.ack(&first.deliveries[0]).await, SettleOutcome::Rejected(_)), "the first lease is void");
    assert!(matches!(rig.ack(delivery).await, SettleOutcome::Acked(_)));
    until("no lease watched", || rig.handle.status().leases_watched == 0).await;
    rig.stop().await;
}

#[tokio::test]
async fn an_extended_lease_runs_on() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let mut call = receive("orders", 1, 0);
    call.receive.lease_ms = 1_000;
    let got = rig.receive_call(call).await.expect("a receive").deliveries;
    let extend = Verdict::Extend(Extend { lease_ms: 30_000 });
    assert!(matches!(rig.settle(&got[0], extend).await, SettleOutcome::Extended(_)));
    assert_eq!(rig.receive("orders", 1_600).await.len(), 0);
    assert!(matches!(rig.ack(&got[0]).await, SettleOutcome::Acked(_)));
    rig.stop().await;
}

#[tokio::test]
async fn a_delayed_message_is_never_early_and_soon_there() {
    let rig = Rig::start().await;
    let sent = rig.call(enqueue("orders", &["one"], 400)).await.expect("an enqueue");
    let due = enqueued(&sent.reply)[0].available_at_ms;
    assert_eq!(due, sent.reply.at_ms + 400);
    assert_eq!(rig.receive("orders", 0).await.len(), 0);
    let got = rig.receive_call(receive("orders", 1, 20_000)).await.expect("a receive");
    let at = got.reply.expect("an entry").at_ms;
    assert!((due..due + 1_000).contains(&at), "due at {due}, there at {at}");
    rig.stop().await;
}

#[tokio::test]
async fn many_delayed_messages_and_leases_come_back_together() {
    let rig = Rig::start().await;
    let bodies = vec!["x"; 1_000];
    for _ in 0..3 {
        rig.call(enqueue("later", &bodies, 300)).await.expect("a batch");
        rig.call(enqueue("orders", &bodies, 0)).await.expect("a batch");
        let mut call = receive("orders", 1_000, 0);
        call.receive.lease_ms = 1_000;
        assert_eq!(rig.receive_call(call).await.expect("a receive").deliveries.len(), 1_000);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let later = rig.info("later").await.expect("the queue").stats;
        let orders = rig.info("orders").await.expect("the queue").stats;
        if later.ready == 3_000 && orders.ready == 3_000 {
            assert_eq!((orders.lease_expired, rig.handle.status().leases_watched), (3_000, 0));
            break;
        }
        assert!(Instant::now() < deadline, "{later:?} {orders:?}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_wall_clock_that_leaps_moves_neither_leases_nor_cluster_time_back() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let got = rig.receive("orders", 0).await;
    let mut last = rig.clocks().await;
    let began = (Instant::now(), last);
    for leap in [3_600_000, -7_200_000, 3_600_000, 86_400_000] {
        rig.clock().jump(leap);
        for n in 0..20 {
            rig.enqueue("other", &n.to_string()).await;
            let now = rig.clocks().await;
            assert!(now.cluster >= last.cluster && now.lease >= last.lease);
            last = now;
        }
    }
    let passed = u64::try_from(began.0.elapsed().as_millis()).expect("a short time");
    assert!(last.cluster.since(began.1.cluster) <= passed + passed / 20 + 5);
    assert!(last.lease.since(began.1.lease) <= passed + passed / 20 + 5);
    assert!(matches!(rig.ack(&got[0]).await, SettleOutcome::Acked(_)), "60 s of lease have not gone by");
    rig.stop().await;
}

#[tokio::test]
async fn a_leap_between_two_lives_moves_cluster_time_and_no_lease() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    rig.call(enqueue("later", &["one"], 3_000_000)).await.expect("an enqueue");
    let got = rig.receive("orders", 0).await;
    let before = rig.clocks().await;
    rig.clock().jump(3_600_000);
    let rig = rig.restart().await;
    assert!(matches!(rig.ack(&got[0]).await, SettleOutcome::Acked(_)), "the lease clock stood still");
    let after = rig.clocks().await;
    assert!(after.cluster.since(before.cluster) >= 3_600_000);
    assert!(after.lease.since(before.lease) < 10_000);
    assert_eq!(rig.receive("later", 20_000).await.len(), 1, "it was due within that hour");
    rig.clock().jump(-7_200_000);
    let rig = rig.restart().await;
    rig.enqueue("orders", "two").await;
    assert!(rig.clocks().await.cluster >= after.cluster, "time never goes back");
    rig.stop().await;
}

#[tokio::test]
async fn an_idle_leader_keeps_the_clocks_going() {
    let rig = Rig::start().await;
    let first = rig.clocks().await;
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = rig.clocks().await;
        if now.index > first.index + 1 && now.cluster.since(first.cluster) >= 5_000 {
            break;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        pause().await;
    }
    rig.stop().await;
}
