//! What a tick does: fires what is due in order of its time, and works off what was left.

use ticketrail_core::query::DeadReason;
use ticketrail_core::reply::{Answered, Ticked};

use ticketrail_core::MessageId;

use super::Model;
use super::queue::{Due, Queue, State};

/// Timers of one tick, and messages of one tick that follow a dead letter of their group.
const BOUND: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A message is due: lane byte and sequence.
    Message(Option<u64>, u8, u64),
    Resume(Option<u64>),
    Expiry(Option<u64>, u8, u64),
    Dedup(Option<u64>, String),
    Outcome(Option<u64>, String),
}

impl Model {
    pub(super) fn tick(&mut self, heard: Option<&Answered>) -> Result<Ticked, String> {
        let mut due = self.due()?;
        // A tick is bounded; the next one goes on.
        due.truncate(BOUND);
        let messages = due.iter().filter(|(_, _, timer)| matches!(timer, Timer::Message(..))).count();
        for (_, number, timer) in due {
            self.fire(number, &timer);
        }
        // How many timers fired and found nothing to do is the machine's own affair.
        match heard {
            Some(Answered::Ticked(ticked)) if ticked.fired as usize >= messages => Ok(*ticked),
            Some(_) | None => Err(format!("a tick: {messages} messages are due, but the machine answers {heard:?}")),
        }
    }

    /// All that is due, by its time, with the number of its queue.
    fn due(&self) -> Result<Vec<(u64, u64, Timer)>, String> {
        let now = self.clock.cluster;
        let mut due = Vec::new();
        for queue in &self.queues {
            let mut add = |at: u64, timer| {
                if at <= now {
                    due.push((at, timer, queue.number));
                }
            };
            for message in &queue.messages {
                let lane = message.place(0).lane_byte();
                match message.state {
                    State::Delayed(Due::At(at)) => add(at, Timer::Message(queue.id, lane, message.sequence)),
                    State::Delayed(Due::Between { low, .. }) if low <= now => {
                        return Err("a tick in the entry of an expiry: the model cannot know what is due".into());
                    }
                    State::Delayed(_) | State::Ready(_) | State::Blocked { .. } | State::Leased(_) => {}
                }
                if let (Some(at), None) = (message.expires_at, message.lease()) {
                    add(at, Timer::Expiry(queue.id, lane, message.sequence));
                }
            }
            if let Some(pause) = queue.paused.as_ref().filter(|pause| pause.until_ms != 0) {
                add(pause.until_ms, Timer::Resume(queue.id));
            }
            for known in queue.dedup.iter().filter(|known| known.finished) {
                add(known.until, Timer::Dedup(queue.id, known.dedup_id.clone()));
            }
            for outcome in &queue.outcomes {
                add(outcome.kept_until.0, Timer::Outcome(queue.id, outcome.id.to_string()));
            }
        }
        // Of one millisecond: by kind, then by key.
        due.sort();
        Ok(due.into_iter().map(|(at, timer, number)| (at, number, timer)).collect())
    }

    fn fire(&mut self, number: u64, timer: &Timer) {
        let now = self.clock.cluster;
        let Some(index) = self.queues.iter().position(|queue| queue.number == number) else { return };
        match timer {
            Timer::Message(_, _, sequence) => {
                let state = self.queues[index].message(*sequence).map(|message| &message.state);
                if let Some(State::Delayed(Due::At(at))) = state
                    && *at <= now
                {
                    self.ready(index, *sequence);
                }
            }
            Timer::Resume(_) => self.queues[index].paused = None,
            Timer::Expiry(_, _, sequence) => self.end_expired(index, *sequence),
            Timer::Dedup(_, dedup_id) => self.queues[index].dedup.retain(|known| known.dedup_id != *dedup_id),
            Timer::Outcome(_, id) => self.queues[index].outcomes.retain(|outcome| outcome.id.to_string() != *id),
        }
    }

    /// What a tick does after its timers: it sweeps what was purged and deleted, in steps that are its own affair. Lines
    /// whose dead letter it has reached, as heard, go on; and when all is swept, no dedup id of a purge is left.
    pub(crate) fn work_off(&mut self, released: &[(u64, String)], is_swept: bool) {
        let before: Vec<_> = self.queues.iter().map(Queue::record).collect();
        self.freed.retain(|freed| !released.contains(freed));
        for (number, group) in released {
            self.unblock(*number, group);
        }
        self.follow();
        for (queue, before) in self.queues.iter_mut().zip(before) {
            if is_swept {
                queue.stale.clear();
            }
            if queue.record() != before {
                queue.drain.touch(self.clock.cluster);
            }
        }
    }

    /// Lines that wait for a sweep, each with its queue and its first message, if that is there.
    pub(crate) fn swept_lines(&self) -> Vec<(u64, String, Option<&Queue>, Option<MessageId>)> {
        let line = |(number, group): &(u64, String)| {
            let index = self.queues.iter().position(|queue| queue.number == *number);
            let first = index.and_then(|index| self.first_of_line(index, group)).map(|first| first.id);
            (*number, group.clone(), index.map(|index| &self.queues[index]), first)
        };
        self.freed.iter().map(line).collect()
    }

    /// The lines that follow a dead letter go the same way, as far as one tick may.
    fn follow(&mut self) {
        let mut left = BOUND;
        for index in 0..self.queues.len() {
            for (group, last) in self.queues[index].doomed_groups.clone() {
                let queue = &self.queues[index];
                let doomed = queue.messages.iter().filter(|message| {
                    message.group == group && (1..=last).contains(&message.line) && message.dead_letter.is_none()
                });
                let mut doomed: Vec<(u64, u64)> = doomed.map(|message| (message.line, message.sequence)).collect();
                doomed.sort_unstable();
                let done = doomed.len() <= left;
                doomed.truncate(left);
                left -= doomed.len();
                for (_, sequence) in doomed {
                    self.bury(index, sequence, DeadReason::Group);
                }
                if done {
                    self.queues[index].doomed_groups.retain(|(other, _)| *other != group);
                    self.promote(index, &group);
                }
            }
        }
    }

    /// When something is due that only a tick can do.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let mut earliest = None;
        let mut add = |at: u64| earliest = Some(earliest.map_or(at, |first: u64| first.min(at)));
        if !self.freed.is_empty() || self.queues.iter().any(|queue| !queue.doomed_groups.is_empty()) {
            add(self.clock.cluster);
        }
        for queue in &self.queues {
            if let Some(until) = queue.paused.as_ref().map(|pause| pause.until_ms).filter(|until| *until > 0) {
                add(until);
            }
            for message in &queue.messages {
                if let State::Delayed(Due::At(due)) = message.state {
                    add(due);
                }
                if let (Some(at), None) = (message.expires_at, message.lease()) {
                    add(at);
                }
            }
            for known in queue.dedup.iter().filter(|known| known.finished) {
                add(known.until);
            }
            for outcome in &queue.outcomes {
                add(outcome.kept_until.0);
            }
        }
        earliest
    }
}
