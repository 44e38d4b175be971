//! Whatever waits for its time has a timer that has not fired: no delayed message, no pause and no session is
//! forgotten.

use std::collections::BTreeSet;

use super::Image;
use crate::keys::Timer;

pub(super) fn check(image: &Image) -> Result<(), String> {
    let mut messages = BTreeSet::new();
    let mut resumes = BTreeSet::new();
    let mut expiries = BTreeSet::new();
    let mut windows = BTreeSet::new();
    let mut outcomes = BTreeSet::new();
    for key in &image.timers {
        if *key <= image.header.timers_done {
            return Err(format!("the timer {key:?} lies before the position up to which timers were fired"));
        }
        match Timer::parse(key).ok_or_else(|| format!("the timer {key:?} does not parse"))? {
            Timer::Message { due, place } => messages.insert((place.queue.0, place.sequence, due)),
            Timer::Resume { due, queue } => resumes.insert((queue.0, due)),
            Timer::Expiry { due, place } => expiries.insert((place.queue.0, place.sequence, due)),
            Timer::Dedup { due, place } => windows.insert((place.queue.0, place.sequence, due)),
            Timer::Done { due, place } => outcomes.insert((place.queue.0, place.sequence, due)),
        };
    }
    for (at, _) in image.live() {
        if let Some(due) = image.states.get(at).and_then(|s| s.due_ms)
            && !messages.contains(&(at.0, at.1, due))
        {
            return Err(format!("message {at:?} is delayed until {due}, but has no timer"));
        }
    }
    for (at, (_, message)) in image.live() {
        let birth = message.origin.map_or(*at, |origin| (origin.queue, origin.sequence));
        let due = message.expires_at_ms;
        // Once it has fired, whoever holds the lease may still ack.
        let leased = image.leases.contains_key(at);
        if due != 0 && !leased && !expiries.contains(&(birth.0, birth.1, due)) {
            return Err(format!("message {at:?} expires at {due}, but has no timer"));
        }
    }
    for ((queue, id), record) in &image.dedups {
        let due = (record.place.queue, record.place.sequence, record.until_ms);
        if image.queues.contains_key(queue) && !record.over && !windows.contains(&due) {
            return Err(format!(
                "the dedup id {id:?} of queue {queue} is kept until {}, but has no timer",
                record.until_ms
            ));
        }
    }
    for (at, record) in &image.dones {
        if !outcomes.contains(&(at.0, at.1, record.until_ms)) {
            return Err(format!("the outcome of {at:?} is kept until {}, but has no timer", record.until_ms));
        }
    }
    for (id, config) in &image.configs {
        if let Some(until) = config.pause.as_ref().map(|p| p.until_ms).filter(|until| *until > 0)
            && !resumes.contains(&(*id, until))
        {
            return Err(format!("queue {id} is paused until {until}, but has no timer"));
        }
    }
    for id in image.sessions.keys() {
        if image.session_timers.get(id).map_or(0, Vec::len) != 1 {
            return Err(format!("session {id} has {:?} timers, expected one", image.session_timers.get(id)));
        }
    }
    Ok(())
}
