//! What ended before an operation began stands before it in the log. So the order of the log is one in which the
//! operations may have happened one after the other, and the replay along it is a proof.

use super::{After, Check, Findings};
use crate::case::Case;

pub(super) struct Realtime;

impl Check for Realtime {
    fn name(&self) -> &'static str {
        "real time: the log follows the clients' clock"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        for at in &case.story.ended {
            let op = &case.story.ops[*at as usize];
            let Some(cp) = op.cp() else { continue };
            out.expect(cp > op.floor(), || {
                let (floor, who) = (op.floor(), case.story.name(*at));
                format!("{who}: expected a position behind {floor}, which another operation had been told of before this one began")
            });
        }
    }
}
