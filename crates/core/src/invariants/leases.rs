//! A lease has its message, copies it rightly, and ends at most 12 h after its grant.

use super::Image;
use crate::limits;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (at, lease) in image.live_leases() {
        let Some((_, message)) = image.messages.get(at) else {
            return Err(format!("the lease of {at:?} has no message"));
        };
        if (lease.size, lease.body, lease.moved) != (message.size, message.body, message.origin.is_some()) {
            return Err(format!("the lease of {at:?} says {lease:?}, but the message says {message:?}"));
        }
        if lease.keyed != message.is_keyed() {
            return Err(format!("the lease of {at:?} says keyed: {}, but the message says {message:?}", lease.keyed));
        }
        let state = image.states.get(at);
        if lease.has_state != state.is_some() || lease.history != state.map_or(0, |s| s.history) {
            return Err(format!("the lease of {at:?} says {lease:?}, but its state is {state:?}"));
        }
        if lease.deadline_ms > lease.granted_lease_ms + limits::LEASE_MAX_MS {
            return Err(format!("the lease of {at:?} ends more than 12 h after its grant: {lease:?}"));
        }
        if lease.granted_index > image.header.index {
            return Err(format!("the lease of {at:?} was granted by an entry to come: {lease:?}"));
        }
    }
    Ok(())
}
