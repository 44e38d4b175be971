//! The order of groups.

use crate::hand::*;

fn member(v: u64) -> NewMessage {
    NewMessage { more: Some(Box::new(More { g: "o-7".into(), ..More::default() })), ..message(v) }
}

/// A history of clients: two of a group are enqueued one after the other.
fn two() -> Hand {
    let mut hand = Hand::new();
    hand.put(0, 10, member(1), taken_in(1));
    hand.put(20, 30, member(2), taken_in(2));
    hand
}

fn got(v: u64, rc: u32, tok: u128) -> Delivery {
    Delivery { g: Some("o-7".into()), ..delivery(v, rc, tok) }
}

#[test]
fn one_after_the_other_is_lawful() {
    let mut hand = two();
    hand.receive(40, 50, got(1, 1, 100));
    hand.settle(60, 70, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.receive(65, 80, got(2, 1, 101));
    hand.passes("I10 ");
}

#[test]
fn two_leased_at_once_are_found() {
    let mut hand = two();
    hand.receive(40, 50, got(1, 1, 100));
    hand.receive(60, 70, got(2, 1, 101));
    hand.flagged("I10 ", "were leased at the same time, but both are of group o-7");
    // The first one was given back, or tried to be, before the second one was told of.
    let mut hand = two();
    hand.receive(40, 50, got(1, 1, 100));
    hand.settle(55, 70, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.receive(56, 72, got(2, 1, 101));
    hand.passes("I10 ");
}

#[test]
fn the_second_before_the_first_is_found() {
    let mut hand = two();
    hand.receive(40, 50, got(2, 1, 101));
    hand.flagged("I10 ", "came before message v 1 of its group o-7 can have been finished");
    // Enqueued at the same time: either order will do.
    let mut hand = Hand::new();
    hand.put(0, 25, member(1), taken_in(1));
    hand.put(20, 30, member(2), taken_in(2));
    hand.receive(40, 50, got(2, 1, 101));
    hand.passes("I10 ");
    // The first one may have been cancelled.
    let mut hand = two();
    let gone = Answer::Cancelled { c: vec![CancelOutcome::Cancelled { id: id(1) }] };
    hand.ok(35, 45, Call::Cancel { c: vec![Target::Id(id(1))] }, gone);
    hand.receive(40, 50, got(2, 1, 101));
    hand.passes("I10 ");
    // With their queue their leases go, and another one has its name.
    let mut hand = two();
    hand.receive(40, 50, got(1, 1, 100));
    hand.ok(51, 52, Call::Delete { q: orders() }, Answer::Removed { n: 2 });
    hand.put(53, 54, member(3), taken_in(3));
    hand.receive(60, 70, got(3, 1, 101));
    hand.passes("I10 ");
    // A delayed one joins its line only when it is due.
    let mut hand = Hand::new();
    let late = EnqueueOutcome::In { id: id(1), seq: 1, at: EPOCH + 5_000, dup: false };
    hand.put(0, 10, NewMessage { d: 5_000, ..member(1) }, late);
    hand.put(20, 30, member(2), taken_in(2));
    hand.receive(40, 50, got(2, 1, 101));
    hand.passes("I10 ");
}

/// A log: members are put on the queue, in order.
fn logged(members: &[u64], policy: OnGroup) -> Hand {
    let mut hand = Hand::new();
    let set = Settings { on_group: Some(policy), ..Settings::default() };
    hand.applied(0, None, Command::Create { q: orders(), set }, Applied::Changed { q: 1 });
    for v in members {
        hand.entered(1, member(*v), taken_in(*v));
    }
    hand
}

#[test]
fn the_log_in_line_order_is_lawful() {
    let mut hand = logged(&[1, 2], OnGroup::Continue);
    hand.granted(10, 1, 1, 100);
    hand.settled(20, 100, Verdict::Retry { d: Some(50) }, SettleOutcome::Delayed { due: EPOCH + 70 });
    hand.granted(100, 1, 2, 101);
    hand.settled(110, 101, Verdict::Ack, SettleOutcome::Acked);
    hand.granted(120, 2, 1, 102);
    hand.passes("I10 ");
}

#[test]
fn the_log_out_of_line_order_is_found() {
    let mut hand = logged(&[1, 2], OnGroup::Continue);
    hand.granted(10, 2, 1, 100);
    hand.flagged("I10 ", "the message with sequence 1 is before it in the line");
    // A head that waits for its next attempt parks its group.
    let mut hand = logged(&[1, 2], OnGroup::Continue);
    hand.granted(10, 1, 1, 100);
    hand.settled(20, 100, Verdict::Retry { d: Some(500) }, SettleOutcome::Delayed { due: EPOCH + 520 });
    hand.granted(30, 2, 1, 101);
    hand.flagged("I10 ", "the message with sequence 1 is before it in the line");
    let mut hand = logged(&[1, 2], OnGroup::Continue);
    hand.granted(10, 1, 1, 100);
    hand.granted(30, 2, 1, 101);
    hand.flagged("I10 ", "of group o-7 is delivered while 1.1.m4.1 of it is leased");
}

#[test]
fn a_line_waits_for_its_dead_letter() {
    let dies = |policy: OnGroup| {
        let mut hand = logged(&[1, 2, 3], policy);
        hand.granted(10, 1, 1, 100);
        hand.settled(20, 100, Verdict::Reject, SettleOutcome::Dead { seq: 1, q: 2 });
        hand
    };
    let mut hand = dies(OnGroup::Continue);
    hand.granted(30, 2, 1, 101);
    hand.passes("I10 ");
    let mut hand = dies(OnGroup::Block);
    hand.granted(30, 2, 1, 101);
    hand.flagged("I10 ", "its line waits for the dead letter 1.1.m4.1");
    // Once the dead letter is gone, the next one goes on.
    let mut hand = dies(OnGroup::Block);
    let cancel = CancelOutcome::Cancelled { id: id(1) };
    hand.cancelled(25, Target::Id(id(1)), cancel);
    hand.granted(30, 2, 1, 101);
    hand.passes("I10 ");
    // Or once it was purged: from a queue whose name nobody has told yet.
    let graves = QueueName::new("", "orders.dlq");
    let mut hand = dies(OnGroup::Block);
    hand.applied(25, None, Command::Purge { q: graves.clone() }, Applied::Removed { n: 1 });
    hand.granted(30, 2, 1, 101);
    hand.passes("I10 ");
    // One that was purged empty frees nothing: the name of the other is known by then.
    let mut hand = dies(OnGroup::Block);
    let c = Command::Receive { q: graves, then: vec![], max: 1, bytes: 0, lease: 5_000, auto: false };
    let g = vec![Grant { q: 2, seq: 1, tok: Some((id(1), Token(102))), rc: 1, f: 0, end: 5_022 }];
    hand.applied(22, None, c, Applied::Granted { g });
    hand.applied(25, None, Command::Purge { q: QueueName::new("", "others") }, Applied::Removed { n: 0 });
    hand.granted(30, 2, 1, 101);
    hand.flagged("I10 ", "its line waits for the dead letter 1.1.m4.1");
    // A lease that ran out after its message had expired: whether the group followed, nobody was told.
    let ran_out = |x: u64| {
        let mut hand = logged(&[], OnGroup::Follow);
        let more = More { g: "o-7".into(), x, ..More::default() };
        hand.entered(1, NewMessage { more: Some(Box::new(more)), ..message(1) }, taken_in(1));
        hand.entered(1, member(2), taken_in(2));
        hand.granted(10, 1, 1, 100);
        let l = vec![ExpiredLease { queue: 1, sequence: 1, granted: 5 }];
        let ended = vec![(0, SettleOutcome::Dead { seq: 1, q: 2 })];
        hand.applied(5_010, None, Command::Expire { l }, Applied::Expired { l: ended });
        hand.entered(5_020, member(3), taken_in(3));
        hand.granted(5_030, 3, 1, 101);
        hand
    };
    ran_out(0).passes("I10 ");
    ran_out(EPOCH + 3_000).passes("I10 ");
    // Those that follow a dead letter are gone from the line, whoever comes later is not held up by them.
    let mut hand = dies(OnGroup::Follow);
    hand.entered(30, member(4), taken_in(4));
    hand.granted(40, 4, 1, 102);
    hand.passes("I10 ");
}
