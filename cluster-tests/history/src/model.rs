//! The reference model: queues as `docs` and SEMANTICS tell of them, sequential and naive, sharing no code with the
//! product. It is shown each applied request in the order of the log and says what must come of it. Only what the log
//! alone cannot tell is taken from the outcome, after a look whether it is lawful: the jitter of a backoff (within its
//! ceiling), the ids of queues and sessions (never used before), and lease tokens (never seen before).
//!
//! Which messages a receive gives, and in which order, is compared exactly.
//!
//! A commit that is all or nothing is carried out, and taken back where a part of it must be refused: see `undo`.

mod agree;
mod cancel;
mod commit;
mod ends;
mod enqueue;
mod failure;
mod groups;
mod make;
mod purge;
mod queue;
mod rate;
mod receive;
mod session;
mod settings;
mod timers;
mod undo;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::fast::FastMap;
use crate::format::{
    Applied, AuditLine, Command, Done, Info, MessageId, MessageState, Position, QueueName, Refusal, Settings, Stats,
    Token,
};

pub use make::{Asked, Shown};
pub(crate) use session::has_effect;

use queue::{Group, Message, Queue, State};
use session::{Admission, Sessions};
use settings::Resolved;
use timers::{Timer, Timers};
use undo::{FastUndo, SortedUndo};

/// Cluster time that an entry of the same term may add, in milliseconds.
const CLOCK_STEP: u64 = 10_000;
/// Queues at one time.
const QUEUES: usize = 100_000;
/// Namespaces with defaults at one time.
const NAMESPACES: usize = 10_000;

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

/// Chooses a number from 0 to its argument, where the log does not tell.
pub(crate) type Pick<'a> = &'a mut dyn FnMut(u64) -> u64;

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
        Applied::Committed { s, c, t, e } => s.len() + c.len() + t.len() + e.len(),
        Applied::Granted { g } => g.len(),
        Applied::Taken { d } => d.len(),
        Applied::Expired { l } => l.len(),
        Applied::Ticked { n, .. } => usize::try_from(*n).unwrap_or(usize::MAX),
        Applied::Nothing
        | Applied::Initialized { .. }
        | Applied::Session { .. }
        | Applied::Changed { .. }
        | Applied::Removed { .. }
        | Applied::Namespace
        | Applied::Refused(_) => 0,
    }
}

/// What a namespace's new queues get.
#[derive(Debug, Clone)]
struct Namespace {
    defaults: Settings,
    auto: bool,
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
    namespaces: BTreeMap<String, Namespace>,
    /// The highest id that a queue ever had.
    last_queue: u64,
    /// Which message each token was given for: queue and sequence.
    tokens: FastMap<Token, (u64, u64)>,
    /// Where messages are that have moved.
    moved: FastUndo<MessageId, (u64, u64)>,
    timers: Timers,
    /// Messages of which the outcome of an expiry was not seen, since the rest of the entry removed them.
    must_be_gone: BTreeSet<(u64, u64)>,
    /// What the requests of this entry have done so far: parts, leases and timers.
    done_in_entry: usize,
    /// The numbers of groups.
    groups: HashMap<Box<str>, Group>,
    group_names: Vec<Box<str>>,
    /// Lines whose members follow a dead letter, in the order in which they began to: queue and group.
    following: SortedUndo<u64, (u64, Group)>,
    /// How many lines ever began to follow a dead letter.
    last_following: u64,
    /// Lines whose dead letter was purged or went with its queue: they are free once a tick has seen that. In the order in
    /// which it does: by queue, lane and sequence.
    lifted: BTreeMap<(u64, u8, u64), (u64, Group, MessageId)>,
    /// Whether a tick left work behind while there were such lines: nobody knows whether it was them.
    doubtful: bool,
    /// Queues that this request has looked at.
    touched: Vec<u64>,
    /// Queues made by a commit that is all or nothing, while it is carried out; `None`: none is.
    trial: Option<Vec<QueueName>>,
    /// What the last receive took at most once.
    taken: Vec<Shown>,
    /// The ids of messages that were acked where outcomes are kept: the place of the outcome.
    done: FastUndo<MessageId, (u64, u64)>,
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
        if let Some(rid) = line.rid {
            match self.sessions.admit(rid, line.ab, &line.c, self.at.index, self.lease_now) {
                Admission::New => {}
                Admission::Refused(refusal) => return expect_refusal(&refusal, &line.r),
                Admission::Replay(first, applied) => return self.replay(line, first, applied),
            }
        }
        same("a request without an earlier outcome is no repeat", "the first position", None, line.replay)?;
        let never: Pick<'_> = &mut |_| 0;
        // The proposer puts such a request into the next entry: nothing happened.
        if !matches!(&line.r, Applied::Refused(refusal) if refusal.why == "ENTRY_FULL") {
            let compared = self.run(&line.c, Some(&line.r), never);
            let compared = compared.and_then(|expected| agree::applied(&expected, &line.r));
            compared.map_err(|stop| self.doubted(stop))?;
        }
        self.end_request(line);
        Ok(())
    }

    /// A mismatch proves nothing once nobody knows in which tick a line went on.
    fn doubted(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Wrong(Mismatch { rule, text }) if self.doubtful || !self.lifted.is_empty() => Stop::Unsure(format!(
                "a line waited for a dead letter that was purged, and in which tick it went on the log does not tell; {text} [rule: {rule}]"
            )),
            stop @ (Stop::Wrong(_) | Stop::Unsure(_)) => stop,
        }
    }

    /// What is to be noted of a request that was carried out.
    fn end_request(&mut self, line: &AuditLine) {
        for id in std::mem::take(&mut self.touched) {
            if let Some(queue) = self.queues.get_mut(&id).filter(|queue| queue.head.changed) {
                queue.head.changed = false;
                queue.head.rate.keep(self.now);
            }
        }
        self.done_in_entry += done(&line.r);
        if let (Some(rid), false) = (line.rid, matches!(line.r, Applied::Refused(_))) {
            self.sessions.remember(rid, line, self.lease_now);
        }
    }

    /// Looks at the position and moves the clocks.
    fn enter(&mut self, line: &AuditLine) -> Step {
        self.enter_at(line.cp, line.term, line.st)?;
        same("cluster time follows the entries' stamps", "cluster time", self.now, line.ts)?;
        same("the lease clock stops while there is no leader", "the lease clock", self.lease_now, line.lc)
    }

    /// Goes to a position, of an entry of `term` that was stamped `stamp`.
    fn enter_at(&mut self, cp: Position, term: u64, stamp: u64) -> Step {
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

    /// Carries out a command; returns what comes of it. `told` is the outcome in the log, from which what is free is taken;
    /// without it that is chosen.
    fn run(&mut self, command: &Command, told: Option<&Applied>, pick: Pick<'_>) -> Step<Applied> {
        let refused = |why: &str| Ok(Applied::Refused(Refusal::new(why)));
        match command {
            Command::Commit { .. } | Command::Receive { .. } if !self.initialized => refused("NOT_INITIALIZED"),
            Command::Nothing => Ok(Applied::Nothing),
            Command::Commit { s, c, t, e, atomic, auto } => {
                self.commit(&commit::Parts { s, c, t, e, auto: *auto }, *atomic, told, pick)
            }
            Command::Receive { q, then, max, bytes, lease, auto } => {
                let names: Vec<&QueueName> = std::iter::once(q).chain(then).collect();
                let asked = receive::Asked { max: *max, bytes: *bytes, lease: *lease, auto: *auto };
                self.receive(&names, asked, told, pick)
            }
            Command::Expire { l } => self.expire(l, told, pick),
            Command::Tick => self.tick(told),
            Command::Init => Ok(Applied::Initialized { first: !std::mem::replace(&mut self.initialized, true) }),
            Command::Open { renew } => self.open(*renew, told),
            Command::Create { q, set } => {
                if self.names.contains_key(q) {
                    return refused("QUEUE_EXISTS");
                }
                let settings = self.defaults_of(q).with(set);
                if !settings.lawful(q) {
                    return refused("INVALID");
                }
                if self.queues.len() >= QUEUES {
                    return refused("QUEUES_FULL");
                }
                let told = if let Some(Applied::Changed { q }) = told { Some(*q) } else { None };
                let id = self.make_queue(q, settings, told)?;
                Ok(Applied::Changed { q: id })
            }
            Command::Update { q, set } => {
                let Some(id) = self.names.get(q).copied() else { return refused("QUEUE_NOT_FOUND") };
                let settings = self.queue_mut(id)?.settings.clone().with(set);
                if !settings.lawful(q) {
                    return refused("INVALID");
                }
                self.queue_mut(id)?.settings = settings;
                Ok(Applied::Changed { q: id })
            }
            Command::Pause { q, until } => {
                let Some(id) = self.names.get(q).copied() else { return refused("QUEUE_NOT_FOUND") };
                if *until != 0 && *until <= self.now {
                    return refused("INVALID");
                }
                self.set_pause(id, Some(*until))?;
                Ok(Applied::Changed { q: id })
            }
            Command::Resume { q } => {
                let Some(id) = self.names.get(q).copied() else { return refused("QUEUE_NOT_FOUND") };
                self.set_pause(id, None)?;
                Ok(Applied::Changed { q: id })
            }
            Command::Close { q } | Command::Reopen { q } => {
                let Some(id) = self.names.get(q).copied() else { return refused("QUEUE_NOT_FOUND") };
                self.queue_mut(id)?.closed = matches!(command, Command::Close { .. });
                Ok(Applied::Changed { q: id })
            }
            Command::Purge { q } => match self.names.get(q).copied() {
                Some(id) => self.purge(id),
                None => refused("QUEUE_NOT_FOUND"),
            },
            Command::Delete { q } => match self.names.get(q).copied() {
                Some(id) => self.delete(q, id),
                None => refused("QUEUE_NOT_FOUND"),
            },
            Command::SetNamespace { ns, set, auto } => {
                let names_none = set.dlq.as_ref().is_none_or(String::is_empty);
                if !names_none || !Resolved::default().with(set).in_range() {
                    return refused("INVALID");
                }
                if !self.namespaces.contains_key(ns) && self.namespaces.len() >= NAMESPACES {
                    return refused("NAMESPACES_FULL");
                }
                let namespace = Namespace { defaults: set.clone(), auto: auto.unwrap_or(true) };
                self.namespaces.insert(ns.clone(), namespace);
                Ok(Applied::Namespace)
            }
            Command::DeleteNamespace { ns } => match self.namespaces.remove(ns) {
                Some(_) => Ok(Applied::Namespace),
                None => refused("NAMESPACE_NOT_FOUND"),
            },
        }
    }

    fn set_pause(&mut self, id: u64, pause: Option<u64>) -> Step {
        let now = self.now;
        let queue = self.queue_mut(id)?;
        queue.head.changed = true;
        let before = std::mem::replace(&mut queue.paused, pause);
        if let Some(until) = before.filter(|until| *until != 0) {
            self.timers.drop(Timer::resume(until, id), now);
        }
        if let Some(until) = pause.filter(|until| *until != 0) {
            self.timers.set(Timer::resume(until, id));
        }
        Ok(())
    }

    /// What a queue of this name gets that is made now.
    fn defaults_of(&self, name: &QueueName) -> Resolved {
        let own = self.namespaces.get(name.namespace()).map(|namespace| &namespace.defaults);
        own.map_or_else(Resolved::default, |set| Resolved::default().with(set))
    }

    /// A new queue under a name that is free; `told` is the id that it got.
    fn make_queue(&mut self, name: &QueueName, settings: Resolved, told: Option<u64>) -> Step<u64> {
        let id = told.unwrap_or(self.last_queue + 1);
        if id <= self.last_queue {
            let text = format!("expected an id above {}, but queue {name} got {id}", self.last_queue);
            return wrong("a queue's id is used once", text);
        }
        self.last_queue = id;
        self.names.insert(name.clone(), id);
        let mut queue = Queue::new(name.clone(), settings);
        queue.accrue(self.now);
        self.queues.insert(id, queue);
        if let Some(made) = &mut self.trial {
            made.push(name.clone());
        }
        Ok(id)
    }

    fn queue_mut(&mut self, id: u64) -> Step<&mut Queue> {
        let Some(queue) = self.queues.get_mut(&id) else {
            return wrong("a queue is there", format!("expected queue {id} to be there, but it is not"));
        };
        if self.touched.last() != Some(&id) && !self.touched.contains(&id) {
            self.touched.push(id);
            queue.accrue(self.now);
        }
        if self.trial.is_some() && !queue.notes() {
            queue.begin();
        }
        Ok(queue)
    }

    /// Begins a commit that may be taken back.
    fn begin_trial(&mut self) {
        self.trial = Some(Vec::new());
        self.moved.begin();
        self.following.begin();
        self.done.begin();
        self.timers.begin();
    }

    /// Ends a commit that may be taken back.
    fn end_trial(&mut self, keep: bool, last_queue: u64) {
        let made = self.trial.take().unwrap_or_default();
        for id in &self.touched {
            let Some(queue) = self.queues.get_mut(id).filter(|queue| queue.notes()) else { continue };
            if keep { queue.keep() } else { queue.back() }
        }
        if keep {
            self.moved.keep();
            self.following.keep();
            self.done.keep();
            self.timers.keep();
            return;
        }
        self.moved.back();
        self.following.back();
        self.done.back();
        self.timers.back();
        for name in made {
            if let Some(id) = self.names.remove(&name) {
                self.queues.remove(&id);
            }
        }
        self.last_queue = last_queue;
    }

    /// The figures of a queue now.
    pub fn stats(&self, name: &QueueName) -> Option<Stats> {
        let id = self.names.get(name)?;
        self.queues.get(id).map(|queue| Stats { q: *id, ..queue.told() })
    }

    /// The message with this id: its queue, its sequence and itself.
    fn by_id(&self, id: MessageId) -> Option<(u64, u64, &Message)> {
        let place = self.moved.get(&id).copied().unwrap_or((id.queue, id.sequence));
        let message = self.queues.get(&place.0)?.messages.get(&place.1).filter(|message| message.id == id)?;
        Some((place.0, place.1, message))
    }

    /// A message now.
    pub fn get(&self, id: MessageId) -> Option<Info> {
        let (queue, seq, message) = self.by_id(id)?;
        let state = match message.state {
            State::Delayed { .. } => MessageState::Delayed,
            State::Ready { .. } => MessageState::Ready,
            State::Blocked => MessageState::Blocked,
            State::Leased { .. } => MessageState::Leased,
        };
        Some(Info {
            v: message.v,
            h: message.h,
            q: self.queues.get(&queue)?.name.clone(),
            seq,
            state,
            rc: message.receive_count,
            f: message.failures,
            line: message.line(),
            x: message.expires(),
        })
    }

    /// What came of a message that was acked, while that is kept.
    pub fn outcome(&self, id: MessageId) -> Option<Done> {
        let (queue, seq) = self.done.get(&id)?;
        let queue = self.queues.get(queue)?;
        let outcome = queue.outcomes.get(seq).filter(|outcome| outcome.id == id)?;
        let (q, at, until, rc, h) = (queue.name.clone(), outcome.at, outcome.until, outcome.rc, outcome.h);
        Some(Done { id, q, at, until, rc, h })
    }

    /// The message that a queue remembers under a dedup id.
    pub fn find(&self, q: &QueueName, dd: &str) -> Option<MessageId> {
        let queue = self.queues.get(self.names.get(q)?)?;
        let dedup = queue.dedup.get(dd)?;
        (!dedup.finished || self.now < dedup.until).then_some(dedup.id)
    }

    /// Whether a message is in its queue or another one now.
    pub fn holds(&self, id: MessageId) -> bool {
        self.by_id(id).is_some()
    }

    /// Leases that should have been ended, and delayed messages that should be ready, by more than `slack_ms`: what the
    /// leader has left undone.
    pub fn overdue(&self, slack_ms: u64) -> Vec<String> {
        let mut found = Vec::new();
        for queue in self.queues.values() {
            for (sequence, message) in queue.messages.iter() {
                let late = match message.state {
                    State::Leased { end, .. } if end + slack_ms < self.lease_now => "its lease has been over",
                    State::Delayed { due } if due + slack_ms < self.now => "it has been due",
                    State::Leased { .. } => continue,
                    State::Delayed { .. } | State::Ready { .. } | State::Blocked => {
                        let expires = message.expires();
                        if expires == 0 || expires + slack_ms >= self.now {
                            continue;
                        }
                        "it has been expired"
                    }
                };
                found.push(format!("message {} of queue {}, sequence {sequence}: {late}", message.id, queue.name));
            }
        }
        found.sort();
        found
    }

    /// Messages that are ready now in queues that are not paused.
    pub fn ready(&self) -> u64 {
        self.queues.values().filter(|queue| queue.paused.is_none()).map(|queue| queue.head.stats.ready).sum()
    }

    /// The live lease of a token: queue, sequence, index of the grant.
    pub fn lease_of(&self, token: Token) -> Option<(u64, u64, u64)> {
        let (queue, sequence) = self.tokens.get(&token).copied()?;
        match self.queues.get(&queue)?.messages.get(&sequence)?.state {
            State::Leased { token: held, granted, .. } if held == Some(token) => Some((queue, sequence, granted)),
            State::Leased { .. } | State::Delayed { .. } | State::Ready { .. } | State::Blocked => None,
        }
    }

    /// All queues by name.
    pub fn queue_names(&self) -> Vec<QueueName> {
        self.names.keys().cloned().collect()
    }

    /// The name of a queue.
    pub fn name_of(&self, id: u64) -> Option<QueueName> {
        self.queues.get(&id).map(|queue| queue.name.clone())
    }

    /// Messages in all queues, in any state.
    pub fn depth(&self) -> u64 {
        self.queues.values().map(|queue| queue.head.stats.depth()).sum()
    }
}

/// Nothing may have come of a request, for this reason.
pub(crate) fn expect_refusal(expected: &Refusal, got: &Applied) -> Step {
    let Applied::Refused(refusal) = got else {
        return wrong("what must be refused is refused", format!("expected {expected}, but the outcome is {got:?}"));
    };
    agree::refusal(expected, refusal)
}

pub(crate) fn unexpected<T>(expected: &str, got: &Applied) -> Step<T> {
    wrong("a lawful request takes effect", format!("expected {expected}, but the outcome is {got:?}"))
}
