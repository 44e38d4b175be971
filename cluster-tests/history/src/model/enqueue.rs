//! Enqueues.

use super::queue::{Dedup, Extra, Message, Queue, State};
use super::rate::Pace;
use super::settings::{ATTEMPTS, DAY, DELAY};
use super::timers::Timer;
use super::{Model, Step};
use crate::format::{EnqueueOutcome, EnqueuePart, MessageId, More, Refusal};

/// The longest group and dedup id, in bytes.
const TEXT: usize = 256;
/// The shortest and the longest time to try again, and that where nothing says, in milliseconds.
const AGAIN: (u64, u64, u64) = (100, 60_000, 1_000);

/// Whether what a message says beside its body is within its limits.
fn is_lawful(more: &More, queue: &str) -> bool {
    let backoff = |time: Option<u64>| time.is_none_or(|time| (1..=DAY).contains(&time));
    more.g.len() <= TEXT
        && more.dd.len() <= TEXT
        && more.p.is_none_or(|p| p <= 9)
        && more.ttl <= DELAY
        && more.tries.is_none_or(|tries| tries <= ATTEMPTS)
        && backoff(more.base)
        && backoff(more.cap)
        && more.base.zip(more.cap).is_none_or(|(base, cap)| base <= cap)
        && more.dlq.len() <= 200
        && more.dlq != queue
}

impl Queue {
    /// The queue's rate as it is reckoned with.
    fn pace(&self, now: u64) -> Option<Pace> {
        let expected = self.settings.expected_rate;
        let expected = (expected > 0).then_some(Pace { messages: expected, in_ms: 1_000_000 });
        self.head.rate.pace(now).or(expected)
    }

    /// The bound that refuses one more message, with when to try again.
    fn bound(&self, size: u64, priority: u8, waits: bool, now: u64) -> Option<Refusal> {
        let (set, stats, pace) = (&self.settings, &self.head.stats, self.pace(now));
        let full = |bound: &str, over: Option<u64>| {
            let again = match (over, pace) {
                (Some(over), Some(pace)) => pace.time(over).clamp(AGAIN.0, AGAIN.1),
                (Some(_), None) | (None, _) => AGAIN.2,
            };
            Some(Refusal { bound: Some(bound.into()), again: Some(again), ..Refusal::new("FULL") })
        };
        // All divisions round down.
        let above = |held: u64, limit: u64| held.saturating_sub(9 * limit / 10);
        match self.full(size) {
            Some(("max_bytes", held, limit)) => {
                let over = (above(held, limit) * stats.depth()).checked_div(held).unwrap_or(0);
                return full("max_bytes", Some(over));
            }
            Some((bound, held, limit)) => return full(bound, Some(above(held, limit))),
            None => {}
        }
        let sheds = |(percent, below): &(u32, u32)| {
            u32::from(priority) < *below && (stats.depth() + 1) * 100 > set.max_depth * u64::from(*percent)
        };
        if set.max_depth > 0 && set.shed.iter().any(sheds) {
            return full("shed", None);
        }
        let held = stats.ready + stats.blocked;
        if let Some(pace) = pace
            && (set.max_wait > 0 && !waits && pace.is_longer(held + 1, set.max_wait))
        {
            let limit = set.max_wait * pace.messages / pace.in_ms.max(1);
            return full("max_wait", Some(above(held, limit)));
        }
        None
    }
}

impl Model {
    /// Carries out an enqueue.
    pub(super) fn enqueue(
        &mut self,
        part: &EnqueuePart,
        auto: bool,
        told: Option<&EnqueueOutcome>,
    ) -> Step<EnqueueOutcome> {
        let refused = |why: &str| Ok(EnqueueOutcome::No(Refusal::new(why)));
        let (now, m) = (self.now, &part.m);
        let due = (now + m.d).max(m.at);
        let nothing = More::default();
        let more = m.more.as_deref().unwrap_or(&nothing);
        let lawful = is_lawful(more, part.q.name()) && m.d <= DELAY && m.at.saturating_sub(now) <= DELAY;
        if !lawful || (more.x != 0 && more.x <= due) {
            return refused("INVALID");
        }
        let (last_queue, known) = (self.last_queue, self.names.get(&part.q).copied());
        let at = match known {
            Some(at) => at,
            None if auto && self.namespaces.get(part.q.namespace()).is_none_or(|namespace| namespace.auto) => {
                let settings = self.defaults_of(&part.q);
                let told = if let Some(EnqueueOutcome::In { id, .. }) = told { Some(id.queue) } else { None };
                self.make_queue(&part.q, settings, told)?
            }
            None => return refused("QUEUE_NOT_FOUND"),
        };
        if !more.dd.is_empty()
            && let Some(first) = self.duplicate(at, &more.dd)?
        {
            return Ok(first);
        }
        let priority = m.priority();
        let queue = self.queue_mut(at)?;
        if queue.closed {
            return refused("QUEUE_CLOSED");
        }
        if let Some(refusal) = queue.bound(m.n, priority, due > now, now) {
            if known.is_none() && self.trial.is_none() {
                // Nothing has happened: the queue was not made either.
                self.names.remove(&part.q);
                self.queues.remove(&at);
                self.last_queue = last_queue;
            }
            return Ok(EnqueueOutcome::No(refusal));
        }
        let expires = match (more.ttl, more.x) {
            (0, 0) if queue.settings.ttl == 0 => 0,
            (0, 0) => due + queue.settings.ttl,
            (0, x) => x,
            (ttl, 0) => due + ttl,
            (ttl, x) => x.min(due + ttl),
        };
        let window = queue.settings.dedup;
        queue.head.stats.enqueued += 1;
        let group = if more.g.is_empty() { None } else { Some(self.group(&more.g)) };
        let extra = Extra {
            group,
            dedup: (!more.dd.is_empty()).then(|| more.dd.as_str().into()),
            expires,
            tries: more.tries,
            base: more.base,
            cap: more.cap,
            dead_letters: more.dlq.clone(),
            ..Extra::default()
        };
        let told_group = if let Some(EnqueueOutcome::In { id, .. }) = told { id.group } else { 1 };
        let message = Message {
            id: MessageId { group: told_group, queue: at, held: false, priority, sequence: 0 },
            v: m.v,
            h: m.h,
            size: m.n,
            held: false,
            state: State::Blocked,
            receive_count: 0,
            failures: 0,
            window_from: 0,
            expiries: 0,
            dead: None,
            more: (m.more.is_some() || expires != 0).then(|| Box::new(extra)),
        };
        let (seq, id) = self.arrive(at, message, due, true)?;
        if !more.dd.is_empty() {
            let until = now + window;
            let dedup = Dedup { id, until, finished: false };
            self.queue_mut(at)?.remember(&more.dd, dedup);
            self.timers.set(Timer::dedup(until, id));
        }
        Ok(EnqueueOutcome::In { id, seq, at: due, dup: false })
    }

    /// The answer to an enqueue whose dedup id is remembered.
    fn duplicate(&mut self, at: u64, dd: &str) -> Step<Option<EnqueueOutcome>> {
        let now = self.now;
        let Some(known) = self.queue_mut(at)?.dedup.get(dd).copied() else { return Ok(None) };
        if known.finished && now >= known.until {
            self.timers.drop(Timer::dedup(known.until, known.id), now);
            self.queue_mut(at)?.forget(dd);
            return Ok(None);
        }
        let queue = self.queue_mut(at)?;
        queue.head.stats.duplicates += 1;
        queue.head.changed = true;
        let available = match self.by_id(known.id).map(|(_, _, message)| message.state) {
            Some(State::Delayed { due }) => due,
            Some(State::Ready { .. } | State::Leased { .. } | State::Blocked) | None => now,
        };
        Ok(Some(EnqueueOutcome::In { id: known.id, seq: known.id.sequence, at: available, dup: true }))
    }
}
