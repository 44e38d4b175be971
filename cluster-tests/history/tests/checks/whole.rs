//! Dedup ids, times to live, cancels, new times, priorities, and what is taken at most once.

use crate::hand::*;

fn with(v: u64, more: More) -> NewMessage {
    NewMessage { more: Some(Box::new(more)), ..message(v) }
}

fn keyed(v: u64) -> NewMessage {
    with(v, More { dd: "order 7".into(), ..More::default() })
}

fn duplicate(v: u64) -> EnqueueOutcome {
    EnqueueOutcome::In { id: id(v), seq: v, at: EPOCH, dup: true }
}

fn too_late() -> Refusal {
    Refusal::counted("TOO_LATE", Some(1))
}

fn cancel(hand: &mut Hand, t: u64, target: Target, outcome: CancelOutcome) {
    hand.ok(t, t + 10, Call::Cancel { c: vec![target] }, Answer::Cancelled { c: vec![outcome] });
}

/// A queue that remembers dedup ids for 2 seconds, and gives a time to live where that is asked for.
fn queue(ttl: Option<u64>) -> Settings {
    Settings { dedup: Some(2_000), ttl, ..Settings::default() }
}

fn made(ttl: Option<u64>) -> Hand {
    let mut hand = Hand::new();
    hand.ok(0, 1, Call::Create { q: orders(), set: queue(ttl) }, Answer::Changed { q: 1 });
    hand
}

fn made_in_log(ttl: Option<u64>) -> Hand {
    let mut hand = Hand::new();
    hand.applied(0, None, Command::Create { q: orders(), set: queue(ttl) }, Applied::Changed { q: 1 });
    hand
}

#[test]
fn dedup_ids_by_what_clients_saw() {
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    hand.put(30, 40, keyed(2), duplicate(1));
    hand.put(5_000, 5_010, keyed(3), taken_in(3));
    hand.passes("I11 a dedup id");
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    hand.put(30, 40, keyed(2), taken_in(2));
    hand.flagged("I11 a dedup id", "both added a message under the dedup id order 7");
    // One of them was on its way for longer than the id is remembered: it may have come after that.
    let mut hand = made(None);
    hand.put(10, 3_000, keyed(1), taken_in(2));
    hand.put(500, 510, keyed(2), taken_in(1));
    hand.passes("I11 a dedup id");
    // A cancel frees it.
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    cancel(&mut hand, 22, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
    hand.put(40, 50, keyed(2), taken_in(2));
    hand.passes("I11 a dedup id");
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    cancel(&mut hand, 22, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
    hand.put(40, 50, keyed(2), duplicate(1));
    hand.flagged("I11 a dedup id", "which had been cancelled");
    // But not that of a dead letter, which is in another queue.
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    hand.receive(21, 22, delivery(1, 1, 100));
    hand.settle(23, 24, 100, Verdict::Reject, SettleOutcome::Dead { seq: 1, q: 2 });
    cancel(&mut hand, 25, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
    hand.put(40, 50, keyed(2), duplicate(1));
    hand.passes("I11 a dedup id");
    let mut hand = made(None);
    hand.put(30, 40, keyed(2), duplicate(9));
    hand.flagged("I11 a dedup id", "nobody added that one under it");
    // A duplicate is no message.
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    hand.put(30, 40, keyed(2), duplicate(1));
    hand.receive(50, 60, delivery(2, 1, 100));
    hand.flagged("I11 a dedup id", "message v 2 is a duplicate, but there is");
    // Acked, and its window over: it is free.
    let mut hand = made(None);
    hand.put(10, 20, keyed(1), taken_in(1));
    hand.receive(30, 40, delivery(1, 1, 100));
    hand.settle(50, 60, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.put(5_000, 5_010, keyed(2), duplicate(1));
    hand.flagged("I11 a dedup id", "which was acked and whose window was over");
}

#[test]
fn dedup_ids_by_the_log() {
    let first = || {
        let mut hand = made_in_log(None);
        hand.entered(10, keyed(1), taken_in(1));
        hand
    };
    let mut hand = first();
    hand.entered(20, keyed(2), duplicate(1));
    hand.passes("I11 a dedup id");
    let mut hand = first();
    hand.entered(20, keyed(2), taken_in(2));
    hand.flagged("I11 a dedup id", "but its queue remembered it for 1.1.m4.1");
    // Beyond its window as long as its message is there; and after its window not once that has finished.
    let mut hand = first();
    hand.entered(8_000, keyed(2), taken_in(2));
    hand.flagged("I11 a dedup id", "but its queue remembered it");
    let acked = || {
        let mut hand = first();
        hand.granted(20, 1, 1, 100);
        hand.settled(30, 100, Verdict::Ack, SettleOutcome::Acked);
        hand
    };
    let mut hand = acked();
    hand.entered(8_000, keyed(2), taken_in(2));
    hand.passes("I11 a dedup id");
    let mut hand = acked();
    hand.entered(8_000, keyed(2), duplicate(1));
    hand.flagged("I11 a dedup id", "its queue had forgotten it by then");
    let mut hand = first();
    hand.entered(20, keyed(2), duplicate(9));
    hand.flagged("I11 a dedup id", "its first one is 1.1.m4.1");
    let mut hand = first();
    hand.cancelled(15, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
    hand.entered(20, keyed(2), taken_in(2));
    hand.passes("I11 a dedup id");
    // Cancelled when it may have expired, and so may have been a dead letter: its id may be remembered.
    let late = |t: u64| {
        let mut hand = made_in_log(None);
        hand.entered(10, with(1, More { dd: "order 7".into(), x: EPOCH + 100, ..More::default() }), taken_in(1));
        hand.cancelled(t, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
        hand.entered(200, keyed(2), duplicate(1));
        hand
    };
    late(150).passes("I11 a dedup id");
    late(50).flagged("I11 a dedup id", "its queue had forgotten it by then");
}

#[test]
fn what_is_expired_is_not_delivered() {
    let mortal = || with(1, More { ttl: 1_000, ..More::default() });
    let told = || EnqueueOutcome::In { id: id(1), seq: 1, at: EPOCH, dup: false };
    let mut hand = made(None);
    hand.put(2, 10, mortal(), told());
    hand.receive(900, 910, delivery(1, 1, 100));
    hand.passes("I14 what is over");
    // By cluster time, and by the clients' clock alone.
    let mut hand = made(None);
    hand.put(2, 10, mortal(), told());
    hand.receive(1_000, 1_005, delivery(1, 1, 100));
    hand.flagged("I14 what is over", "expected nobody to get it from 1001000 on");
    let mut hand = made(None);
    hand.put(2, 10, mortal(), told());
    hand.receive(1_200, 1_210, delivery(1, 1, 100));
    hand.told().ts = 0;
    hand.flagged("I14 what is over", "after its time to live of 1000 ms was over");
    // Its queue's, where it has none of its own.
    let mut hand = made(Some(500));
    hand.put(2, 10, message(1), told());
    hand.receive(600, 610, delivery(1, 1, 100));
    hand.flagged("I14 what is over", "expected nobody to get it from 1000500 on");
    // In the log.
    let mut hand = made_in_log(None);
    hand.entered(0, mortal(), told());
    hand.granted(999, 1, 1, 100);
    hand.passes("I14 what is over");
    let mut hand = made_in_log(None);
    hand.entered(0, mortal(), told());
    hand.granted(1_000, 1, 1, 100);
    hand.flagged("I14 what is over", "but it expired at 1001000");
}

#[test]
fn what_is_cancelled_or_gone_is_not_delivered() {
    let cancelled = |outcome: CancelOutcome| {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        cancel(&mut hand, 20, Target::Id(id(1)), outcome);
        hand
    };
    let mut hand = cancelled(CancelOutcome::Cancelled { id: id(1) });
    hand.receive(40, 50, delivery(1, 1, 100));
    hand.flagged("I14 what is over", "was told that it was cancelled");
    let mut hand = cancelled(CancelOutcome::Gone);
    hand.receive(40, 50, delivery(1, 1, 100));
    hand.flagged("I14 what is over", "was told that it was not there");
    let mut hand = cancelled(CancelOutcome::No(too_late()));
    hand.receive(40, 50, delivery(1, 1, 100));
    hand.passes("I14 what is over");
    // Dropped, as its attempts were used up.
    let mut hand = made(None);
    hand.enqueue(2, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.settle(40, 50, 100, Verdict::Retry { d: None }, SettleOutcome::Dropped);
    hand.receive(60, 70, delivery(1, 2, 101));
    hand.flagged("I14 what is over", "was told that it was dropped");
    // In the log.
    let mut hand = made_in_log(None);
    hand.entered(0, message(1), taken_in(1));
    hand.cancelled(10, Target::Id(id(1)), CancelOutcome::Cancelled { id: id(1) });
    hand.granted(20, 1, 1, 100);
    hand.flagged("I14 what is over", "but by then it was gone");
}

#[test]
fn too_late_tells_the_truth() {
    let late = |had: bool| {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        if had {
            hand.receive(12, 18, delivery(1, 1, 100));
        }
        cancel(&mut hand, 20, Target::Id(id(1)), CancelOutcome::No(too_late()));
        hand
    };
    late(true).passes("I14 TOO_LATE");
    late(false).flagged("I14 TOO_LATE", "but nobody had received it by then");
    // Whoever repeats a receive is told only of what he still has: seeds 489 and 1451.
    let mut hand = made(None);
    hand.enqueue(2, 10, 1);
    hand.ok(12, 90, receive(), Answer::Received { d: vec![] });
    hand.told().replayed = true;
    cancel(&mut hand, 20, Target::Id(id(1)), CancelOutcome::No(too_late()));
    hand.passes("I14 TOO_LATE");
    // In the log.
    let entered = || {
        let mut hand = made_in_log(None);
        hand.entered(0, keyed(1), taken_in(1));
        hand
    };
    let by_id = || Target::Id(id(1));
    let by_dedup = || Target::Dedup { q: orders(), dd: "order 7".into() };
    let mut hand = entered();
    hand.cancelled(10, by_id(), CancelOutcome::No(too_late()));
    hand.flagged("I14 TOO_LATE", "was refused with TOO_LATE, but nobody had it");
    let mut hand = entered();
    hand.granted(5, 1, 1, 100);
    hand.cancelled(10, by_id(), CancelOutcome::No(too_late()));
    hand.passes("I14 TOO_LATE");
    let mut hand = entered();
    hand.granted(5, 1, 1, 100);
    hand.cancelled(10, by_id(), CancelOutcome::Cancelled { id: id(1) });
    hand.flagged("I14 TOO_LATE", "was cancelled, but somebody had it");
    let mut hand = entered();
    hand.granted(5, 1, 1, 100);
    hand.moved(10, by_id(), TimeOutcome::Moved { id: id(1), at: EPOCH + 1_010 });
    hand.flagged("I14 TOO_LATE", "was put at another time, but somebody had it");
    // Named by its dedup id, a message that has finished is too late too; by its id it is not there.
    let acked = || {
        let mut hand = entered();
        hand.granted(5, 1, 1, 100);
        hand.settled(6, 100, Verdict::Ack, SettleOutcome::Acked);
        hand
    };
    let mut hand = acked();
    hand.cancelled(10, by_dedup(), CancelOutcome::No(Refusal::new("TOO_LATE")));
    hand.cancelled(11, by_id(), CancelOutcome::Gone);
    hand.passes("I14 TOO_LATE");
    let mut hand = acked();
    hand.cancelled(10, by_id(), CancelOutcome::No(Refusal::new("TOO_LATE")));
    hand.flagged("I14 TOO_LATE", "but nobody had it");
    let mut hand = entered();
    hand.cancelled(10, by_id(), CancelOutcome::Gone);
    hand.flagged("I14 TOO_LATE", "was not there to be cancelled, but it is in its queue");
}

#[test]
fn priorities() {
    let ranked = |v: u64, p: u8| with(v, More { p: Some(p), ..More::default() });
    let at = |v: u64, p: u8| MessageId { priority: p, ..id(v) };
    let entered = |hand: &mut Hand, v: u64, p: u8| {
        hand.entered(0, ranked(v, p), EnqueueOutcome::In { id: at(v, p), seq: v, at: 0, dup: false });
    };
    let granted = |hand: &mut Hand, v: u64, p: u8| {
        let g = vec![Grant { q: 1, seq: v, tok: Some((at(v, p), Token(v.into()))), rc: 1, f: 0, end: 9_000 }];
        let c = Command::Receive { q: orders(), then: vec![], max: 1, bytes: 0, lease: 5_000, auto: false };
        hand.applied(10, None, c, Applied::Granted { g });
    };
    let mut hand = made_in_log(None);
    entered(&mut hand, 1, 2);
    entered(&mut hand, 2, 7);
    granted(&mut hand, 2, 7);
    granted(&mut hand, 1, 2);
    hand.passes("priorities");
    let mut hand = made_in_log(None);
    entered(&mut hand, 1, 2);
    entered(&mut hand, 2, 7);
    granted(&mut hand, 1, 2);
    hand.flagged("priorities", "while message 2 of its queue with priority 7 was ready");
    // Put at another time, it is not ready.
    let mut hand = made_in_log(None);
    entered(&mut hand, 1, 2);
    entered(&mut hand, 2, 7);
    hand.moved(5, Target::Id(at(2, 7)), TimeOutcome::Moved { id: at(2, 7), at: EPOCH + 1_005 });
    granted(&mut hand, 1, 2);
    hand.passes("priorities");
}

#[test]
fn new_times_are_kept() {
    let moved = |t: u64| {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        let call = Call::Reschedule { t: vec![NewTime { of: Target::Id(id(1)), d: 1_000, at: 0 }] };
        let at = EPOCH + 1_020;
        hand.ok(20, 30, call, Answer::Rescheduled { t: vec![TimeOutcome::Moved { id: id(1), at }] });
        hand.receive(t, t + 10, delivery(1, 1, 100));
        hand
    };
    moved(1_020).passes("I12 ");
    moved(500).flagged("I12 ", "expected it from 1001020 on");
    // It was another one that had the dedup id by then.
    let mut hand = made(None);
    hand.put(2, 10, keyed(1), taken_in(1));
    let dedup = Target::Dedup { q: orders(), dd: "order 7".into() };
    let call = Call::Reschedule { t: vec![NewTime { of: dedup, d: 1_000, at: 0 }] };
    hand.ok(20, 30, call, Answer::Rescheduled { t: vec![TimeOutcome::Moved { id: id(1), at: EPOCH + 1_020 }] });
    hand.put(40, 50, keyed(2), taken_in(2));
    hand.receive(60, 70, delivery(2, 1, 100));
    hand.passes("I12 ");
    // Whose enqueue nobody was told of is known by its delivery.
    let mut hand = made(None);
    hand.raw(2, 10, Call::Enqueue { q: orders(), m: vec![message(1)], all: false }, None);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.settle(40, 50, 100, Verdict::Retry { d: Some(2_000) }, SettleOutcome::Delayed { due: EPOCH + 2_040 });
    let call = Call::Reschedule { t: vec![NewTime { of: Target::Id(id(1)), d: 0, at: 0 }] };
    hand.ok(60, 70, call, Answer::Rescheduled { t: vec![TimeOutcome::Moved { id: id(1), at: EPOCH + 60 }] });
    hand.receive(80, 90, delivery(1, 2, 101));
    hand.passes("I12 ");
    // What makes it a dead letter lifts a new time too, and a dead letter can be given one.
    let why = || DeadLetter { q: orders(), why: "group".into(), rc: 0, f: 0 };
    let buried = |rc: u32, tok: u128| Delivery { dead: Some(why()), ..delivery(1, rc, tok) };
    let again = |t: u64| {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        for (begin, rc, then) in [(20, 1, 500), (540, 2, t)] {
            let call = Call::Reschedule { t: vec![NewTime { of: Target::Id(id(1)), d: 1_000, at: 0 }] };
            let t = vec![TimeOutcome::Moved { id: id(1), at: EPOCH + begin + 1_000 }];
            hand.ok(begin, begin + 10, call, Answer::Rescheduled { t });
            hand.receive(then, then + 10, buried(rc, 100 + u128::from(rc)));
        }
        hand
    };
    again(1_540).passes("I12 ");
    again(600).flagged("I12 ", "expected it from 1001540 on");
    // A second one at once lifts the first.
    let mut hand = moved(500);
    let call = Call::Reschedule { t: vec![NewTime { of: Target::Id(id(1)), d: 0, at: 0 }] };
    hand.index -= 1;
    hand.ok(40, 50, call, Answer::Rescheduled { t: vec![TimeOutcome::Moved { id: id(1), at: EPOCH + 40 }] });
    hand.events.iter_mut().for_each(|(_, _, op, what)| {
        if let (3, What::Ok(told)) = (*op, what) {
            told.cp = Some(Position { index: 9, ordinal: 0 });
        }
    });
    hand.passes("I12 ");
}

#[test]
fn commits_cancel_with_all_they_do() {
    let commit = |seen: bool| {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        let e = vec![EnqueuePart { q: orders(), m: message(2) }];
        let call = Call::Commit { s: vec![], c: vec![Target::Id(id(1))], t: vec![], e, alone: false };
        hand.raw(20, 30, call, Some(What::Info(Refusal::new("DEADLINE"))));
        if seen {
            hand.receive(40, 50, delivery(2, 1, 102));
        }
        hand.receive(60, 70, delivery(1, 1, 103));
        hand
    };
    commit(false).passes("I15 ");
    commit(true).flagged("I15 ", "a child without the cancel");
    // In the log.
    let half = |outcome: CancelOutcome| {
        let mut hand = made_in_log(None);
        let e = vec![EnqueuePart { q: orders(), m: message(2) }];
        let c = Command::Commit { s: vec![], c: vec![Target::Id(id(1))], t: vec![], e, atomic: true, auto: true };
        let r = Applied::Committed { s: vec![], c: vec![outcome], t: vec![], e: vec![taken_in(2)] };
        hand.applied(0, None, c, r);
        hand
    };
    half(CancelOutcome::Gone).passes("I15 ");
    half(CancelOutcome::No(too_late())).flagged("I15 ", "expected all parts or none");
}

#[test]
fn what_is_taken_is_acked() {
    let call = || Call::Receive { q: orders(), then: vec![], max: 10, wait: 0, lease: 0, auto: true };
    let taken = |v: u64, rc: u32| Taken { id: id(v), v, h: hash(v), rc, f: 0, dead: None, q: None, g: None };
    let took = || {
        let mut hand = made(None);
        hand.enqueue(2, 10, 1);
        hand.ok(20, 30, call(), Answer::Taken { d: vec![taken(1, 1)] });
        hand
    };
    let report = took().report();
    assert!(report.failed().is_empty(), "{report}");
    let mut hand = took();
    hand.receive(40, 50, delivery(1, 2, 100));
    hand.flagged("I7 ", "had acked it before this receive began");
    let mut hand = took();
    hand.ok(40, 50, call(), Answer::Taken { d: vec![taken(1, 2)] });
    hand.flagged("I7 ", "had acked it before this receive began");
    // In the log.
    let mut hand = made_in_log(None);
    let c = || Command::Receive { q: orders(), then: vec![], max: 1, bytes: 0, lease: 0, auto: true };
    let out = |rc: u32| Applied::Taken { d: vec![TakenOut { q: 1, seq: 1, id: id(1), rc, f: 0 }] };
    hand.applied(10, None, c(), out(1));
    hand.applied(20, None, c(), out(2));
    hand.flagged("I7 ", "it is finished");
}
