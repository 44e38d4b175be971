//! An answer fits what was asked: one result for each part, no more messages than asked for, and each verdict has an
//! outcome that it can have. Clients that use a value or a request id twice are found here too.

use super::{After, Check, Findings};
use crate::case::Case;
use crate::format::Verdict;
use crate::story::SettledTold;

pub(super) struct Shape;

impl Check for Shape {
    fn name(&self) -> &'static str {
        "shape: an answer fits the question"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        out.looked += case.story.ops.len() as u64;
        for text in &case.story.misfits {
            out.violation(|| text.clone());
        }
        for text in &case.index.misused {
            out.violation(|| text.clone());
        }
        for part in &case.story.settles {
            let fits = match (part.how, part.told) {
                (_, SettledTold::Nothing | SettledTold::No(_)) | (Verdict::Ack, SettledTold::Acked) => true,
                (
                    Verdict::Retry { .. },
                    SettledTold::Delayed { .. }
                    | SettledTold::Readied
                    | SettledTold::Dead { .. }
                    | SettledTold::Expired
                    | SettledTold::Dropped,
                ) => true,
                (
                    Verdict::Reject,
                    SettledTold::Dead { .. }
                    | SettledTold::Delayed { .. }
                    | SettledTold::Expired
                    | SettledTold::Dropped,
                )
                | (Verdict::Release, SettledTold::Expired) => true,
                (Verdict::Release, SettledTold::Readied) | (Verdict::Extend { .. }, SettledTold::Extended { .. }) => {
                    true
                }
                (Verdict::Retry { .. } | Verdict::Reject | Verdict::Release, SettledTold::Purged) => true,
                (
                    Verdict::Ack | Verdict::Retry { .. } | Verdict::Reject | Verdict::Release | Verdict::Extend { .. },
                    _,
                ) => false,
            };
            out.expect(fits, || {
                format!(
                    "{}: expected an outcome that {:?} can have, but got {:?}",
                    case.story.name(part.op),
                    part.how,
                    part.told
                )
            });
        }
    }
}
