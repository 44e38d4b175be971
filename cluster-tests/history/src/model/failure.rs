//! Failures: the attempt budget, the backoff, the dead-letter queue.

use super::queue::{Message, State};
use super::timers::Timer;
use super::{Model, Step, unexpected, wrong};
use crate::format::{Applied, DeadLetter, ExpiredLease, SettleOutcome};

/// How many expiries may fill an entry, together with what its earlier requests did, so that the rest is left for the next.
const FILLS: usize = 250;

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Transient { delay: Option<u64> },
    Permanent,
    Expired,
}

impl Model {
    /// Ends the leases that ran out.
    pub(super) fn expire(&mut self, leases: &[ExpiredLease], got: &Applied) -> Step {
        let Applied::Expired { l } = got else { return unexpected("leases to end", got) };
        let mut ended = l.iter();
        for (number, lease) in (0u32..).zip(leases) {
            let message = self.queues.get(&lease.queue).and_then(|queue| queue.messages.get(&lease.sequence));
            let Some(message) = message else { continue };
            let over = match message.state {
                State::Leased { granted, end, .. } => granted == lease.granted && end <= self.lease_now,
                State::Delayed { .. } | State::Ready => false,
            };
            if !over {
                continue;
            }
            let Some((told, outcome)) = ended.next() else {
                if l.len() + self.done_in_entry >= FILLS {
                    break;
                }
                return wrong(
                    "a lease that ran out is ended",
                    format!("expected lease {number} to be ended, but it is not"),
                );
            };
            if *told != number {
                let text = format!("expected lease {number} of the list to be ended next, but it is {told}");
                return wrong("a lease that ran out is ended, and no other", text);
            }
            if lease.sequence < self.queue_mut(lease.queue)?.purged_below {
                self.finish_purged(lease.queue, lease.sequence, outcome)?;
            } else {
                self.fail(lease.queue, lease.sequence, Failed::Expired, outcome)?;
            }
        }
        match ended.next() {
            None => Ok(()),
            Some((number, _)) => wrong(
                "a lease that ran out is ended, and no other",
                format!("expected lease {number} of the list to go on, but it was ended"),
            ),
        }
    }

    /// The end of a message whose queue was purged while it was leased.
    pub(super) fn finish_purged(&mut self, id: u64, sequence: u64, got: &SettleOutcome) -> Step {
        if *got != SettleOutcome::Purged {
            return wrong("what was purged while it was leased is gone", format!("expected Purged, but it is {got:?}"));
        }
        let queue = self.queue_mut(id)?;
        if let Some(message) = queue.remove(sequence) {
            queue.end_lease(message.size);
            queue.stats.purged += 1;
            self.moved.remove(&message.id);
        }
        Ok(())
    }

    /// Counts a failure of a leased message, and puts it where it belongs.
    pub(super) fn fail(&mut self, id: u64, sequence: u64, failed: Failed, got: &SettleOutcome) -> Step {
        let now = self.now;
        let queue = self.queue_mut(id)?;
        let settings = queue.settings.clone();
        let target = settings.dead_letter_queue(&queue.name);
        let Some(message) = queue.messages.get_mut(&sequence) else {
            return wrong("a leased message is there", format!("expected message {sequence}, but there is none"));
        };
        queue.stats.failed += 1;
        if failed == Failed::Expired {
            queue.stats.lease_expired += 1;
            message.expiries += 1;
        } else {
            message.expiries = 0;
        }
        if message.failures == 0 || now.saturating_sub(message.window_from) >= settings.window {
            message.failures = 0;
            message.window_from = now;
        }
        message.failures += 1;
        let (size, held, failures) = (message.size, message.held, message.failures);
        let exhausted = settings.max_attempts > 0 && failures >= settings.max_attempts;
        let gives_up = failed == Failed::Permanent || exhausted;
        let is_dead_letter = message.dead.is_some();
        let first_expiry = failed == Failed::Expired && message.expiries == 1;
        // What follows may not be seen, where the rest of the entry removed the message.
        let unseen = failed == Failed::Expired && *got == SettleOutcome::Purged;
        queue.end_lease(size);
        if let Some(target) = target.filter(|_| gives_up && !is_dead_letter) {
            let why = if failed == Failed::Permanent { "rejected" } else { "attempts" };
            return self.bury(id, sequence, &target, why, got, unseen);
        }
        // The least and the most that it may wait.
        let wait = match failed {
            _ if gives_up => settings.cap..=settings.cap,
            Failed::Transient { delay: Some(delay) } => delay..=delay,
            Failed::Expired if first_expiry => 0..=0,
            Failed::Transient { delay: None } | Failed::Expired | Failed::Permanent => {
                0..=settings.backoff_ceiling(failures)
            }
        };
        let waits = match got {
            SettleOutcome::Readied => 0,
            SettleOutcome::Delayed { due } if *due > now => *due - now,
            SettleOutcome::Purged if unseen => *wait.end(),
            SettleOutcome::Acked
            | SettleOutcome::Dead { .. }
            | SettleOutcome::Delayed { .. }
            | SettleOutcome::Extended { .. }
            | SettleOutcome::Purged
            | SettleOutcome::No(_) => {
                let text = format!("expected it to wait {wait:?} ms after failure {failures}, but it is {got:?}");
                return wrong("the attempt budget and the backoff", text);
            }
        };
        if !wait.contains(&waits) {
            let text = format!("expected it to wait {wait:?} ms after failure {failures}, but it waits {waits} ms");
            return wrong("the attempt budget and the backoff", text);
        }
        if unseen {
            self.must_be_gone.insert((id, sequence));
        }
        let queue = self.queue_mut(id)?;
        if waits == 0 {
            queue.give_back(sequence);
            return Ok(());
        }
        queue.stats.delayed += 1;
        if let Some(message) = queue.messages.get_mut(&sequence) {
            message.state = State::Delayed { due: now + waits };
        }
        if unseen && wait.start() < wait.end() {
            self.timers.set_unseen(now, now + waits);
        } else {
            self.timers.set(Timer::message(now + waits, id, held, sequence));
        }
        Ok(())
    }

    /// Moves a message whose lease was just ended to a dead-letter queue.
    fn bury(
        &mut self,
        id: u64,
        sequence: u64,
        target: &crate::format::QueueName,
        why: &str,
        got: &SettleOutcome,
        unseen: bool,
    ) -> Step {
        let rule = "a message whose attempts are used up, or that was rejected, is a dead letter";
        let queue = self.queue_mut(id)?;
        let source = queue.name.clone();
        let Some(message) = queue.remove(sequence) else { return wrong(rule, "expected the message, but it is gone") };
        queue.stats.moved_out += 1;
        let to = match (self.names.get(target).copied(), got) {
            (Some(to), _) => to,
            (None, SettleOutcome::Dead { q, .. }) => {
                self.make_queue(target, *q)?;
                *q
            }
            // The rest of the entry removed the message, so that its place was not seen.
            (None, _) if unseen => {
                let next = self.last_queue + 1;
                self.make_queue(target, next)?;
                next
            }
            (None, other) => return wrong(rule, format!("expected it in {target}, but it is {other:?}")),
        };
        let next = self.queue_mut(to)?.last_sequence + 1;
        let expected = SettleOutcome::Dead { seq: next, q: to };
        if *got != expected && !unseen {
            return wrong(rule, format!("expected {expected:?} in {target}, but it is {got:?}"));
        }
        let dead = DeadLetter { q: source, why: why.into(), rc: message.receive_count, f: message.failures };
        let buried = Message {
            state: State::Ready,
            held: false,
            receive_count: 0,
            failures: 0,
            window_from: 0,
            expiries: 0,
            dead: Some(Box::new(dead)),
            ..message
        };
        let queue = self.queue_mut(to)?;
        queue.stats.moved_in += 1;
        queue.stats.over_bound += u64::from(queue.is_full(1, buried.size));
        let message = buried.id;
        let place = (to, queue.add(buried));
        self.moved.insert(message, place);
        if unseen {
            self.must_be_gone.insert(place);
        }
        Ok(())
    }
}
