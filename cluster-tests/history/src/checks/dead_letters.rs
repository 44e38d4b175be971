//! I9: a message is dead-lettered exactly when its attempts are used up or it was rejected, once, and for good.

use super::{After, Check, Findings};
use crate::case::{Case, MS};
use crate::format::Verdict;
use crate::story::{NONE, SettledTold};

pub(super) struct DeadLetters;

impl Check for DeadLetters {
    fn name(&self) -> &'static str {
        "I9 dead letters are those whose attempts are used up"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (_, deliveries) in case.index.lives(story) {
            let mut buried: Option<u32> = None;
            for got in deliveries {
                verdicts(case, *got, out);
                for settle in case.index.settles(*got) {
                    let part = &story.settles[*settle as usize];
                    if !matches!(part.told, SettledTold::Dead { .. }) {
                        continue;
                    }
                    let before = buried.replace(*settle);
                    out.expect(before.is_none(), || {
                        let who =
                            before.map(|before| story.name(story.settles[before as usize].op)).unwrap_or_default();
                        format!(
                            "{}: expected one move to a dead-letter queue, but {who} was told of one too",
                            story.name(part.op)
                        )
                    });
                }
            }
            let Some(buried) = buried else { continue };
            let end = story.ops[story.settles[buried as usize].op as usize].t1;
            for got in deliveries {
                let row = &story.got[*got as usize];
                out.expect(row.dead != NONE || story.ops[row.op as usize].t0 <= end, || {
                    let who = story.name(story.settles[buried as usize].op);
                    format!("{}: expected it from the dead-letter queue only, since {who}", case.delivery(row))
                });
            }
        }
        for got in story.got.iter().filter(|got| got.dead != NONE) {
            let dead = &story.dead[got.dead as usize];
            let (least, most) = case.attempts(got.v, story.queue_number(&dead.q).unwrap_or(NONE));
            let exhausted = (least..=most).contains(&dead.f);
            let other = matches!(dead.why.as_str(), "rejected" | "expired" | "group");
            out.expect(other || (dead.why == "attempts" && exhausted), || {
                format!(
                    "{}: expected {least} to {most} failures of a dead letter, but it says {} ({})",
                    case.delivery(got),
                    dead.f,
                    dead.why
                )
            });
        }
    }
}

/// What a failure leads to, by the failures that the delivery told of.
fn verdicts(case: &Case, number: u32, out: &mut Findings) {
    let story = &case.story;
    let got = &story.got[number as usize];
    let bounds = case.bounds(got.queue);
    let (least, most) = case.attempts(got.v, got.queue);
    // Within one window the count never begins anew.
    let one_window = (story.last + case.slack(story.last)) / MS < bounds.window;
    for settle in case.index.settles(number) {
        let part = &story.settles[*settle as usize];
        let buried = matches!(part.told, SettledTold::Dead { .. });
        let stays = matches!(part.told, SettledTold::Delayed { .. } | SettledTold::Readied);
        let dead_letter = got.dead != NONE;
        let failures = got.f + 1;
        let fits = match part.how {
            Verdict::Reject => !(buried && dead_letter || stays && !dead_letter),
            Verdict::Retry { .. } if buried => !dead_letter && failures >= least,
            Verdict::Retry { .. } if stays => dead_letter || !one_window || failures < most,
            Verdict::Ack | Verdict::Release | Verdict::Extend { .. } => !buried,
            Verdict::Retry { .. } => true,
        };
        out.expect(fits, || {
            let (who, how, told) = (story.name(part.op), part.how, part.told);
            format!("{who}: {how:?} was told {told:?} with {failures} failures, of {least} to {most} that make a dead letter ({})", case.delivery(got))
        });
    }
}
