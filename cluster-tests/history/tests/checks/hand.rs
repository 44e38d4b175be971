//! Histories by hand.

use ticketrail_history::case::Case;
pub(crate) use ticketrail_history::format::{
    Answer, Applied, AuditLine, Call, CancelOutcome, ChainLine, Command, DeadLetter, Delivery, EnqueueOutcome,
    EnqueuePart, Event, Expect, ExpiredLease, Grant, Hash, Info, Kind, MessageId, MessageState, Meta, More,
    NemesisLine, NewMessage, NewTime, OnGroup, Op, Phase, Position, QueueName, Refusal, Rid, Settings, Settle,
    SettleOutcome, Stats, Taken, TakenOut, Target, TimeOutcome, Token, Told, Verdict, What, fingerprint,
};
use ticketrail_history::judge::{JudgeError, Report, judge_case};
use ticketrail_history::story::Story;

/// Cluster time at the begin, in milliseconds.
pub(crate) const EPOCH: u64 = 1_000_000;

/// A history by hand. Times are milliseconds.
#[derive(Default)]
pub(crate) struct Hand {
    pub(crate) events: Vec<(u64, u32, u64, What)>,
    pub(crate) audit: Vec<AuditLine>,
    pub(crate) meta: Meta,
    pub(crate) nemesis: Vec<NemesisLine>,
    pub(crate) chains: Vec<(String, Vec<ChainLine>)>,
    pub(crate) ops: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

pub(crate) fn orders() -> QueueName {
    QueueName::new("", "orders")
}

pub(crate) fn id(v: u64) -> MessageId {
    MessageId { group: 1, queue: 1, held: false, priority: 4, sequence: v }
}

pub(crate) fn hash(v: u64) -> Hash {
    fingerprint(&v.to_be_bytes())
}

pub(crate) fn message(v: u64) -> NewMessage {
    NewMessage::plain(v, hash(v), 10)
}

pub(crate) fn taken_in(v: u64) -> EnqueueOutcome {
    EnqueueOutcome::In { id: id(v), seq: v, at: 0, dup: false }
}

pub(crate) fn delivery(v: u64, rc: u32, tok: u128) -> Delivery {
    Delivery { id: id(v), v, h: hash(v), tok: Token(tok), left: 5_000, rc, f: 0, dead: None, q: None, g: None }
}

pub(crate) fn settle(tok: u128, how: Verdict) -> Settle {
    Settle { tok: Token(tok), how, out: None }
}

pub(crate) fn receive() -> Call {
    Call::Receive { q: orders(), then: vec![], max: 10, wait: 0, lease: 5_000, auto: false }
}

impl Hand {
    pub(crate) fn new() -> Self {
        let meta = Meta { drift_ppm: 1_000, ..Meta::default() };
        Self { meta, term: 1, ..Self::default() }
    }

    pub(crate) fn raw(&mut self, t0: u64, t1: u64, call: Call, end: Option<What>) -> u64 {
        let op = self.ops;
        self.ops += 1;
        let rid = (!call.kind().is_read()).then_some(Rid::of(1_024, op + 1));
        self.events.push((t0, 1, op, What::Invoke { rid, call }));
        self.events.extend(end.map(|end| (t1, 1, op, end)));
        op
    }

    /// An operation that was answered.
    pub(crate) fn ok(&mut self, t0: u64, t1: u64, call: Call, answer: Answer) -> u64 {
        let read = call.kind().is_read();
        self.index += 1;
        let cp = (!read).then_some(Position { index: self.index, ordinal: 0 });
        let ts = if read { 0 } else { EPOCH + t0 };
        let told = Told { cp, ts, node: self.term, term: self.term, replayed: false, answer };
        self.raw(t0, t1, call, Some(What::Ok(told)))
    }

    /// The last answer, to be changed.
    pub(crate) fn told(&mut self) -> &mut Told {
        match self.events.last_mut() {
            Some((_, _, _, What::Ok(told))) => told,
            other => panic!("expected an answer, but got {other:?}"),
        }
    }

    pub(crate) fn enqueue(&mut self, t0: u64, t1: u64, v: u64) {
        self.put(t0, t1, message(v), taken_in(v));
    }

    /// An enqueue of one message.
    pub(crate) fn put(&mut self, t0: u64, t1: u64, m: NewMessage, outcome: EnqueueOutcome) {
        let call = Call::Enqueue { q: orders(), m: vec![m], all: false };
        self.ok(t0, t1, call, Answer::Enqueued { e: vec![outcome] });
    }

    pub(crate) fn receive(&mut self, t0: u64, t1: u64, d: Delivery) {
        self.ok(t0, t1, receive(), Answer::Received { d: vec![d] });
    }

    pub(crate) fn settle(&mut self, t0: u64, t1: u64, tok: u128, how: Verdict, outcome: SettleOutcome) {
        self.ok(t0, t1, Call::Settle { s: vec![settle(tok, how)] }, Answer::Settled { s: vec![outcome] });
    }

    /// An applied request, at a lease clock.
    pub(crate) fn applied(&mut self, lc: u64, rid: Option<u64>, c: Command, r: Applied) {
        let cp = Position { index: self.audit.last().map_or(1, |line| line.cp.index + 1), ordinal: 0 };
        let rid = rid.map(|op| Rid::of(1_024, op + 1));
        let (ts, st) = (EPOCH + lc, EPOCH + lc);
        self.audit.push(AuditLine { cp, term: self.term, st, ts, lc, rid, ab: 0, c, r, replay: None });
    }

    pub(crate) fn granted(&mut self, lc: u64, seq: u64, rc: u32, tok: u128) {
        let g = vec![Grant { q: 1, seq, tok: Some((id(seq), Token(tok))), rc, f: 0, end: lc + 5_000 }];
        self.applied(
            lc,
            None,
            Command::Receive { q: orders(), then: vec![], max: 10, bytes: 0, lease: 5_000, auto: false },
            Applied::Granted { g },
        );
    }

    pub(crate) fn settled(&mut self, lc: u64, tok: u128, how: Verdict, outcome: SettleOutcome) {
        let c =
            Command::Commit { s: vec![settle(tok, how)], c: vec![], t: vec![], e: vec![], atomic: false, auto: false };
        self.applied(lc, None, c, Applied::Committed { s: vec![outcome], c: vec![], t: vec![], e: vec![] });
    }

    /// An enqueue in the log.
    pub(crate) fn entered(&mut self, lc: u64, m: NewMessage, outcome: EnqueueOutcome) {
        let e = vec![EnqueuePart { q: orders(), m }];
        let c = Command::Commit { s: vec![], c: vec![], t: vec![], e, atomic: false, auto: true };
        self.applied(lc, None, c, Applied::Committed { s: vec![], c: vec![], t: vec![], e: vec![outcome] });
    }

    /// A cancel in the log.
    pub(crate) fn cancelled(&mut self, lc: u64, target: Target, outcome: CancelOutcome) {
        let c = Command::Commit { s: vec![], c: vec![target], t: vec![], e: vec![], atomic: false, auto: false };
        self.applied(lc, None, c, Applied::Committed { s: vec![], c: vec![outcome], t: vec![], e: vec![] });
    }

    /// A reschedule in the log.
    pub(crate) fn moved(&mut self, lc: u64, target: Target, outcome: TimeOutcome) {
        let t = vec![NewTime { of: target, d: 1_000, at: 0 }];
        let c = Command::Commit { s: vec![], c: vec![], t, e: vec![], atomic: false, auto: false };
        self.applied(lc, None, c, Applied::Committed { s: vec![], c: vec![], t: vec![outcome], e: vec![] });
    }

    pub(crate) fn report(mut self) -> Report {
        self.events.sort_by_key(|(t, _, _, what)| (*t, matches!(what, What::Invoke { .. })));
        let numbered = (0u64..).zip(self.events);
        let events = numbered.map(|(i, (t, p, op, what))| Event { i, t: t * 1_000_000, p, op: Op(op), what });
        let story = Story::read(events.map(Ok::<_, JudgeError>)).unwrap();
        let case = Case::new(story, self.meta, self.nemesis, self.chains);
        judge_case(&case, self.audit.into_iter().map(Ok::<_, JudgeError>)).unwrap()
    }

    /// The violations that a check finds.
    pub(crate) fn found(self, check: &str) -> Vec<String> {
        let report = self.report();
        let (_, findings) =
            report.checks.iter().find(|(name, _)| name.starts_with(check)).expect("a check of this name");
        findings.violations.clone()
    }

    pub(crate) fn passes(self, check: &str) {
        let found = self.found(check);
        assert!(found.is_empty(), "expected {check} to find nothing, but it found {found:#?}");
    }

    pub(crate) fn flagged(self, check: &str, words: &str) {
        let found = self.found(check);
        assert!(
            found.iter().any(|text| text.contains(words)),
            "expected {check} to say {words:?}, but it says {found:#?}"
        );
    }

    pub(crate) fn invalid(self, words: &str) {
        let report = self.report();
        let texts: Vec<&String> = report.checks.iter().flat_map(|(_, findings)| &findings.invalid).collect();
        assert!(texts.iter().any(|text| text.contains(words)), "expected {words:?}, but got {texts:#?}");
    }
}

/// A message's life as it should be: received, given back, received again, acked.
pub(crate) fn lawful() -> Hand {
    let mut hand = Hand::new();
    hand.enqueue(0, 10, 1);
    hand.receive(20, 30, delivery(1, 1, 100));
    hand.settle(40, 50, 100, Verdict::Release, SettleOutcome::Readied);
    hand.receive(60, 70, delivery(1, 2, 101));
    hand.settle(80, 90, 101, Verdict::Ack, SettleOutcome::Acked);
    hand
}
