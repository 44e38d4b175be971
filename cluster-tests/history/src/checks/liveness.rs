//! I21: once the faults are over, work goes on: enqueues succeed soon, nothing ready is left when all was received, and
//! neither an expired lease nor a due message waits for long.

use super::{After, Check, Findings};
use crate::case::{Case, MS};
use crate::format::Kind;
use crate::story::{SentTold, seconds};

/// How late leases may end and messages become ready, in milliseconds, at the end of a run.
const LATE: u64 = 10_000;

pub(super) struct Liveness;

impl Check for Liveness {
    fn name(&self) -> &'static str {
        "I21 work goes on once the faults are over"
    }

    fn end(&mut self, case: &Case, after: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        if let (Some(healed), Some(within)) = (case.meta.healed_at, case.meta.expect.heal_ms) {
            let until = healed.saturating_add(within.saturating_mul(MS));
            let asked = story.ops.iter().any(|op| op.kind == Kind::Enqueue && (healed..until).contains(&op.t0));
            let enqueued = story.sent.iter().any(|sent| {
                let op = &story.ops[sent.op as usize];
                op.t0 >= healed && op.t1 <= until && matches!(sent.told, SentTold::In { .. })
            });
            if asked {
                out.expect(enqueued, || {
                    format!(
                        "the last fault was over at {}, but no enqueue that began then succeeded within {within} ms",
                        seconds(healed)
                    )
                });
            } else {
                out.invalid.push(format!("nobody enqueued within {within} ms of the last fault"));
            }
        }
        let Some(model) = after.model else { return };
        let overdue = model.overdue(LATE);
        out.looked += 1;
        for text in overdue {
            out.violation(|| format!("{text} for more than {LATE} ms when the log ends"));
        }
        if case.meta.drained {
            out.expect(model.ready() == 0, || {
                format!("all was received, but {} messages are ready in queues that are not paused", model.ready())
            });
        }
    }
}
