//! The lanes hold the ready messages and nothing else, each once, at or behind the lane's head.

use std::collections::BTreeSet;

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (id, q) in &image.queues {
        let mut expected = BTreeSet::new();
        for (at, (tag, _)) in image.live().filter(|(at, _)| at.0 == *id) {
            let state = image.states.get(at);
            let returned = state.and_then(|s| s.return_number);
            let delayed = state.is_some_and(|s| s.due_ms.is_some());
            let leased = image.leases.contains_key(at);
            if (returned.is_some() && delayed) || (leased && (returned.is_some() || delayed)) {
                return Err(format!("message {at:?} is in two states: {state:?}, leased: {leased}"));
            }
            let fresh = *tag == b'm' && at.1 >= q.fresh_head;
            if fresh && (leased || delayed || returned.is_some()) {
                return Err(format!("message {at:?} is in the fresh lane, but not ready: {state:?}"));
            }
            match returned {
                Some(number) => {
                    expected.insert((number, at.1));
                }
                None if !leased && !delayed && !fresh => {
                    return Err(format!("message {at:?} is ready, but in no lane: {state:?}, head {}", q.fresh_head));
                }
                None => {}
            }
        }
        let found: BTreeSet<(u64, u64)> = image
            .returned
            .iter()
            .filter(|((queue, number), _)| queue == id && *number >= q.returned_head)
            .map(|((_, number), entry)| (*number, entry.sequence))
            .collect();
        if expected != found {
            return Err(format!("queue {id}: the returned lane should hold {expected:?}, but holds {found:?}"));
        }
        if u64::try_from(found.len()) != Ok(q.returned) {
            return Err(format!("queue {id}: {} counted in the returned lane, found {}", q.returned, found.len()));
        }
        let dead = image.returned.keys().filter(|(queue, number)| queue == id && *number < q.returned_head).count();
        if dead > 0 && !image.sweeps.contains_key(id) {
            return Err(format!(
                "queue {id}: {dead} keys lie before the head of the returned lane, and nothing sweeps them"
            ));
        }
    }
    Ok(())
}
