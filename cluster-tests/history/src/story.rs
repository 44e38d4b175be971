//! A history in memory, packed: tens of millions of operations fit into a few gigabytes.

mod rows;

use std::collections::HashMap;

pub use self::rows::{
    Cancel, CancelTold, End, Extra, Got, Look, NONE, OpRow, Saw, Seen, Sent, SentTold, Settled, SettledTold, Span,
    Timed, TimedTold,
};

use crate::fast::FastMap;
use crate::format::{
    Answer, Call, CancelOutcome, Delivery, EnqueueOutcome, Event, Kind, NewTime, Position, QueueName, Refusal, Rid,
    Settings, Settle, SettleOutcome, Taken, Target, TimeOutcome, Token, Told, What,
};

/// A history.
#[derive(Debug, Default)]
pub struct Story {
    /// The operations, in the order in which they began.
    pub ops: Vec<OpRow>,
    /// The messages to enqueue.
    pub sent: Vec<Sent>,
    /// The leases to settle.
    pub settles: Vec<Settled>,
    /// The deliveries.
    pub got: Vec<Got>,
    /// What was told of dead letters.
    pub dead: Vec<crate::format::DeadLetter>,
    /// Looks that were answered.
    pub looks: Vec<Look>,
    /// What few operations have.
    pub extras: Vec<Extra>,
    /// The messages to cancel.
    pub cancels: Vec<Cancel>,
    /// The messages to reschedule.
    pub times: Vec<Timed>,
    /// Settings given to queues, by the operation's place.
    pub settings: Vec<(u32, Settings)>,
    /// Defaults given to namespaces.
    pub namespaces: Vec<(String, Settings)>,
    /// The operations that ended with an answer, in that order.
    pub ended: Vec<u32>,
    /// The time of the last event, in nanoseconds.
    pub last: u64,
    /// Answers that do not fit what was asked.
    pub misfits: Vec<String>,
    queues: Names<QueueName>,
    refusals: Names<Refusal>,
    open: FastMap<u64, u32>,
    floor: Position,
    events: u64,
}

/// Texts by number.
#[derive(Debug)]
struct Names<T> {
    list: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { list: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Names<T> {
    fn number(&mut self, name: &T) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = count(self.list.len());
        self.list.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }
}

/// A count as it is stored.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A history that makes no sense, whatever the server did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at event {event}, but {found}")]
pub struct StoryError {
    event: u64,
    expected: &'static str,
    found: String,
}

impl Story {
    /// Reads a history from its events.
    pub fn read<E: From<StoryError>>(events: impl Iterator<Item = Result<Event, E>>) -> Result<Self, E> {
        let mut story = Self::default();
        for event in events {
            story.push(event?)?;
        }
        story.finish();
        Ok(story)
    }

    /// A queue's name.
    pub fn queue(&self, number: u32) -> String {
        self.queues.list.get(number as usize).map_or_else(|| "?".to_owned(), ToString::to_string)
    }

    /// A queue's name, to look it up elsewhere.
    pub fn queue_name(&self, number: u32) -> Option<&QueueName> {
        self.queues.list.get(number as usize)
    }

    /// The number of a queue that some call names.
    pub fn queue_number(&self, name: &QueueName) -> Option<u32> {
        self.queues.numbers.get(name).copied()
    }

    /// A refusal.
    pub fn refusal(&self, number: u32) -> Option<&Refusal> {
        self.refusals.list.get(number as usize)
    }

    /// The queues that some call names, by their numbers.
    pub fn queues(&self) -> impl Iterator<Item = (u32, &QueueName)> {
        (0u32..).zip(&self.queues.list)
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn push(&mut self, event: Event) -> Result<(), StoryError> {
        let error = |expected, found: String| Err(StoryError { event: event.i, expected, found });
        if event.i != self.events {
            return error("the events' numbers to follow each other", format!("number {} is next", self.events));
        }
        if event.t < self.last {
            return error("times that never go back", format!("{} comes after {}", event.t, self.last));
        }
        self.events += 1;
        self.last = event.t;
        match event.what {
            What::Invoke { rid, call } => {
                let row = self.invoke(event.t, event.p, event.op.0, rid, call);
                let at = count(self.ops.len());
                if self.open.insert(event.op.0, at).is_some() {
                    return error("an operation to begin once", format!("{} is under way", event.op.0));
                }
                self.ops.push(row);
            }
            What::Ok(told) => {
                let at = self.end(event.i, event.t, event.op.0, End::Ok)?;
                self.ok(at, told);
            }
            What::Fail(refusal) => {
                let at = self.end(event.i, event.t, event.op.0, End::Fail)?;
                let refusal = self.refused(refusal);
                self.row(at).refusal = refusal;
            }
            What::Info(refusal) => {
                let at = self.end(event.i, event.t, event.op.0, End::Info)?;
                let refusal = self.refused(refusal);
                let row = self.row(at);
                row.refusal = refusal;
                // It may still happen later.
                row.t1 = u64::MAX;
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.open = FastMap::default();
    }

    /// Texts for people are left out: they differ each time.
    fn refused(&mut self, refusal: Refusal) -> u32 {
        self.refusals.number(&Refusal { text: String::new(), ..refusal })
    }

    fn row(&mut self, at: u32) -> &mut OpRow {
        &mut self.ops[at as usize]
    }

    fn end(&mut self, event: u64, t: u64, op: u64, end: End) -> Result<u32, StoryError> {
        let Some(at) = self.open.remove(&op) else {
            let found = format!("operation {op} is not under way");
            return Err(StoryError { event, expected: "the end of an operation that began", found });
        };
        let row = self.row(at);
        row.t1 = t;
        row.end = end;
        Ok(at)
    }

    fn invoke(&mut self, t0: u64, p: u32, op: u64, rid: Option<Rid>, call: Call) -> OpRow {
        let at = count(self.ops.len());
        let mut row = OpRow {
            op,
            t0,
            t1: u64::MAX,
            session: rid.map_or(0, |rid| rid.session),
            seq: rid.map_or(0, |rid| rid.seq),
            has_rid: rid.is_some(),
            is_free: rid.is_some_and(|rid| rid.free),
            cp_index: 0,
            cp_ordinal: 0,
            floor_ordinal: self.floor.ordinal,
            floor_index: self.floor.index,
            ts: 0,
            number: 0,
            argument: 0,
            node: 0,
            term: 0,
            p,
            queue: NONE,
            refusal: NONE,
            sent: Span::default(),
            settles: Span::default(),
            got: Span::default(),
            max: 0,
            extra: NONE,
            kind: call.kind(),
            end: End::Info,
            replayed: false,
        };
        match call {
            Call::Open { renew } => row.argument = renew,
            Call::Enqueue { q, m, all } => {
                if all {
                    row.extra = self.extra(Extra { turned: true, ..Extra::default() });
                }
                row.queue = self.queues.number(&q);
                let queue = row.queue;
                row.sent = Span { from: count(self.sent.len()), len: count(m.len()) };
                self.sent.extend(m.into_iter().map(|m| Sent { op: at, queue, m, told: SentTold::Nothing }));
            }
            Call::Receive { q, then, max, wait: _, lease, auto } => {
                row.queue = self.queues.number(&q);
                if auto || !then.is_empty() {
                    let then = then.iter().map(|q| self.queues.number(q)).collect();
                    row.extra = self.extra(Extra { then, auto, ..Extra::default() });
                }
                row.argument = lease;
                row.max = max;
            }
            Call::Settle { s } => row.settles = self.asked(at, s),
            Call::Cancel { c } => {
                let cancels = self.asked_cancels(at, c);
                row.extra = self.extra(Extra { cancels, ..Extra::default() });
            }
            Call::Reschedule { t } => {
                let times = self.asked_times(at, t);
                row.extra = self.extra(Extra { times, ..Extra::default() });
            }
            Call::Commit { s, c, t, e, alone } => {
                row.settles = self.asked(at, s);
                if alone || !c.is_empty() || !t.is_empty() {
                    let (cancels, times) = (self.asked_cancels(at, c), self.asked_times(at, t));
                    row.extra = self.extra(Extra { cancels, times, turned: alone, ..Extra::default() });
                }
                row.sent = Span { from: count(self.sent.len()), len: count(e.len()) };
                for part in e {
                    let queue = self.queues.number(&part.q);
                    self.sent.push(Sent { op: at, queue, m: part.m, told: SentTold::Nothing });
                }
            }
            Call::Stats { q }
            | Call::Resume { q }
            | Call::Close { q }
            | Call::Reopen { q }
            | Call::Purge { q }
            | Call::Delete { q } => row.queue = self.queues.number(&q),
            Call::Get { id } => self.looks.push(Look { op: at, saw: Saw::Message(Target::Id(id), Seen::Nothing) }),
            Call::Find { q, dd } => {
                row.queue = self.queues.number(&q);
                let saw = Saw::Message(Target::Dedup { q, dd }, Seen::Nothing);
                self.looks.push(Look { op: at, saw });
            }
            Call::SetNamespace { ns, set, auto: _ } => self.namespaces.push((ns, set)),
            Call::DeleteNamespace { .. } => {}
            Call::Create { q, set } | Call::Update { q, set } => {
                row.queue = self.queues.number(&q);
                self.settings.push((at, set));
            }
            Call::Pause { q, until } => {
                row.queue = self.queues.number(&q);
                row.argument = until;
            }
        }
        row
    }

    fn extra(&mut self, extra: Extra) -> u32 {
        self.extras.push(extra);
        count(self.extras.len() - 1)
    }

    fn asked_cancels(&mut self, op: u32, c: Vec<Target>) -> Span {
        let span = Span { from: count(self.cancels.len()), len: count(c.len()) };
        self.cancels.extend(c.into_iter().map(|target| Cancel { op, target, told: CancelTold::Nothing }));
        span
    }

    fn asked_times(&mut self, op: u32, t: Vec<NewTime>) -> Span {
        let span = Span { from: count(self.times.len()), len: count(t.len()) };
        self.times.extend(t.into_iter().map(|time| Timed { op, time, told: TimedTold::Nothing }));
        span
    }

    fn asked(&mut self, op: u32, s: Vec<Settle>) -> Span {
        let span = Span { from: count(self.settles.len()), len: count(s.len()) };
        let row =
            |part: Settle| Settled { op, tok: part.tok, how: part.how, out: part.out, told: SettledTold::Nothing };
        self.settles.extend(s.into_iter().map(row));
        span
    }

    fn ok(&mut self, at: u32, told: Told) {
        let Told { cp, ts, node, term, replayed, answer } = told;
        self.ended.push(at);
        if let Some(cp) = cp {
            self.floor = self.floor.max(cp);
        }
        let row = self.row(at);
        (row.ts, row.replayed) = (ts, replayed);
        row.node = u32::try_from(node).unwrap_or(u32::MAX);
        row.term = u32::try_from(term).unwrap_or(u32::MAX);
        let cp = cp.unwrap_or_default();
        (row.cp_index, row.cp_ordinal) = (cp.index, cp.ordinal);
        let row = *row;
        let fits = match (row.kind, answer) {
            (Kind::Open, Answer::Session { s }) => {
                self.row(at).number = s;
                true
            }
            (Kind::Enqueue, Answer::Enqueued { e }) => self.told_sent(row.sent, e),
            (Kind::Receive, Answer::Received { d }) => {
                let fits = d.len() <= row.max as usize && !self.extra_of(&row).is_some_and(|extra| extra.auto);
                self.row(at).got = Span { from: count(self.got.len()), len: count(d.len()) };
                d.into_iter().for_each(|delivery| self.delivered(at, delivery));
                fits
            }
            (Kind::Receive, Answer::Taken { d }) => {
                let fits = d.len() <= row.max as usize && self.extra_of(&row).is_some_and(|extra| extra.auto);
                self.row(at).got = Span { from: count(self.got.len()), len: count(d.len()) };
                d.into_iter().for_each(|taken| self.taken(at, taken));
                fits
            }
            (Kind::Settle, Answer::Settled { s }) => self.told_settled(row.settles, s),
            (Kind::Cancel, Answer::Cancelled { c }) => self.told_cancels(&row, c),
            (Kind::Reschedule, Answer::Rescheduled { t }) => self.told_times(&row, t),
            (Kind::Commit, Answer::Committed { s, c, t, e }) => {
                let settled = self.told_settled(row.settles, s);
                let taken_away = self.told_cancels(&row, c);
                let moved = self.told_times(&row, t);
                self.told_sent(row.sent, e) && settled && taken_away && moved
            }
            (Kind::Stats, Answer::Stats(stats)) => {
                self.looks.push(Look { op: at, saw: Saw::Stats(stats) });
                true
            }
            (Kind::Get | Kind::Find, Answer::Got(info)) => {
                self.saw(at, info.map_or(Seen::Nothing, Seen::Here));
                true
            }
            (Kind::Get | Kind::Find, Answer::Done(done)) => {
                self.saw(at, Seen::Done(done));
                true
            }
            (
                Kind::Create
                | Kind::Update
                | Kind::Pause
                | Kind::Resume
                | Kind::Close
                | Kind::Reopen
                | Kind::SetNamespace
                | Kind::DeleteNamespace,
                Answer::Changed { q: number },
            )
            | (Kind::Purge | Kind::Delete, Answer::Removed { n: number }) => {
                self.row(at).number = number;
                true
            }
            (
                _,
                Answer::Session { .. }
                | Answer::Enqueued { .. }
                | Answer::Received { .. }
                | Answer::Taken { .. }
                | Answer::Settled { .. }
                | Answer::Cancelled { .. }
                | Answer::Rescheduled { .. }
                | Answer::Committed { .. }
                | Answer::Stats(_)
                | Answer::Got(_)
                | Answer::Done(_)
                | Answer::Changed { .. }
                | Answer::Removed { .. },
            ) => false,
        };
        if !fits {
            let text = format!("expected an answer to {} with as many results as parts", self.name(at));
            self.misfits.push(text);
        }
    }

    /// What few operations have.
    pub fn extra_of(&self, op: &OpRow) -> Option<&Extra> {
        self.extras.get(op.extra as usize)
    }

    fn saw(&mut self, at: u32, what: Seen) {
        let look = self.looks.iter_mut().rev().find(|look| look.op == at);
        if let Some(Look { saw: Saw::Message(_, seen), .. }) = look {
            *seen = what;
        }
    }

    fn told_cancels(&mut self, row: &OpRow, outcomes: Vec<CancelOutcome>) -> bool {
        let span = self.extra_of(row).map(|extra| extra.cancels).unwrap_or_default();
        let fits = outcomes.len() == span.range().len();
        for (number, outcome) in span.range().zip(outcomes) {
            self.cancels[number].told = match outcome {
                CancelOutcome::Cancelled { id } => CancelTold::Cancelled(id),
                CancelOutcome::Gone => CancelTold::Gone,
                CancelOutcome::No(refusal) => CancelTold::No(self.refused(refusal)),
            };
        }
        fits
    }

    fn told_times(&mut self, row: &OpRow, outcomes: Vec<TimeOutcome>) -> bool {
        let span = self.extra_of(row).map(|extra| extra.times).unwrap_or_default();
        let fits = outcomes.len() == span.range().len();
        for (number, outcome) in span.range().zip(outcomes) {
            self.times[number].told = match outcome {
                TimeOutcome::Moved { id, at } => TimedTold::Moved { id, at },
                TimeOutcome::No(refusal) => TimedTold::No(self.refused(refusal)),
            };
        }
        fits
    }

    fn told_sent(&mut self, span: Span, outcomes: Vec<EnqueueOutcome>) -> bool {
        let fits = outcomes.len() == span.range().len();
        for (number, outcome) in span.range().zip(outcomes) {
            self.sent[number].told = match outcome {
                EnqueueOutcome::In { id, seq, at, dup } => SentTold::In { id, seq, at, dup },
                EnqueueOutcome::No(refusal) => SentTold::No(self.refused(refusal)),
            };
        }
        fits
    }

    fn told_settled(&mut self, span: Span, outcomes: Vec<SettleOutcome>) -> bool {
        let fits = outcomes.len() == span.range().len();
        for (number, outcome) in span.range().zip(outcomes) {
            self.settles[number].told = match outcome {
                SettleOutcome::Acked => SettledTold::Acked,
                SettleOutcome::Dead { seq, q } => SettledTold::Dead { seq, q },
                SettleOutcome::Delayed { due } => SettledTold::Delayed { due },
                SettleOutcome::Readied => SettledTold::Readied,
                SettleOutcome::Extended { left } => SettledTold::Extended { left },
                SettleOutcome::Purged => SettledTold::Purged,
                SettleOutcome::Expired => SettledTold::Expired,
                SettleOutcome::Dropped => SettledTold::Dropped,
                SettleOutcome::Gone | SettleOutcome::Unseen => SettledTold::Gone,
                SettleOutcome::No(refusal) => SettledTold::No(self.refused(refusal)),
            };
        }
        fits
    }

    fn delivered(&mut self, op: u32, delivery: Delivery) {
        let Delivery { id, v, h, tok, left, rc, f, dead, q, g } = delivery;
        let number = if dead.is_some() { count(self.dead.len()) } else { NONE };
        self.dead.extend(dead);
        let queue = q.map_or(self.ops[op as usize].queue, |q| self.queues.number(&q));
        self.got.push(Got { op, dead: number, rc, f, id, v, h, tok, left, queue, taken: false, group: g });
    }

    fn taken(&mut self, op: u32, taken: Taken) {
        let Taken { id, v, h, rc, f, dead, q, g } = taken;
        let delivery = Delivery { id, v, h, tok: Token(0), left: 0, rc, f, dead, q, g };
        self.delivered(op, delivery);
        if let Some(got) = self.got.last_mut() {
            got.taken = true;
        }
    }

    /// An operation in words, for a person who looks for it: what, which, whose, when.
    pub fn name(&self, at: u32) -> String {
        let row = &self.ops[at as usize];
        let mut text = format!("the {} op {} of client {} at {}", row.kind.name(), row.op, row.p, seconds(row.t0));
        if row.queue != NONE {
            text.push_str(&format!(" on {}", self.queue(row.queue)));
        }
        if let Some(rid) = row.rid() {
            text.push_str(&format!(" (request {rid})"));
        }
        match row.end {
            End::Ok => {
                text.push_str(&format!(", which was told ok at {}", seconds(row.t1)));
                if let Some(cp) = row.cp() {
                    text.push_str(&format!(", position {cp}"));
                }
            }
            End::Fail => text.push_str(&format!(
                ", which was told no ({})",
                self.refusal(row.refusal).map_or_else(|| "?".to_owned(), ToString::to_string)
            )),
            End::Info => text.push_str(", whose outcome is unknown to it"),
        }
        text
    }
}

/// Nanoseconds since the begin, in seconds.
pub fn seconds(t: u64) -> String {
    format!("{}.{:03} s", t / 1_000_000_000, t / 1_000_000 % 1_000)
}
