//! I14: `TOO_LATE` tells the truth: the message is leased, or has finished and was named by its dedup id. And what is
//! cancelled was with nobody.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::fates::{Doing, Event, Fate};
use crate::format::Target;
use crate::story::{CancelTold, TimedTold};

pub(super) struct TooLate;

impl Check for TooLate {
    fn name(&self) -> &'static str {
        "I14 TOO_LATE tells the truth"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (cp, now) = (at.line.cp, at.line.ts);
        let whose = || at.op.map_or_else(String::new, |op| format!(" ({})", at.case.story.name(op)));
        for turn in at.turns {
            let id = turn.id;
            match (&turn.event, turn.was) {
                (Event::TooLate { by_id }, was) => {
                    let over =
                        |was: Fate| was.state != Doing::Here || was.dead || (was.expires != 0 && now >= was.expires);
                    let truth = was.is_some_and(|was| was.state == Doing::Leased || (!by_id && over(was)));
                    out.expect(truth || was.is_some_and(|was| was.state == Doing::Unsure), || {
                        format!(
                            "at position {cp}{}: message {id} was refused with TOO_LATE, but nobody had it",
                            whose()
                        )
                    });
                }
                (Event::Ended("cancelled"), Some(was)) => {
                    out.expect(!matches!(was.state, Doing::Leased | Doing::Gone), || {
                        let state = if was.state == Doing::Leased { "somebody had it" } else { "it was gone" };
                        format!("at position {cp}{}: message {id} was cancelled, but {state}", whose())
                    });
                }
                (Event::Moved { .. }, Some(was)) => {
                    out.expect(!matches!(was.state, Doing::Leased | Doing::Gone), || {
                        let state = if was.state == Doing::Leased { "somebody had it" } else { "it was gone" };
                        format!("at position {cp}{}: message {id} was put at another time, but {state}", whose())
                    });
                }
                (Event::NotThere, Some(was)) => {
                    let there =
                        matches!(was.state, Doing::Here | Doing::Leased) && (was.expires == 0 || now < was.expires);
                    out.expect(!there, || {
                        format!(
                            "at position {cp}{}: message {id} was not there to be cancelled, but it is in its queue",
                            whose()
                        )
                    });
                }
                _ => {}
            }
        }
    }

    /// Black box: whoever is told that it is too late for a message that he names by its id can find somebody who may have
    /// had it then.
    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        let late = |number: u32| story.refusal(number).is_some_and(|refusal| refusal.why == "TOO_LATE");
        let cancels = story.cancels.iter().filter(|c| matches!(c.told, CancelTold::No(n) if late(n)));
        let times = story.times.iter().filter(|t| matches!(t.told, TimedTold::No(n) if late(n)));
        let asked = cancels.map(|c| (c.op, &c.target)).chain(times.map(|t| (t.op, &t.time.of)));
        for (op, target) in asked {
            let Target::Id(_) = target else { continue };
            let row = &story.ops[op as usize];
            let Some(sent) = case.index.targets(story, target).first().copied() else { continue };
            let v = story.sent[sent as usize].m.v;
            let got = case.index.deliveries(story, v).iter().map(|got| &story.got[*got as usize]);
            let had = got.filter(|got| !got.taken).any(|got| story.ops[got.op as usize].t0 < row.t1);
            out.expect(had || case.first_unheard < row.t1, || {
                format!("{}: was told TOO_LATE for message v {v}, but nobody had received it by then", story.name(op))
            });
        }
    }
}
