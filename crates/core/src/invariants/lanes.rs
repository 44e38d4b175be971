//! The lanes hold the ready messages and nothing else, each once, at or behind the lane's head.

use std::collections::BTreeSet;

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (id, q) in &image.queues {
        // By priority: in the fresh lane by sequence, in the returned one by number and sequence.
        let (mut fresh, mut expected) = (BTreeSet::new(), BTreeSet::new());
        for (at, (tag, _)) in image.live().filter(|(at, _)| at.0 == *id) {
            let state = image.states.get(at);
            let priority = image.priorities.get(at).copied().unwrap_or_default();
            let returned = state.and_then(|s| s.return_number);
            let delayed = state.is_some_and(|s| s.due_ms.is_some());
            let blocked = state.is_some_and(|s| s.blocked);
            let leased = image.leases.contains_key(at);
            if [returned.is_some(), delayed, blocked, leased].into_iter().filter(|is| *is).count() > 1 {
                return Err(format!("message {at:?} is in two states: {state:?}, leased: {leased}"));
            }
            let is_fresh = *tag == b'm' && at.1 >= q.lane(priority).fresh_head;
            if is_fresh && (leased || delayed || blocked || returned.is_some()) {
                return Err(format!("message {at:?} is in the fresh lane, but not ready: {state:?}"));
            }
            match returned {
                Some(number) => {
                    expected.insert((priority, number, at.1));
                }
                None if is_fresh => {
                    fresh.insert((priority, at.1));
                }
                None if !leased && !delayed && !blocked => {
                    return Err(format!("message {at:?} is ready, but in no lane: {state:?}, {:?}", q.lane(priority)));
                }
                None => {}
            }
        }
        let found: BTreeSet<(u8, u64, u64)> = image
            .returned
            .iter()
            .filter(|((queue, priority, number), _)| queue == id && *number >= q.lane(*priority).returned_head)
            .map(|((_, priority, number), entry)| (*priority, *number, entry.sequence))
            .collect();
        if expected != found {
            return Err(format!("queue {id}: the returned lanes should hold {expected:?}, but hold {found:?}"));
        }
        for priority in 0..=9 {
            let lane = q.lane(priority);
            let in_fresh = fresh.iter().filter(|place| place.0 == priority).count();
            let in_returned = found.iter().filter(|place| place.0 == priority).count();
            let counted = (u64::try_from(in_fresh), u64::try_from(in_returned));
            if counted != (Ok(lane.fresh), Ok(lane.returned)) {
                return Err(format!(
                    "queue {id}: {lane:?} counted, but {in_fresh} fresh and {in_returned} returned found"
                ));
            }
        }
        let before =
            |(queue, priority, number): &&(u64, u8, u64)| queue == id && *number < q.lane(*priority).returned_head;
        let dead = image.returned.keys().filter(before).count();
        if dead > 0 && !image.sweeps.contains_key(id) {
            return Err(format!(
                "queue {id}: {dead} keys lie before the heads of the returned lanes, and nothing sweeps them"
            ));
        }
    }
    Ok(())
}
