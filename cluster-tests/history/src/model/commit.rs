//! Commits: settlements, then enqueues; each by itself, or all or nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::failure::Failed;
use super::queue::State;
use super::settings::{DELAY, LEASES};
use super::{Model, Step, expect_refusal, refusal_matches, unexpected, wrong};
use crate::format::{Applied, EnqueueOutcome, EnqueuePart, QueueName, Refusal, Settle, SettleOutcome, Token, Verdict};

/// The longest that a lease may run from its grant, in milliseconds.
const LEASE_MOST: u64 = 43_200_000;
/// Parts or bytes of a request that may be too large for an entry.
const LARGE: (usize, u64) = (300, 2 << 20);

impl Model {
    pub(super) fn commit(&mut self, s: &[Settle], e: &[EnqueuePart], atomic: bool, auto: bool, got: &Applied) -> Step {
        let large = s.len() + e.len() > LARGE.0 || e.iter().map(|part| part.m.n).sum::<u64>() > LARGE.1;
        if let Applied::Refused(refusal) = got
            && (refusal.why == "INVALID" && refusal.part.is_none() && large)
        {
            return Ok(());
        }
        if atomic && let Some(expected) = self.first_refusal(s, e, auto) {
            return expect_refusal(&expected, got);
        }
        let Applied::Committed { s: settled, e: enqueued } = got else { return unexpected("a commit", got) };
        if (settled.len(), enqueued.len()) != (s.len(), e.len()) {
            let text = format!("expected {} and {} results, but got {got:?}", s.len(), e.len());
            return wrong("each part has a result", text);
        }
        for (part, outcome) in s.iter().zip(settled) {
            if atomic && matches!(outcome, SettleOutcome::No(_)) {
                return wrong("a commit is all or nothing", format!("expected no part refused, but got {outcome:?}"));
            }
            self.settle(part, outcome)?;
        }
        for (part, outcome) in e.iter().zip(enqueued) {
            if atomic && matches!(outcome, EnqueueOutcome::No(_)) {
                return wrong("a commit is all or nothing", format!("expected no part refused, but got {outcome:?}"));
            }
            self.enqueue(part, auto, outcome)?;
        }
        Ok(())
    }

    /// The first part of an atomic commit that must be refused.
    pub(super) fn first_refusal(&self, s: &[Settle], e: &[EnqueuePart], auto: bool) -> Option<Refusal> {
        // Leases that an earlier part has ended, and messages that are gone with them.
        let mut ended: BTreeSet<Token> = BTreeSet::new();
        let mut gone: BTreeSet<(u64, u64)> = BTreeSet::new();
        // What each queue gains and loses meanwhile: messages, bytes.
        let mut more: BTreeMap<QueueName, (i64, i64)> = BTreeMap::new();
        let mut namespace: Option<String> = None;
        let mut elsewhere = |queue: &QueueName| {
            let first = namespace.get_or_insert_with(|| queue.namespace().to_owned());
            first != queue.namespace()
        };
        for (number, part) in s.iter().enumerate() {
            let at = |refusal: Refusal| Some(Refusal { part: Some(format!("s{number}")), ..refusal });
            let place = self.tokens.get(&part.tok).copied();
            let refusal = self.settle_refusal(part).or_else(|| {
                let there = place.and_then(|(queue, sequence)| self.queues.get(&queue)?.messages.get(&sequence));
                let rc = there.map(|message| message.receive_count);
                ended.contains(&part.tok).then(|| Refusal { rc, ..Refusal::new("LEASE_LOST") })
            });
            if let Some(refusal) = refusal {
                return at(Refusal {
                    rc: refusal.rc.filter(|_| place.is_none_or(|place| !gone.contains(&place))),
                    ..refusal
                });
            }
            let Some((queue, message)) = self.tokens.get(&part.tok).and_then(|(queue, sequence)| {
                let queue = self.queues.get(queue)?;
                Some((queue, queue.messages.get(sequence)?))
            }) else {
                continue;
            };
            if elsewhere(&queue.name) {
                return at(Refusal::new("INVALID"));
            }
            let purged = self.tokens.get(&part.tok).is_some_and(|(_, sequence)| *sequence < queue.purged_below);
            let leaves = match part.how {
                Verdict::Ack => true,
                Verdict::Reject | Verdict::Retry { .. } | Verdict::Release if purged => true,
                Verdict::Reject => message.dead.is_none(),
                Verdict::Retry { .. } => {
                    let max = queue.settings.max_attempts;
                    let fresh = self.now.saturating_sub(message.window_from) >= queue.settings.window;
                    let failures = if fresh { 0 } else { message.failures } + 1;
                    message.dead.is_none() && max > 0 && failures >= max
                }
                Verdict::Release | Verdict::Extend { .. } => false,
            };
            let size = message.size as i64;
            if leaves {
                let left = more.entry(queue.name.clone()).or_default();
                *left = (left.0 - 1, left.1 - size);
                if part.how != Verdict::Ack
                    && !purged
                    && let Some(target) = queue.settings.dead_letter_queue(&queue.name)
                {
                    let came = more.entry(target).or_default();
                    *came = (came.0 + 1, came.1 + size);
                }
            }
            if !matches!(part.how, Verdict::Extend { .. }) {
                ended.insert(part.tok);
                gone.extend(place.filter(|_| leaves));
            }
        }
        for (number, part) in e.iter().enumerate() {
            let at = |refusal: Refusal| Some(Refusal { part: Some(format!("e{number}")), ..refusal });
            let gained = more.get(&part.q).copied().unwrap_or_default();
            if let Some(refusal) = self.enqueue_refusal(part, auto, gained.0, gained.1) {
                return at(refusal);
            }
            if elsewhere(&part.q) {
                return at(Refusal::new("INVALID"));
            }
            let came = more.entry(part.q.clone()).or_default();
            *came = (came.0 + 1, came.1 + part.m.n as i64);
        }
        None
    }

    /// Why a settlement must be refused.
    pub(super) fn settle_refusal(&self, part: &Settle) -> Option<Refusal> {
        let lawful = match part.how {
            Verdict::Retry { d } => d.is_none_or(|delay| delay <= DELAY),
            Verdict::Extend { lease } => lease == 0 || LEASES.contains(&lease),
            Verdict::Ack | Verdict::Reject | Verdict::Release => true,
        };
        if !lawful {
            return Some(Refusal::new("INVALID"));
        }
        let lost = |rc: Option<u32>| Some(Refusal { rc, ..Refusal::new("LEASE_LOST") });
        let Some((id, sequence)) = self.tokens.get(&part.tok) else { return lost(None) };
        let Some(queue) = self.queues.get(id) else { return lost(None) };
        let Some(message) = queue.messages.get(sequence) else { return lost(None) };
        match message.state {
            State::Leased { token, end, .. } if token == Some(part.tok) && end > self.lease_now => None,
            State::Leased { .. } | State::Delayed { .. } | State::Ready => lost(Some(message.receive_count)),
        }
    }

    /// Carries out a settlement.
    fn settle(&mut self, part: &Settle, got: &SettleOutcome) -> Step {
        match (self.settle_refusal(part), got) {
            (None, SettleOutcome::No(refusal)) => {
                let text = format!("expected the live lease to be settled, but it was refused: {refusal}");
                return wrong("a live lease can be settled", text);
            }
            (Some(expected), SettleOutcome::No(refusal)) => {
                // Of a token that was never given, nothing is known but that it is worth nothing.
                let unknown =
                    !self.tokens.contains_key(&part.tok) && ["LEASE_LOST", "INVALID"].contains(&&*refusal.why);
                return if unknown { Ok(()) } else { refusal_matches(&expected, refusal) };
            }
            (Some(expected), got) => {
                let text = format!("expected {expected}, but the settlement took effect: {got:?}");
                return wrong("a lease that is over settles nothing", text);
            }
            (None, _) => {}
        }
        let Some((id, sequence)) = self.tokens.get(&part.tok).copied() else { return Ok(()) };
        let purged = sequence < self.queue_mut(id)?.purged_below;
        match part.how {
            Verdict::Ack => {
                if *got != SettleOutcome::Acked {
                    return wrong("an ack deletes", format!("expected Acked, but it is {got:?}"));
                }
                let queue = self.queue_mut(id)?;
                if let Some(message) = queue.remove(sequence) {
                    queue.end_lease(message.size);
                    queue.stats.acked += 1;
                    self.moved.remove(&message.id);
                }
                Ok(())
            }
            Verdict::Extend { lease } => self.extend(id, sequence, lease, got),
            Verdict::Retry { .. } | Verdict::Reject | Verdict::Release if purged => {
                self.finish_purged(id, sequence, got)
            }
            Verdict::Release => {
                if *got != SettleOutcome::Readied {
                    return wrong("a release gives back", format!("expected Readied, but it is {got:?}"));
                }
                let queue = self.queue_mut(id)?;
                if let Some(message) = queue.messages.get_mut(&sequence) {
                    message.expiries = 0;
                    let size = message.size;
                    queue.end_lease(size);
                    queue.give_back(sequence);
                }
                Ok(())
            }
            Verdict::Retry { d } => self.fail(id, sequence, Failed::Transient { delay: d }, got),
            Verdict::Reject => self.fail(id, sequence, Failed::Permanent, got),
        }
    }

    fn extend(&mut self, id: u64, sequence: u64, lease: u64, got: &SettleOutcome) -> Step {
        let now = self.lease_now;
        let queue = self.queue_mut(id)?;
        let lease = if lease == 0 { queue.settings.lease } else { lease };
        let Some(message) = queue.messages.get_mut(&sequence) else { return Ok(()) };
        let State::Leased { token, granted, granted_lease, .. } = message.state else { return Ok(()) };
        let end = (now + lease).min(granted_lease + LEASE_MOST);
        let expected = SettleOutcome::Extended { left: end.saturating_sub(now) };
        if *got != expected {
            return wrong("an extension moves the lease's end", format!("expected {expected:?}, but it is {got:?}"));
        }
        message.state = State::Leased { token, granted, granted_lease, end };
        Ok(())
    }
}
