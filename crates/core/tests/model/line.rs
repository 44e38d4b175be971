//! Groups: who is the head of a line, and what happens when a message leaves.

use ticketrail_core::command::QueueRef;
use ticketrail_core::query::{DeadLetter, DeadReason};
use ticketrail_core::{QueueName, Space, Timestamp};

use super::Model;
use super::queue::{Due, Message, Ready, State};

/// How a message leaves its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Acked,
    /// To a dead-letter queue.
    Moved,
    Expired,
    Dropped,
    Cancelled,
    /// Its lease ended after a purge.
    Purged,
}

impl Leaving {
    /// Whether the dedup id goes with the message; else it stays until its window is over.
    fn frees(self) -> bool {
        match self {
            Leaving::Cancelled | Leaving::Purged => true,
            Leaving::Acked | Leaving::Moved | Leaving::Expired | Leaving::Dropped => false,
        }
    }
}

impl Model {
    /// The message is no longer here: its dedup id is finished or free, its line goes on, and so does the line that
    /// waited for it.
    pub(super) fn leave(&mut self, index: usize, sequence: u64, how: Leaving) -> Option<Message> {
        let now = self.clock.cluster;
        let queue = &mut self.queues[index];
        let gone = queue.remove(sequence)?;
        if !gone.dedup_id.is_empty() {
            for known in queue.dedup.iter_mut().filter(|known| known.sequence == sequence) {
                known.finished = true;
            }
            queue.dedup.retain(|known| known.sequence != sequence || !how.frees() && known.until > now);
        }
        let counters = &mut queue.counters;
        match how {
            Leaving::Acked => counters.acked += 1,
            Leaving::Moved => counters.moved_out += 1,
            Leaving::Expired => counters.expired_dropped += 1,
            Leaving::Dropped => counters.dropped += 1,
            Leaving::Cancelled => counters.cancelled += 1,
            Leaving::Purged => counters.purged += 1,
        }
        if how != Leaving::Moved
            && let Some((number, group)) = &gone.holds_up
        {
            self.unblock(*number, group);
        }
        Some(gone)
    }

    /// The dead letter for which a line waited is gone.
    pub(super) fn unblock(&mut self, number: u64, group: &str) {
        if let Some(index) = self.queues.iter().position(|queue| queue.number == number) {
            self.queues[index].blocked_groups.retain(|blocked| blocked != group);
            self.promote(index, group);
        }
    }

    /// Whether the line of this group has no head for now.
    pub(super) fn is_held_up(&self, index: usize, group: &str) -> bool {
        let queue = &self.queues[index];
        queue.blocked_groups.iter().any(|blocked| blocked == group)
            || queue.doomed_groups.iter().any(|(doomed, _)| doomed == group)
    }

    pub(super) fn first_of_line(&self, index: usize, group: &str) -> Option<&Message> {
        let joined = self.queues[index].messages.iter().filter(|message| message.line > 0 && message.group == group);
        joined.min_by_key(|message| message.line)
    }

    /// The first of a line, if it is blocked, becomes ready, or waits for the time to which it was rescheduled.
    pub(super) fn promote(&mut self, index: usize, group: &str) {
        if group.is_empty() || self.is_held_up(index, group) {
            return;
        }
        let Some(first) = self.first_of_line(index, group) else { return };
        let State::Blocked { until } = first.state else { return };
        let sequence = first.sequence;
        if until > self.clock.cluster {
            self.delay(index, sequence, Due::At(until));
        } else {
            self.ready(index, sequence);
        }
    }

    /// The message waits for a time; a head parks its group.
    pub(super) fn delay(&mut self, index: usize, sequence: u64, due: Due) {
        let now = self.clock.cluster;
        let Some(message) = self.queues[index].message_mut(sequence) else { return };
        if !matches!(message.state, State::Delayed(_)) {
            message.parked_at = now;
        }
        message.state = State::Delayed(due);
    }

    /// The message's time has come: it is ready in the returned lane, or blocked behind its group, whose line it joins
    /// now if it has not yet.
    pub(super) fn ready(&mut self, index: usize, sequence: u64) {
        if self.join(index, sequence) {
            self.returns += 1;
            let ready = Ready { returned: Some(self.returns), since: self.clock.cluster };
            if let Some(message) = self.queues[index].message_mut(sequence) {
                message.state = State::Ready(ready);
            }
        } else if let Some(message) = self.queues[index].message_mut(sequence) {
            message.state = State::Blocked { until: 0 };
        }
    }

    /// Takes its number in the line of its group, if it has none; whether it is at the head, or has no group.
    pub(super) fn join(&mut self, index: usize, sequence: u64) -> bool {
        let queue = &mut self.queues[index];
        let next_line = queue.next_line;
        let Some(message) = queue.message_mut(sequence) else { return false };
        if message.group.is_empty() {
            return true;
        }
        let group = message.group.clone();
        if message.line == 0 {
            message.line = next_line;
            queue.next_line += 1;
        }
        let is_first = self.first_of_line(index, &group).is_some_and(|first| first.sequence == sequence);
        is_first && !self.is_held_up(index, &group)
    }

    /// Where this message's dead letter would go; `None`: it stays where it is.
    pub(super) fn grave(&self, index: usize, sequence: u64) -> Option<QueueRef> {
        let queue = &self.queues[index];
        let message = queue.message(sequence)?;
        let mut name = queue.dead_letter_name();
        if !message.dead_letter_queue.is_empty() {
            name.name = message.dead_letter_queue.clone();
        }
        (message.dead_letter.is_none() && QueueName::parse(name.name.clone()).is_ok()).then_some(name)
    }

    /// The message goes to its dead-letter queue, which is made where there is none, whatever its bounds. What comes of
    /// its old line the caller says. Gives the queue and the sequence there.
    pub(super) fn bury(&mut self, index: usize, sequence: u64, reason: DeadReason) -> Option<(usize, u64)> {
        let now = self.clock.cluster;
        let name = self.grave(index, sequence)?;
        let source = self.queues[index].name.clone();
        let old = self.leave(index, sequence, Leaving::Moved)?;
        let target = match self.queue(&name) {
            Some(target) => target,
            None => self.found(name, super::queue::defaults()),
        };
        let queue = &mut self.queues[target];
        let sequence = queue.next_sequence;
        queue.next_sequence += 1;
        let mut message = Message::new(old.id, Space::Fresh, sequence, old.content, now);
        message.group = old.group;
        message.history = old.history;
        message.dead_letter = Some(DeadLetter {
            source,
            reason,
            at: Timestamp(now),
            receive_count: old.receive_count,
            failures: old.failures,
        });
        queue.counters.moved_in += 1;
        queue.counters.over_bound += u64::from(queue.size_bound_passed(message.size()).is_some());
        queue.messages.push(message);
        let is_head = self.join(target, sequence);
        if let Some(message) = self.queues[target].message_mut(sequence)
            && !is_head
        {
            message.space = Space::Held;
            message.state = State::Blocked { until: 0 };
        }
        Some((target, sequence))
    }

    /// A message whose time to live is over is gone, or a dead letter.
    pub(super) fn end_expired(&mut self, index: usize, sequence: u64) {
        let group = self.queues[index].message(sequence).map(|message| message.group.clone()).unwrap_or_default();
        let buries = self.queues[index].settings.on_expired == Some(1) && self.grave(index, sequence).is_some();
        if buries {
            self.bury(index, sequence, DeadReason::Expired);
        } else {
            self.leave(index, sequence, Leaving::Expired);
        }
        self.promote(index, &group);
    }
}
