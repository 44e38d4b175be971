//! Enqueues.

use super::queue::{Message, State};
use super::settings::DELAY;
use super::timers::Timer;
use super::{Model, Step, refusal_matches, wrong};
use crate::format::{EnqueueOutcome, EnqueuePart, MessageId, Refusal};

impl Model {
    /// Why an enqueue must be refused; `more` and `size` count what else came before it in the same commit.
    pub(super) fn enqueue_refusal(&self, part: &EnqueuePart, auto: bool, more: i64, size: i64) -> Option<Refusal> {
        if part.m.d > DELAY || part.m.at.saturating_sub(self.now) > DELAY {
            return Some(Refusal::new("INVALID"));
        }
        let Some(queue) = self.names.get(&part.q).and_then(|id| self.queues.get(id)) else {
            return (!auto).then(|| Refusal::new("QUEUE_NOT_FOUND"));
        };
        if queue.closed {
            return Some(Refusal::new("QUEUE_CLOSED"));
        }
        let (held, bytes) = (queue.stats.depth() as i64 + more + 1, queue.stats.bytes as i64 + size + part.m.n as i64);
        let passes = |limit: u64, held: i64| limit > 0 && held > limit as i64;
        let full = passes(queue.settings.max_depth, held) || passes(queue.settings.max_bytes, bytes);
        full.then(|| Refusal::new("FULL"))
    }

    /// Carries out an enqueue.
    pub(super) fn enqueue(&mut self, part: &EnqueuePart, auto: bool, got: &EnqueueOutcome) -> Step {
        let refusal = self.enqueue_refusal(part, auto, 0, 0);
        let (id, at) = match (refusal, got) {
            (Some(expected), EnqueueOutcome::No(refusal)) => return refusal_matches(&expected, refusal),
            (Some(expected), EnqueueOutcome::In { .. }) => {
                let text = format!("expected {expected} for message v {}, but it was taken in", part.m.v);
                return wrong("what must be refused is refused", text);
            }
            (None, EnqueueOutcome::No(refusal)) => {
                let text = format!("expected message v {} to be taken in, but it was refused: {refusal}", part.m.v);
                return wrong("a lawful request takes effect", text);
            }
            (None, EnqueueOutcome::In { id, at, .. }) => (*id, *at),
        };
        if !self.names.contains_key(&part.q) {
            self.make_queue(&part.q, id.queue)?;
        }
        let Some(place) = self.names.get(&part.q).copied() else { return wrong("a queue is there", "none") };
        let now = self.now;
        let due = (now + part.m.d).max(part.m.at);
        let held = due > now;
        let queue = self.queue_mut(place)?;
        let sequence = queue.last_sequence + 1;
        let id = MessageId { queue: place, held, sequence, ..id };
        let expected = EnqueueOutcome::In { id, seq: sequence, at: due };
        if expected != *got {
            let text = format!("expected {expected:?} for message v {}, but it is {got:?} (ready at {at})", part.m.v);
            return wrong("sequences follow each other, and a delay is kept", text);
        }
        queue.stats.enqueued += 1;
        queue.add(Message {
            id,
            v: part.m.v,
            h: part.m.h,
            size: part.m.n,
            held,
            state: if held { State::Delayed { due } } else { State::Ready },
            receive_count: 0,
            failures: 0,
            window_from: 0,
            expiries: 0,
            dead: None,
        });
        if held {
            self.timers.set(Timer::message(due, place, held, sequence));
        }
        Ok(())
    }
}
