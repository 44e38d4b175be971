//! I2: no phantom, no corruption. Each delivered body is one that somebody sent, before it was delivered.

use super::{After, Check, Findings};
use crate::case::Case;

pub(super) struct Phantom;

impl Check for Phantom {
    fn name(&self) -> &'static str {
        "I2 what is delivered was sent, and is whole"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for got in &story.got {
            let sent = case.index.sent(got.v).map(|number| &story.sent[number as usize]);
            out.expect(sent.is_some(), || {
                format!("{}: expected a message that somebody sent, but nobody sent this value", case.delivery(got))
            });
            let Some(sent) = sent else { continue };
            out.expect(sent.m.h == got.h, || {
                let (who, expected, h) = (story.name(sent.op), sent.m.h, got.h);
                format!(
                    "{}: expected the body with hash {expected} that {who} sent, but its hash is {h}",
                    case.delivery(got)
                )
            });
            let (begin, end) = (story.ops[sent.op as usize].t0, story.ops[got.op as usize].t1);
            out.expect(begin <= end, || {
                format!(
                    "{}: expected it after it was sent, but {} began only later",
                    case.delivery(got),
                    story.name(sent.op)
                )
            });
            if got.dead == crate::story::NONE {
                let from = got.queue;
                out.expect(from == sent.queue, || {
                    let (expected, came) = (story.queue(sent.queue), story.queue(from));
                    format!(
                        "{}: expected it from queue {expected} where it was put, but it came from {came}",
                        case.delivery(got)
                    )
                });
                let group = got.group.as_deref().unwrap_or("");
                out.expect(group == sent.m.group(), || {
                    let (who, expected) = (story.name(sent.op), sent.m.group());
                    format!(
                        "{}: expected the group {expected:?} that {who} gave it, but it is {group:?}",
                        case.delivery(got)
                    )
                });
            }
        }
        for dead in story.got.iter().filter_map(|got| story.dead.get(got.dead as usize).map(|dead| (got, dead))) {
            let Some(sent) = case.index.sent(dead.0.v).map(|number| &story.sent[number as usize]) else { continue };
            let source = story.queue_name(sent.queue) == Some(&dead.1.q);
            out.expect(source, || {
                let expected = story.queue(sent.queue);
                format!(
                    "{}: expected a dead letter of queue {expected} where it was put, but it says {}",
                    case.delivery(dead.0),
                    dead.1.q
                )
            });
        }
    }
}
