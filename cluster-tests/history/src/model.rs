//! The reference model: queues as `docs` and SEMANTICS tell of them, sequential and naive, sharing no code with the
//! product. It is shown each applied request in the order of the log and says what must come of it. Only what the log
//! alone cannot tell is taken from the outcome, after a look whether it is lawful: the jitter of a backoff (within its
//! ceiling), the ids of queues and sessions (never used before), and lease tokens (never seen before).
//!
//! Which messages a receive gives, and in which order, is compared exactly.

mod commit;
mod enqueue;
mod failure;
mod forward;
mod queue;
mod receive;
mod session;
mod settings;
mod timers;

use std::collections::{BTreeMap, BTreeSet};

use crate::fast::FastMap;
use crate::format::{
    Applied, AuditLine, Command, Info, MessageId, MessageState, Position, QueueName, Refusal, Stats, Token,
};

pub(crate) use session::has_effect;

use queue::{Queue, State};
use session::{Admission, Sessions};
use timers::{Timer, Timers};

/// Cluster time that an entry of the same term may add, in milliseconds.
const CLOCK_STEP: u64 = 10_000;
/// Queues at one time.
const QUEUES: usize = 100_000;

/// What went otherwise than the model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The rule.
    pub rule: &'static str,
    /// Expected what, but what.
    pub text: String,
}

/// Why the model cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The outcome is wrong.
    Wrong(Mismatch),
    /// What happened depends on something that the log does not tell.
    Unsure(String),
}

/// A step of the model.
pub(crate) type Step<T = ()> = Result<T, Stop>;

/// The outcome is wrong.
pub(crate) fn wrong<T>(rule: &'static str, text: impl Into<String>) -> Step<T> {
    Err(Stop::Wrong(Mismatch { rule, text: text.into() }))
}

/// Compares what must come with what came.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(rule: &'static str, what: &str, expected: T, got: T) -> Step {
    if expected == got {
        return Ok(());
    }
    wrong(rule, format!("expected {what} to be {expected:?}, but it is {got:?}"))
}

/// How many parts, leases or timers an outcome is of.
fn done(outcome: &Applied) -> usize {
    match outcome {
        Applied::Committed { s, e } => s.len() + e.len(),
        Applied::Granted { g } => g.len(),
        Applied::Expired { l } => l.len(),
        Applied::Ticked { n } => usize::try_from(*n).unwrap_or(usize::MAX),
        Applied::Nothing
        | Applied::Initialized { .. }
        | Applied::Session { .. }
        | Applied::Changed { .. }
        | Applied::Removed { .. }
        | Applied::Refused(_) => 0,
    }
}

/// The reference model.
#[derive(Debug, Default)]
pub struct Model {
    /// The last request applied.
    at: Position,
    term: u64,
    /// Cluster time in milliseconds.
    now: u64,
    /// The lease clock in milliseconds.
    lease_now: u64,
    initialized: bool,
    sessions: Sessions,
    names: BTreeMap<QueueName, u64>,
    queues: BTreeMap<u64, Queue>,
    /// The highest id that a queue ever had.
    last_queue: u64,
    /// Which message each token was given for: queue and sequence.
    tokens: FastMap<Token, (u64, u64)>,
    /// Where messages are that have moved.
    moved: FastMap<MessageId, (u64, u64)>,
    timers: Timers,
    /// Messages of which the outcome of an expiry was not seen, since the rest of the entry removed them.
    must_be_gone: BTreeSet<(u64, u64)>,
    /// What the requests of this entry have done so far: parts, leases and timers.
    done_in_entry: usize,
}

impl Model {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where it stands.
    pub fn at(&self) -> Position {
        self.at
    }

    /// Cluster time in milliseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The lease clock in milliseconds.
    pub fn lease_now(&self) -> u64 {
        self.lease_now
    }

    /// Goes on with an applied request, and compares.
    pub fn step(&mut self, line: &AuditLine) -> Step {
        self.enter(line)?;
        self.step_entered(line)
    }

    /// Goes on with a request of an entry in which the model stands already.
    pub(crate) fn step_entered(&mut self, line: &AuditLine) -> Step {
        if let Some(rid) = line.rid {
            match self.sessions.admit(rid, line.ab, &line.c, self.at.index, self.lease_now) {
                Admission::New => {}
                Admission::Refused(refusal) => return expect_refusal(&refusal, &line.r),
                Admission::Replay(first, applied) => return self.replay(line, first, applied),
            }
        }
        same("a request without an earlier outcome is no repeat", "the first position", None, line.replay)?;
        self.run(line)?;
        self.done_in_entry += done(&line.r);
        if let (Some(rid), false) = (line.rid, matches!(line.r, Applied::Refused(_))) {
            self.sessions.remember(rid, line, self.lease_now);
        }
        Ok(())
    }

    /// Looks at the position and moves the clocks.
    fn enter(&mut self, line: &AuditLine) -> Step {
        self.enter_at(line.cp, line.term, line.st)?;
        same("cluster time follows the entries' stamps", "cluster time", self.now, line.ts)?;
        same("the lease clock stops while there is no leader", "the lease clock", self.lease_now, line.lc)
    }

    /// Goes to a position, of an entry of `term` that was stamped `stamp`.
    pub(crate) fn enter_at(&mut self, cp: Position, term: u64, stamp: u64) -> Step {
        let Position { index, ordinal } = cp;
        if index == self.at.index && self.at != Position::default() {
            same("requests of an entry follow each other", "the ordinal", self.at.ordinal + 1, ordinal)?;
        } else {
            if index <= self.at.index {
                return wrong(
                    "the log goes forward",
                    format!("expected an index above {}, but got {index}", self.at.index),
                );
            }
            same("an entry begins with its first request", "the ordinal", 0, ordinal)?;
            self.end_entry()?;
            self.done_in_entry = 0;
            if term < self.term {
                let text = format!("expected term {} or a later one, but got {}", self.term, term);
                return wrong("terms never go back", text);
            }
            let step = stamp.saturating_sub(self.now);
            if term == self.term {
                self.now += step.min(CLOCK_STEP);
                self.lease_now += step.min(CLOCK_STEP);
            } else {
                // A new term moves cluster time freely, and the lease clock not at all: there was no leader.
                self.now += step;
                self.term = term;
            }
        }
        self.at = cp;
        Ok(())
    }

    /// What was left open by the entry before.
    pub fn end_entry(&mut self) -> Step {
        for (queue, sequence) in std::mem::take(&mut self.must_be_gone) {
            if self.queues.get(&queue).is_some_and(|q| q.messages.contains_key(&sequence)) {
                let text = format!("expected message {sequence} of queue {queue} to be there, but it is gone");
                return wrong("an expired message is not lost", text);
            }
        }
        Ok(())
    }

    fn run(&mut self, line: &AuditLine) -> Step {
        // The proposer puts such a request into the next entry: nothing happened.
        if matches!(&line.r, Applied::Refused(refusal) if refusal.why == "ENTRY_FULL") {
            return Ok(());
        }
        match &line.c {
            Command::Commit { .. } | Command::Receive { .. } if !self.initialized => {
                expect_refusal(&Refusal::new("NOT_INITIALIZED"), &line.r)
            }
            Command::Nothing => same("nothing comes of nothing", "the outcome", &Applied::Nothing, &line.r),
            Command::Commit { s, e, atomic, auto } => self.commit(s, e, *atomic, *auto, &line.r),
            Command::Receive { q, max, bytes, lease } => self.receive(q, *max, *bytes, *lease, &line.r),
            Command::Expire { l } => self.expire(l, &line.r),
            Command::Tick => self.tick(&line.r),
            Command::Init => {
                let first = !std::mem::replace(&mut self.initialized, true);
                same("the first secret counts", "the outcome", &Applied::Initialized { first }, &line.r)
            }
            Command::Open { renew } => self.open(*renew, &line.r),
            Command::Create { q, set } => {
                if self.names.contains_key(q) {
                    return expect_refusal(&Refusal::new("QUEUE_EXISTS"), &line.r);
                }
                let settings = settings::Resolved::default().with(set);
                if !settings.lawful(q) {
                    return expect_refusal(&Refusal::new("INVALID"), &line.r);
                }
                if self.queues.len() >= QUEUES {
                    return expect_refusal(&Refusal::new("QUEUES_FULL"), &line.r);
                }
                let Applied::Changed { q: id } = &line.r else { return unexpected("a new queue", &line.r) };
                self.make_queue(q, *id)?;
                self.queue_mut(*id)?.settings = settings;
                Ok(())
            }
            Command::Update { q, set } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                let settings = self.queue_mut(id)?.settings.clone().with(set);
                if !settings.lawful(q) {
                    return expect_refusal(&Refusal::new("INVALID"), &line.r);
                }
                self.queue_mut(id)?.settings = settings;
                expect_changed(id, &line.r)
            }
            Command::Pause { q, until } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                if *until != 0 && *until <= self.now {
                    return expect_refusal(&Refusal::new("INVALID"), &line.r);
                }
                self.set_pause(id, Some(*until))?;
                expect_changed(id, &line.r)
            }
            Command::Resume { q } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                self.set_pause(id, None)?;
                expect_changed(id, &line.r)
            }
            Command::Close { q } | Command::Reopen { q } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                self.queue_mut(id)?.closed = matches!(line.c, Command::Close { .. });
                expect_changed(id, &line.r)
            }
            Command::Purge { q } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                let (removed, due) = self.queue_mut(id)?.purge();
                self.timers.doubt(due.into_iter().map(|(due, held, seq)| Timer::message(due, id, held, seq)), self.now);
                same("a purge removes all that is not leased", "the outcome", &Applied::Removed { n: removed }, &line.r)
            }
            Command::Delete { q } => {
                let Some(id) = self.names.get(q).copied() else { return not_found(&line.r) };
                self.set_pause(id, None)?;
                self.names.remove(q);
                let Some(mut queue) = self.queues.remove(&id) else { return wrong("a name names a queue", "none") };
                let removed = queue.stats.depth();
                let due = queue.purge().1;
                self.timers.doubt(due.into_iter().map(|(due, held, seq)| Timer::message(due, id, held, seq)), self.now);
                same("a delete removes all", "the outcome", &Applied::Removed { n: removed }, &line.r)
            }
        }
    }

    fn set_pause(&mut self, id: u64, pause: Option<u64>) -> Step {
        let now = self.now;
        let before = std::mem::replace(&mut self.queue_mut(id)?.paused, pause);
        if let Some(until) = before.filter(|until| *until != 0) {
            self.timers.drop(Timer::resume(until, id), now);
        }
        if let Some(until) = pause.filter(|until| *until != 0) {
            self.timers.set(Timer::resume(until, id));
        }
        Ok(())
    }

    /// A new queue under a name that is free.
    fn make_queue(&mut self, name: &QueueName, id: u64) -> Step {
        if id <= self.last_queue {
            let text = format!("expected an id above {}, but queue {name} got {id}", self.last_queue);
            return wrong("a queue's id is used once", text);
        }
        self.last_queue = id;
        self.names.insert(name.clone(), id);
        self.queues.insert(id, Queue::new(name.clone()));
        Ok(())
    }

    fn queue_mut(&mut self, id: u64) -> Step<&mut Queue> {
        match self.queues.get_mut(&id) {
            Some(queue) => Ok(queue),
            None => wrong("a queue is there", format!("expected queue {id} to be there, but it is not")),
        }
    }

    /// The figures of a queue now.
    pub fn stats(&self, name: &QueueName) -> Option<Stats> {
        let id = self.names.get(name)?;
        self.queues.get(id).map(|queue| Stats { q: *id, ..queue.stats.told() })
    }

    /// A message now.
    pub fn get(&self, id: MessageId) -> Option<Info> {
        let place = self.moved.get(&id).copied().unwrap_or((id.queue, id.sequence));
        let queue = self.queues.get(&place.0)?;
        let message = queue.messages.get(&place.1).filter(|message| message.id == id)?;
        let state = match message.state {
            State::Delayed { .. } => MessageState::Delayed,
            State::Ready => MessageState::Ready,
            State::Leased { .. } => MessageState::Leased,
        };
        Some(Info {
            v: message.v,
            h: message.h,
            q: queue.name.clone(),
            seq: place.1,
            state,
            rc: message.receive_count,
            f: message.failures,
        })
    }

    /// Whether a message is in its queue or another one now.
    pub fn holds(&self, id: MessageId) -> bool {
        let (queue, sequence) = self.moved.get(&id).copied().unwrap_or((id.queue, id.sequence));
        self.queues.get(&queue).is_some_and(|q| q.messages.get(&sequence).is_some_and(|m| m.id == id))
    }

    /// Leases that should have been ended, and delayed messages that should be ready, by more than `slack_ms`: what the
    /// leader has left undone.
    pub fn overdue(&self, slack_ms: u64) -> Vec<String> {
        let mut found = Vec::new();
        for queue in self.queues.values() {
            for (sequence, message) in &queue.messages {
                let late = match message.state {
                    State::Leased { end, .. } if end + slack_ms < self.lease_now => "its lease has been over",
                    State::Delayed { due } if due + slack_ms < self.now => "it has been due",
                    State::Leased { .. } | State::Delayed { .. } | State::Ready => continue,
                };
                found.push(format!("message {} of queue {}, sequence {sequence}: {late}", message.id, queue.name));
            }
        }
        found.sort();
        found
    }

    /// Messages that are ready now in queues that are not paused.
    pub fn ready(&self) -> u64 {
        self.queues.values().filter(|queue| queue.paused.is_none()).map(|queue| queue.stats.ready).sum()
    }
}

/// Nothing may have come of a request, for this reason.
pub(crate) fn expect_refusal(expected: &Refusal, got: &Applied) -> Step {
    let Applied::Refused(refusal) = got else {
        return wrong("what must be refused is refused", format!("expected {expected}, but the outcome is {got:?}"));
    };
    refusal_matches(expected, refusal)
}

/// Compares two refusals; texts for people may differ.
pub(crate) fn refusal_matches(expected: &Refusal, got: &Refusal) -> Step {
    let equal = expected.why == got.why && expected.rc == got.rc && expected.part == got.part;
    if equal { Ok(()) } else { wrong("a refusal says why", format!("expected {expected}, but it is {got}")) }
}

pub(crate) fn unexpected<T>(expected: &str, got: &Applied) -> Step<T> {
    wrong("a lawful request takes effect", format!("expected {expected}, but the outcome is {got:?}"))
}

fn not_found(got: &Applied) -> Step {
    expect_refusal(&Refusal::new("QUEUE_NOT_FOUND"), got)
}

fn expect_changed(id: u64, got: &Applied) -> Step {
    same("a change is of the queue that was named", "the outcome", &Applied::Changed { q: id }, got)
}
