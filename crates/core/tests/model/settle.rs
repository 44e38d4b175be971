//! How leases end: settled by their token, or run out.

use ticketrail_core::command::{Expire, Failure, QueueSettings, Settle, Verdict};
use ticketrail_core::query::{DeadLetter, DeadReason, FailureClass, FailureInfo};
use ticketrail_core::reply::{
    DeadLettered, DelayedUntil, Empty, Extended, LeaseLost, Rejection, SettleOutcome, SettleResult,
};
use ticketrail_core::{LeaseToken, QueueName, Space, Timestamp};

use super::queue::{Due, Message, Queue, Ready, State, defaults};
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
            // Of a message that never left the fresh lane nobody can have had a token: nothing is said of it.
            let untouched = message.state == State::Ready(Ready { returned: None, since: message.enqueued_at })
                && message.dead_letter.is_none();
            let receive_count = (!untouched).then_some(receive_count);
            return Ok(Err(Rejection::LeaseLost(LeaseLost { receive_count })));
        }
        let sequence = token.sequence;
        Ok(Ok(match verdict {
            Verdict::Ack(_) => {
                queue.remove(sequence);
                queue.counters.acked += 1;
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
        let may_move = QueueName::parse(queue.dead_letter_name().name).is_ok();
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
        let max_attempts = settings.max_attempts.unwrap_or(0);
        let used_up = max_attempts > 0 && message.failures >= max_attempts;
        let stays = message.dead_letter.is_some() || !may_move;
        let reason = match attempt.class {
            FailureClass::Permanent => Some(DeadReason::Rejected),
            FailureClass::Transient | FailureClass::LeaseExpired => used_up.then_some(DeadReason::Attempts),
        };
        let first_expiry = message.expiries == 1;
        let then = match reason {
            Some(reason) if !stays => return self.move_dead(index, sequence, reason),
            // It stays, backed off at the cap, whatever the worker asks for.
            Some(_) => Then::Delayed(Due::At(now + settings.backoff_cap_ms.unwrap_or(0))),
            None if first_expiry => Then::Ready,
            None => match (attempt.delay_ms, heard) {
                (Some(0), _) => Then::Ready,
                (Some(delay), _) => Then::Delayed(Due::At(now + delay)),
                (None, heard) => jittered(now, ceiling(&settings, message.failures), heard, &mut self.returns),
            },
        };
        queue.counters.failed += 1;
        self.end(index, sequence, then)
    }

    /// The lease is over; the message goes where it belongs, or away where its queue was purged meanwhile.
    fn end(&mut self, index: usize, sequence: u64, then: Then) -> Then {
        let now = self.clock.cluster;
        let queue = &mut self.queues[index];
        let Some(message) = queue.message_mut(sequence) else { return Then::Purged };
        if message.lease().is_some_and(|lease| lease.purged) {
            queue.remove(sequence);
            queue.counters.purged += 1;
            return Then::Purged;
        }
        match then {
            Then::Delayed(due) => message.state = State::Delayed(due),
            Then::Ready => {
                self.returns += 1;
                message.state = State::Ready(Ready { returned: Some(self.returns), since: now });
            }
            Then::Moved(..) | Then::Purged => {}
        }
        then
    }

    /// The message leaves for the dead-letter queue, which is made where there is none, whatever its bounds.
    fn move_dead(&mut self, index: usize, sequence: u64, reason: DeadReason) -> Then {
        let now = self.clock.cluster;
        let source = self.queues[index].name.clone();
        self.queues[index].counters.failed += 1;
        let name = self.queues[index].dead_letter_name();
        let Some(old) = self.queues[index].remove(sequence) else { return Then::Purged };
        self.queues[index].counters.moved_out += 1;
        let target = match self.queue(&name) {
            Some(target) => target,
            None => self.found(name, defaults()),
        };
        let queue: &mut Queue = &mut self.queues[target];
        let sequence = queue.next_sequence;
        queue.next_sequence += 1;
        let mut message = Message::new(old.id, Space::Fresh, sequence, old.content, now);
        message.history = old.history;
        message.dead_letter = Some(DeadLetter {
            source,
            reason,
            at: Timestamp(now),
            receive_count: old.receive_count,
            failures: old.failures,
        });
        queue.counters.moved_in += 1;
        queue.counters.over_bound += u64::from(queue.bound_passed(message.size()).is_some());
        queue.messages.push(message);
        Then::Moved(target, sequence)
    }
}

/// min(cap, base * 2^n), n being the failures counted.
fn ceiling(settings: &QueueSettings, failures: u32) -> u64 {
    let base = u128::from(settings.backoff_base_ms.unwrap_or(0));
    let cap = u128::from(settings.backoff_cap_ms.unwrap_or(0));
    (base << failures.min(60)).min(cap) as u64
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
