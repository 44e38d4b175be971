//! I18: what came to a queue is there or has left it in a way that is counted.

use super::{After, Check, Findings};
use crate::case::Case;
use crate::story::Saw;

pub(super) struct Conservation;

impl Check for Conservation {
    fn name(&self) -> &'static str {
        "I18 no message is lost from a queue's figures"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        for look in &case.story.looks {
            let Saw::Stats(Some(s)) = &look.saw else { continue };
            let came = s.enqueued + s.moved_in;
            let here = s.ready + s.delayed + s.blocked + s.leased;
            let left = s.acked + s.moved_out + s.expired_dropped + s.cancelled + s.purged + s.dropped;
            out.expect(came == here + left, || {
                format!("{}: {came} came, {here} are there and {left} have left: {s:?}", case.story.name(look.op))
            });
            out.expect(s.redelivered <= s.received && s.lease_expired <= s.failed, || {
                format!(
                    "{}: expected no more redeliveries than deliveries, nor expiries than failures: {s:?}",
                    case.story.name(look.op)
                )
            });
        }
    }
}
