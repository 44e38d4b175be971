//! Lines of groups: who joins, who is the head, what becomes of a line whose head is a dead letter.

use super::queue::{Group, Line, State};
use super::timers::Timer;
use super::{Model, Step};
use crate::format::{MessageId, OnGroup};

/// Followers of dead letters that one tick moves.
const FOLLOWERS: usize = 1_000;
/// So many followers may fill an entry, so that a tick leaves some for the next.
const FILLS: usize = 400;

impl Model {
    /// The number of a group.
    pub(super) fn group(&mut self, name: &str) -> Group {
        if let Some(number) = self.groups.get(name) {
            return *number;
        }
        let number = Group::try_from(self.group_names.len()).unwrap_or(Group::MAX);
        self.groups.insert(name.into(), number);
        self.group_names.push(name.into());
        number
    }

    /// A message joins its group's line, if it has one. Whether it may be received: it is the head, or has no group.
    pub(super) fn join(&mut self, id: u64, sequence: u64) -> Step<bool> {
        let queue = self.queue_mut(id)?;
        let line = queue.head.last_line + 1;
        let Some(message) = queue.messages.get_mut(&sequence) else { return Ok(true) };
        let Some(more) = &mut message.more else { return Ok(true) };
        let Some(group) = more.group else { return Ok(true) };
        more.line = line;
        queue.head.last_line = line;
        queue.members.insert((group, line), sequence);
        if queue.lines.contains_key(&group) {
            return Ok(false);
        }
        queue.lines.insert(group, Line::Open);
        Ok(true)
    }

    /// The member `line` of a line has ended; if it was the head, `policy` says how the line goes on. Whether the line is
    /// blocked now, until the dead letter `id` is gone.
    pub(super) fn leave_line(
        &mut self,
        at: u64,
        group: Group,
        line: u64,
        policy: OnGroup,
        id: MessageId,
    ) -> Step<bool> {
        let queue = self.queue_mut(at)?;
        let first = queue.members.range((group, 0)..=(group, u64::MAX)).next().map(|((_, line), _)| *line);
        queue.members.remove(&(group, line));
        if queue.lines.get(&group) != Some(&Line::Open) || first != Some(line) {
            return Ok(false);
        }
        match policy {
            OnGroup::Continue => self.promote(at, group)?,
            OnGroup::Block => {
                queue.lines.insert(group, Line::Blocked(id));
                queue.head.stats.groups_blocked += 1;
                return Ok(true);
            }
            OnGroup::Follow => {
                match queue.members.range((group, 0)..=(group, u64::MAX)).next_back().map(|((_, line), _)| *line) {
                    Some(last) => {
                        queue.lines.insert(group, Line::Following(last));
                        self.last_following += 1;
                        self.following.insert(self.last_following, (at, group));
                    }
                    None => self.promote(at, group)?,
                }
            }
        }
        Ok(false)
    }

    /// The next of a line is its head: ready, or delayed where it was told to wait. A line without members is no more.
    pub(super) fn promote(&mut self, at: u64, group: Group) -> Step {
        let now = self.now;
        let queue = self.queue_mut(at)?;
        let next = queue.members.range((group, 0)..=(group, u64::MAX)).next().map(|(_, sequence)| *sequence);
        let Some(sequence) = next else {
            queue.lines.remove(&group);
            return Ok(());
        };
        queue.lines.insert(group, Line::Open);
        let Some(message) = queue.messages.get_mut(&sequence) else { return Ok(()) };
        if message.state != State::Blocked {
            return Ok(());
        }
        let due = message.more.as_mut().map_or(0, |more| std::mem::take(&mut more.waits));
        queue.head.stats.blocked -= 1;
        if due <= now {
            queue.give_back(sequence);
            return Ok(());
        }
        message.state = State::Delayed { due };
        let timer = Timer::message(due, at, message.lane(), sequence);
        queue.head.stats.delayed += 1;
        self.timers.set(timer);
        Ok(())
    }

    /// The dead letter `id` is gone, for which a line waits.
    pub(super) fn unblock(&mut self, at: u64, group: Group, id: MessageId) -> Step {
        let Some(line) = self.queues.get(&at).and_then(|queue| queue.lines.get(&group).copied()) else { return Ok(()) };
        if line != Line::Blocked(id) {
            return Ok(());
        }
        let queue = self.queue_mut(at)?;
        queue.head.stats.groups_blocked -= 1;
        queue.head.changed = true;
        self.promote(at, group)
    }

    /// What a tick works off: followers of dead letters, and lines whose dead letter was purged. `more`: whether work was
    /// left, as far as that is known.
    pub(super) fn work_off(&mut self, more: Option<bool>) -> Step {
        if more == Some(true) {
            self.doubtful |= !self.lifted.is_empty();
        } else {
            for (at, group, id) in std::mem::take(&mut self.lifted).into_values() {
                self.unblock(at, group, id)?;
            }
        }
        let mut room = FOLLOWERS;
        while let Some((key, (at, group))) = self.following.first_key_value().map(|(key, line)| (*key, *line)) {
            let Some(queue) = self.queues.get(&at) else {
                self.following.remove(&key);
                continue;
            };
            let Some(Line::Following(last)) = queue.lines.get(&group).copied() else {
                self.following.remove(&key);
                continue;
            };
            // A dead letter stays where it is.
            let dead = |seq: &u64| queue.messages.get(seq).is_some_and(|message| message.dead.is_some());
            let mut line = queue.members.range((group, 0)..=(group, last)).map(|(_, sequence)| *sequence);
            let Some(sequence) = line.find(|seq| !dead(seq)) else {
                self.following.remove(&key);
                self.promote(at, group)?;
                continue;
            };
            if room == 0 {
                break;
            }
            if more == Some(true) && FOLLOWERS - room + self.done_in_entry >= FILLS {
                return Err(super::Stop::Unsure(
                    "a tick moved some of many followers of a dead letter, and the log does not tell how many".into(),
                ));
            }
            room -= 1;
            self.bury(at, sequence, "group", None)?;
        }
        if more == Some(false) && !self.following.is_empty() {
            let text = format!("expected a tick that leaves work behind to say so: {} lines", self.following.len());
            return super::wrong("followers of a dead letter go in bounded ticks", text);
        }
        Ok(())
    }
}
