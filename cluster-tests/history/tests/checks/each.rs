//! Checks of what every queue does.

use crate::hand::*;

#[test]
fn a_lawful_life_passes_every_check() {
    let report = lawful().report();
    assert!(report.failed().is_empty(), "{report}");
    assert!(report.to_string().ends_with(&format!("{} passed, 0 failed\n", report.checks.len())), "{report}");
}

#[test]
fn shape() {
    lawful().passes("shape");
    let mut hand = lawful();
    let two = Call::Enqueue { q: orders(), m: vec![message(2), message(3)], all: false };
    hand.ok(100, 110, two, Answer::Enqueued { e: vec![taken_in(2)] });
    hand.flagged("shape", "as many results as parts");
    let mut hand = Hand::new();
    hand.settle(0, 10, 1, Verdict::Ack, SettleOutcome::Readied);
    hand.flagged("shape", "an outcome that Ack can have");
    let mut hand = lawful();
    hand.enqueue(100, 110, 1);
    hand.flagged("shape", "a value of its own");
}

#[test]
fn real_time() {
    let mut hand = lawful();
    hand.enqueue(100, 110, 2);
    hand.told().cp = Some(Position { index: 2, ordinal: 5 });
    hand.flagged("real time", "expected a position behind 5.0");
    // At the same time either order will do.
    let mut hand = Hand::new();
    hand.index = 5;
    hand.enqueue(0, 50, 1);
    hand.index = 3;
    hand.enqueue(0, 60, 2);
    hand.passes("real time");
}

#[test]
fn lost() {
    let mut hand = lawful();
    hand.meta.drained = true;
    hand.passes("I1 ");
    let mut hand = lawful();
    hand.meta.drained = true;
    hand.enqueue(100, 110, 2);
    hand.flagged("I1 ", "nobody got it");
    // The log does not hold what was told.
    let mut hand = lawful();
    hand.applied(0, None, Command::Tick, Applied::Ticked { n: 0, more: false });
    hand.flagged("I1 ", "the log (up to index 1) does not hold it");
    // A purge may take what nobody got.
    let mut hand = lawful();
    hand.meta.drained = true;
    hand.enqueue(100, 110, 2);
    hand.ok(120, 130, Call::Purge { q: orders() }, Answer::Removed { n: 1 });
    hand.passes("I1 ");
}

#[test]
fn phantom() {
    lawful().passes("I2 ");
    let mut hand = lawful();
    hand.receive(100, 110, delivery(7, 1, 107));
    hand.flagged("I2 ", "nobody sent this value");
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, Delivery { h: Hash(1), ..delivery(1, 1, 100) });
    hand.flagged("I2 ", "expected the body with hash");
    let mut hand = Hand::new();
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.enqueue(40, 50, 1);
    hand.flagged("I2 ", "expected it after it was sent");
}

#[test]
fn refused() {
    let fail = |hand: &mut Hand, v: u64| {
        let call = Call::Enqueue { q: orders(), m: vec![message(v)], all: false };
        hand.raw(0, 10, call, Some(What::Fail(Refusal::new("NOT_LEADER"))))
    };
    let mut hand = Hand::new();
    fail(&mut hand, 1);
    hand.passes("I3 ");
    let mut hand = Hand::new();
    fail(&mut hand, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.flagged("I3 ", "message v 1 was never seen");
    let mut hand = Hand::new();
    let op = fail(&mut hand, 1);
    let c = Command::Commit {
        s: vec![],
        c: vec![],
        t: vec![],
        e: vec![EnqueuePart { q: orders(), m: message(1) }],
        atomic: false,
        auto: true,
    };
    hand.applied(0, Some(op), c, Applied::Committed { s: vec![], c: vec![], t: vec![], e: vec![taken_in(1)] });
    hand.flagged("I3 ", "expected no effect");
}

#[test]
fn unique() {
    lawful().passes("I4 ");
    let mut hand = lawful();
    hand.enqueue(100, 110, 2);
    hand.receive(120, 130, delivery(2, 1, 100));
    hand.flagged("I4 ", "a token of its own");
    let mut hand = lawful();
    let again = Answer::Enqueued { e: vec![taken_in(1)] };
    hand.ok(100, 110, Call::Enqueue { q: orders(), m: vec![message(2)], all: false }, again);
    hand.flagged("I4 ", "an id of its own");
    let mut hand = lawful();
    hand.receive(100, 110, Delivery { id: id(9), ..delivery(1, 3, 109) });
    hand.flagged("I4 ", "a second copy");
    let mut hand = lawful();
    hand.index -= 1;
    hand.enqueue(100, 110, 2);
    hand.flagged("I4 ", "a position of its own");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.granted(0, 2, 1, 100);
    hand.flagged("I4 ", "expected a new token");
}

#[test]
fn one_lease() {
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.receive(5_030, 5_040, delivery(1, 2, 101));
    hand.passes("I5 ");
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.receive(2_000, 2_010, delivery(1, 2, 101));
    hand.flagged("I5 ", "hold one message at the same time");
    // The first answer travelled long: its lease was over when the second one came.
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 6_000, delivery(1, 1, 100));
    hand.receive(5_100, 5_200, delivery(1, 2, 101));
    hand.passes("I5 ");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.granted(4_999, 1, 2, 101);
    hand.flagged("I5 ", "an earlier lease goes on");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.settled(10, 100, Verdict::Release, SettleOutcome::Readied);
    hand.granted(20, 1, 2, 101);
    hand.passes("I5 ");
}

#[test]
fn fencing() {
    let late = |t: u64, how: Verdict| {
        let mut hand = Hand::new();
        hand.enqueue(0, 10, 1);
        hand.receive(20, 30, delivery(1, 1, 100));
        if let Verdict::Extend { .. } = how {
            hand.settle(4_000, 4_010, 100, how, SettleOutcome::Extended { left: 5_000 });
        }
        hand.settle(t, t + 10, 100, Verdict::Ack, SettleOutcome::Acked);
        hand
    };
    late(5_000, Verdict::Ack).passes("I6 ");
    late(5_500, Verdict::Ack).flagged("I6 ", "ms after the lease");
    late(8_900, Verdict::Extend { lease: 5_000 }).passes("I6 ");
    late(9_500, Verdict::Extend { lease: 5_000 }).flagged("I6 ", "ms after the lease");
    // While there was no leader the lease clock stood.
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.term = 2;
    hand.enqueue(7_000, 7_010, 2);
    hand.settle(7_500, 7_510, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.passes("I6 ");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.settled(5_000, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.flagged("I6 ", "the lease was over");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.settled(100, 100, Verdict::Ack, SettleOutcome::No(Refusal::new("LEASE_LOST")));
    hand.flagged("I6 ", "the lease was live");
}

#[test]
fn ack_is_final() {
    lawful().passes("I7 ");
    let mut hand = lawful();
    hand.receive(100, 110, delivery(1, 3, 102));
    hand.flagged("I7 ", "expected nobody to get it");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.settled(10, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.granted(20, 1, 2, 101);
    hand.flagged("I7 ", "it is finished");
}

#[test]
fn receive_counts() {
    lawful().passes("I8 ");
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.receive(6_000, 6_010, delivery(1, 1, 101));
    hand.flagged("I8 ", "have one receive count");
    let mut hand = Hand::new();
    hand.granted(0, 1, 1, 100);
    hand.settled(10, 100, Verdict::Release, SettleOutcome::Readied);
    hand.granted(20, 1, 3, 101);
    hand.flagged("I8 ", "receive count 3 after 1");
}

#[test]
fn dead_letters() {
    let failed = |f: u32, outcome: SettleOutcome| {
        let mut hand = Hand::new();
        hand.enqueue(0, 10, 1);
        hand.receive(20, 30, Delivery { f, ..delivery(1, f + 1, 100) });
        hand.settle(40, 50, 100, Verdict::Retry { d: None }, outcome);
        hand
    };
    let dead = SettleOutcome::Dead { seq: 1, q: 2 };
    let later = SettleOutcome::Delayed { due: EPOCH + 1_000 };
    failed(4, dead.clone()).passes("I9 ");
    failed(3, later.clone()).passes("I9 ");
    failed(3, dead.clone()).flagged("I9 ", "with 4 failures, of 5 to 5");
    failed(4, later).flagged("I9 ", "with 5 failures, of 5 to 5");
    // From then on it comes from the dead-letter queue only.
    let mut hand = failed(4, dead.clone());
    hand.receive(100, 110, delivery(1, 6, 101));
    hand.flagged("I9 ", "from the dead-letter queue only");
    // Another budget, and it says why it is dead.
    let letter = |f: u32| {
        let mut hand = Hand::new();
        let set = Settings { max_attempts: Some(3), ..Settings::default() };
        hand.ok(0, 1, Call::Create { q: orders(), set }, Answer::Changed { q: 1 });
        hand.enqueue(2, 10, 1);
        let why = DeadLetter { q: orders(), why: "attempts".into(), rc: 3, f };
        hand.receive(20, 30, Delivery { dead: Some(why), ..delivery(1, 1, 100) });
        hand
    };
    // The defaults that its namespace had for a while.
    let named = |ns: &str| {
        let mut hand = failed(2, dead.clone());
        let set = Settings { max_attempts: Some(3), ..Settings::default() };
        hand.ok(60, 70, Call::SetNamespace { ns: ns.into(), set, auto: None }, Answer::Changed { q: 0 });
        hand
    };
    named("default").passes("I9 ");
    named("shop").flagged("I9 ", "with 3 failures, of 5 to 5");
    letter(3).passes("I9 ");
    letter(4).flagged("I9 ", "expected 3 to 3 failures");
    // Rejected: dead at once.
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.settle(40, 50, 100, Verdict::Reject, SettleOutcome::Delayed { due: EPOCH + 60_040 });
    hand.flagged("I9 ", "Reject was told Delayed");
}

#[test]
fn request_ids() {
    let twice = |second: fn(&mut AuditLine)| {
        let mut hand = Hand::new();
        hand.applied(0, Some(0), Command::Purge { q: orders() }, Applied::Removed { n: 1 });
        hand.applied(0, Some(0), Command::Purge { q: orders() }, Applied::Removed { n: 1 });
        second(hand.audit.last_mut().unwrap());
        hand
    };
    twice(|_| {}).flagged("I11 ", "took effect at position 1.0 and again at 2.0");
    twice(|line| line.replay = Some(Position { index: 1, ordinal: 0 })).passes("I11 ");
    twice(|line| line.replay = Some(Position { index: 7, ordinal: 0 })).flagged("I11 ", "an effect at 7.0");
}

#[test]
fn resolution() {
    let purge = || Command::Purge { q: orders() };
    let asked = |n: u64| {
        let mut hand = Hand::new();
        let op = hand.ok(0, 10, Call::Purge { q: orders() }, Answer::Removed { n });
        (hand, op)
    };
    let (mut hand, op) = asked(1);
    hand.applied(0, Some(op), purge(), Applied::Removed { n: 1 });
    hand.passes("resolution");
    let (mut hand, op) = asked(2);
    hand.applied(0, Some(op), purge(), Applied::Removed { n: 1 });
    hand.flagged("resolution", "the outcome is Removed { n: 1 }");
    let (mut hand, op) = asked(1);
    hand.applied(0, Some(op), Command::Delete { q: orders() }, Applied::Removed { n: 1 });
    hand.flagged("resolution", "expected the log to hold what was asked");
    let (mut hand, _) = asked(1);
    hand.applied(0, None, Command::Tick, Applied::Ticked { n: 0, more: false });
    hand.flagged("resolution", "to hold it at 1.0");
    // What is unknown may have happened, but not before it was asked.
    let unknown = |floor: u64| {
        let mut hand = Hand::new();
        hand.index = floor;
        hand.enqueue(0, 10, 1);
        let op = hand.raw(20, 30, Call::Purge { q: orders() }, Some(What::Info(Refusal::new("DEADLINE"))));
        hand.applied(0, None, Command::Tick, Applied::Ticked { n: 0, more: false });
        hand.applied(0, Some(op), purge(), Applied::Removed { n: 1 });
        hand.found("resolution").into_iter().filter(|text| text.contains("told before it began")).count()
    };
    assert_eq!((unknown(0), unknown(8)), (0, 1));
}

#[test]
fn replay() {
    let begin = || {
        let mut hand = Hand::new();
        hand.audit.clear();
        hand.applied(0, None, Command::Init, Applied::Initialized { first: true });
        // The first entry of a term moves cluster time alone.
        let c = Command::Commit {
            s: vec![],
            c: vec![],
            t: vec![],
            e: vec![EnqueuePart { q: orders(), m: message(1) }],
            atomic: false,
            auto: true,
        };
        let e = vec![EnqueueOutcome::In { id: id(1), seq: 1, at: EPOCH, dup: false }];
        hand.applied(0, None, c, Applied::Committed { s: vec![], c: vec![], t: vec![], e });
        hand
    };
    let mut hand = begin();
    hand.granted(10, 1, 1, 100);
    hand.settled(20, 100, Verdict::Ack, SettleOutcome::Acked);
    hand.passes("replay");
    let mut hand = begin();
    hand.granted(10, 1, 2, 100);
    hand.flagged("replay", "rule: a lease is granted as asked");
    let mut hand = begin();
    hand.applied(
        10,
        None,
        Command::Receive { q: orders(), then: vec![], max: 1, bytes: 0, lease: 0, auto: false },
        Applied::Granted { g: vec![] },
    );
    hand.flagged("replay", "a receive gives what is ready");
    let mut hand = begin();
    hand.granted(10, 1, 1, 100);
    hand.settled(20, 100, Verdict::Retry { d: None }, SettleOutcome::Delayed { due: EPOCH + 20 + 2_001 });
    hand.flagged("replay", "expected it to wait 0..=2000 ms");
    let mut hand = begin();
    hand.applied(10, None, Command::Tick, Applied::Ticked { n: 1, more: false });
    hand.flagged("replay", "what is due becomes ready");
}

#[test]
fn early() {
    let delayed = |t: u64, due: u64| {
        let mut hand = Hand::new();
        let m = NewMessage { d: 1_000, ..message(1) };
        let e = vec![EnqueueOutcome::In { id: id(1), seq: 1, at: due, dup: false }];
        hand.ok(0, 10, Call::Enqueue { q: orders(), m: vec![m], all: false }, Answer::Enqueued { e });
        hand.receive(t, t + 10, delivery(1, 1, 100));
        hand
    };
    delayed(1_000, EPOCH + 1_000).passes("I12 ");
    delayed(500, EPOCH).flagged("I12 ", "too early");
    delayed(1_000, EPOCH + 1_001).flagged("I12 ", "expected it from 1001001 on");
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.settle(40, 50, 100, Verdict::Retry { d: Some(2_000) }, SettleOutcome::Delayed { due: EPOCH + 2_040 });
    hand.receive(1_000, 1_010, delivery(1, 2, 101));
    hand.flagged("I12 ", "had put off by 2000 ms");
    // As a dead letter it is ready at once, and waits from then on.
    let why = DeadLetter { q: orders(), why: "expired".into(), rc: 1, f: 1 };
    let buried = |rc: u32, tok: u128| Delivery { dead: Some(why.clone()), ..delivery(1, rc, tok) };
    let again = |t: u64| {
        let mut hand = Hand::new();
        hand.enqueue(0, 10, 1);
        hand.receive(20, 30, delivery(1, 1, 100));
        hand.settle(40, 50, 100, Verdict::Retry { d: Some(2_000) }, SettleOutcome::Delayed { due: EPOCH + 2_040 });
        hand.receive(1_000, 1_010, buried(1, 101));
        hand.settle(
            1_020,
            1_030,
            101,
            Verdict::Retry { d: Some(2_000) },
            SettleOutcome::Delayed { due: EPOCH + 3_020 },
        );
        hand.receive(t, t + 10, buried(2, 102));
        hand
    };
    again(3_020).passes("I12 ");
    again(2_000).flagged("I12 ", "had put off by 2000 ms");
}

#[test]
fn commits() {
    let commit = |outcome: SettleOutcome| {
        let mut hand = Hand::new();
        hand.enqueue(0, 10, 1);
        hand.receive(20, 30, delivery(1, 1, 100));
        let e = vec![EnqueuePart { q: orders(), m: message(2) }];
        let call = Call::Commit { s: vec![settle(100, Verdict::Ack)], c: vec![], t: vec![], e, alone: false };
        hand.ok(40, 50, call, Answer::Committed { s: vec![outcome], c: vec![], t: vec![], e: vec![taken_in(2)] });
        hand.receive(60, 70, delivery(2, 1, 102));
        hand
    };
    commit(SettleOutcome::Acked).passes("I15 ");
    commit(SettleOutcome::No(Refusal::new("LEASE_LOST"))).flagged("I15 ", "expected every part to have taken effect");
    // A child is there, and its parent comes again.
    let mut hand = commit(SettleOutcome::Acked);
    hand.receive(6_000, 6_010, delivery(1, 2, 103));
    hand.flagged("I15 ", "a child without the ack");
    // Half of it in the log.
    let half = |s: SettleOutcome| {
        let mut hand = Hand::new();
        let c = Command::Commit {
            s: vec![settle(100, Verdict::Ack)],
            c: vec![],
            t: vec![],
            e: vec![EnqueuePart { q: orders(), m: message(2) }],
            atomic: true,
            auto: true,
        };
        hand.applied(0, None, c, Applied::Committed { s: vec![s], c: vec![], t: vec![], e: vec![taken_in(2)] });
        hand
    };
    half(SettleOutcome::Acked).passes("I15 ");
    half(SettleOutcome::No(Refusal::new("LEASE_LOST"))).flagged("I15 ", "expected all parts or none");
}

#[test]
fn conservation() {
    let look = |stats: Stats| {
        let mut hand = Hand::new();
        hand.ok(0, 10, Call::Stats { q: orders() }, Answer::Stats(Some(stats)));
        hand
    };
    look(Stats { enqueued: 3, moved_in: 1, ready: 1, acked: 2, moved_out: 1, ..Stats::default() }).passes("I18 ");
    look(Stats { enqueued: 3, ready: 1, acked: 1, ..Stats::default() })
        .flagged("I18 ", "3 came, 1 are there and 1 have left");
}

#[test]
fn reads() {
    let look = |enqueued: u64| {
        let mut hand = lawful();
        let stats = Stats { enqueued, acked: enqueued, ..Stats::default() };
        hand.ok(100, 110, Call::Stats { q: orders() }, Answer::Stats(Some(stats)));
        hand
    };
    look(1).passes("I19 ");
    look(0).flagged("I19 ", "expected 1 to 1 messages ever enqueued");
    look(2).flagged("I19 ", "expected 1 to 1 messages ever enqueued");
    // Exact: what a look at a message may see, by the log.
    let get = |seen: Option<MessageState>| {
        let mut hand = Hand::new();
        hand.applied(0, None, Command::Init, Applied::Initialized { first: true });
        let c = Command::Commit {
            s: vec![],
            c: vec![],
            t: vec![],
            e: vec![EnqueuePart { q: orders(), m: message(1) }],
            atomic: false,
            auto: true,
        };
        let e = vec![EnqueueOutcome::In { id: id(1), seq: 1, at: EPOCH, dup: false }];
        hand.applied(0, None, c, Applied::Committed { s: vec![], c: vec![], t: vec![], e });
        hand.index = 1;
        hand.ok(
            0,
            10,
            Call::Enqueue { q: orders(), m: vec![message(1)], all: false },
            Answer::Enqueued { e: vec![taken_in(1)] },
        );
        let info = seen.map(|state| Info { v: 1, h: hash(1), q: orders(), seq: 1, state, rc: 0, f: 0, line: 0, x: 0 });
        hand.ok(20, 30, Call::Get { id: id(1) }, Answer::Got(info));
        hand
    };
    get(Some(MessageState::Ready)).passes("I19 ");
    get(Some(MessageState::Leased)).flagged("I19 ", "but the queue never was so");
    get(None).flagged("I19 ", "but the queue never was so");
}

#[test]
fn replicas() {
    let chains = |other: u64| {
        let mut hand = lawful();
        let line = |hash: u64| vec![ChainLine { index: 256, hash: Hash(hash) }];
        hand.chains = vec![("chain-1.jsonl".into(), line(5)), ("chain-2.jsonl".into(), line(other))];
        hand
    };
    chains(5).passes("I20 ");
    chains(6).flagged("I20 ", "one hash at index 256");
    let mut hand = lawful();
    hand.enqueue(100, 110, 2);
    hand.told().node = 9;
    hand.flagged("I20 ", "two leaders in term 1");
}

#[test]
fn liveness() {
    let healed = |until: u64| {
        let mut hand = lawful();
        hand.meta.healed_at = Some(100 * 1_000_000);
        hand.meta.expect.heal_ms = Some(1_000);
        hand.enqueue(200, until, 2);
        hand
    };
    healed(900).passes("I21 ");
    healed(1_500).flagged("I21 ", "no enqueue that began then succeeded");
    let mut hand = Hand::new();
    hand.applied(0, None, Command::Init, Applied::Initialized { first: true });
    let c = Command::Commit {
        s: vec![],
        c: vec![],
        t: vec![],
        e: vec![EnqueuePart { q: orders(), m: message(1) }],
        atomic: false,
        auto: true,
    };
    let e = vec![EnqueueOutcome::In { id: id(1), seq: 1, at: EPOCH, dup: false }];
    hand.applied(0, None, c, Applied::Committed { s: vec![], c: vec![], t: vec![], e });
    hand.granted(10, 1, 1, 100);
    for lc in [9_000, 18_000] {
        hand.applied(lc, None, Command::Tick, Applied::Ticked { n: 0, more: false });
    }
    hand.flagged("I21 ", "its lease has been over");
}

#[test]
fn clock() {
    lawful().passes("clock");
    let mut hand = lawful();
    hand.enqueue(100, 110, 2);
    hand.told().ts = EPOCH + 400;
    hand.flagged("clock", "further apart than they may be");
    let mut hand = lawful();
    hand.enqueue(85, 100, 2);
    hand.told().ts = EPOCH + 79;
    hand.flagged("clock", "goes back along the log");
    let mut hand = Hand::new();
    hand.applied(100, None, Command::Tick, Applied::Ticked { n: 0, more: false });
    hand.applied(50, None, Command::Tick, Applied::Ticked { n: 0, more: false });
    hand.flagged("clock", "the clocks go back");
}

#[test]
fn vacuous_runs_are_invalid() {
    Hand::new().invalid("no operation succeeded");
    let mut hand = lawful();
    hand.meta.expect = Expect { ok: [(Kind::Enqueue, 100)].into(), ..Expect::default() };
    hand.invalid("expected 100 or more enqueue operations to succeed, but 1 did");
    let fault = |phase: Phase, t: u64| NemesisLine {
        t,
        fault: "kill".into(),
        target: "node 1".into(),
        phase,
        detail: String::new(),
    };
    let mut hand = lawful();
    hand.nemesis = vec![fault(Phase::Begin, 0), fault(Phase::End, 10)];
    hand.invalid("never seen to take effect");
    let mut hand = lawful();
    hand.nemesis = vec![fault(Phase::Begin, 0), fault(Phase::Effect, 5), fault(Phase::End, 10)];
    hand.meta.expect.faults = [("kill".to_owned(), 2)].into();
    hand.invalid("expected the fault kill 2 times");
    let mut hand = lawful();
    hand.meta.expect.success = 0.99;
    hand.raw(100, 110, receive(), Some(What::Info(Refusal::new("DEADLINE"))));
    hand.invalid("only 83.3 % did");
}
