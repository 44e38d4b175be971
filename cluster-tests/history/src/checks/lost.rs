//! I1: no acked enqueue is lost. What a client was told to be in stands in the log; and once all was received, it was
//! seen, unless it could vanish otherwise: see [`Case::may_vanish`].

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::format::{Applied, EnqueueOutcome};

#[derive(Default)]
pub(super) struct Lost {
    /// Which messages the log holds, by their place in the story.
    held: Vec<bool>,
}

impl Check for Lost {
    fn name(&self) -> &'static str {
        "I1 no acked enqueue is lost"
    }

    fn applied(&mut self, at: &Applying<'_>, _: &mut Findings) {
        self.held.resize(at.case.story.sent.len(), false);
        let (Some(op), Applied::Committed { e, .. }) = (at.op, &at.line.r) else { return };
        for (number, outcome) in at.case.story.ops[op as usize].sent.range().zip(e) {
            if matches!(outcome, EnqueueOutcome::In { dup: false, .. }) {
                self.held[number] = true;
            }
        }
    }

    fn end(&mut self, case: &Case, after: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (number, sent) in story.sent.iter().enumerate() {
            let Some(id) = sent.told.added() else { continue };
            let held = after.lines == 0 || self.held.get(number).copied().unwrap_or(false);
            out.expect(held, || {
                let (who, v) = (story.name(sent.op), sent.m.v);
                format!(
                    "{who} was told that message v {v} is in as {id}, but the log (up to index {}) does not hold it",
                    after.last_index
                )
            });
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            if case.meta.drained && !case.may_vanish(number) {
                let seen = !case.index.deliveries(story, sent.m.v).is_empty();
                let there = after.model.is_some_and(|model| model.holds(id));
                out.expect(seen, || {
                    let (who, v) = (story.name(sent.op), sent.m.v);
                    let now = if there { "it still stands in its queue" } else { "nobody knows where it is" };
                    format!("{who} was told that message v {v} is in as {id}, and all was received, but nobody got it: {now}")
                });
            }
        }
    }
}
