//! I15: a commit is all or nothing: no ack without its children, no child without the ack, no child twice.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::format::{
    Applied, CancelOutcome, Command, EnqueueOutcome, Kind, SettleOutcome, Target, TimeOutcome, Verdict,
};
use crate::story::{CancelTold, Extra, SentTold, SettledTold, TimedTold};

pub(super) struct Commits;

impl Check for Commits {
    fn name(&self) -> &'static str {
        "I15 a commit is all or nothing"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (
            Command::Commit { atomic: true, s, c, t, e, .. },
            Applied::Committed { s: settled, c: cancelled, t: moved, e: enqueued },
        ) = (&at.line.c, &at.line.r)
        else {
            return;
        };
        let whole = settled.len() == s.len()
            && enqueued.len() == e.len()
            && cancelled.len() == c.len()
            && moved.len() == t.len()
            && !cancelled.iter().any(|outcome| matches!(outcome, CancelOutcome::No(_)))
            && !moved.iter().any(|outcome| matches!(outcome, TimeOutcome::No(_)))
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
        let nothing = Extra::default();
        for (number, op) in (0u32..).zip(&story.ops).filter(|(_, op)| op.kind == Kind::Commit) {
            let extra = story.extra_of(op).unwrap_or(&nothing);
            if extra.turned {
                continue;
            }
            let (cancels, times) = (&story.cancels[extra.cancels.range()], &story.times[extra.times.range()]);
            if op.is_ok() {
                let settled = op.settles.range().all(|part| story.settles[part].told.took_effect());
                let sent = op.sent.range().all(|part| matches!(story.sent[part].told, SentTold::In { .. }));
                let cancelled =
                    cancels.iter().all(|part| matches!(part.told, CancelTold::Cancelled(_) | CancelTold::Gone));
                let moved = times.iter().all(|part| matches!(part.told, TimedTold::Moved { .. }));
                out.expect(settled && sent && cancelled && moved, || {
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
            // A child was seen, so what the commit cancelled is gone.
            for part in cancels {
                for sent in case.index.targets(story, &part.target) {
                    let v = story.sent[sent as usize].m.v;
                    let deliveries = case.index.deliveries(story, v).iter().map(|got| &story.got[*got as usize]);
                    let by_id = matches!(part.target, Target::Id(_));
                    // A dedup id may be of a message that came after the cancel.
                    let before = by_id
                        || part.told == CancelTold::Nothing
                            && story.ops[story.sent[sent as usize].op as usize].t1 < op.t0;
                    for got in deliveries.filter(|got| before && story.ops[got.op as usize].t0 > seen) {
                        out.violation(|| {
                            format!(
                                "{}: a child without the cancel: {} came after a child had been seen",
                                story.name(number),
                                case.delivery(got)
                            )
                        });
                    }
                }
            }
            if case.meta.drained {
                for place in op.sent.range() {
                    let part = &story.sent[place];
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    // It may have been a duplicate, and what may vanish may have done so.
                    let unsure = case.may_vanish(place)
                        || matches!(part.told, SentTold::In { dup: true, .. })
                        || (part.told == SentTold::Nothing && !part.m.dedup_id().is_empty());
                    out.expect(unsure || !case.index.deliveries(story, part.m.v).is_empty(), || {
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
