//! Long polls: parked, woken, and given up.

use ticketrail_core::command::{DeleteQueue, Pause, PauseQueue};
use ticketrail_core::{Command, Rejection};
use ticketrail_node::call::{CallError, Unavailable};

use crate::poll::until;
use crate::rig::{Rig, SOON, body, call, enqueue, queue, receive};

#[tokio::test]
async fn an_enqueue_wakes_a_parked_receive_in_its_own_entry() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "earlier").await;
    assert_eq!(rig.receive("orders", 0).await.len(), 1);
    let handle = rig.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 10, 20_000)).await });
    until("a parked receive", || rig.handle.status().parked_receives == 1).await;
    let sent = rig.call(enqueue("orders", &["one"], 0)).await.expect("an enqueue");
    let got = poll.await.expect("no panic").expect("a delivery");
    assert_eq!(got.deliveries.iter().map(body).collect::<Vec<_>>(), ["one"]);
    let reply = got.reply.expect("the entry that granted it");
    assert_eq!(reply.index, sent.reply.index, "one entry for both");
    assert!(reply.ordinal > sent.reply.ordinal, "the receive after the enqueue");
    rig.stop().await;
}

#[tokio::test]
async fn an_empty_poll_never_reaches_the_log() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    assert_eq!(rig.receive("orders", 0).await.len(), 1);
    let before = rig.handle.status().last_log_index;
    for _ in 0..20 {
        assert_eq!(rig.receive("orders", 5).await.len(), 0);
    }
    assert_eq!(rig.receive("nowhere", 0).await.len(), 0);
    assert_eq!(rig.handle.status().last_log_index, before);
    rig.stop().await;
}

#[tokio::test]
async fn one_batch_serves_as_many_parked_receives_as_it_has_messages() {
    let rig = Rig::start().await;
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let handle = rig.handle.clone();
        polls.spawn(async move { handle.receive(receive("orders", 1, 20_000)).await });
    }
    until("50 parked receives", || rig.handle.status().parked_receives == 50).await;
    let bodies: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    rig.call(enqueue("orders", &bodies, 0)).await.expect("a batch");
    for _ in 0..30 {
        let got = polls.join_next().await.expect("a poll").expect("no panic").expect("a delivery");
        assert_eq!(got.deliveries.len(), 1);
    }
    assert_eq!(rig.handle.status().parked_receives, 20, "the others wait on");
    rig.call(enqueue("orders", &bodies, 0)).await.expect("a batch");
    assert!(polls.join_all().await.into_iter().all(|got| got.is_ok_and(|got| got.deliveries.len() == 1)));
    rig.stop().await;
}

#[tokio::test]
async fn more_receives_may_be_parked_than_one_session_numbers() {
    let rig = Rig::start().await;
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..1_500 {
        let handle = rig.handle.clone();
        polls.spawn(async move { handle.receive(receive("orders", 1, 30_000)).await });
    }
    until("1,500 parked receives", || rig.handle.status().parked_receives == 1_500).await;
    let bodies = vec!["x"; 1_000];
    rig.call(enqueue("orders", &bodies, 0)).await.expect("a batch");
    rig.call(enqueue("orders", &bodies[..500], 0)).await.expect("a batch");
    assert!(polls.join_all().await.into_iter().all(|got| got.is_ok_and(|got| got.deliveries.len() == 1)));
    rig.stop().await;
}

#[tokio::test]
async fn a_receive_waits_for_its_queue_to_appear_unless_told_otherwise() {
    let rig = Rig::start().await;
    let strict = ticketrail_node::call::ReceiveCall { auto_create: false, ..receive("later", 1, 20_000) };
    let refused = rig.receive_call(strict.clone()).await;
    assert!(matches!(refused, Err(CallError::Rejected(Rejection::QueueNotFound(_)))), "{refused:?}");
    let handle = rig.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("later", 1, 20_000)).await });
    until("a parked receive", || rig.handle.status().parked_receives == 1).await;
    rig.enqueue("later", "one").await;
    assert_eq!(poll.await.expect("no panic").expect("a delivery").deliveries.len(), 1);
    rig.call(Command::DeleteQueue(DeleteQueue { queue: Some(queue("later")) })).await.expect("a deletion");
    assert!(matches!(rig.receive_call(strict).await, Err(CallError::Rejected(Rejection::QueueNotFound(_)))));
    rig.stop().await;
}

#[tokio::test]
async fn a_paused_queue_keeps_its_receives_parked() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let pause = |pause| Command::PauseQueue(PauseQueue { queue: Some(queue("orders")), pause });
    rig.call(pause(Some(Pause::default()))).await.expect("a pause");
    let handle = rig.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 1, 20_000)).await });
    until("a parked receive", || rig.handle.status().parked_receives == 1).await;
    rig.enqueue("orders", "two").await;
    assert_eq!(rig.handle.status().parked_receives, 1);
    rig.call(pause(None)).await.expect("the end of the pause");
    assert_eq!(poll.await.expect("no panic").expect("a delivery").deliveries.len(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_parked_receiver_that_goes_leaves_no_trace() {
    let rig = Rig::start().await;
    let handle = rig.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 1, 20_000)).await });
    until("a parked receive", || rig.handle.status().parked_receives == 1).await;
    poll.abort();
    until("no parked receive", || rig.handle.status().parked_receives == 0).await;
    rig.enqueue("orders", "one").await;
    let got = rig.receive("orders", 1_000).await;
    assert_eq!((got.len(), got[0].receive_count), (1, 1));
    rig.stop().await;
}

#[tokio::test]
async fn what_was_leased_for_a_receiver_that_has_gone_is_ready_again() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    rig.log.hold_syncs();
    let handle = rig.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 1, 20_000)).await });
    until("the receive in the log", || rig.handle.status().entries_in_flight == 1).await;
    poll.abort();
    assert!(poll.await.is_err_and(|error| error.is_cancelled()));
    rig.log.release_syncs();
    let got = rig.receive("orders", 20_000).await;
    assert_eq!((got.len(), got[0].receive_count, got[0].failures), (1, 2, 0));
    rig.stop().await;
}

#[tokio::test]
async fn a_stop_ends_the_polls_and_takes_nothing_more() {
    let rig = Rig::start().await;
    rig.enqueue("orders", "one").await;
    let handle = rig.handle.clone();
    let poll = tokio::spawn({
        let handle = handle.clone();
        async move { handle.receive(receive("empty", 1, 60_000)).await }
    });
    until("a parked receive", || rig.handle.status().parked_receives == 1).await;
    let state = rig.state.clone();
    assert!(state.pending() > 0);
    tokio::time::timeout(SOON, rig.node.shutdown()).await.expect("an end").expect("an orderly stop");
    let draining = CallError::Unavailable(Unavailable::Draining);
    assert_eq!(poll.await.expect("no panic"), Err(draining.clone()));
    assert_eq!(call(&handle, enqueue("orders", &["two"], 0)).await, Err(draining.clone()));
    assert_eq!(handle.receive(receive("orders", 1, 0)).await, Err(draining));
    assert_eq!(state.pending(), 0, "all is flushed");
}
