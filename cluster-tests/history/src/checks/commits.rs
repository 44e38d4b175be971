//! I15: a commit is all or nothing: no ack without its children, no child without the ack, no child twice.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::format::{Applied, Command, EnqueueOutcome, Kind, SettleOutcome, Verdict};
use crate::story::{SentTold, SettledTold};

pub(super) struct Commits;

impl Check for Commits {
    fn name(&self) -> &'static str {
        "I15 a commit is all or nothing"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (Command::Commit { atomic: true, s, e, .. }, Applied::Committed { s: settled, e: enqueued }) =
            (&at.line.c, &at.line.r)
        else {
            return;
        };
        let whole = settled.len() == s.len()
            && enqueued.len() == e.len()
            && !settled.iter().any(|outcome| matches!(outcome, SettleOutcome::No(_)))
            && !enqueued.iter().any(|outcome| matches!(outcome, EnqueueOutcome::No(_)));
        out.expect(whole, || {
            let whose = at.op.map_or_else(String::new, |op| format!(" ({})", at.case.story.name(op)));
            format!(
                "at position {}{whose}: expected all parts or none to take effect, but got {:?}",
                at.line.cp, at.line.r
            )
        });
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (number, op) in (0u32..).zip(&story.ops).filter(|(_, op)| op.kind == Kind::Commit) {
            if op.is_ok() {
                let settled = op.settles.range().all(|part| story.settles[part].told.took_effect());
                let sent = op.sent.range().all(|part| matches!(story.sent[part].told, SentTold::In { .. }));
                out.expect(settled && sent, || {
                    format!("{}: expected every part to have taken effect", story.name(number))
                });
            }
            let children = op.sent.range().map(|part| case.index.deliveries(story, story.sent[part].m.v));
            // The first time that somebody had seen a child: then all of the commit has happened.
            let ends =
                children.filter_map(|seen| seen.first().map(|got| story.ops[story.got[*got as usize].op as usize].t1));
            let Some(seen) = ends.min() else { continue };
            for part in op.settles.range().map(|part| &story.settles[part]) {
                let Some(parent) = case.index.delivery(part.tok).filter(|_| part.how == Verdict::Ack) else { continue };
                let parent = &story.got[parent as usize];
                let again = case.index.deliveries(story, parent.v).iter().map(|got| &story.got[*got as usize]);
                for got in again.filter(|got| story.ops[got.op as usize].t0 > seen) {
                    out.violation(|| {
                        format!(
                            "{}: a child without the ack: {} came after a child had been seen",
                            story.name(number),
                            case.delivery(got)
                        )
                    });
                }
                out.expect(part.told == SettledTold::Acked || !op.is_ok(), || {
                    format!("{}: a child without the ack: it was told {:?}", story.name(number), part.told)
                });
            }
            if case.meta.drained {
                for part in op.sent.range().map(|part| &story.sent[part]) {
                    out.expect(!case.index.deliveries(story, part.m.v).is_empty(), || {
                        format!(
                            "{}: of its children some were seen, but v {} never, though all was received",
                            story.name(number),
                            part.m.v
                        )
                    });
                }
            }
        }
    }
}
