//! Messages on their way through a node.

use ticketrail_core::command::Verdict;
use ticketrail_core::reply::SettleOutcome;

use crate::rig::{Rig, body, call, enqueue, enqueued, receive};

#[tokio::test]
async fn a_message_goes_in_out_and_away() {
    let rig = Rig::start().await;
    let sent = rig.enqueue("orders", "one").await;
    let delivered = rig.receive("orders", 1_000).await;
    assert_eq!(delivered.iter().map(body).collect::<Vec<_>>(), ["one"]);
    assert_eq!(Some(delivered[0].id), sent.place.message_id());
    assert!(delivered[0].remaining_ms > 59_000, "{}", delivered[0].remaining_ms);
    assert!(matches!(rig.ack(&delivered[0]).await, SettleOutcome::Acked(_)));
    assert!(matches!(rig.ack(&delivered[0]).await, SettleOutcome::Rejected(_)));
    let stats = rig.info("orders").await.expect("the queue").stats;
    assert_eq!((stats.depth(), stats.enqueued, stats.acked), (0, 1, 1));
    rig.stop().await;
}

#[tokio::test]
async fn a_batch_comes_back_in_order_with_its_bodies() {
    let rig = Rig::start().await;
    let bodies: Vec<String> = (0..100).map(|n| format!("{n}-{}", "x".repeat(n * 100))).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let done = rig.call(enqueue("orders", &bodies, 0)).await.expect("a batch");
    assert_eq!(enqueued(&done.reply).len(), 100);
    let got = rig.receive_call(receive("orders", 100, 0)).await.expect("a receive").deliveries;
    assert_eq!(got.iter().map(body).collect::<Vec<_>>(), bodies);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_lose_nothing_and_get_nothing_twice() {
    const PRODUCERS: usize = 100;
    const EACH: usize = 20;
    let rig = std::sync::Arc::new(Rig::start().await);
    let mut tasks = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let rig = rig.clone();
        tasks.spawn(async move {
            for n in 0..EACH {
                rig.enqueue("orders", &format!("{producer}-{n}")).await;
            }
            Vec::new()
        });
    }
    for _ in 0..PRODUCERS {
        let rig = rig.clone();
        tasks.spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..EACH {
                let delivered = rig.receive("orders", 20_000).await;
                assert_eq!(delivered.len(), 1);
                assert!(matches!(rig.ack(&delivered[0]).await, SettleOutcome::Acked(_)));
                seen.push(body(&delivered[0]).to_owned());
            }
            seen
        });
    }
    let mut seen: Vec<String> = tasks.join_all().await.into_iter().flatten().collect();
    seen.sort();
    let mut expected: Vec<String> =
        (0..PRODUCERS).flat_map(|producer| (0..EACH).map(move |n| format!("{producer}-{n}"))).collect();
    expected.sort();
    assert_eq!(seen, expected);
    let stats = rig.info("orders").await.expect("the queue").stats;
    assert_eq!((stats.acked, stats.received, stats.depth()), (2_000, 2_000, 0));
    std::sync::Arc::into_inner(rig).expect("no one else").stop().await;
}

#[tokio::test]
async fn what_is_released_is_ready_again_and_nothing_is_counted() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let first = rig.receive("orders", 1_000).await;
    let release = Verdict::Release(ticketrail_core::command::Release {});
    assert!(matches!(rig.settle(&first[0], release).await, SettleOutcome::Readied(_)));
    let second = rig.receive("orders", 1_000).await;
    assert_eq!((second[0].receive_count, second[0].failures), (2, 0));
    rig.stop().await;
}

#[tokio::test]
async fn requests_that_fit_no_entry_together_share_it_out() {
    let rig = Rig::start().await;
    let (many, large) = (vec!["x"; 1_000], "x".repeat(1 << 20));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..24 {
        let handle = rig.handle.clone();
        let command = if n % 2 == 0 { enqueue("orders", &many, 60_000) } else { enqueue("large", &[&large], 0) };
        calls.spawn(async move { call(&handle, command).await });
    }
    let done = calls.join_all().await;
    assert!(done.iter().all(Result::is_ok), "{:?}", done.iter().filter(|done| done.is_err()).collect::<Vec<_>>());
    assert_eq!(rig.info("orders").await.expect("the queue").stats.delayed, 12_000);
    assert_eq!(rig.info("large").await.expect("the queue").stats.ready, 12);
    let got = rig.receive_call(receive("large", 12, 0)).await.expect("a receive").deliveries;
    assert_eq!(got.len(), 4, "a receive's reply is bounded, to 4 MiB");
    rig.stop().await;
}
