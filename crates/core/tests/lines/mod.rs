//! What anybody can see of groups, without the model: by peeks alone, before and after each entry.

use std::collections::BTreeMap;

use ticketrail_core::query::{Delivery, Filter, MessageInfo, MessageState};
use ticketrail_core::reply::{Answered, Received, Reply};
use ticketrail_core::{MessageId, Rejection};

use crate::harness::Machine;

/// A queue's id and a group.
type Line = (u64, String);

/// What was seen so far.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// By queue and message: before the last entry.
    before: BTreeMap<(u64, MessageId), MessageInfo>,
    /// The highest number of a line that was ever delivered.
    last: BTreeMap<Line, u64>,
}

impl Lines {
    /// After each entry: of no group two messages are under way, nothing overtakes, and who was blocked was not delivered
    /// unless all before it are gone.
    pub(crate) fn observe(
        &mut self,
        machine: &Machine,
        replies: &[Result<Reply, Rejection>],
        deliveries: &[Delivery],
    ) -> Result<(), String> {
        let now = all(machine)?;
        let mut lines: BTreeMap<Line, Vec<&MessageInfo>> = BTreeMap::new();
        for ((queue, _), info) in now.iter().filter(|(_, info)| info.line > 0) {
            lines.entry((*queue, info.group.clone())).or_default().push(info);
        }
        for (line, members) in &mut lines {
            members.sort_by_key(|info| info.line);
            if let Some(second) = members.iter().skip(1).find(|info| info.state != MessageState::Blocked) {
                return Err(format!("{line:?}: {second:?} is not blocked, but not the first of its line"));
            }
        }
        for (queue, id) in delivered(replies, deliveries) {
            // Where it is now, or where it was before this entry finished it.
            let Some(info) = now.get(&(queue, id)).or_else(|| self.before.get(&(queue, id))) else { continue };
            if info.group.is_empty() || info.line == 0 {
                continue;
            }
            let line = (queue, info.group.clone());
            let last = self.last.entry(line.clone()).or_default();
            if info.line < *last {
                return Err(format!("{line:?}: {} was delivered after {last}: {info:?}", info.line));
            }
            *last = info.line;
            if let Some(first) = lines.get(&line).and_then(|members| members.first())
                && first.line < info.line
            {
                return Err(format!("{line:?}: {} was delivered, but before it there is {first:?}", info.line));
            }
        }
        self.before = now;
        Ok(())
    }
}

/// Every message of every queue.
fn all(machine: &Machine) -> Result<BTreeMap<(u64, MessageId), MessageInfo>, String> {
    let mut found = BTreeMap::new();
    for queue in &machine.model.queues {
        for state in [MessageState::Delayed, MessageState::Ready, MessageState::Blocked, MessageState::Leased] {
            for info in machine.peek(&queue.name, state, &Filter::default(), 100)? {
                found.insert((info.place.queue.0, info.id), info);
            }
        }
    }
    Ok(found)
}

/// The queue and the message of each delivery of this entry, leased or taken, in order.
fn delivered(replies: &[Result<Reply, Rejection>], deliveries: &[Delivery]) -> Vec<(u64, MessageId)> {
    let mut found = Vec::new();
    let mut deliveries = deliveries.iter();
    for reply in replies.iter().flatten() {
        if let Some(Answered::Received(Received { handles, taken })) = &reply.answered
            && !reply.replayed
        {
            for taken in taken {
                found.extend(taken.id.message_id().map(|id| (taken.handle.place.queue, id)));
            }
            if taken.is_empty() {
                let here = deliveries.by_ref().take(handles.len());
                found.extend(handles.iter().zip(here).map(|(handle, delivery)| (handle.place.queue, delivery.id)));
            }
        }
    }
    found
}
