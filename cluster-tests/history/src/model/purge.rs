//! Purges and deletes.

use super::queue::{Line, Message, State, rank};
use super::timers::Timer;
use super::{Model, Step, wrong};
use crate::format::{Applied, QueueName};

impl Model {
    /// Removes all of a queue's messages that are not leased.
    pub(super) fn purge(&mut self, id: u64) -> Step<Applied> {
        let queue = self.queue_mut(id)?;
        let stats = &mut queue.head.stats;
        let removed = stats.ready + stats.delayed + stats.blocked;
        stats.purged += removed;
        (stats.ready, stats.delayed, stats.blocked, stats.bytes) = (0, 0, 0, stats.leased_bytes);
        queue.head.changed = true;
        queue.head.purged_below = queue.head.last_sequence + 1;
        queue.returned.for_good().clear();
        queue.fresh.for_good().clear();
        let mut gone = Vec::new();
        queue.messages.for_good().retain(|sequence, message| {
            let stays = matches!(message.state, State::Leased { .. });
            if !stays {
                gone.push((*sequence, message.clone()));
            }
            stays
        });
        let mut windows = Vec::new();
        for (_, message) in &gone {
            if let (Some(group), line) = (message.group(), message.line()) {
                queue.members.for_good().remove(&(group, line));
            }
            if let Some(dedup) = message.more.as_ref().and_then(|more| more.dedup.as_deref())
                && let Some(known) = queue.dedup.get(dedup).copied()
            {
                queue.forget(dedup);
                windows.push(Timer::dedup(known.until, known.id));
            }
        }
        // A leased head stays; a line that is blocked stays blocked; one that follows a dead letter ends with the next tick.
        let members = &queue.members;
        let is_empty = |group| members.range((group, 0)..=(group, u64::MAX)).next().is_none();
        queue.lines.for_good().retain(|group, line| *line != Line::Open || !is_empty(*group));
        self.timers.doubt(windows.into_iter(), self.now);
        self.gone(id, gone);
        Ok(Applied::Removed { n: removed })
    }

    /// Removes a queue and all it holds.
    pub(super) fn delete(&mut self, name: &QueueName, id: u64) -> Step<Applied> {
        self.set_pause(id, None)?;
        self.names.remove(name);
        let Some(queue) = self.queues.remove(&id) else {
            return wrong("a name names a queue", format!("expected queue {id}, but there is none"));
        };
        let n = queue.head.stats.depth();
        for (sequence, outcome) in queue.outcomes.iter() {
            // The lane of an outcome's timer is that of its message when it was acked: either may be removed.
            let lanes = [outcome.id.priority, outcome.id.priority | 0x10];
            let timers = lanes.map(|lane| Timer::done(outcome.until, id, lane, *sequence));
            self.timers.doubt(timers.into_iter(), self.now);
        }
        let dedup = queue.dedup.values().map(|known| Timer::dedup(known.until, known.id));
        self.timers.doubt(dedup, self.now);
        self.gone(id, queue.messages.iter().map(|(sequence, message)| (*sequence, message.clone())).collect());
        Ok(Applied::Removed { n })
    }

    /// Messages are gone with a purge or with their queue. Their timers that are far off are removed some time later, and
    /// lines that wait for one of them go on once a tick has seen it.
    fn gone(&mut self, at: u64, gone: Vec<(u64, Message)>) {
        for (sequence, message) in gone {
            let mut timers = Vec::new();
            if let State::Delayed { due } = message.state {
                timers.push(Timer::message(due, at, message.lane(), sequence));
            }
            if message.expires() != 0 {
                timers.push(Timer::expiry(message.expires(), message.id));
            }
            self.timers.doubt(timers.into_iter(), self.now);
            self.moved.remove(&message.id);
            if let Some((queue, group)) = message.more.as_ref().and_then(|more| more.blocks) {
                // A tick sees the new ones first, by priority, then those that were delayed when they came.
                let rank = if message.held { u8::MAX } else { rank(message.id.priority) };
                self.lifted.insert((at, rank, sequence), (queue, group, message.id));
            }
        }
    }
}
