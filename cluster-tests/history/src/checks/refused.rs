//! I3: no means no. What was refused has no effect: not in the log, and not seen by anyone.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::model::has_effect;
use crate::story::{End, SentTold};

pub(super) struct Refused;

impl Check for Refused {
    fn name(&self) -> &'static str {
        "I3 what was refused did not happen"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let Some(op) = at.op.filter(|op| at.case.story.ops[*op as usize].end == End::Fail) else { return };
        out.expect(!has_effect(&at.line.r), || {
            let who = at.case.story.name(op);
            format!("{who}: expected no effect, but at position {} the log has {:?}", at.line.cp, at.line.r)
        });
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for sent in &story.sent {
            let op = &story.ops[sent.op as usize];
            if op.end != End::Fail && !matches!(sent.told, SentTold::No(_)) {
                continue;
            }
            let seen = case.index.deliveries(story, sent.m.v).first();
            out.expect(seen.is_none(), || {
                let delivery = seen.map(|got| case.delivery(&story.got[*got as usize])).unwrap_or_default();
                format!(
                    "{}: expected that message v {} was never seen, but there is {delivery}",
                    story.name(sent.op),
                    sent.m.v
                )
            });
        }
    }
}
