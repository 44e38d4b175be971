//! A line has one head or waits for a reason; whoever has joined it is its head or stands in it; heads alone are ready,
//! leased or delayed.

use std::collections::{BTreeMap, BTreeSet};

use super::Image;
use crate::queue::message::line;

pub(super) fn check(image: &Image) -> Result<(), String> {
    let mut standing: BTreeSet<(u64, String, u64, u64)> = BTreeSet::new();
    let mut joined: BTreeMap<(u64, String), Vec<(u64, u64)>> = BTreeMap::new();
    for (at, (_, message)) in image.live().filter(|(_, (_, message))| !message.group.is_empty()) {
        let state = image.states.get(at);
        let number = line(message, state);
        let blocked = state.is_some_and(|state| state.blocked);
        let parked = state.is_some_and(|state| state.park != 0);
        let delayed = state.is_some_and(|state| state.due_ms.is_some());
        if parked != (delayed && number != 0) {
            return Err(format!("message {at:?} of group {:?} is parked: {parked}, but {state:?}", message.group));
        }
        if let Some(park) = state.map(|state| state.park).filter(|park| *park != 0)
            && !image.parks.contains(&(at.0, park))
        {
            return Err(format!("message {at:?} is parked as {park}, but that key is gone"));
        }
        match (number, blocked) {
            (0, true) => return Err(format!("message {at:?} is blocked, but has joined no line")),
            (0, false) if !delayed => return Err(format!("message {at:?} is not delayed, but has joined no line")),
            (0, false) => {}
            (number, true) => {
                standing.insert((at.0, message.group.clone(), number, at.1));
            }
            (number, false) => joined.entry((at.0, message.group.clone())).or_default().push((number, at.1)),
        }
    }
    let lines_from = |queue: u64| image.queues.get(&queue).map_or(u64::MAX, |q| q.lines_from);
    let found: BTreeSet<(u64, String, u64, u64)> =
        image.lines.iter().filter(|(queue, _, number, _)| *number >= lines_from(*queue)).cloned().collect();
    if standing != found {
        return Err(format!("the lines should hold {standing:?}, but hold {found:?}"));
    }
    for ((queue, group), heads) in &joined {
        let record = image.groups.get(&(*queue, group.clone()));
        let head = record.and_then(|record| record.head).map(|head| head.sequence);
        if heads.len() != 1 || head != heads.first().map(|(_, sequence)| *sequence) {
            return Err(format!(
                "queue {queue}: group {group:?} has the heads {heads:?}, but its line says {record:?}"
            ));
        }
    }
    for ((queue, group), record) in &image.groups {
        let Some(q) = image.queues.get(queue) else { continue };
        let key = (*queue, group.clone());
        let purged = record.head.is_some_and(|head| head.sequence < q.purged_below);
        match record.head {
            Some(_) if !purged && !joined.contains_key(&key) => {
                return Err(format!("queue {queue}: the head of group {group:?} is gone: {record:?}"));
            }
            None if !record.blocked && !image.drains.contains(&key) => {
                return Err(format!(
                    "queue {queue}: group {group:?} has no head, and nothing it waits for: {record:?}"
                ));
            }
            Some(_) | None => {}
        }
    }
    for (queue, group, number, _) in &standing {
        if !image.groups.contains_key(&(*queue, group.clone())) {
            return Err(format!("queue {queue}: number {number} stands in group {group:?}, which has no line"));
        }
    }
    for (id, q) in &image.queues {
        let blocked = image.groups.iter().filter(|((queue, _), record)| queue == id && record.blocked);
        let blocked: BTreeSet<&String> = blocked.map(|((_, group), _)| group).collect();
        if u64::try_from(blocked.len()) != Ok(q.groups_blocked) {
            return Err(format!("queue {id}: {} groups counted as blocked, but {blocked:?} are", q.groups_blocked));
        }
        let waits_for = |group: &String| {
            let holds = |(_, message): &(u8, crate::records::MessageRecord)| {
                message.group == *group && message.dead_letter.as_ref().is_some_and(|dead| dead.blocks == *id)
            };
            // Also where it is dead already and waits to be swept.
            image.messages.values().any(holds)
        };
        if let Some(group) = blocked.into_iter().find(|group| !waits_for(group)) {
            return Err(format!(
                "queue {id}: group {group:?} is blocked, but no dead letter is left that it waits for"
            ));
        }
    }
    Ok(())
}
