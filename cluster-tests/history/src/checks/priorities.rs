//! Priorities: what is delivered has the highest priority of all that is ready in its queue. Looked at in the log: by what
//! was ready for certain, being enqueued or given back without a delay and without a group.

use std::collections::BTreeMap;

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::fast::FastMap;
use crate::fates::{Event, Fate};

/// What is ready for certain in a queue: by priority and sequence, when it expires.
type Ready = BTreeMap<(u8, u64), u64>;

#[derive(Default)]
pub(super) struct Priorities {
    ready: FastMap<u64, Ready>,
}

impl Check for Priorities {
    fn name(&self) -> &'static str {
        "priorities: the highest that is ready comes first"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (cp, now) = (at.line.cp, at.line.ts);
        for turn in at.turns {
            let priority = turn.id.priority;
            let none = |fate: &Fate| fate.group.is_none();
            match (&turn.event, turn.was) {
                (Event::Came { fate, .. }, _) if fate.prompt && none(fate) => self.add(priority, fate),
                (Event::Back { waits: false }, Some(was)) if none(&was) => self.add(priority, &was),
                (Event::Leased | Event::Taken, Some(was)) => {
                    let ready = self.ready.entry(was.queue).or_default();
                    ready.remove(&(priority, was.seq));
                    // What has expired may have been ended by a tick: it is passed over for good.
                    while let Some((key, expires)) = ready.last_key_value().map(|(key, expires)| (*key, *expires)) {
                        if expires == 0 || now < expires {
                            break;
                        }
                        ready.remove(&key);
                    }
                    let highest = ready.last_key_value().map(|((priority, seq), _)| (*priority, *seq));
                    out.expect(highest.is_none_or(|(highest, _)| highest <= priority), || {
                        let (highest, seq) = highest.unwrap_or_default();
                        format!(
                            "at position {cp}: message {} of priority {priority} is delivered, while message {seq} of its queue with priority {highest} was ready",
                            turn.id
                        )
                    });
                }
                (Event::Moved { waits: true } | Event::Ended(_) | Event::Died { .. } | Event::Left, Some(was)) => {
                    if let Some(ready) = self.ready.get_mut(&was.queue) {
                        ready.remove(&(priority, was.seq));
                    }
                }
                (Event::Swept { queue, .. }, _) => {
                    self.ready.remove(queue);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, _: &Case, _: &After<'_>, _: &mut Findings) {}
}

impl Priorities {
    fn add(&mut self, priority: u8, fate: &Fate) {
        self.ready.entry(fate.queue).or_default().insert((priority, fate.seq), fate.expires);
    }
}
