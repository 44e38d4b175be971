//! The model run forward: what comes of a command, where the log does not tell it. So legal histories are made for tests
//! of the checker itself.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::Failed;
use super::queue::State;
use super::{Model, session};
use crate::format::{
    Applied, Command, EnqueueOutcome, EnqueuePart, ExpiredLease, Grant, MessageId, QueueName, Refusal, Settle,
    SettleOutcome, Token, Verdict,
};

/// Places given within one command, and queues made by it.
#[derive(Default)]
struct Given {
    sequences: BTreeMap<u64, u64>,
    made: BTreeMap<QueueName, u64>,
}

impl Model {
    /// What comes of a command now. `pick(n)` chooses a number from 0 to `n`: the jitter, and what tokens are made of.
    pub fn forward(&self, command: &Command, index: u64, ordinal: u32, pick: &mut dyn FnMut(u64) -> u64) -> Applied {
        let id = |q: &QueueName| self.names.get(q).copied();
        let refused = |why: &str| Applied::Refused(Refusal::new(why));
        let changed = |q: &QueueName| id(q).map_or_else(|| refused("QUEUE_NOT_FOUND"), |q| Applied::Changed { q });
        match command {
            Command::Nothing => Applied::Nothing,
            Command::Commit { s, e, atomic, auto } => self.forward_commit(s, e, *atomic, *auto, pick),
            Command::Receive { q, max, bytes: _, lease } => self.forward_receive(q, *max, *lease, pick),
            Command::Expire { l } => self.forward_expire(l, pick),
            Command::Tick => {
                let fired = self.sessions.due(self.lease_now) + self.timers.due(self.now);
                Applied::Ticked { n: u32::try_from(fired).unwrap_or(u32::MAX) }
            }
            Command::Init => Applied::Initialized { first: !self.initialized },
            Command::Open { renew: 0 } => Applied::Session { s: index * 1_024 + u64::from(ordinal) },
            Command::Open { renew } => Applied::Session { s: *renew },
            Command::Create { q, .. } if self.names.contains_key(q) => refused("QUEUE_EXISTS"),
            Command::Create { .. } => Applied::Changed { q: self.last_queue + 1 },
            Command::Update { q, .. }
            | Command::Pause { q, .. }
            | Command::Resume { q }
            | Command::Close { q }
            | Command::Reopen { q } => changed(q),
            Command::Purge { q } => match id(q).and_then(|id| self.queues.get(&id)) {
                Some(queue) => Applied::Removed { n: queue.stats.ready + queue.stats.delayed },
                None => refused("QUEUE_NOT_FOUND"),
            },
            Command::Delete { q } => match id(q).and_then(|id| self.queues.get(&id)) {
                Some(queue) => Applied::Removed { n: queue.stats.depth() },
                None => refused("QUEUE_NOT_FOUND"),
            },
        }
    }

    fn forward_commit(
        &self,
        s: &[Settle],
        e: &[EnqueuePart],
        atomic: bool,
        auto: bool,
        pick: &mut dyn FnMut(u64) -> u64,
    ) -> Applied {
        if atomic && let Some(refusal) = self.first_refusal(s, e, auto) {
            return Applied::Refused(refusal);
        }
        let mut given = Given::default();
        let s = s.iter().map(|part| self.forward_settle(part, &mut given, pick)).collect();
        let e = e.iter().map(|part| self.forward_enqueue(part, auto, &mut given)).collect();
        Applied::Committed { s, e }
    }

    fn forward_settle(&self, part: &Settle, given: &mut Given, pick: &mut dyn FnMut(u64) -> u64) -> SettleOutcome {
        if let Some(refusal) = self.settle_refusal(part) {
            return SettleOutcome::No(refusal);
        }
        let lost = SettleOutcome::No(Refusal::new("LEASE_LOST"));
        let Some((id, sequence)) = self.tokens.get(&part.tok).copied() else { return lost };
        let Some(queue) = self.queues.get(&id) else { return lost };
        match part.how {
            Verdict::Ack => SettleOutcome::Acked,
            Verdict::Extend { lease } => {
                SettleOutcome::Extended { left: if lease == 0 { queue.settings.lease } else { lease } }
            }
            Verdict::Retry { .. } | Verdict::Reject | Verdict::Release if sequence < queue.purged_below => {
                SettleOutcome::Purged
            }
            Verdict::Release => SettleOutcome::Readied,
            Verdict::Retry { d } => self.forward_failure(id, sequence, Failed::Transient { delay: d }, given, pick),
            Verdict::Reject => self.forward_failure(id, sequence, Failed::Permanent, given, pick),
        }
    }

    fn forward_failure(
        &self,
        id: u64,
        sequence: u64,
        failed: Failed,
        given: &mut Given,
        pick: &mut dyn FnMut(u64) -> u64,
    ) -> SettleOutcome {
        let Some(queue) = self.queues.get(&id) else { return SettleOutcome::Purged };
        let Some(message) = queue.messages.get(&sequence) else { return SettleOutcome::Purged };
        let settings = &queue.settings;
        let begins = message.failures == 0 || self.now - message.window_from >= settings.window;
        let failures = if begins { 1 } else { message.failures + 1 };
        let gives_up = failed == Failed::Permanent || (settings.max_attempts > 0 && failures >= settings.max_attempts);
        if gives_up
            && message.dead.is_none()
            && let Some(target) = settings.dead_letter_queue(&queue.name)
        {
            let q = self.names.get(&target).copied().unwrap_or_else(|| {
                let next = self.last_queue + 1 + given.made.len() as u64;
                *given.made.entry(target).or_insert(next)
            });
            return SettleOutcome::Dead { seq: self.next_sequence(q, given), q };
        }
        let wait = match failed {
            _ if gives_up => settings.cap,
            Failed::Transient { delay: Some(delay) } => delay,
            Failed::Expired if message.expiries == 0 => 0,
            Failed::Transient { delay: None } | Failed::Expired | Failed::Permanent => {
                pick(settings.backoff_ceiling(failures))
            }
        };
        if wait == 0 { SettleOutcome::Readied } else { SettleOutcome::Delayed { due: self.now + wait } }
    }

    fn next_sequence(&self, queue: u64, given: &mut Given) -> u64 {
        let last = self.queues.get(&queue).map_or(0, |queue| queue.last_sequence);
        let next = given.sequences.entry(queue).or_insert(last);
        *next += 1;
        *next
    }

    fn forward_enqueue(&self, part: &EnqueuePart, auto: bool, given: &mut Given) -> EnqueueOutcome {
        if let Some(refusal) = self.enqueue_refusal(part, auto, 0, 0) {
            return EnqueueOutcome::No(refusal);
        }
        let queue = self.names.get(&part.q).copied().unwrap_or_else(|| {
            let next = self.last_queue + 1 + given.made.len() as u64;
            *given.made.entry(part.q.clone()).or_insert(next)
        });
        let at = (self.now + part.m.d).max(part.m.at);
        let sequence = self.next_sequence(queue, given);
        let id = MessageId { group: 1, queue, held: at > self.now, priority: 4, sequence };
        EnqueueOutcome::In { id, seq: sequence, at }
    }

    fn forward_receive(&self, name: &QueueName, max: u32, lease: u64, pick: &mut dyn FnMut(u64) -> u64) -> Applied {
        let Some((id, queue)) = self.names.get(name).and_then(|id| Some((*id, self.queues.get(id)?))) else {
            return Applied::Refused(Refusal::new("QUEUE_NOT_FOUND"));
        };
        let lease = if lease == 0 { queue.settings.lease } else { lease };
        let (mut returned, mut fresh) = (queue.returned.iter().peekable(), queue.fresh.iter().peekable());
        let mut turn = queue.turn;
        let mut g = Vec::new();
        while g.len() < max as usize && queue.paused.is_none() {
            let both = returned.peek().is_some() && fresh.peek().is_some();
            let next = if both && turn % 4 == 3 { fresh.next() } else { returned.next().or_else(|| fresh.next()) };
            turn += u64::from(both);
            let Some((sequence, message)) = next.and_then(|seq| Some((*seq, queue.messages.get(seq)?))) else { break };
            let token = Token((u128::from(pick(u64::MAX - 1)) << 64) | u128::from(pick(u64::MAX - 1)));
            g.push(Grant {
                q: id,
                seq: sequence,
                tok: Some((message.id, token)),
                rc: message.receive_count + 1,
                f: message.failures,
                end: self.lease_now + lease,
            });
        }
        Applied::Granted { g }
    }

    fn forward_expire(&self, leases: &[ExpiredLease], pick: &mut dyn FnMut(u64) -> u64) -> Applied {
        let mut given = Given::default();
        // The list may name a lease twice: it ends once.
        let mut ended = BTreeSet::new();
        let mut l = Vec::new();
        for (number, lease) in (0u32..).zip(leases) {
            let Some(queue) = self.queues.get(&lease.queue) else { continue };
            let Some(message) = queue.messages.get(&lease.sequence) else { continue };
            let over = match message.state {
                State::Leased { granted, end, .. } => granted == lease.granted && end <= self.lease_now,
                State::Delayed { .. } | State::Ready => false,
            };
            if over && ended.insert((lease.queue, lease.sequence)) {
                let outcome = if lease.sequence < queue.purged_below {
                    SettleOutcome::Purged
                } else {
                    self.forward_failure(lease.queue, lease.sequence, Failed::Expired, &mut given, pick)
                };
                l.push((number, outcome));
            }
        }
        Applied::Expired { l }
    }

    /// Whether a tick would find something to do.
    pub fn is_due(&self) -> bool {
        self.sessions.due(self.lease_now) + self.timers.due(self.now) > 0
    }

    /// The body's value and hash of a message, and what it is dead for.
    pub fn content(&self, id: MessageId) -> Option<(u64, crate::format::Hash, Option<crate::format::DeadLetter>)> {
        let place = self.moved.get(&id).copied().unwrap_or((id.queue, id.sequence));
        let message = self.queues.get(&place.0)?.messages.get(&place.1)?;
        Some((message.v, message.h, message.dead.as_deref().cloned()))
    }

    /// The live lease of a token: queue, sequence, index of the grant.
    pub fn lease_of(&self, token: Token) -> Option<(u64, u64, u64)> {
        let (queue, sequence) = self.tokens.get(&token).copied()?;
        match self.queues.get(&queue)?.messages.get(&sequence)?.state {
            State::Leased { token: held, granted, .. } if held == Some(token) => Some((queue, sequence, granted)),
            State::Leased { .. } | State::Delayed { .. } | State::Ready => None,
        }
    }

    /// Messages in all queues, in any state.
    pub fn depth(&self) -> u64 {
        self.queues.values().map(|queue| queue.stats.depth()).sum()
    }

    /// Where the clocks go with an entry of `term`, stamped `stamp`: cluster time and the lease clock.
    pub fn clocks(&self, term: u64, stamp: u64) -> (u64, u64) {
        let step = stamp.saturating_sub(self.now);
        if term == self.term {
            let step = step.min(super::CLOCK_STEP);
            (self.now + step, self.lease_now + step)
        } else {
            (self.now + step, self.lease_now)
        }
    }

    /// The first outcome of a request, and where it stands, if a repeat of it would get that.
    pub fn first_outcome(
        &self,
        rid: crate::format::Rid,
        ab: u64,
        command: &Command,
        index: u64,
    ) -> Option<(crate::format::Position, Applied)> {
        match self.sessions.admit(rid, ab, command, index, self.lease_now) {
            session::Admission::Replay(at, applied) => Some((at, self.live_part(at.index, applied))),
            session::Admission::New | session::Admission::Refused(_) => None,
        }
    }
}
