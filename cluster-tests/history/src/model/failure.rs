//! Failures: the attempt budget, the backoff, the dead-letter queue.

use super::ends::End;
use super::queue::{Queue, State};
use super::settings::backoff_ceiling;
use super::timers::Timer;
use super::{Model, Pick, Step, unexpected, wrong};
use crate::format::{Applied, ExpiredLease, Remains, SettleOutcome};

/// How many expiries may fill an entry, together with what its earlier requests did, so that the rest is left for the next.
const FILLS: usize = 250;

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Transient { delay: Option<u64> },
    Permanent,
    Expired,
}

/// What of its policy a message goes by.
struct Policy {
    tries: u32,
    base: u64,
    cap: u64,
}

impl Policy {
    fn of(queue: &Queue, sequence: u64) -> Self {
        let (set, more) = (&queue.settings, queue.messages.get(&sequence).and_then(|message| message.more.as_ref()));
        Self {
            tries: more.and_then(|more| more.tries).unwrap_or(set.max_attempts),
            base: more.and_then(|more| more.base).unwrap_or(set.base),
            cap: more.and_then(|more| more.cap).unwrap_or(set.cap),
        }
    }
}

impl Model {
    /// Whether a lease that is named as run out really has.
    fn is_over(&self, lease: &ExpiredLease) -> bool {
        let message = self.queues.get(&lease.queue).and_then(|queue| queue.messages.get(&lease.sequence));
        message.is_some_and(|message| match message.state {
            State::Leased { granted, end, .. } => granted == lease.granted && end <= self.lease_now,
            State::Delayed { .. } | State::Ready { .. } | State::Blocked => false,
        })
    }

    /// Ends the leases that ran out.
    pub(super) fn expire(&mut self, leases: &[ExpiredLease], told: Option<&Applied>, pick: Pick<'_>) -> Step<Applied> {
        let told = match told {
            None => None,
            Some(Applied::Expired { l }) => Some(l),
            Some(other) => return unexpected("leases to end", other),
        };
        let mut ended = told.map(|told| told.iter());
        let mut l = Vec::new();
        for (number, lease) in (0u32..).zip(leases) {
            if !self.is_over(lease) {
                continue;
            }
            let outcome = match ended.as_mut().map(Iterator::next) {
                None => None,
                Some(None) if l.len() + self.done_in_entry >= FILLS => break,
                Some(None) => {
                    let text = format!("expected lease {number} to be ended, but it is not");
                    return wrong("a lease that ran out is ended", text);
                }
                Some(Some((told, _))) if *told != number => {
                    let text = format!("expected lease {number} of the list to be ended next, but it is {told}");
                    return wrong("a lease that ran out is ended, and no other", text);
                }
                Some(Some((_, outcome))) => Some(outcome),
            };
            l.push((number, self.expire_one(lease, outcome, pick)?));
        }
        match ended.as_mut().and_then(Iterator::next) {
            None => Ok(Applied::Expired { l }),
            Some((number, _)) => wrong(
                "a lease that ran out is ended, and no other",
                format!("expected lease {number} of the list to go on, but it was ended"),
            ),
        }
    }

    /// Ends a lease that ran out; what came of it in the log is seen by where the message is after the entry.
    fn expire_one(
        &mut self,
        lease: &ExpiredLease,
        told: Option<&SettleOutcome>,
        pick: Pick<'_>,
    ) -> Step<SettleOutcome> {
        let (at, sequence) = (lease.queue, lease.sequence);
        let queue = self.queue_mut(at)?;
        let id = queue.messages.get(&sequence).map(|message| message.id);
        let expected = if sequence < queue.head.purged_below {
            self.take_out(at, sequence, End::Purged)?;
            SettleOutcome::Purged
        } else {
            self.fail(at, sequence, Failed::Expired, told, pick)?
        };
        let place = id.and_then(|id| self.by_id(id)).map(|(queue, sequence, _)| (queue, sequence));
        // As the audit tells it: by where the message is.
        let expected = match (place, expected) {
            (None, SettleOutcome::Purged | SettleOutcome::Expired | SettleOutcome::Dropped) => SettleOutcome::Gone,
            (Some((q, seq)), SettleOutcome::Expired) => SettleOutcome::Dead { seq, q },
            (_, expected) => expected,
        };
        match (told, place) {
            (None, _) => Ok(expected),
            (Some(SettleOutcome::Unseen), Some(_)) => Ok(SettleOutcome::Unseen),
            // The rest of the entry took it away before anybody saw it.
            (Some(SettleOutcome::Gone), Some(place)) => {
                self.must_be_gone.insert(place);
                Ok(SettleOutcome::Gone)
            }
            (Some(told), _) if *told == expected => Ok(expected),
            (Some(told), _) => {
                let text = format!("expected it to end as {expected:?}, but it is {told:?}");
                wrong("the attempt budget and the backoff", text)
            }
        }
    }

    /// Counts a failure of a leased message, and puts it where it belongs.
    pub(super) fn fail(
        &mut self,
        at: u64,
        sequence: u64,
        failed: Failed,
        told: Option<&SettleOutcome>,
        pick: Pick<'_>,
    ) -> Step<SettleOutcome> {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        let policy = Policy::of(queue, sequence);
        let (window, on_exhausted) = (queue.settings.window, queue.settings.on_exhausted);
        let Some(message) = queue.messages.get_mut(&sequence) else {
            return wrong("a leased message is there", format!("expected message {sequence}, but there is none"));
        };
        queue.head.stats.failed += 1;
        queue.head.changed = true;
        if failed == Failed::Expired {
            queue.head.stats.lease_expired += 1;
            message.expiries += 1;
        } else {
            message.expiries = 0;
        }
        if message.failures == 0 || now.saturating_sub(message.window_from) >= window {
            message.failures = 0;
            message.window_from = now;
        }
        message.failures += 1;
        let (failures, expired, is_dead_letter) = (message.failures, message.is_expired(now), message.dead.is_some());
        let first_expiry = failed == Failed::Expired && message.expiries == 1;
        let exhausted = policy.tries > 0 && failures >= policy.tries;
        let gives_up = failed == Failed::Permanent || exhausted;
        if exhausted && failed != Failed::Permanent && on_exhausted == Remains::Nothing {
            self.take_out(at, sequence, End::Dropped)?;
            return Ok(SettleOutcome::Dropped);
        }
        if gives_up && !is_dead_letter {
            let why = if failed == Failed::Permanent { "rejected" } else { "attempts" };
            let (q, seq) = self.bury(at, sequence, why, told)?;
            return Ok(SettleOutcome::Dead { seq, q });
        }
        if expired {
            self.end_expired(at, sequence)?;
            return Ok(SettleOutcome::Expired);
        }
        // The least and the most that it may wait.
        let wait = match failed {
            _ if gives_up => policy.cap..=policy.cap,
            Failed::Transient { delay: Some(delay) } => delay..=delay,
            Failed::Expired if first_expiry => 0..=0,
            Failed::Transient { delay: None } | Failed::Expired | Failed::Permanent => {
                0..=backoff_ceiling(policy.base, policy.cap, failures)
            }
        };
        let waits = match told {
            None => *wait.start() + pick(wait.end() - wait.start()),
            Some(SettleOutcome::Readied) => 0,
            Some(SettleOutcome::Delayed { due }) if *due > now => *due - now,
            Some(SettleOutcome::Gone | SettleOutcome::Unseen) => *wait.end(),
            Some(told) => {
                let text = format!("expected it to wait {wait:?} ms after failure {failures}, but it is {told:?}");
                return wrong("the attempt budget and the backoff", text);
            }
        };
        if !wait.contains(&waits) {
            let text = format!("expected it to wait {wait:?} ms after failure {failures}, but it waits {waits} ms");
            return wrong("the attempt budget and the backoff", text);
        }
        let queue = self.queue_mut(at)?;
        queue.leave(sequence);
        if waits == 0 {
            queue.give_back(sequence);
            return Ok(SettleOutcome::Readied);
        }
        queue.head.stats.delayed += 1;
        let Some(message) = queue.messages.get_mut(&sequence) else { return Ok(SettleOutcome::Gone) };
        message.state = State::Delayed { due: now + waits };
        let timer = Timer::message(now + waits, at, message.lane(), sequence);
        if matches!(told, Some(SettleOutcome::Gone | SettleOutcome::Unseen)) && wait.start() < wait.end() {
            self.timers.set_unseen(now, now + waits);
        } else {
            self.timers.set(timer);
        }
        Ok(SettleOutcome::Delayed { due: now + waits })
    }
}
