//! Cancels and reschedules.

use super::ends::End;
use super::queue::State;
use super::settings::DELAY;
use super::timers::Timer;
use super::{Model, Step};
use crate::format::{CancelOutcome, NewTime, Refusal, Target, TimeOutcome};

/// Where the message of a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// In a queue, under a sequence.
    At(u64, u64),
    /// It has finished, and its dedup id is remembered.
    Finished,
    /// Nowhere.
    Nowhere,
}

impl Model {
    /// Where the message of a target is.
    pub(super) fn seek(&self, target: &Target) -> Found {
        let id = match target {
            Target::Id(id) => *id,
            Target::Dedup { q, dd } => {
                let queue = self.names.get(q).and_then(|id| self.queues.get(id));
                match queue.and_then(|queue| queue.dedup.get(dd.as_str())) {
                    None => return Found::Nowhere,
                    Some(known) if known.finished && self.now >= known.until => return Found::Nowhere,
                    Some(known) if known.finished => return Found::Finished,
                    Some(known) => known.id,
                }
            }
        };
        self.by_id(id).map_or(Found::Nowhere, |(queue, sequence, _)| Found::At(queue, sequence))
    }

    /// Carries out a cancel.
    pub(super) fn cancel(&mut self, target: &Target) -> Step<CancelOutcome> {
        let (at, sequence) = match self.seek(target) {
            Found::At(at, sequence) => (at, sequence),
            Found::Finished => return Ok(CancelOutcome::No(Refusal::new("TOO_LATE"))),
            Found::Nowhere => return Ok(CancelOutcome::Gone),
        };
        let Some(message) = self.queue_mut(at)?.messages.get(&sequence) else { return Ok(CancelOutcome::Gone) };
        if let State::Leased { .. } = message.state {
            return Ok(CancelOutcome::No(Refusal::counted("TOO_LATE", Some(message.receive_count))));
        }
        let (message, _) = self.take_out(at, sequence, End::Cancelled)?;
        Ok(CancelOutcome::Cancelled { id: message.id })
    }

    /// Carries out a reschedule.
    pub(super) fn reschedule(&mut self, time: &NewTime) -> Step<TimeOutcome> {
        let refused = |refusal: Refusal| Ok(TimeOutcome::No(refusal));
        let now = self.now;
        if time.d > DELAY || time.at.saturating_sub(now) > DELAY {
            return refused(Refusal::new("INVALID"));
        }
        let due = (now + time.d).max(time.at);
        let (at, sequence) = match self.seek(&time.of) {
            Found::At(at, sequence) => (at, sequence),
            Found::Finished => return refused(Refusal::new("TOO_LATE")),
            Found::Nowhere => return refused(Refusal::new("MESSAGE_NOT_FOUND")),
        };
        let queue = self.queue_mut(at)?;
        let Some(message) = queue.messages.get(&sequence) else { return refused(Refusal::new("MESSAGE_NOT_FOUND")) };
        let (id, state, lane, expires) = (message.id, message.state, message.lane(), message.expires());
        if let State::Leased { .. } = state {
            return refused(Refusal::counted("TOO_LATE", Some(message.receive_count)));
        }
        if expires != 0 && due >= expires {
            return refused(Refusal::new("INVALID"));
        }
        let waits = due > now;
        let in_line = message.line() != 0;
        queue.head.changed = true;
        match state {
            State::Blocked => {
                if let Some(more) = queue.messages.get_mut(&sequence).and_then(|message| message.more.as_mut()) {
                    more.waits = if waits { due } else { 0 };
                }
            }
            State::Ready { .. } if !waits => {}
            State::Ready { returned } => {
                queue.leave(sequence);
                queue.head.stats.delayed += 1;
                if let Some(message) = queue.messages.get_mut(&sequence) {
                    message.state = State::Delayed { due };
                    message.held |= returned.is_none();
                }
                let new_lane = if returned.is_none() { lane | 0x10 } else { lane };
                self.timers.set(Timer::message(due, at, new_lane, sequence));
            }
            State::Delayed { due: before } => {
                self.timers.drop(Timer::message(before, at, lane, sequence), now);
                if waits {
                    if let Some(message) = self.queue_mut(at)?.messages.get_mut(&sequence) {
                        message.state = State::Delayed { due };
                    }
                    self.timers.set(Timer::message(due, at, lane, sequence));
                } else {
                    self.come_due(at, sequence, in_line)?;
                }
            }
            State::Leased { .. } => {}
        }
        Ok(TimeOutcome::Moved { id, at: due.max(now) })
    }

    /// A delayed message is due: it joins its line, unless it is in it, and is ready if it is free.
    pub(super) fn come_due(&mut self, at: u64, sequence: u64, in_line: bool) -> Step {
        let queue = self.queue_mut(at)?;
        queue.leave(sequence);
        queue.head.changed = true;
        let free = in_line || self.join(at, sequence)?;
        let queue = self.queue_mut(at)?;
        if free {
            queue.give_back(sequence);
        } else if let Some(message) = queue.messages.get_mut(&sequence) {
            message.state = State::Blocked;
            queue.head.stats.blocked += 1;
        }
        Ok(())
    }
}
