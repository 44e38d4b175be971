//! A history in memory, packed: tens of millions of operations fit into a few gigabytes.

use std::collections::HashMap;

use crate::fast::FastMap;
use crate::format::{
    Answer, Call, CancelOutcome, Delivery, Done, EnqueueOutcome, Event, Info, Kind, MessageId, NewMessage, NewTime,
    Output, Position, QueueName, Refusal, Rid, Settings, Settle, SettleOutcome, Stats, Taken, Target, TimeOutcome,
    Token, Told, Verdict, What,
};

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It was told that it happened.
    Ok,
    /// It was told that nothing happened.
    Fail,
    /// It does not know, or was not told when the history ended.
    Info,
}

/// Part of a list that belongs to an operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    from: u32,
    len: u32,
}

impl Span {
    /// The numbers of the elements.
    pub fn range(self) -> std::ops::Range<usize> {
        self.from as usize..self.from as usize + self.len as usize
    }
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub struct OpRow {
    /// Its number.
    pub op: u64,
    /// When it began, in nanoseconds.
    pub t0: u64,
    /// When it ended; `u64::MAX` where it did not.
    pub t1: u64,
    session: u64,
    seq: u64,
    has_rid: bool,
    is_free: bool,
    cp_index: u64,
    cp_ordinal: u32,
    floor_ordinal: u32,
    floor_index: u64,
    /// Cluster time that it was told.
    pub ts: u64,
    /// What it was told beside lists: a session, a queue's id, messages removed.
    pub number: u64,
    /// A receive's lease in milliseconds, 0 for the queue's; the session that is renewed; a pause's end.
    pub argument: u64,
    /// The node that answered; 0: unknown.
    pub node: u32,
    /// Its term; 0: unknown.
    pub term: u32,
    /// The client.
    pub p: u32,
    /// The queue, where it names one.
    pub queue: u32,
    /// Why it failed, or is unknown.
    pub refusal: u32,
    /// The messages it enqueues.
    pub sent: Span,
    /// The leases it settles.
    pub settles: Span,
    /// The messages it got.
    pub got: Span,
    /// A receive's most messages.
    pub max: u32,
    /// Its place in [`Story::extras`], where it has more to it.
    pub extra: u32,
    /// What it asks.
    pub kind: Kind,
    /// How it ended.
    pub end: End,
    /// Whether it was told of an earlier outcome.
    pub replayed: bool,
}

/// No queue, no refusal.
pub const NONE: u32 = u32::MAX;

impl OpRow {
    /// Its request id.
    pub fn rid(&self) -> Option<Rid> {
        self.has_rid.then_some(Rid { session: self.session, seq: self.seq, free: self.is_free })
    }

    /// Where it stands in the log, as it was told.
    pub fn cp(&self) -> Option<Position> {
        (self.cp_index != 0).then_some(Position { index: self.cp_index, ordinal: self.cp_ordinal })
    }

    /// The highest position that any operation was told of before this one began.
    pub fn floor(&self) -> Position {
        Position { index: self.floor_index, ordinal: self.floor_ordinal }
    }

    /// Whether it was told that it happened.
    pub fn is_ok(&self) -> bool {
        self.end == End::Ok
    }
}

/// What few operations have.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    /// The messages it cancels.
    pub cancels: Span,
    /// The messages it reschedules.
    pub times: Span,
    /// A receive's further queues.
    pub then: Vec<u32>,
    /// Whether a receive takes its messages at most once.
    pub auto: bool,
    /// Of an enqueue, whether all or nothing; of a commit, whether each part stands alone.
    pub turned: bool,
}

/// A message to cancel, and what became of it.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The message.
    pub target: Target,
    /// What was told.
    pub told: CancelTold,
}

/// What a client was told of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelTold {
    /// Nothing of it alone.
    Nothing,
    /// The message with this id is gone.
    Cancelled(MessageId),
    /// There was none.
    Gone,
    /// It was refused.
    No(u32),
}

/// A message to reschedule, and what became of it.
#[derive(Debug, Clone)]
pub struct Timed {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The message and its time.
    pub time: NewTime,
    /// What was told.
    pub told: TimedTold,
}

/// What a client was told of a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedTold {
    /// Nothing of it alone.
    Nothing,
    /// It has its new time.
    Moved {
        /// The message's id.
        id: MessageId,
        /// When it is ready.
        at: u64,
    },
    /// It was refused.
    No(u32),
}

/// A message to enqueue, and what became of it.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The queue.
    pub queue: u32,
    /// The message.
    pub m: NewMessage,
    /// What it was told.
    pub told: SentTold,
}

/// What a client was told of a message to enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentTold {
    /// Nothing of it alone.
    Nothing,
    /// It is in.
    In {
        /// Its id.
        id: MessageId,
        /// Its sequence.
        seq: u64,
        /// When it is ready.
        at: u64,
        /// Whether it was there before, under its dedup id.
        dup: bool,
    },
    /// It was refused.
    No(u32),
}

impl SentTold {
    /// The id of the message that was added.
    pub fn added(self) -> Option<MessageId> {
        match self {
            SentTold::In { id, dup: false, .. } => Some(id),
            SentTold::In { .. } | SentTold::Nothing | SentTold::No(_) => None,
        }
    }
}

/// A lease to settle, and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The token.
    pub tok: Token,
    /// What was asked.
    pub how: Verdict,
    /// What came of it, of an ack.
    pub out: Option<Output>,
    /// What was told.
    pub told: SettledTold,
}

/// What a client was told of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SettledTold {
    /// Nothing of it alone.
    Nothing,
    Acked,
    Dead {
        seq: u64,
        q: u64,
    },
    Delayed {
        due: u64,
    },
    Readied,
    Extended {
        left: u64,
    },
    Purged,
    Expired,
    Dropped,
    /// The message is gone, and nobody said why.
    Gone,
    /// It was refused.
    No(u32),
}

impl SettledTold {
    /// Whether it took effect, as it was told.
    pub fn took_effect(self) -> bool {
        !matches!(self, SettledTold::Nothing | SettledTold::No(_))
    }
}

/// A delivery.
#[derive(Debug, Clone)]
pub struct Got {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// Its place in [`Story::dead`], if it is a dead letter.
    pub dead: u32,
    /// Leases granted.
    pub rc: u32,
    /// Failures.
    pub f: u32,
    /// The message's id.
    pub id: MessageId,
    /// The value of its body.
    pub v: u64,
    /// The hash of its body.
    pub h: crate::format::Hash,
    /// The lease's token.
    pub tok: Token,
    /// What was left of the lease, in milliseconds.
    pub left: u64,
    /// The queue it came from.
    pub queue: u32,
    /// Whether it was acked as it was received: there was no lease.
    pub taken: bool,
    /// Its group.
    pub group: Option<Box<str>>,
}

/// A look at a message or a queue.
#[derive(Debug, Clone)]
pub struct Look {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// What was seen.
    pub saw: Saw,
}

/// What a look saw.
#[derive(Debug, Clone)]
pub enum Saw {
    /// A queue.
    Stats(Option<Stats>),
    /// A message.
    Message(Target, Seen),
}

/// What a look at a message saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// No such message.
    Nothing,
    /// The message.
    Here(Info),
    /// What came of it.
    Done(Done),
}

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
            Call::SetNamespace { .. } | Call::DeleteNamespace { .. } => {}
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
