//! A run, ready to be judged.

use std::collections::{HashMap, HashSet};

use crate::format::{ChainLine, Kind, Meta, NemesisLine, OnGroup, QueueName, Remains, Settings};
use crate::index::Index;
use crate::story::{CancelTold, End, Got, OpRow, Story};

/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// A run, ready to be judged.
#[derive(Debug)]
pub struct Case {
    /// What clients asked and were told.
    pub story: Story,
    /// The same by message, lease, request and position.
    pub index: Index,
    /// The faults.
    pub nemesis: Vec<NemesisLine>,
    /// The nodes' chains, by the file's name.
    pub chains: Vec<(String, Vec<ChainLine>)>,
    /// What the run was.
    pub meta: Meta,
    /// When there may have been no leader, in nanoseconds: from, to, and all such time before.
    outages: Vec<(u64, u64, u64)>,
    bounds: HashMap<u32, Bounds>,
    /// Queues from which messages may have been taken at most once without anybody being told.
    takers: HashSet<u32>,
    /// Queues that were purged or removed, or may have been.
    swept: HashSet<u32>,
    /// The dead-letter queues that queues were given by their settings.
    dead_letters: HashMap<u32, Vec<String>>,
    /// When the first receive began that may have got something nobody was told of, in nanoseconds.
    pub first_unheard: u64,
}

/// The least and the most that a queue's settings were during a run.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The lease in milliseconds.
    pub lease: (u64, u64),
    /// The attempts; `u32::MAX`: without limit.
    pub attempts: (u32, u32),
    /// The shortest failure window in milliseconds.
    pub window: u64,
    /// The time to live of messages without one, in milliseconds; `u64::MAX`: none.
    pub ttl: (u64, u64),
    /// For how long dedup ids are remembered, in milliseconds.
    pub dedup: (u64, u64),
    /// Whether the group of a dead letter may ever have followed it.
    pub follows: bool,
    /// Whether messages may ever have been dropped at the end of their attempts.
    pub drops: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            lease: (60_000, 60_000),
            attempts: (5, 5),
            window: 86_400_000,
            ttl: (u64::MAX, u64::MAX),
            dedup: (3_600_000, 3_600_000),
            follows: false,
            drops: false,
        }
    }
}

/// A number of attempts, the least and the most; 0 is without limit.
fn exactly(attempts: u32) -> (u32, u32) {
    let attempts = if attempts == 0 { u32::MAX } else { attempts };
    (attempts, attempts)
}

impl Bounds {
    /// These, with what is set in their place.
    fn with(self, set: &Settings) -> Self {
        let or = |value: Option<u64>, pair: (u64, u64)| value.map_or(pair, |value| (value, value));
        let unless_0 = |value: u64| if value == 0 { u64::MAX } else { value };
        Self {
            lease: or(set.lease, self.lease),
            attempts: set.max_attempts.map_or(self.attempts, exactly),
            window: set.window.unwrap_or(self.window),
            ttl: or(set.ttl.map(unless_0), self.ttl),
            dedup: or(set.dedup, self.dedup),
            follows: set.on_group.map_or(self.follows, |on_group| on_group == OnGroup::Follow),
            drops: set.on_exhausted.map_or(self.drops, |on_exhausted| on_exhausted == Remains::Nothing),
        }
    }

    /// These or those.
    fn or(&self, other: &Self) -> Self {
        let both = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
        Self {
            lease: both(self.lease, other.lease),
            attempts: (self.attempts.0.min(other.attempts.0), self.attempts.1.max(other.attempts.1)),
            window: self.window.min(other.window),
            ttl: both(self.ttl, other.ttl),
            dedup: both(self.dedup, other.dedup),
            follows: self.follows || other.follows,
            drops: self.drops || other.drops,
        }
    }

    /// Also has what these settings make of it.
    fn widen(&mut self, set: &Settings) {
        *self = self.or(&self.with(set));
    }
}

impl Case {
    /// Puts a run together.
    pub fn new(story: Story, meta: Meta, nemesis: Vec<NemesisLine>, chains: Vec<(String, Vec<ChainLine>)>) -> Self {
        let index = Index::of(&story);
        let (outages, bounds) = (outages(&story), bounds(&story));
        let takes = |op: &&OpRow| {
            let auto = story.extra_of(op).is_some_and(|extra| extra.auto);
            auto && (op.end == End::Info || op.replayed)
        };
        let queues = |op: &OpRow| {
            let then = story.extra_of(op).map(|extra| extra.then.clone()).unwrap_or_default();
            then.into_iter().chain(Some(op.queue))
        };
        let takers = story.ops.iter().filter(takes).flat_map(queues).collect();
        let removed = |op: &&OpRow| matches!(op.kind, Kind::Purge | Kind::Delete) && op.end != End::Fail;
        let swept = story.ops.iter().filter(removed).map(|op| op.queue).collect();
        let mut dead_letters: HashMap<u32, Vec<String>> = HashMap::new();
        for (op, set) in &story.settings {
            dead_letters.entry(story.ops[*op as usize].queue).or_default().extend(set.dlq.clone());
        }
        // The answer to a repeat holds only what is still leased by then.
        let unheard = |op: &&OpRow| op.kind == Kind::Receive && (op.end != End::Ok || op.replayed);
        let first_unheard = story.ops.iter().filter(unheard).map(|op| op.t0).min().unwrap_or(u64::MAX);
        Self { story, index, nemesis, chains, meta, outages, bounds, takers, swept, dead_letters, first_unheard }
    }

    /// How far cluster time and the clients' clock may drift apart within `span` nanoseconds, jumps included.
    pub fn slack(&self, span: u64) -> u64 {
        let drift = u128::from(span) * u128::from(self.meta.drift_ppm) / 1_000_000;
        u64::try_from(drift).unwrap_or(u64::MAX).saturating_add(self.meta.jump_ms.saturating_mul(MS))
    }

    /// Nanoseconds between `from` and `to` in which there may have been no leader, so that the lease clock stood.
    pub fn leaderless(&self, from: u64, to: u64) -> u64 {
        let until = |t: u64| {
            let at = self.outages.partition_point(|(begin, _, _)| *begin < t);
            self.outages[..at].last().map_or(0, |(begin, end, before)| before + t.min(*end).saturating_sub(*begin))
        };
        until(to).saturating_sub(until(from))
    }

    /// What a queue's settings were during the run.
    pub fn bounds(&self, queue: u32) -> Bounds {
        self.bounds.get(&queue).copied().unwrap_or_default()
    }

    /// The least and the most failures that make a message of this value in a queue a dead letter.
    pub fn attempts(&self, v: u64, queue: u32) -> (u32, u32) {
        let sent = self.index.sent(v).map(|sent| &self.story.sent[sent as usize]);
        match sent.and_then(|sent| sent.m.more.as_ref()).and_then(|more| more.tries) {
            Some(tries) => exactly(tries),
            None => self.bounds(queue).attempts,
        }
    }

    /// Whether a message, by its place in the story, may leave its queue without anybody having been told of it: it can
    /// expire or be dropped, somebody may have cancelled it, it was taken at most once and lost on its way, or purged.
    pub fn may_vanish(&self, sent: u32) -> bool {
        let lost = |queue: &u32| self.takers.contains(queue) || self.swept.contains(queue) || self.bounds(*queue).drops;
        self.may_expire(sent) || self.homes(sent).iter().any(lost) || self.may_be_cancelled(sent, u64::MAX)
    }

    /// Whether a message, by its place in the story, may have a time to live, of its own or of its queue's.
    fn may_expire(&self, sent: u32) -> bool {
        let message = &self.story.sent[sent as usize];
        let own = message.m.more.as_ref().is_some_and(|more| more.ttl != 0 || more.x != 0);
        own || self.bounds(message.queue).ttl.0 != u64::MAX
    }

    /// The queues in which a message, by its place in the story, may be: the one where it was put, and those of its dead
    /// letters.
    pub fn homes(&self, sent: u32) -> Vec<u32> {
        let message = &self.story.sent[sent as usize];
        let Some(name) = self.story.queue_name(message.queue) else { return vec![message.queue] };
        let own = message.m.more.as_ref().map(|more| more.dlq.clone()).filter(|own| !own.is_empty());
        let derived = Some(format!("{}.dlq", name.name()));
        let set = self.dead_letters.get(&message.queue).into_iter().flatten().cloned();
        let names = own.into_iter().chain(derived).chain(set);
        let number = |dead: String| self.story.queue_number(&QueueName::new(name.namespace(), &dead));
        std::iter::once(message.queue).chain(names.filter_map(number)).collect()
    }

    /// Whether a message, by its place in the story, may have become a dead letter before `t`: somebody may have received it
    /// and failed, it may have expired, or its group may have followed another.
    pub fn may_be_dead(&self, sent: u32, t: u64) -> bool {
        let (story, message) = (&self.story, &self.story.sent[sent as usize]);
        let mut got = self.index.deliveries(story, message.m.v).iter().map(|got| story.got[*got as usize].op);
        self.may_expire(sent)
            || (self.bounds(message.queue).follows && !message.m.group().is_empty())
            || self.first_unheard < t
            || got.any(|op| story.ops[op as usize].t0 < t)
    }

    /// Whether somebody may have cancelled a message before `t`.
    pub fn may_be_cancelled(&self, sent: u32, t: u64) -> bool {
        self.index.cancels(&self.story, sent).any(|cancel| {
            let op = &self.story.ops[cancel.op as usize];
            let told = matches!(cancel.told, CancelTold::Nothing | CancelTold::Cancelled(_));
            op.t0 < t && told && op.end != End::Fail
        })
    }

    /// What the lease of a delivery was for, in nanoseconds: as it was asked for, or else what was left of it when the
    /// answer was made up. It begins between the begin and the end of the receive, and so ends at most so long after that.
    pub fn lease(&self, got: &Got) -> u64 {
        let lease = match self.story.ops[got.op as usize].argument {
            0 => got.left,
            lease => lease,
        };
        lease.saturating_mul(MS)
    }

    /// A delivery in words.
    pub fn delivery(&self, got: &Got) -> String {
        format!(
            "the delivery of message v {} ({}, receive count {}) by {}",
            got.v,
            got.id,
            got.rc,
            self.story.name(got.op)
        )
    }
}

/// Between the answers of one term and those of the next there may have been no leader.
fn outages(story: &Story) -> Vec<(u64, u64, u64)> {
    let mut terms: std::collections::BTreeMap<u32, (u64, u64)> = std::collections::BTreeMap::new();
    for op in &story.ops {
        if op.is_ok() && op.cp().is_some() && !op.replayed && op.term > 0 {
            let span = terms.entry(op.term).or_insert((op.t1, op.t0));
            *span = (span.0.min(op.t1), span.1.max(op.t0));
        }
    }
    let mut outages: Vec<(u64, u64, u64)> = Vec::new();
    let mut before = 0;
    for (earlier, later) in terms.values().zip(terms.values().skip(1)) {
        // The last change of the old term came after its last operation began, the first of the new one before it ended.
        let from = earlier.1.max(outages.last().map_or(0, |(_, to, _)| *to));
        let to = later.0.max(from);
        outages.push((from, to, before));
        before += to - from;
    }
    outages
}

fn bounds(story: &Story) -> HashMap<u32, Bounds> {
    let mut bounds: HashMap<u32, Bounds> = HashMap::new();
    for (op, set) in &story.settings {
        let row = &story.ops[*op as usize];
        // A queue that is made with settings may never have had the defaults.
        let made = row.kind == Kind::Create && row.is_ok();
        let begin = || if made { Bounds::default().with(set) } else { Bounds::default() };
        bounds.entry(row.queue).or_insert_with(begin).widen(set);
    }
    // A queue that is removed and made anew has the defaults again.
    for op in story.ops.iter().filter(|op| op.kind == Kind::Delete) {
        if let Some(known) = bounds.get_mut(&op.queue) {
            *known = known.or(&Bounds::default());
        }
    }
    // Any queue may have been made with defaults that its namespace had for a while.
    for (namespace, set) in &story.namespaces {
        for (queue, _) in story.queues().filter(|(_, name)| name.namespace() == namespace) {
            bounds.entry(queue).or_default().widen(set);
        }
    }
    bounds
}
