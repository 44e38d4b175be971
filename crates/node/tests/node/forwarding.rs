//! Calls at nodes that do not lead.

use std::collections::BTreeSet;
use std::time::Duration;

use ticketrail_core::command::DeleteQueue;
use ticketrail_core::query::QueueInfo;
use ticketrail_core::{Answer, Command, Query};
use ticketrail_node::call::{CallError, Deliveries, Freshness};
use ticketrail_node::{Handle, MemberChange};
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::poll::until;
use crate::rig::{body, call, enqueue, queue, receive, settle};

async fn info(handle: &Handle, name: &str) -> Option<QueueInfo> {
    let answer = handle.query(Query::Queue(queue(name)), Freshness::Linearizable).await.expect("an answer").0;
    let Answer::Queue(info) = answer else { panic!("expected a queue, but got {answer:?}") };
    info
}

#[tokio::test]
async fn every_node_serves_every_call_and_reads_what_it_acknowledged() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let leader = cluster.leader().await;
    let leader_id = cluster.places[leader].disk.identity().node;
    for at in 0..3 {
        let handle = cluster.running[&at].node.handle();
        handle.serving().await;
        for n in 1..=20 {
            let done = call(&handle, enqueue("orders", &["x"], 0)).await.expect("an enqueue");
            assert_eq!(done.origin.node, leader_id);
            assert_eq!(info(&handle, "orders").await.expect("the queue").stats.enqueued, n);
        }
        let got = handle.receive(receive("orders", 20, 0)).await.expect("deliveries");
        assert_eq!((got.deliveries.len(), got.origin.node), (20, leader_id));
        for delivery in &got.deliveries {
            call(&handle, settle(delivery, ticketrail_core::command::Verdict::Ack(Default::default())))
                .await
                .expect("an ack");
        }
        assert_eq!(handle.leader().expect("a leader").client_address, format!("clients.rail-{leader}:50000"));
        call(&handle, Command::DeleteQueue(DeleteQueue { queue: Some(queue("orders")) })).await.expect("a deletion");
        assert_eq!(info(&handle, "orders").await, None);
    }
}

/// Polls and enqueues that go through one node.
struct Load {
    polls: JoinSet<Result<Deliveries, CallError>>,
    calls: JoinSet<bool>,
}

const MESSAGES: usize = 60;

impl Load {
    /// As many polls as there will be messages.
    fn start(handle: &Handle) -> Self {
        let mut polls = JoinSet::new();
        for _ in 0..MESSAGES {
            let handle = handle.clone();
            polls.spawn(async move { handle.receive(receive("orders", 1, 60_000)).await });
        }
        Self { polls, calls: JoinSet::new() }
    }

    fn enqueue(&mut self, handle: &Handle, numbers: std::ops::Range<usize>) {
        for n in numbers {
            let handle = handle.clone();
            self.calls.spawn(async move { call(&handle, enqueue("orders", &[&n.to_string()], 0)).await.is_ok() });
        }
    }

    /// Each call has succeeded and each message came once, under its first lease.
    async fn check(self, handle: &Handle) {
        assert!(self.calls.join_all().await.into_iter().all(|ok| ok));
        let mut bodies = BTreeSet::new();
        for got in self.polls.join_all().await {
            let got = got.expect("a delivery");
            let [delivery] = &got.deliveries[..] else { panic!("expected one message, but got {got:?}") };
            assert_eq!((delivery.receive_count, delivery.failures), (1, 0));
            assert!(bodies.insert(body(delivery).to_owned()), "{} came twice", body(delivery));
        }
        assert_eq!(bodies.len(), MESSAGES);
        let stats = info(handle, "orders").await.expect("the queue").stats;
        assert_eq!((stats.enqueued, stats.leased), (MESSAGES as u64, MESSAGES as u64));
    }
}

#[tokio::test]
async fn what_goes_through_a_follower_outlives_the_leader_and_happens_once() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let old = cluster.leader().await;
    let handle = cluster.running[&((old + 1) % 3)].node.handle();
    handle.serving().await;
    let mut load = Load::start(&handle);
    until("parked receives", || cluster.running[&old].status().parked_receives == MESSAGES).await;
    load.enqueue(&handle, 0..MESSAGES / 2);
    let half = Duration::from_secs(10);
    let some = tokio::time::timeout(half, load.calls.join_next()).await.expect("an answer").expect("a call");
    assert!(some.expect("no panic"));
    cluster.kill(old);
    load.enqueue(&handle, MESSAGES / 2..MESSAGES);
    load.check(&handle).await;
}

#[tokio::test]
async fn what_goes_through_a_follower_follows_the_leadership_where_it_is_sent() {
    let mut cluster = Cluster::of(3).await;
    cluster.start_all().await;
    let old = cluster.leader().await;
    // One that goes on following, and one that comes to lead.
    for (at, to) in [((old + 1) % 3, (old + 2) % 3), (old, (old + 1) % 3)] {
        let handle = cluster.running[&at].node.handle();
        handle.serving().await;
        let mut load = Load::start(&handle);
        let parked = || cluster.running.values().map(|running| running.status().parked_receives).sum::<usize>();
        until("parked receives", || parked() == MESSAGES).await;
        load.enqueue(&handle, 0..MESSAGES / 2);
        let to = cluster.places[to].disk.identity().node;
        assert_eq!(handle.change_members(MemberChange::TransferLeader(Some(to))).await, Ok(to));
        load.enqueue(&handle, MESSAGES / 2..MESSAGES);
        load.check(&handle).await;
        call(&handle, Command::DeleteQueue(DeleteQueue { queue: Some(queue("orders")) })).await.expect("a deletion");
    }
}
