//! How messages come to a queue and how they leave it.

use super::queue::{Extra, Group, Message, Outcome, State, rank};
use super::timers::Timer;
use super::{Model, Step, wrong};
use crate::format::{DeadLetter, Hash, MessageId, OnGroup, Output, Remains, SettleOutcome, fingerprint};

/// Outcomes that a queue keeps.
const RETAINED: usize = 1_000_000;

/// How a message leaves its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Acked(Option<Output>),
    Cancelled,
    Expired,
    Dropped,
    Purged,
    /// To a dead-letter queue; whether its group suffers from it.
    Moved {
        fails: bool,
    },
}

impl Model {
    /// A message comes to a queue, to be ready at `due`, under the next sequence. Returns that, and its id.
    pub(super) fn arrive(&mut self, at: u64, mut message: Message, due: u64, born: bool) -> Step<(u64, MessageId)> {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        let sequence = queue.head.last_sequence + 1;
        let free = message.group().is_none_or(|group| !queue.lines.contains_key(&group));
        message.held = due > now || !free;
        if born {
            message.id = MessageId { queue: at, held: message.held, sequence, ..message.id };
        }
        let (id, lane, expires) = (message.id, message.lane(), message.expires());
        message.state = match (due > now, free) {
            (true, _) => State::Delayed { due },
            (false, true) => State::Ready { returned: None },
            (false, false) => State::Blocked,
        };
        let state = message.state;
        queue.head.last_sequence = sequence;
        queue.head.changed = true;
        queue.head.stats.bytes += message.size;
        queue.messages.insert(sequence, message);
        match state {
            State::Delayed { .. } => queue.head.stats.delayed += 1,
            State::Blocked => queue.head.stats.blocked += 1,
            State::Ready { .. } | State::Leased { .. } => {
                queue.head.stats.ready += 1;
                queue.fresh.insert((rank(id.priority), sequence), ());
            }
        }
        if due > now {
            self.timers.set(Timer::message(due, at, lane, sequence));
        } else {
            self.join(at, sequence)?;
        }
        if expires != 0 {
            self.timers.set(Timer::expiry(expires, id));
        }
        Ok((sequence, id))
    }

    /// Takes a message out of its queue for good. Returns it, and the line that waits from now on until it is gone from
    /// where it goes.
    pub(super) fn take_out(&mut self, at: u64, sequence: u64, end: End) -> Step<(Message, Option<(u64, Group)>)> {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        queue.leave(sequence);
        let Some(message) = queue.messages.remove(&sequence) else {
            return wrong(
                "a message is there",
                format!("expected message {sequence} of queue {at}, but there is none"),
            );
        };
        let leased = matches!(message.state, State::Leased { .. });
        queue.head.changed = true;
        queue.head.stats.bytes -= message.size;
        let stats = &mut queue.head.stats;
        match end {
            End::Acked(_) => stats.acked += 1,
            End::Cancelled => stats.cancelled += 1,
            End::Expired => stats.expired_dropped += 1,
            End::Dropped => stats.dropped += 1,
            End::Purged => stats.purged += 1,
            End::Moved { .. } => stats.moved_out += 1,
        }
        let counts = matches!(end, End::Expired | End::Dropped | End::Moved { .. });
        if matches!(end, End::Acked(_)) || (leased && counts) {
            queue.head.rate.finish(now);
        }
        let policy = if end == (End::Moved { fails: true }) { queue.settings.on_group } else { OnGroup::Continue };
        if let State::Delayed { due } = message.state {
            self.timers.drop(Timer::message(due, at, message.lane(), sequence), now);
        }
        if message.expires() != 0 {
            self.timers.drop(Timer::expiry(message.expires(), message.id), now);
        }
        self.moved.remove(&message.id);
        if let Some(dedup) = message.more.as_ref().and_then(|more| more.dedup.as_deref()) {
            self.finish_dedup(at, dedup, end)?;
        }
        if let End::Acked(output) = end {
            self.retain(at, sequence, &message, output)?;
        }
        let mut blocked = None;
        if let (Some(group), line @ 1..) = (message.group(), message.line())
            && self.leave_line(at, group, line, policy, message.id)?
        {
            blocked = Some((at, group));
        }
        if let Some((queue, group)) = message.more.as_ref().and_then(|more| more.blocks) {
            self.unblock(queue, group, message.id)?;
        }
        Ok((message, blocked))
    }

    /// The message of a dedup id has left its queue.
    fn finish_dedup(&mut self, at: u64, dedup: &str, end: End) -> Step {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        let Some(known) = queue.dedup.get_mut(&Box::from(dedup)) else { return Ok(()) };
        known.finished = true;
        let known = *known;
        let frees = match end {
            End::Cancelled | End::Purged => true,
            End::Acked(_) | End::Expired | End::Dropped | End::Moved { .. } => now >= known.until,
        };
        if frees {
            queue.forget(dedup);
            self.timers.drop(Timer::dedup(known.until, known.id), now);
        }
        Ok(())
    }

    /// Keeps what came of a message, if its queue does so.
    fn retain(&mut self, at: u64, sequence: u64, message: &Message, output: Option<Output>) -> Step {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        let keep = queue.settings.retain;
        if keep == 0 {
            return Ok(());
        }
        if queue.outcomes.len() >= RETAINED {
            queue.head.stats.outcomes_dropped += 1;
            return Ok(());
        }
        let h = output.map_or_else(|| fingerprint(b""), |output: Output| -> Hash { output.h });
        let (id, until) = (message.id, now + keep);
        queue.outcomes.insert(sequence, Outcome { id, at: now, until, rc: message.receive_count, h });
        self.timers.set(Timer::done(until, at, message.lane(), sequence));
        self.done.insert(id, (at, sequence));
        Ok(())
    }

    /// The time to live of a message is over. Returns its place where it is a dead letter now.
    pub(super) fn end_expired(&mut self, at: u64, sequence: u64) -> Step<Option<(u64, u64)>> {
        let queue = self.queue_mut(at)?;
        match queue.settings.on_expired {
            Remains::DeadLetter => self.bury(at, sequence, "expired", None).map(Some),
            Remains::Nothing => self.take_out(at, sequence, End::Expired).map(|_| None),
        }
    }

    /// Moves a message to its dead-letter queue; returns its place there. `told` is what came of it in the log.
    pub(super) fn bury(&mut self, at: u64, sequence: u64, why: &str, told: Option<&SettleOutcome>) -> Step<(u64, u64)> {
        let rule = "a message whose attempts are used up, or that was rejected, is a dead letter";
        let queue = self.queue_mut(at)?;
        let source = queue.name.clone();
        let Some(target) = queue.messages.get(&sequence).and_then(|message| queue.dead_letter_queue(message)) else {
            return wrong(
                rule,
                format!("expected a dead-letter queue of {source} for message {sequence}, but none fits"),
            );
        };
        let fails = matches!(why, "attempts" | "rejected");
        let (message, blocks) = self.take_out(at, sequence, End::Moved { fails })?;
        let to = match self.names.get(&target).copied() {
            Some(to) => to,
            None => {
                // Dead-letter queues have the built-in defaults, whatever their namespace says.
                let told = if let Some(SettleOutcome::Dead { q, .. }) = told { Some(*q) } else { None };
                self.make_queue(&target, super::settings::Resolved::default(), told)?
            }
        };
        let dead = DeadLetter { q: source, why: why.into(), rc: message.receive_count, f: message.failures };
        let group = message.group();
        let more = (group.is_some() || blocks.is_some()).then(|| Box::new(Extra { group, blocks, ..Extra::default() }));
        let buried = Message {
            receive_count: 0,
            failures: 0,
            window_from: 0,
            expiries: 0,
            dead: Some(Box::new(dead)),
            more,
            ..message
        };
        let now = self.now;
        let queue = self.queue_mut(to)?;
        queue.head.stats.moved_in += 1;
        queue.head.stats.over_bound += u64::from(queue.full(buried.size).is_some());
        let (place, id) = self.arrive(to, buried, now, false)?;
        self.moved.insert(id, (to, place));
        Ok((to, place))
    }
}
