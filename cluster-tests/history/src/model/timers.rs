//! What becomes of itself with time: messages that are due or expire, pauses that end, dedup ids and outcomes that are
//! kept no longer, sessions that idle.

use super::undo::SortedUndo;
use super::{Model, State, Step, Stop, unexpected, wrong};
use crate::format::{Applied, MessageId};

/// Timers that one tick fires at most.
const TICK: usize = 1_000;
/// So many timers may fill an entry, so that a tick ends earlier.
const FILLS: usize = 400;
/// A timer that is due within this time is never removed early, in milliseconds.
const LAZY: u64 = 600_000;

/// What a timer is for. Those of one millisecond fire in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Message,
    Resume,
    Expiry,
    Dedup,
    Done,
}

/// A timer on cluster time. Those of the same time fire in order of kind, queue, lane and sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timer {
    due: u64,
    what: What,
    queue: u64,
    lane: u8,
    sequence: u64,
}

impl Timer {
    pub(crate) fn message(due: u64, queue: u64, lane: u8, sequence: u64) -> Self {
        Self { due, what: What::Message, queue, lane, sequence }
    }

    pub(crate) fn resume(due: u64, queue: u64) -> Self {
        Self { due, what: What::Resume, queue, lane: 0, sequence: 0 }
    }

    /// The end of a message's time to live, by its place of birth: only where it was born has it one.
    pub(crate) fn expiry(due: u64, id: MessageId) -> Self {
        Self { due, what: What::Expiry, queue: id.queue, lane: birth_lane(id), sequence: id.sequence }
    }

    /// The end of the window of a dedup id, by the place of birth of its message.
    pub(crate) fn dedup(due: u64, id: MessageId) -> Self {
        Self { due, what: What::Dedup, queue: id.queue, lane: birth_lane(id), sequence: id.sequence }
    }

    pub(crate) fn done(due: u64, queue: u64, lane: u8, sequence: u64) -> Self {
        Self { due, what: What::Done, queue, lane, sequence }
    }
}

/// The lane in which a message was born, as it stands in the keys of timers.
fn birth_lane(id: MessageId) -> u8 {
    id.priority | if id.held { 0x10 } else { 0 }
}

/// All timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// With whether nobody knows if it was removed with what it was for.
    set: SortedUndo<Timer, bool>,
    /// Those of messages that were removed before anyone saw when they are due: from when to when they may fire.
    unseen: Vec<(u64, u64)>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer) {
        self.set.insert(timer, false);
    }

    /// How many are due, of those that one tick fires.
    pub(crate) fn due(&self, now: u64) -> u64 {
        self.set.keys().take_while(|timer| timer.due <= now).take(TICK).count() as u64
    }

    /// A timer was set for some time between `from` and `to`, for a message that is gone by now.
    pub(crate) fn set_unseen(&mut self, from: u64, to: u64) {
        self.unseen.push((from, to));
    }

    /// What it was for is no more.
    pub(crate) fn drop(&mut self, timer: Timer, now: u64) {
        if timer.due > now + LAZY {
            self.set.remove(&timer);
        }
    }

    /// What they were for was removed: those far off are removed with it, some time later.
    pub(crate) fn doubt(&mut self, timers: impl Iterator<Item = Timer>, now: u64) {
        for timer in timers.filter(|timer| timer.due > now + LAZY) {
            if let Some(doubtful) = self.set.get_mut(&timer) {
                *doubtful = true;
            }
        }
    }

    pub(crate) fn begin(&mut self) {
        self.set.begin();
    }

    pub(crate) fn keep(&mut self) {
        self.set.keep();
    }

    pub(crate) fn back(&mut self) {
        self.set.back();
    }
}

impl Model {
    /// Carries out a tick.
    pub(super) fn tick(&mut self, told: Option<&Applied>) -> Step<Applied> {
        let now = self.now;
        let sessions = self.sessions.fire(self.lease_now);
        // One more than can fire, to see whether any are left.
        let due: Vec<(Timer, bool)> = self
            .timers
            .set
            .iter()
            .take_while(|(timer, _)| timer.due <= now)
            .take(TICK + 1)
            .map(|(t, d)| (*t, *d))
            .collect();
        let (fires, more) = match told {
            None => (due.len().min(TICK), None),
            Some(Applied::Ticked { n, more }) => {
                let Some(fired) = u64::from(*n).checked_sub(sessions) else {
                    return wrong("a tick ends sessions", format!("expected {sessions} of them, but {n} timers fired"));
                };
                (self.fires(&due, usize::try_from(fired).unwrap_or(usize::MAX), *more)?, Some(*more))
            }
            Some(other) => return unexpected("a tick", other),
        };
        for (timer, _) in due.iter().take(fires) {
            self.timers.set.remove(timer);
            self.fire(*timer)?;
        }
        self.work_off(more)?;
        if let Some(told) = told {
            return Ok(told.clone());
        }
        let n = u32::try_from(sessions as usize + fires).unwrap_or(u32::MAX);
        Ok(Applied::Ticked { n, more: due.len() > fires || !self.following.is_empty() })
    }

    /// How many of the timers that are due have fired, of which the log says that it were `told`.
    fn fires(&mut self, due: &[(Timer, bool)], told: usize, more: bool) -> Step<usize> {
        let now = self.now;
        let all = due.len().min(TICK);
        let doubtful = due.iter().filter(|(_, doubtful)| *doubtful).count();
        let unseen = self.timers.unseen.iter().filter(|(from, _)| *from <= now).count();
        self.timers.unseen.retain(|(_, to)| *to > now);
        let room = FILLS.saturating_sub(self.done_in_entry);
        let least = if more && all > room { room } else { all }.saturating_sub(doubtful);
        let most = (all + unseen).min(TICK);
        if !(least..=most).contains(&told) || (due.len() > TICK && !more) {
            let first: Vec<_> = due.iter().take(20).map(|(timer, _)| timer).collect();
            let text = format!(
                "expected {least} to {most} timers to fire at {now}, but {told} did (work left: {more}); due are {first:?}"
            );
            return wrong("what is due becomes ready", text);
        }
        if doubtful + unseen == 0 {
            return Ok(told);
        }
        // Where all that is due fits into one tick, all of it has fired, whatever of it was there.
        if more && told + doubtful + unseen < all {
            return Err(Stop::Unsure(
                "a tick fired some of many timers, of which a purge may have removed some".into(),
            ));
        }
        Ok(all)
    }

    fn fire(&mut self, timer: Timer) -> Step {
        if !self.queues.contains_key(&timer.queue) {
            return Ok(());
        }
        let Timer { due, what, queue: at, lane, sequence } = timer;
        let queue = self.queue_mut(at)?;
        let message = queue.messages.get(&sequence);
        match what {
            What::Resume => {
                if queue.paused == Some(due) {
                    queue.paused = None;
                    queue.head.changed = true;
                }
            }
            What::Message => {
                if let Some(message) =
                    message.filter(|message| message.lane() == lane && message.state == State::Delayed { due })
                {
                    let in_line = message.line() != 0;
                    self.come_due(at, sequence, in_line)?;
                }
            }
            What::Expiry => {
                let leased = |state| matches!(state, State::Leased { .. });
                if message.is_some_and(|message| message.expires() == due && !leased(message.state)) {
                    self.end_expired(at, sequence)?;
                }
            }
            What::Dedup => {
                let dedup = queue.dedup_of.get(&sequence).cloned();
                let known = dedup.as_ref().and_then(|dedup| queue.dedup.get(dedup));
                if let Some(dedup) = dedup
                    && known.is_some_and(|known| known.until == due && known.finished)
                {
                    queue.forget(&dedup);
                    queue.head.changed = true;
                }
            }
            What::Done => {
                if let Some(id) = queue.outcomes.get(&sequence).filter(|outcome| outcome.until == due).map(|o| o.id) {
                    queue.outcomes.remove(&sequence);
                    queue.head.changed = true;
                    self.done.remove(&id);
                }
            }
        }
        Ok(())
    }
}
