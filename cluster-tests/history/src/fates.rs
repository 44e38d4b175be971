//! What the log itself says of each message, turn by turn: a witness apart from the reference model. What happens in ticks
//! it does not see: that messages come due or expire, and that the group of a dead letter follows it.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::fast::FastMap;
use crate::format::{
    Applied, AuditLine, CancelOutcome, Command, EnqueueOutcome, EnqueuePart, MessageId, NewTime, OnGroup, QueueName,
    Remains, Settings, SettleOutcome, Target, TimeOutcome, Token,
};

/// One thing that happened to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The message.
    pub id: MessageId,
    /// What is known of it, before the turn; of one that is not known, nothing.
    pub was: Option<Fate>,
    /// What happened.
    pub event: Event,
}

/// What happened to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It was put on a queue.
    Came {
        /// What is known of it now.
        fate: Fate,
        /// Its dedup id, and until when that is remembered at least.
        dedup: Option<(Box<str>, u64)>,
    },
    /// It was put on a queue again under a dedup id that was remembered.
    Again {
        /// The queue's id.
        queue: u64,
        /// The dedup id.
        dedup: Box<str>,
    },
    /// It was leased.
    Leased,
    /// It was taken at most once.
    Taken,
    /// Its lease is over, and it is in its queue; whether it waits there.
    Back {
        /// Whether it waits.
        waits: bool,
    },
    /// It was put at another time; whether it waits now.
    Moved {
        /// Whether it waits.
        waits: bool,
    },
    /// It is gone, in this way.
    Ended(&'static str),
    /// It went to a dead-letter queue.
    Died {
        /// Where it is now: queue and sequence.
        to: (u64, u64),
        /// What its group suffers from it, or may suffer.
        policy: Option<OnGroup>,
    },
    /// It left its queue, for the dead letters or for good.
    Left,
    /// It could not be cancelled or put at another time, being too late; whether it was named by its id.
    TooLate {
        /// Whether it was named by its id.
        by_id: bool,
    },
    /// A cancel found none.
    NotThere,
    /// All that is not leased in the queue is gone, or may be; whether the queue is too, and with it what is leased.
    Swept {
        /// The queue's id.
        queue: u64,
        /// Whether the queue is gone.
        removed: bool,
    },
}

/// What is known of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// The queue's id.
    pub queue: u64,
    /// Its sequence there.
    pub seq: u64,
    /// The number of its group; `None`: it has none.
    pub group: Option<u32>,
    /// When it expires; 0: never.
    pub expires: u64,
    /// Whether it was ready as it came, so that it joined its line then.
    pub prompt: bool,
    /// Whether it is a dead letter.
    pub dead: bool,
    /// What it is doing.
    pub state: Doing,
}

/// What a message is doing, as far as the log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is in its queue.
    Here,
    /// It is leased.
    Leased,
    /// It is gone, or perhaps not: a purge or a dead letter of its group may have taken it.
    Unsure,
    /// It is gone.
    Gone,
}

/// What is known of a queue.
#[derive(Debug, Clone, Default)]
struct Known {
    set: Settings,
}

/// Follows the messages of a log.
#[derive(Debug, Default)]
pub struct Fates {
    names: HashMap<QueueName, u64>,
    queues: FastMap<u64, Known>,
    namespaces: HashMap<String, Settings>,
    messages: FastMap<MessageId, Fate>,
    tokens: FastMap<Token, MessageId>,
    places: FastMap<(u64, u64), MessageId>,
    dedup: HashMap<(u64, Box<str>), MessageId>,
    groups: HashMap<Box<str>, u32>,
    /// Messages by queue and group, for what may have followed a dead letter; only of queues where that is so.
    followers: FastMap<(u64, u32), Vec<MessageId>>,
}

impl Fates {
    /// Goes on with an applied request; returns what happened to which message, in order.
    pub fn apply(&mut self, line: &AuditLine) -> Vec<Turn> {
        let mut turns = Vec::new();
        if line.replay.is_some() {
            return turns;
        }
        match (&line.c, &line.r) {
            (
                Command::Commit { s, c, t, e, .. },
                Applied::Committed { s: settled, c: cancelled, t: moved, e: enqueued },
            ) => {
                for (part, outcome) in s.iter().zip(settled) {
                    let id = self.tokens.get(&part.tok).copied();
                    self.settled(id, outcome, None, &mut turns);
                }
                c.iter().zip(cancelled).for_each(|(target, outcome)| self.cancelled(target, outcome, &mut turns));
                t.iter().zip(moved).for_each(|(time, outcome)| self.moved(time, outcome, line.ts, &mut turns));
                e.iter().zip(enqueued).for_each(|(part, outcome)| self.enqueued(part, outcome, line.ts, &mut turns));
            }
            (Command::Receive { q, then, .. }, Applied::Granted { g }) => {
                self.learn(q, then, g.iter().map(|grant| grant.q));
                for grant in g {
                    let id = grant.tok.map(|(id, _)| id).or_else(|| self.places.get(&(grant.q, grant.seq)).copied());
                    let Some(id) = id else { continue };
                    if let Some((_, token)) = grant.tok {
                        self.tokens.insert(token, id);
                    }
                    self.given(id, (grant.q, grant.seq), Event::Leased, &mut turns);
                }
            }
            (Command::Receive { q, then, .. }, Applied::Taken { d }) => {
                self.learn(q, then, d.iter().map(|taken| taken.q));
                for taken in d {
                    self.given(taken.id, (taken.q, taken.seq), Event::Taken, &mut turns);
                }
            }
            (Command::Expire { l }, Applied::Expired { l: ended }) => {
                for (number, outcome) in ended {
                    let Some(named) = l.get(*number as usize) else { continue };
                    let id = self.places.get(&(named.queue, named.sequence)).copied();
                    self.settled(id, outcome, Some(line.ts), &mut turns);
                }
            }
            (Command::Create { q, set }, Applied::Changed { q: id }) => {
                let all = merged(self.namespaces.get(q.namespace()).cloned().unwrap_or_default(), set);
                self.names.insert(q.clone(), *id);
                self.queues.insert(*id, Known { set: all });
            }
            (Command::Update { set, .. }, Applied::Changed { q: id }) => {
                let known = self.queues.entry(*id).or_default();
                known.set = merged(std::mem::take(&mut known.set), set);
            }
            (Command::SetNamespace { ns, set, .. }, Applied::Namespace) => {
                self.namespaces.insert(ns.clone(), set.clone());
            }
            (Command::DeleteNamespace { ns }, Applied::Namespace) => {
                self.namespaces.remove(ns);
            }
            (Command::Purge { q }, Applied::Removed { .. }) => self.swept(q, false, &mut turns),
            (Command::Delete { q }, Applied::Removed { .. }) => self.swept(q, true, &mut turns),
            _ => {}
        }
        turns
    }

    /// What is known of a message.
    pub fn of(&self, id: MessageId) -> Option<Fate> {
        self.messages.get(&id).copied()
    }

    /// The name of a group.
    pub fn group(&self, number: u32) -> &str {
        self.groups.iter().find(|(_, known)| **known == number).map_or("?", |(name, _)| name)
    }

    fn number(&mut self, group: &str) -> u32 {
        let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        match self.groups.get(group) {
            Some(number) => *number,
            None => *self.groups.entry(group.into()).or_insert(next),
        }
    }

    fn turn(&mut self, id: MessageId, event: Event, turns: &mut Vec<Turn>) {
        let was = self.messages.get(&id).copied();
        let state = match &event {
            Event::Came { fate, .. } => {
                self.places.insert((fate.queue, fate.seq), id);
                self.messages.insert(id, *fate);
                None
            }
            Event::Leased => Some(Doing::Leased),
            Event::Back { .. } => Some(Doing::Here),
            Event::Ended(_) | Event::Taken => Some(Doing::Gone),
            Event::Left => Some(Doing::Unsure),
            Event::Died { to, .. } => {
                self.places.insert(*to, id);
                None
            }
            Event::Again { .. }
            | Event::Moved { .. }
            | Event::TooLate { .. }
            | Event::NotThere
            | Event::Swept { .. } => None,
        };
        if let Some(fate) = self.messages.get_mut(&id) {
            let gone = state == Some(Doing::Gone) || matches!(event, Event::Died { .. } | Event::Left);
            if gone && let Some(was) = was {
                self.places.remove(&(was.queue, was.seq));
            }
            fate.state = state.unwrap_or(fate.state);
            if event == Event::Left {
                fate.expires = 0;
            }
            if let Event::Died { to, .. } = event {
                *fate =
                    Fate { queue: to.0, seq: to.1, expires: 0, prompt: false, dead: true, state: Doing::Here, ..*fate };
            }
        }
        turns.push(Turn { id, was, event });
    }

    /// A message is given to somebody, in a place where it may have come to in a tick.
    fn given(&mut self, id: MessageId, place: (u64, u64), event: Event, turns: &mut Vec<Turn>) {
        let known = self.messages.get(&id).map(|fate| (fate.queue, fate.seq));
        if known.is_some_and(|known| known != place) {
            self.turn(id, Event::Died { to: place, policy: None }, turns);
        }
        self.turn(id, event, turns);
    }

    /// A lease is over, with this outcome; by its time, if `ran_out` says when.
    fn settled(&mut self, id: Option<MessageId>, outcome: &SettleOutcome, ran_out: Option<u64>, turns: &mut Vec<Turn>) {
        let Some(id) = id else { return };
        let fate = self.messages.get(&id).copied();
        let set = fate.and_then(|fate| self.queues.get(&fate.queue)).map(|known| &known.set);
        let (on_expired, on_group) = set.map_or((None, None), |set| (set.on_expired, set.on_group));
        let event = match outcome {
            SettleOutcome::No(_) | SettleOutcome::Extended { .. } => return,
            SettleOutcome::Acked => Event::Ended("acked"),
            SettleOutcome::Purged => Event::Ended("purged"),
            SettleOutcome::Dropped => Event::Ended("dropped"),
            SettleOutcome::Gone => Event::Ended("gone as its lease ran out"),
            // Where to, the log does not tell: it is seen again there.
            SettleOutcome::Expired if on_expired == Some(Remains::DeadLetter) => Event::Left,
            SettleOutcome::Expired => Event::Ended("expired"),
            SettleOutcome::Readied => Event::Back { waits: false },
            SettleOutcome::Delayed { .. } | SettleOutcome::Unseen => Event::Back { waits: true },
            SettleOutcome::Dead { seq, q } => {
                // Of a lease that ran out it is not told whether its message had expired by then: its group may suffer, or not.
                let by_time =
                    ran_out.is_some_and(|now| fate.is_some_and(|fate| fate.expires != 0 && now >= fate.expires));
                let policy =
                    Some(on_group.unwrap_or(OnGroup::Continue)).filter(|policy| !by_time || *policy == OnGroup::Follow);
                if let Some((queue, group)) = fate.and_then(|fate| Some((fate.queue, fate.group?)))
                    && policy == Some(OnGroup::Follow)
                {
                    self.follow(queue, group);
                }
                Event::Died { to: (*q, *seq), policy }
            }
        };
        self.turn(id, event, turns);
    }

    /// Members of a group may follow a dead letter from now on.
    fn follow(&mut self, queue: u64, group: u32) {
        for id in self.followers.remove(&(queue, group)).unwrap_or_default() {
            if let Some(fate) = self.messages.get_mut(&id).filter(|fate| fate.state == Doing::Here) {
                fate.state = Doing::Unsure;
            }
        }
    }

    fn resolve(&self, target: &Target) -> Option<MessageId> {
        match target {
            Target::Id(id) => Some(*id),
            Target::Dedup { q, dd } => self.dedup.get(&(*self.names.get(q)?, dd.as_str().into())).copied(),
        }
    }

    fn cancelled(&mut self, target: &Target, outcome: &CancelOutcome, turns: &mut Vec<Turn>) {
        let by_id = matches!(target, Target::Id(_));
        match (outcome, self.resolve(target)) {
            (CancelOutcome::Cancelled { id }, _) => {
                if let Target::Dedup { q, dd } = target
                    && let Some(queue) = self.names.get(q)
                {
                    self.dedup.remove(&(*queue, dd.as_str().into()));
                }
                self.turn(*id, Event::Ended("cancelled"), turns);
            }
            (CancelOutcome::Gone, Some(id)) if by_id => self.turn(id, Event::NotThere, turns),
            (CancelOutcome::No(refusal), Some(id)) if refusal.why == "TOO_LATE" => {
                self.turn(id, Event::TooLate { by_id }, turns);
            }
            (CancelOutcome::Gone | CancelOutcome::No(_), _) => {}
        }
    }

    fn moved(&mut self, time: &NewTime, outcome: &TimeOutcome, now: u64, turns: &mut Vec<Turn>) {
        let by_id = matches!(time.of, Target::Id(_));
        match (outcome, self.resolve(&time.of)) {
            (TimeOutcome::Moved { id, at }, _) => self.turn(*id, Event::Moved { waits: *at > now }, turns),
            (TimeOutcome::No(refusal), Some(id)) if refusal.why == "TOO_LATE" => {
                self.turn(id, Event::TooLate { by_id }, turns);
            }
            (TimeOutcome::No(_), _) => {}
        }
    }

    fn enqueued(&mut self, part: &EnqueuePart, outcome: &EnqueueOutcome, now: u64, turns: &mut Vec<Turn>) {
        let EnqueueOutcome::In { id, seq, at, dup } = outcome else { return };
        let (m, dd) = (&part.m, part.m.dedup_id());
        if *dup {
            let queue = self.names.get(&part.q).copied().unwrap_or(id.queue);
            self.turn(*id, Event::Again { queue, dedup: dd.into() }, turns);
            return;
        }
        let queue = id.queue;
        if self.names.get(&part.q) != Some(&queue) {
            self.names.insert(part.q.clone(), queue);
            let set = self.namespaces.get(part.q.namespace()).cloned().unwrap_or_default();
            self.queues.insert(queue, Known { set });
        }
        let group = if m.group().is_empty() { None } else { Some(self.number(m.group())) };
        let set = self.queues.get(&queue).map(|known| &known.set);
        let (ttl, x) = m.more.as_ref().map_or((0, 0), |more| (more.ttl, more.x));
        let ttl = if (ttl, x) == (0, 0) { set.and_then(|set| set.ttl).unwrap_or(0) } else { ttl };
        let by_ttl = if ttl == 0 { u64::MAX } else { at + ttl };
        let expires = match by_ttl.min(if x == 0 { u64::MAX } else { x }) {
            u64::MAX => 0,
            expires => expires,
        };
        let window = set.and_then(|set| set.dedup).unwrap_or(3_600_000);
        if let Some(group) = group
            && set.is_some_and(|set| set.on_group == Some(OnGroup::Follow))
        {
            self.followers.entry((queue, group)).or_default().push(*id);
        }
        let prompt = *at <= now;
        let fate = Fate { queue, seq: *seq, group, expires, prompt, dead: false, state: Doing::Here };
        let dedup = (!dd.is_empty()).then(|| (Box::from(dd), now + window));
        if !dd.is_empty() {
            self.dedup.insert((queue, dd.into()), *id);
        }
        self.turn(*id, Event::Came { fate, dedup }, turns);
    }

    /// A receive tells which queue its name stands for; one of several queues, where only one of them is not known.
    fn learn(&mut self, first: &QueueName, then: &[QueueName], given: impl Iterator<Item = u64>) {
        let mut unknown = std::iter::once(first).chain(then).filter(|name| !self.names.contains_key(*name));
        let Some(name) = unknown.next() else { return };
        if unknown.any(|other| other != name) {
            return;
        }
        let known: Vec<u64> = self.names.values().copied().collect();
        for queue in given.filter(|queue| !known.contains(queue)) {
            self.names.insert(name.clone(), queue);
        }
    }

    /// All that is not leased in a queue is gone; with the queue, what is leased too. Of a queue that a move made the name is
    /// not known before somebody receives from it: it may be any of those without one.
    fn swept(&mut self, name: &QueueName, removed: bool, turns: &mut Vec<Turn>) {
        let (queues, gone) = match self.names.get(name) {
            Some(queue) => (BTreeSet::from([*queue]), Doing::Gone),
            None => {
                let named: HashSet<u64> = self.names.values().copied().collect();
                let used = self.messages.values().map(|fate| fate.queue);
                (used.filter(|queue| !named.contains(queue)).collect(), Doing::Unsure)
            }
        };
        for fate in self.messages.values_mut().filter(|fate| queues.contains(&fate.queue)) {
            if fate.state == Doing::Here || (removed && fate.state == Doing::Leased) {
                fate.state = gone;
            }
        }
        if removed {
            self.names.remove(name);
        }
        for queue in queues {
            let nobody = MessageId { group: 0, queue, held: false, priority: 0, sequence: 0 };
            turns.push(Turn { id: nobody, was: None, event: Event::Swept { queue, removed } });
        }
    }
}

/// Settings with what changes.
fn merged(before: Settings, after: &Settings) -> Settings {
    Settings {
        ttl: after.ttl.or(before.ttl),
        dedup: after.dedup.or(before.dedup),
        on_group: after.on_group.or(before.on_group),
        on_expired: after.on_expired.or(before.on_expired),
        ..Settings::default()
    }
}
