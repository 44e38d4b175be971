//! Forwarding between a real leader and stand-ins for followers, over a network in memory.

mod net;
mod poll;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use ticketrail_core::command::OpenSession;
use ticketrail_core::reply::Answered;
use ticketrail_core::{Answer, Command, Query, RequestId};
use tokio::time::timeout;

use self::net::Net;
use self::poll::{SOON, pass, until};
use self::rig::{Follower, Leader, address, bodies, call, enqueue, info, node, queue, receive};
use crate::attempt::Attempt;
use crate::call::{Call, CallError, Freshness, Unavailable};
use crate::receive::Receiving;
use crate::sessions::Sessions;
use crate::{Clock, NodeConfig, Work};

/// A leader, node 1, and a follower, node 2.
async fn pair(config: NodeConfig) -> (Net, Leader, Follower) {
    let net = Net::default();
    let leader = Leader::start(&net, NodeConfig { node_id: 1, ..config.clone() }).await;
    let follower = Follower::start(&net, NodeConfig { node_id: 2, ..config }, &leader);
    timeout(SOON, follower.handle.serving()).await.expect("a follower that serves");
    (net, leader, follower)
}

/// Nodes whose time stands still unless somebody waits, for a test with `start_paused`.
fn simulated() -> NodeConfig {
    NodeConfig { clock: Clock::simulated(1_700_000_000_000), work: Work::Inline, ..node(1) }
}

async fn session(follower: &Follower) -> u64 {
    let opened = call(&follower.handle, Command::OpenSession(OpenSession { renew: 0 })).await.expect("a session");
    match opened.reply.answered {
        Some(Answered::SessionOpened(opened)) => opened.session,
        other => panic!("expected a session, but got {other:?}"),
    }
}

#[tokio::test]
async fn a_call_at_a_follower_takes_effect_at_the_leader() {
    let (_net, leader, follower) = pair(node(1)).await;
    let done = call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    assert_eq!((done.origin.node, done.origin.term), (1, leader.handle.status().term));
    assert_eq!(leader.info("orders").await.expect("a queue").stats.enqueued, 1);
    let status = follower.handle.status();
    assert_eq!((status.serving, status.leading, status.forwarded_calls), (true, false, 0));
    let known = follower.handle.leader().expect("a leader");
    assert_eq!((known.node, known.client_address.as_str()), (1, "kitchen-1:7450"));
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn many_calls_share_one_connection() {
    let (net, leader, follower) = pair(node(1)).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..500 {
        let handle = follower.handle.clone();
        calls.spawn(async move { call(&handle, enqueue("orders", &n.to_string())).await });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(leader.info("orders").await.expect("a queue").stats.enqueued, 500);
    assert_eq!(net.connections(&address(1)), 1);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_takes_effect_once() {
    let (net, leader, follower) = pair(node(1)).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let handle = follower.handle.clone();
    let second = tokio::spawn(async move { call(&handle, enqueue("orders", "two")).await });
    until("the second message at the leader", || enqueued(&leader) == 2).await;
    net.cut(&address(1));
    let second = second.await.expect("no panic").expect("an enqueue");
    assert!(second.reply.replayed);
    assert_eq!(enqueued(&leader), 2);
    follower.stop().await;
    leader.stop().await;
}

/// Messages ever enqueued at the leader, as it is.
fn enqueued(leader: &Leader) -> u64 {
    leader.handle.shared.state.queue(&queue("orders")).expect("a state").map_or(0, |info| info.stats.enqueued)
}

fn leased(leader: &Leader) -> u64 {
    leader.handle.shared.state.queue(&queue("orders")).expect("a state").map_or(0, |info| info.stats.leased)
}

#[tokio::test]
async fn a_call_that_is_late_is_in_doubt_and_its_repeat_has_the_first_outcome() {
    let (net, leader, follower) = pair(node(1)).await;
    let id = RequestId { session: session(&follower).await, seq: 1, ..RequestId::default() };
    let attempt = |repeat, timeout| {
        let call = Call { command: enqueue("orders", "one"), id: Some(id), repeat, timeout };
        let handle = follower.handle.clone();
        async move { handle.call(call).await }
    };
    net.hold_answers(&address(1), true);
    assert_eq!(attempt(false, Duration::from_millis(200)).await, Err(CallError::Unknown));
    net.hold_answers(&address(1), false);
    let again = attempt(true, SOON).await.expect("an outcome");
    assert!(again.reply.replayed);
    assert_eq!(enqueued(&leader), 1);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn without_a_leader_nothing_happens_unless_an_attempt_is_in_doubt() {
    let (net, leader, follower) = pair(node(1)).await;
    let id = RequestId { session: session(&follower).await, seq: 1, ..RequestId::default() };
    follower.follows(None, 2);
    let short = Duration::from_millis(100);
    for (repeat, expected) in [(false, CallError::Unavailable(Unavailable::NoQuorum)), (true, CallError::Unknown)] {
        let call = Call { command: enqueue("orders", "one"), id: Some(id), repeat, timeout: short };
        assert_eq!(follower.handle.call(call).await, Err(expected));
    }
    // A leader that cannot be reached: the same.
    net.close(&address(1));
    until("the loss of the line", || !follower.shared.forwards.has_line(1)).await;
    follower.follows(Some(1), 3);
    let call_once = Call { command: enqueue("orders", "one"), id: Some(id), repeat: false, timeout: short };
    assert_eq!(follower.handle.call(call_once).await, Err(CallError::Unavailable(Unavailable::NoQuorum)));
    let poll = follower.handle.receive(receive("orders", 100)).await;
    assert_eq!(poll, Err(CallError::Unavailable(Unavailable::NoQuorum)));
    assert_eq!(enqueued(&leader), 0);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_call_waits_for_a_leader() {
    let (_net, leader, follower) = pair(node(1)).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    follower.follows(None, 2);
    assert!(!follower.handle.status().serving);
    let handle = follower.handle.clone();
    let waits = tokio::spawn(async move { call(&handle, enqueue("orders", "two")).await });
    until("a call that waits", || follower.handle.status().queued_bytes > 0).await;
    follower.follows(Some(1), 3);
    waits.await.expect("no panic").expect("an enqueue");
    assert_eq!(enqueued(&leader), 2);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_call_at_a_node_that_does_not_lead_follows_its_hint() {
    let (net, leader, follower) = pair(node(1)).await;
    let third = Follower::start(&net, node(3), &leader);
    follower.follows(Some(3), 2);
    let done = call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    assert_eq!(done.origin.node, 1);
    let got = follower.handle.receive(receive("orders", 0)).await.expect("a delivery");
    assert_eq!((bodies(&got), got.origin.node), (vec![&b"one"[..]], 1));
    follower.stop().await;
    third.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_node_without_a_hint_is_not_asked_in_a_busy_loop() {
    let (net, leader, follower) = pair(node(1)).await;
    let third = Follower::start(&net, node(3), &leader);
    third.follows(None, 2);
    follower.follows(Some(3), 2);
    let timeout = Duration::from_millis(500);
    let call = Call { command: enqueue("orders", "one"), id: None, repeat: false, timeout };
    assert_eq!(follower.handle.call(call).await, Err(CallError::Unavailable(Unavailable::NoQuorum)));
    assert_eq!(enqueued(&leader), 0);
    follower.stop().await;
    third.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_poll_is_parked_at_the_leader_and_served() {
    let (_net, leader, follower) = pair(node(1)).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    assert_eq!(follower.handle.status().forwarded_receives, 1);
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    let got = poll.await.expect("no panic").expect("a delivery");
    assert_eq!((bodies(&got), got.origin.node), (vec![&b"one"[..]], 1));
    assert_eq!(got.deliveries[0].receive_count, 1);
    let none = follower.handle.receive(receive("orders", 50)).await.expect("an empty answer");
    assert_eq!((none.deliveries.len(), none.reply), (0, None));
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_parked_receiver_that_goes_leaves_no_trace() {
    let (_net, leader, follower) = pair(node(1)).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    poll.abort();
    until("no parked receive", || leader.handle.status().parked_receives == 0).await;
    until("nothing on its way", || follower.handle.status().forwarded_receives == 0).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    let got = follower.handle.receive(receive("orders", 0)).await.expect("a delivery");
    assert_eq!((got.deliveries.len(), got.deliveries[0].receive_count), (1, 1));
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn what_was_granted_to_a_receiver_that_has_gone_is_released_with_nothing_counted() {
    let (net, leader, follower) = pair(node(1)).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let handle = follower.handle.clone();
    // The session for polls is opened over the same line.
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a request for a session", || follower.handle.status().forwarded_calls == 1).await;
    net.hold_answers(&address(1), false);
    poll.await.expect("no panic").expect("a delivery");
    call(&follower.handle, enqueue("orders", "two")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let handle = follower.handle.clone();
    let gone = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("two leases", || leased(&leader) == 2).await;
    gone.abort();
    assert!(gone.await.is_err_and(|error| error.is_cancelled()));
    net.hold_answers(&address(1), false);
    until("one lease", || leased(&leader) == 1).await;
    let got = follower.handle.receive(receive("orders", 20_000)).await.expect("a delivery");
    let [again] = &got.deliveries[..] else { panic!("expected one message, but got {got:?}") };
    assert_eq!((&again.content.body[..], again.receive_count, again.failures), (&b"two"[..], 2, 0));
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_the_repeats() {
    let (net, leader, follower) = pair(node(1)).await;
    let first = follower.handle.receive(receive("orders", 0)).await.expect("an empty answer");
    assert!(first.deliveries.is_empty());
    net.hold_answers(&address(1), true);
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    until("a lease", || leased(&leader) == 1).await;
    net.cut(&address(1));
    let got = poll.await.expect("no panic").expect("a delivery");
    assert_eq!((bodies(&got), got.deliveries[0].receive_count), (vec![&b"one"[..]], 1));
    assert!(got.reply.is_some_and(|reply| reply.replayed));
    assert_eq!(leased(&leader), 1);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_number_that_a_node_gives_means_the_same_once_it_leads_itself() {
    let (net, leader, follower) = pair(node(1)).await;
    let first = follower.handle.receive(receive("orders", 0)).await.expect("an empty answer");
    assert!(first.deliveries.is_empty());
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a lease", || leased(&leader) == 1).await;
    // As the follower would propose it, if it led.
    let now = follower.shared.config.clock.now();
    let session = follower.shared.poll_sessions.stale(now + 2 * crate::sessions::RENEW_EVERY)[0];
    let numbers = Arc::new(Sessions::new(0));
    numbers.add(session, now);
    assert_eq!(numbers.reserve().await.assign(now).seq, 1);
    let second = numbers.reserve().await;
    assert_eq!(second.assign(now).seq, 2);
    let mut repeat = Receiving::again(receive("orders", 20_000), second, now);
    match leader.handle.shared.receive_here(&mut repeat, now + SOON).await {
        Attempt::Done(got) => assert!(got.deliveries.len() == 1 && got.reply.is_some_and(|reply| reply.replayed)),
        refused @ (Attempt::Rejected(_) | Attempt::Elsewhere(_) | Attempt::InDoubt | Attempt::Over(_)) => {
            panic!("expected the leases of the first attempt, but got {refused:?}")
        }
    }
    poll.abort();
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_grant_on_its_way_when_the_line_is_lost_is_the_repeats() {
    let (net, leader, follower) = pair(node(1)).await;
    let first = follower.handle.receive(receive("orders", 0)).await.expect("an empty answer");
    assert!(first.deliveries.is_empty());
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    leader.log.hold_syncs();
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("the receive in the log", || leader.handle.status().entries_in_flight == 1).await;
    net.cut(&address(1));
    until("its repeat", || leader.handle.status().entries_in_flight == 2).await;
    leader.log.release_syncs();
    let got = poll.await.expect("no panic").expect("a delivery");
    assert_eq!((bodies(&got), got.deliveries[0].receive_count), (vec![&b"one"[..]], 1));
    // What might have been proposed to release it is applied before this.
    call(&leader.handle, enqueue("orders", "two")).await.expect("an enqueue");
    assert_eq!(leased(&leader), 1);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_node_of_another_cluster_is_not_served() {
    let net = Net::default();
    let leader = Leader::start(&net, node(1)).await;
    let stranger = Follower::start(&net, NodeConfig { cluster_id: [8; 16], ..node(2) }, &leader);
    let timeout = Duration::from_millis(300);
    let id = RequestId { session: 1, seq: 1, ..RequestId::default() };
    let call = Call { command: enqueue("orders", "one"), id: Some(id), repeat: false, timeout };
    assert!(matches!(stranger.handle.call(call).await, Err(CallError::Unknown | CallError::Unavailable(_))));
    assert_eq!(enqueued(&leader), 0);
    stranger.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn the_polls_of_a_follower_that_is_lost_are_taken_out() {
    let (net, leader, follower) = pair(node(1)).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 20_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    net.close(&address(1));
    until("no parked receive", || leader.handle.status().parked_receives == 0).await;
    poll.abort();
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_poll_is_held_over_a_change_of_leader() {
    let (net, leader, follower) = pair(node(1)).await;
    let poll = |handle: &crate::Handle| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.receive(receive("orders", 30_000)).await })
    };
    let polls = [poll(&follower.handle), poll(&follower.handle)];
    until("parked receives", || leader.handle.status().parked_receives == 2).await;
    let (log, state) = leader.crash(&net).await;
    follower.follows(None, 2);
    let leader = Leader::start_on(&net, node(1), log, state).await;
    let term = leader.handle.status().term;
    assert!(term > 1);
    follower.follows(Some(1), term);
    until("parked receives", || leader.handle.status().parked_receives == 2).await;
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    call(&leader.handle, enqueue("orders", "two")).await.expect("an enqueue");
    let mut got = Vec::new();
    for poll in polls {
        let deliveries = poll.await.expect("no panic").expect("a delivery");
        assert_eq!((deliveries.deliveries.len(), deliveries.origin.term), (1, term));
        got.extend(bodies(&deliveries).into_iter().map(<[u8]>::to_vec));
    }
    got.sort();
    assert_eq!(got, [b"one", b"two"]);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_leader_that_shuts_down_gives_the_polls_back_undoubted() {
    let (net, leader, follower) = pair(node(1)).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 30_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    let (log, state) = (leader.log.clone(), leader.state.clone());
    leader.stop().await;
    net.close(&address(1));
    let leader = Leader::start_on(&net, node(1), log, state).await;
    follower.follows(Some(1), leader.handle.status().term);
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    assert_eq!(bodies(&poll.await.expect("no panic").expect("a delivery")), [b"one"]);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_read_at_a_follower_waits_for_what_was_acknowledged() {
    let (_net, leader, follower) = pair(node(1)).await;
    follower.hold_back(true);
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    let handle = follower.handle.clone();
    let read = tokio::spawn(async move { info(&handle, "orders").await });
    until("the read at the leader and back", || follower.handle.status().forwarded_calls == 0).await;
    let stale = follower.handle.query(Query::Queue(queue("orders")), Freshness::StaleOk).await;
    assert!(stale.is_ok_and(|(_, origin)| origin.node == 2));
    assert!(!read.is_finished());
    follower.hold_back(false);
    assert_eq!(read.await.expect("no panic").expect("a queue").stats.enqueued, 1);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_read_that_this_node_cannot_reach_says_so() {
    let (_net, leader, follower) = pair(simulated()).await;
    follower.hold_back(true);
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    let read = follower.handle.query(Query::Clock, Freshness::Linearizable).await;
    assert_eq!(read.map(|_| ()), Err(CallError::Unavailable(Unavailable::NoQuorum)));
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_clock_goes_on_at_a_follower() {
    let (_net, leader, follower) = pair(simulated()).await;
    let clock = async |handle: &crate::Handle| {
        let answer = handle.query(Query::Clock, Freshness::StaleOk).await.expect("an answer").0;
        let Answer::Clock(clock) = answer else { panic!("expected clocks, but got {answer:?}") };
        clock.cluster.0
    };
    let first = clock(&follower.handle).await;
    for _ in 0..20 {
        pass(Duration::from_millis(777)).await;
        let (here, there) = (clock(&follower.handle).await, clock(&leader.handle).await);
        assert!(here.abs_diff(there) < 100, "{here} is far from {there}");
    }
    assert!(clock(&follower.handle).await >= first + 15_000);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_falls_silent_is_opened_again() {
    let (net, leader, follower) = pair(simulated()).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let begun = tokio::time::Instant::now();
    let second = call(&follower.handle, enqueue("orders", "two")).await.expect("an enqueue");
    assert!(second.reply.replayed);
    // A new stream is as silent as long as the transport takes the connection for alive.
    let took = begun.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(8)).contains(&took), "{took:?}");
    assert_eq!(enqueued(&leader), 2);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_line_with_parked_polls_is_not_taken_for_dead() {
    let (net, leader, follower) = pair(simulated()).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 30_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    let before = leader.handle.status().applied_index;
    pass(Duration::from_secs(20)).await;
    assert_eq!(net.connections(&address(1)), 1);
    let ticks = leader.handle.status().applied_index.zip(before).map(|(now, before)| now - before);
    assert!(ticks.is_some_and(|ticks| ticks <= 5), "no receive was proposed anew, but {ticks:?} entries came");
    call(&leader.handle, enqueue("orders", "one")).await.expect("an enqueue");
    assert_eq!(bodies(&poll.await.expect("no panic").expect("a delivery")), [b"one"]);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn more_than_may_be_on_its_way_is_refused() {
    let config = NodeConfig { proposal_queue_bytes: 10_000, parked_receives: 2, ..node(1) };
    let (net, leader, follower) = pair(config).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    net.hold_answers(&address(1), true);
    let body = "x".repeat(6_000);
    let handle = follower.handle.clone();
    let waits = tokio::spawn({
        let command = enqueue("orders", &body);
        async move { call(&handle, command).await }
    });
    until("a call on its way", || follower.handle.status().forwarded_calls == 1).await;
    let refused = call(&follower.handle, enqueue("orders", &body)).await;
    assert!(matches!(refused, Err(CallError::Overloaded { queued_bytes }) if queued_bytes > 6_000), "{refused:?}");
    net.hold_answers(&address(1), false);
    waits.await.expect("no panic").expect("an enqueue");
    assert_eq!(enqueued(&leader), 2);
    let mut polls = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let handle = follower.handle.clone();
        polls.spawn(async move { handle.receive(receive("others", 20_000)).await });
    }
    until("parked receives", || leader.handle.status().parked_receives == 2).await;
    let refused = follower.handle.receive(receive("others", 20_000)).await;
    assert!(matches!(refused, Err(CallError::Overloaded { .. })), "{refused:?}");
    polls.shutdown().await;
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_session_that_has_ended_is_replaced() {
    let (_net, leader, follower) = pair(node(1)).await;
    call(&follower.handle, enqueue("orders", "one")).await.expect("an enqueue");
    let now = follower.shared.config.clock.now();
    for (pool, ended) in [(&follower.shared.sessions, u64::MAX), (&follower.shared.poll_sessions, u64::MAX - 1)] {
        for session in pool.stale(now + 2 * crate::sessions::RENEW_EVERY) {
            pool.remove(session);
        }
        pool.add(ended, now);
    }
    call(&follower.handle, enqueue("orders", "two")).await.expect("an enqueue");
    assert_eq!(bodies(&follower.handle.receive(receive("orders", 0)).await.expect("a delivery")), [b"one"]);
    assert_eq!(enqueued(&leader), 2);
    follower.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_node_that_shuts_down_ends_its_polls_and_takes_nothing_more() {
    let (_net, leader, follower) = pair(node(1)).await;
    let handle = follower.handle.clone();
    let poll = tokio::spawn(async move { handle.receive(receive("orders", 30_000)).await });
    until("a parked receive", || leader.handle.status().parked_receives == 1).await;
    follower.drain();
    let draining = CallError::Unavailable(Unavailable::Draining);
    assert_eq!(poll.await.expect("no panic"), Err(draining.clone()));
    assert_eq!(call(&follower.handle, enqueue("orders", "one")).await, Err(draining.clone()));
    assert_eq!(follower.handle.receive(receive("orders", 0)).await, Err(draining));
    until("no parked receive", || leader.handle.status().parked_receives == 0).await;
    assert!(!follower.handle.status().serving);
    follower.stop().await;
    leader.stop().await;
}
