//! What becomes of itself with time: messages that are due, pauses that end, sessions that idle.

use std::collections::BTreeSet;

use super::{Model, State, Step, Stop, unexpected, wrong};
use crate::fast::FastSet;
use crate::format::Applied;

/// Timers that one tick fires at most.
const TICK: u64 = 1_000;
/// So many timers may fill an entry, so that a tick ends earlier.
const FILLS: u64 = 400;
/// A timer that is due within this time is never removed early, in milliseconds.
const LAZY: u64 = 600_000;

/// A timer on cluster time. Those of the same time fire in order of kind, queue, lane and sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timer {
    due: u64,
    resume: bool,
    queue: u64,
    held: bool,
    sequence: u64,
}

impl Timer {
    pub(crate) fn message(due: u64, queue: u64, held: bool, sequence: u64) -> Self {
        Self { due, resume: false, queue, held, sequence }
    }

    pub(crate) fn resume(due: u64, queue: u64) -> Self {
        Self { due, resume: true, queue, held: false, sequence: 0 }
    }
}

/// All timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: BTreeSet<Timer>,
    /// Those of which nobody knows whether they were removed with what they were for.
    doubtful: FastSet<Timer>,
    /// Those of messages that were removed before anyone saw when they are due: from when to when they may fire.
    unseen: Vec<(u64, u64)>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer) {
        self.set.insert(timer);
        self.doubtful.remove(&timer);
    }

    /// How many are due, of those that one tick fires.
    pub(crate) fn due(&self, now: u64) -> u64 {
        let most = usize::try_from(TICK).unwrap_or(usize::MAX);
        self.set.iter().take_while(|timer| timer.due <= now).take(most).count() as u64
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
        self.doubtful.extend(timers.filter(|timer| timer.due > now + LAZY));
    }
}

impl Model {
    /// Carries out a tick.
    pub(super) fn tick(&mut self, got: &Applied) -> Step {
        let Applied::Ticked { n } = got else { return unexpected("a tick", got) };
        let sessions = self.sessions.fire(self.lease_now);
        let Some(fired) = u64::from(*n).checked_sub(sessions) else {
            return wrong("a tick ends sessions", format!("expected {sessions} of them, but {n} timers fired"));
        };
        let due: Vec<Timer> = self.timers.set.iter().take_while(|timer| timer.due <= self.now).copied().collect();
        let doubtful = due.iter().filter(|timer| self.timers.doubtful.contains(timer)).count() as u64;
        let all = due.len() as u64;
        let now = self.now;
        let unseen = self.timers.unseen.iter().filter(|(from, _)| *from <= now).count() as u64;
        self.timers.unseen.retain(|(_, to)| *to > now);
        let room = FILLS.saturating_sub(self.done_in_entry as u64);
        let least = (all - doubtful).min(TICK).min(if all > room { room } else { u64::MAX });
        let most = (all + unseen).min(TICK);
        if !(least..=most).contains(&fired) {
            let text = format!("expected {least} to {most} timers to fire at {}, but {fired} did", self.now);
            return wrong("what is due becomes ready", text);
        }
        let doubtful = doubtful + unseen;
        if doubtful > 0 && fired + doubtful < all {
            return Err(Stop::Unsure(
                "a tick fired some of many timers, of which a purge may have removed some".into(),
            ));
        }
        let fired = if doubtful > 0 { all } else { fired };
        for timer in due.into_iter().take(usize::try_from(fired).unwrap_or(usize::MAX)) {
            self.timers.set.remove(&timer);
            self.timers.doubtful.remove(&timer);
            self.fire(timer);
        }
        Ok(())
    }

    fn fire(&mut self, timer: Timer) {
        let Some(queue) = self.queues.get_mut(&timer.queue) else { return };
        if timer.resume {
            if queue.paused == Some(timer.due) {
                queue.paused = None;
            }
            return;
        }
        let state = queue.messages.get(&timer.sequence).map(|message| message.state);
        if state == Some(State::Delayed { due: timer.due }) {
            queue.stats.delayed -= 1;
            queue.give_back(timer.sequence);
        }
    }
}
