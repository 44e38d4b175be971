//! No row outlives its message: states, failures and places of moved messages belong to one that is there.

use super::Image;
use crate::limits;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for at in image.states.keys().chain(image.failures.keys()) {
        if !image.messages.contains_key(at) && !image.sweeps.contains_key(&at.0) {
            return Err(format!("a state or failure of {at:?} is left, but the message is gone"));
        }
    }
    for (at, numbers) in &image.failures {
        let history = image.states.get(at).map_or(0, |s| s.history);
        let expected: Vec<u64> = (history.saturating_sub(limits::HISTORY)..history).collect();
        if *numbers != expected && !image.sweeps.contains_key(&at.0) {
            return Err(format!("message {at:?} has failures {numbers:?}, expected {expected:?}"));
        }
    }
    for (at, (_, message)) in image.messages.iter() {
        if let Some(origin) = message.origin {
            let moved = image.moved.get(&(origin.queue, origin.sequence));
            if moved.is_none_or(|place| (place.queue, place.sequence) != *at) {
                return Err(format!("message {at:?} was born at {origin:?}, which leads to {moved:?}"));
            }
        }
    }
    for (origin, place) in &image.moved {
        let at = (place.queue, place.sequence);
        let born = image.messages.get(&at).and_then(|(_, m)| m.origin).map(|o| (o.queue, o.sequence));
        if born != Some(*origin) {
            return Err(format!(
                "the message born at {origin:?} should be at {at:?}, but that one was born at {born:?}"
            ));
        }
    }
    Ok(())
}
