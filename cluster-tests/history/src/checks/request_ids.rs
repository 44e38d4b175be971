//! I11: a request has one effect, however often it comes.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::fast::FastMap;
use crate::format::{Position, Rid};
use crate::model::has_effect;

#[derive(Default)]
pub(super) struct RequestIds {
    effects: FastMap<Rid, Position>,
}

impl Check for RequestIds {
    fn name(&self) -> &'static str {
        "I11 a request has one effect"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let Some(rid) = at.line.rid else { return };
        if at.line.replay.is_none() && has_effect(&at.line.r) {
            let before = self.effects.insert(rid, at.line.cp);
            out.expect(before.is_none(), || {
                let whose = at.op.map_or_else(String::new, |op| format!(" ({})", at.case.story.name(op)));
                let first = before.unwrap_or_default();
                format!("request {rid}{whose} took effect at position {first} and again at {}", at.line.cp)
            });
        } else if let Some(first) = at.line.replay {
            let known = self.effects.get(&rid).copied();
            out.expect(known == Some(first), || {
                format!(
                    "request {rid} is told at {} of an effect at {first}, but it took effect at {known:?}",
                    at.line.cp
                )
            });
        }
    }

    /// Black box: a message that was sent once is there once; see also I4 for copies under ids of their own.
    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for op in story.ops.iter().filter(|op| op.replayed) {
            out.expect(op.cp().is_some(), || {
                format!(
                    "operation {} of client {} was told of an earlier outcome, but not where it stands",
                    op.op, op.p
                )
            });
        }
    }
}
