//! How leases end: settled by their token, or run out.

use ticketrail_core::command::{Expire, Failure, Settle, Verdict};
use ticketrail_core::query::{DeadReason, FailureClass, FailureInfo};
use ticketrail_core::reply::{
    DeadLettered, DelayedUntil, Empty, Extended, LeaseLost, Rejection, SettleOutcome, SettleResult,
};
use ticketrail_core::{LeaseToken, Timestamp};

use super::line::Leaving;
use super::queue::{Due, Message, Queue};
use super::{Model, invalid, refused};

const LEASE_MAX_MS: u64 = 12 * 3_600_000;
const HISTORY: usize = 16;

/// How an attempt failed.
struct Attempt {
    class: FailureClass,
    code: String,
    text: String,
    /// The worker's own delay in place of the backoff.
    delay_ms: Option<u64>,
}

/// Where a message is after its lease.
enum Then {
    /// In a dead-letter queue.
    Moved(usize, u64),
    Delayed(Due),
    Ready,
    /// Its queue was purged meanwhile.
    Purged,
    /// Its time to live is over.
    Expired,
    /// Its attempts are used up, and nobody wants it.
    Dropped,
}

impl Model {
    pub(super) fn settle(&mut self, settle: &Settle, heard: Option<&SettleOutcome>) -> Result<SettleResult, String> {
        let outcome = match self.settled(settle, heard)? {
            Ok(outcome) => outcome,
            Err(rejection) => SettleOutcome::Rejected(refused(rejection)),
        };
        Ok(SettleResult { outcome: Some(outcome) })
    }

    fn settled(
        &mut self,
        settle: &Settle,
        heard: Option<&SettleOutcome>,
    ) -> Result<Result<SettleOutcome, Rejection>, String> {
        let Some(verdict) = &settle.verdict else {
            return Ok(Err(invalid("verdict")));
        };
        if let Err(rejection) = check(verdict) {
            return Ok(Err(rejection));
        }
        let Ok(token) = LeaseToken::from_bytes(&settle.token) else {
            return Ok(Err(invalid("lease_token")));
        };
        let named = self.queues.iter().position(|queue| queue.id == Some(token.queue.0));
        let Some(index) = named.or_else(|| self.unnamed(token.queue.0)) else {
            return Ok(Err(Rejection::LeaseLost(LeaseLost { receive_count: None })));
        };
        let lease_now = self.clock.lease;
        let queue = &mut self.queues[index];
        let Some(message) = queue.message_mut(token.sequence) else {
            return Ok(Err(Rejection::LeaseLost(LeaseLost { receive_count: None })));
        };
        let receive_count = message.receive_count;
        let live = message
            .lease()
            .is_some_and(|lease| lease.token.as_ref() == Some(&settle.token) && lease_now < lease.deadline);
        if !live {
            return Ok(Err(Rejection::LeaseLost(LeaseLost { receive_count: Some(receive_count) })));
        }
        let sequence = token.sequence;
        Ok(Ok(match verdict {
            Verdict::Ack(ack) => {
                self.ack(index, sequence, ack.output.clone());
                SettleOutcome::Acked(Empty {})
            }
            Verdict::Release(_) => {
                message.expiries = 0;
                let then = self.end(index, sequence, Then::Ready);
                self.outcome(then, heard)?
            }
            Verdict::Extend(extend) => {
                let lease_ms =
                    if extend.lease_ms == 0 { queue.settings.lease_ms.unwrap_or(0) } else { extend.lease_ms };
                let mut deadline_ms = 0;
                if let Some(lease) = queue.message_mut(sequence).and_then(Message::lease_mut) {
                    deadline_ms = (lease_now + lease_ms).min(lease.granted_lease + LEASE_MAX_MS);
                    lease.deadline = deadline_ms;
                }
                SettleOutcome::Extended(Extended { deadline_ms, remaining_ms: deadline_ms - lease_now })
            }
            Verdict::Retry(retry) => {
                let failure = retry.failure.clone().unwrap_or_default();
                let attempt = Attempt {
                    class: FailureClass::Transient,
                    code: failure.code,
                    text: failure.text,
                    delay_ms: retry.delay_ms,
                };
                let then = self.fail(index, sequence, attempt, heard);
                self.outcome(then, heard)?
            }
            Verdict::Reject(Failure { code, text }) => {
                let attempt =
                    Attempt { class: FailureClass::Permanent, code: code.clone(), text: text.clone(), delay_ms: None };
                let then = self.fail(index, sequence, attempt, heard);
                self.outcome(then, heard)?
            }
        }))
    }

    /// A queue that a move of this very commit has made, and that the machine has not named: where the commit falls it
    /// never will. Ids are given one after the other.
    fn unnamed(&self, id: u64) -> Option<usize> {
        let last = self.queue_ids.iter().copied().max().unwrap_or(0);
        let nth = usize::try_from(id.checked_sub(last + 1)?).ok()?;
        let nameless = self.queues.iter().enumerate().filter(|(_, queue)| queue.id.is_none());
        nameless.map(|(index, _)| index).nth(nth)
    }

    /// What the worker is told.
    fn outcome(&mut self, then: Then, heard: Option<&SettleOutcome>) -> Result<SettleOutcome, String> {
        Ok(match then {
            Then::Ready => SettleOutcome::Readied(Empty {}),
            Then::Purged => SettleOutcome::Purged(Empty {}),
            Then::Expired => SettleOutcome::Expired(Empty {}),
            Then::Dropped => SettleOutcome::Dropped(Empty {}),
            Then::Delayed(Due::At(due_ms)) => SettleOutcome::Delayed(DelayedUntil { due_ms }),
            Then::Delayed(Due::Between { low, high, .. }) => {
                return Err(format!("expected a delay until {low} to {high}, but the machine answers {heard:?}"));
            }
            Then::Moved(target, sequence) => {
                if let Some(SettleOutcome::DeadLettered(DeadLettered { place })) = heard {
                    self.bind_queue_id(target, place.queue)?;
                }
                let queue = &self.queues[target];
                let message = queue.message(sequence).ok_or("the dead letter is nowhere")?;
                SettleOutcome::DeadLettered(DeadLettered { place: message.place(queue.id.unwrap_or_default()).into() })
            }
        })
    }

    /// Leases that ran out. Those that did not, or are not there, are left alone.
    pub(super) fn expire(&mut self, expire: &Expire) -> u32 {
        let mut count = 0;
        for run_out in &expire.leases {
            let Some(index) = self.queues.iter().position(|queue| queue.id == Some(run_out.queue)) else { continue };
            let lease = self.queues[index].message(run_out.sequence).and_then(Message::lease);
            if !lease
                .is_some_and(|lease| lease.granted_index == run_out.granted_index && lease.deadline <= self.clock.lease)
            {
                continue;
            }
            count += 1;
            if !lease.is_some_and(|lease| lease.purged) {
                self.queues[index].counters.lease_expired += 1;
            }
            let attempt =
                Attempt { class: FailureClass::LeaseExpired, code: String::new(), text: String::new(), delay_ms: None };
            self.fail(index, run_out.sequence, attempt, None);
        }
        count
    }

    /// A failed attempt: counted, remembered, and then backed off, moved, or readied.
    fn fail(&mut self, index: usize, sequence: u64, attempt: Attempt, heard: Option<&SettleOutcome>) -> Then {
        let now = self.clock.cluster;
        let queue = &mut self.queues[index];
        let settings = queue.settings.clone();
        let Some(message) = queue.message_mut(sequence) else { return Then::Purged };
        if message.lease().is_some_and(|lease| lease.purged) {
            return self.end(index, sequence, Then::Purged);
        }
        let window = settings.failure_window_ms.unwrap_or(0);
        if message.window_opened.is_none_or(|opened| now - opened >= window) {
            message.window_opened = Some(now);
            message.failures = 0;
        }
        message.failures += 1;
        let lease = message.lease().cloned();
        message.history.push(FailureInfo {
            worker: lease.as_ref().map(|lease| lease.worker.clone()).unwrap_or_default(),
            started_at: Timestamp(lease.as_ref().map_or(0, |lease| lease.granted_at)),
            failed_at: Timestamp(now),
            class: attempt.class,
            code: attempt.code,
            text: attempt.text,
        });
        if message.history.len() > HISTORY {
            message.history.remove(0);
        }
        message.expiries = if attempt.class == FailureClass::LeaseExpired { message.expiries + 1 } else { 0 };
        let own = message.retry.unwrap_or_default();
        let max_attempts = own.max_attempts.or(settings.max_attempts).unwrap_or(0);
        let base = own.backoff_base_ms.or(settings.backoff_base_ms).unwrap_or(0);
        let cap = own.backoff_cap_ms.or(settings.backoff_cap_ms).unwrap_or(0);
        let used_up = max_attempts > 0 && message.failures >= max_attempts;
        let (failures, first_expiry) = (message.failures, message.expiries == 1);
        let has_expired = message.has_expired(now);
        queue.counters.failed += 1;
        let reason = match attempt.class {
            FailureClass::Permanent => Some(DeadReason::Rejected),
            FailureClass::Transient | FailureClass::LeaseExpired => used_up.then_some(DeadReason::Attempts),
        };
        if reason == Some(DeadReason::Attempts) && settings.on_exhausted == Some(1) {
            return self.end(index, sequence, Then::Dropped);
        }
        let may_move = self.grave(index, sequence).is_some();
        let then = match reason {
            Some(reason) if may_move => return self.die(index, sequence, reason),
            Some(_) | None if has_expired => Then::Expired,
            // It stays, backed off at the cap, whatever the worker asks for.
            Some(_) => Then::Delayed(Due::At(now + cap)),
            None if first_expiry => Then::Ready,
            None => match (attempt.delay_ms, heard) {
                (Some(0), _) => Then::Ready,
                (Some(delay), _) => Then::Delayed(Due::At(now + delay)),
                (None, heard) => jittered(now, ceiling(base, cap, failures), heard, &mut self.returns),
            },
        };
        self.end(index, sequence, then)
    }

    /// The lease is over; the message goes where it belongs, or away where its queue was purged meanwhile, or its time to
    /// live is over.
    fn end(&mut self, index: usize, sequence: u64, then: Then) -> Then {
        let now = self.clock.cluster;
        let queue = &mut self.queues[index];
        let Some(message) = queue.message(sequence) else { return Then::Purged };
        let group = message.group.clone();
        if message.lease().is_some_and(|lease| lease.purged) {
            self.leave(index, sequence, Leaving::Purged);
            self.promote(index, &group);
            return Then::Purged;
        }
        if matches!(then, Then::Dropped) {
            queue.drain.finish(now);
            self.leave(index, sequence, Leaving::Dropped);
            self.promote(index, &group);
            return then;
        }
        if message.has_expired(now) {
            queue.drain.finish(now);
            self.end_expired(index, sequence);
            return Then::Expired;
        }
        match then {
            Then::Delayed(due) => self.delay(index, sequence, due),
            Then::Ready => self.ready(index, sequence),
            Then::Moved(..) | Then::Purged | Then::Expired | Then::Dropped => {}
        }
        then
    }

    /// The message dies at the end of its lease, and its queue says what that does to its line.
    fn die(&mut self, index: usize, sequence: u64, reason: DeadReason) -> Then {
        let now = self.clock.cluster;
        let queue: &mut Queue = &mut self.queues[index];
        queue.drain.finish(now);
        let (number, policy) = (queue.number, queue.settings.on_group_failure);
        let group = queue.message(sequence).map(|message| message.group.clone()).unwrap_or_default();
        let Some((target, moved)) = self.bury(index, sequence, reason) else { return Then::Purged };
        if !group.is_empty() && policy == Some(1) {
            self.queues[index].blocked_groups.push(group.clone());
            if let Some(dead) = self.queues[target].message_mut(moved) {
                dead.holds_up = Some((number, group.clone()));
            }
        }
        if !group.is_empty() && policy == Some(2) {
            let queue: &mut Queue = &mut self.queues[index];
            let followers = queue.messages.iter().filter(|message| message.line > 0 && message.group == group);
            if let Some(last) = followers.map(|message| message.line).max() {
                self.doomed += 1;
                queue.doomed_groups.push((group.clone(), last, self.doomed));
            }
        }
        self.promote(index, &group);
        Then::Moved(target, moved)
    }
}

/// min(cap, base * 2^n), n being the failures counted.
fn ceiling(base: u64, cap: u64, failures: u32) -> u64 {
    (u128::from(base) << failures.min(60)).min(u128::from(cap)) as u64
}

/// Between nothing and the ceiling, as heard; nothing means ready at once.
fn jittered(now: u64, ceiling: u64, heard: Option<&SettleOutcome>, returns: &mut u64) -> Then {
    let (low, high) = (now, now + ceiling);
    match heard {
        Some(SettleOutcome::Readied(_)) => Then::Ready,
        Some(SettleOutcome::Delayed(DelayedUntil { due_ms })) if (low + 1..=high).contains(due_ms) => {
            Then::Delayed(Due::At(*due_ms))
        }
        Some(_) | None => {
            *returns += 1;
            Then::Delayed(Due::Between { low, high, order: *returns })
        }
    }
}

fn check(verdict: &Verdict) -> Result<(), Rejection> {
    let failure = |failure: &Failure| match (failure.code.len(), failure.text.len()) {
        (257.., _) => Err(invalid("code")),
        (_, 513..) => Err(invalid("text")),
        (_, _) => Ok(()),
    };
    match verdict {
        Verdict::Ack(ack) if ack.output.len() > 64 << 10 => Err(invalid("output")),
        Verdict::Ack(_) | Verdict::Release(_) => Ok(()),
        Verdict::Retry(retry) => {
            if retry.delay_ms.is_some_and(|delay| delay > 366 * 24 * 3_600_000) {
                return Err(invalid("delay"));
            }
            retry.failure.as_ref().map_or(Ok(()), failure)
        }
        Verdict::Reject(rejected) => failure(rejected),
        Verdict::Extend(extend) => {
            if extend.lease_ms != 0 && !(1_000..=LEASE_MAX_MS).contains(&extend.lease_ms) {
                return Err(invalid("lease"));
            }
            Ok(())
        }
    }
}
