//! I12: nothing is delivered before it is due.

use super::{After, Check, Findings};
use crate::case::{Case, MS};
use crate::format::Verdict;
use crate::story::{NONE, SentTold, SettledTold, TimedTold};

pub(super) struct Early;

impl Check for Early {
    fn name(&self) -> &'static str {
        "I12 nothing is delivered before it is due"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (v, deliveries) in case.index.lives(story) {
            let Some(place) = case.index.sent(v) else { continue };
            let sent = &story.sent[place as usize];
            let begin = story.ops[sent.op as usize].t0;
            // What somebody may have put at another time is looked at by what that one was told.
            let moved = case.index.times(story, place).map(|timed| story.ops[timed.op as usize].t0).min();
            let moved = moved.unwrap_or(u64::MAX);
            for number in deliveries {
                let got = &story.got[*number as usize];
                let op = &story.ops[got.op as usize];
                if op.t1 >= moved {
                    continue;
                }
                // By the clients' clock.
                after(
                    case,
                    op.t1,
                    begin,
                    sent.m.d,
                    || format!("{}, sent with a delay of {} ms", case.delivery(got), sent.m.d),
                    out,
                );
                // By cluster time, as it was told.
                if let SentTold::In { at, .. } = sent.told
                    && op.ts != 0
                {
                    out.expect(op.ts >= at, || {
                        format!("{} at cluster time {}: expected it from {at} on", case.delivery(got), op.ts)
                    });
                }
            }
            waits(case, deliveries, moved, out);
            new_times(case, place, deliveries, out);
        }
    }
}

/// After a failure a message waits as long as it was told to, unless it becomes a dead letter: that one is ready at once.
fn waits(case: &Case, deliveries: &[u32], moved: u64, out: &mut Findings) {
    let story = &case.story;
    let before = |got: &&u32| story.ops[story.got[**got as usize].op as usize].t1 < moved;
    let deliveries: Vec<u32> = deliveries.iter().filter(before).copied().collect();
    for number in &deliveries {
        let dead = story.got[*number as usize].dead != NONE;
        for settle in case.index.settles(*number) {
            let settle = &story.settles[*settle as usize];
            let SettledTold::Delayed { due } = settle.told else { continue };
            let failed = &story.ops[settle.op as usize];
            let all = deliveries.iter().map(|later| &story.got[*later as usize]);
            for later in all.filter(|later| dead || later.dead == NONE) {
                let op = &story.ops[later.op as usize];
                let follows = op.cp().zip(failed.cp()).is_some_and(|(later, failed)| later > failed);
                if op.t0 > failed.t1 {
                    let delay = if let Verdict::Retry { d } = settle.how { d.unwrap_or(0) } else { 0 };
                    let text = || {
                        format!("{}, which {} had put off by {delay} ms", case.delivery(later), story.name(settle.op))
                    };
                    after(case, op.t1, failed.t0, delay, text, out);
                }
                if follows && op.ts != 0 {
                    out.expect(op.ts >= due, || {
                        let who = story.name(settle.op);
                        format!(
                            "{} at cluster time {}: expected it from {due} on, as {who} was told",
                            case.delivery(later),
                            op.ts
                        )
                    });
                }
            }
        }
    }
}

/// A message that was rescheduled waits as long as it was told to, unless it was rescheduled again, or became a dead letter
/// afterwards.
fn new_times(case: &Case, sent: u32, deliveries: &[u32], out: &mut Findings) {
    let story = &case.story;
    for timed in case.index.times(story, sent) {
        let op = &story.ops[timed.op as usize];
        let (TimedTold::Moved { id, at }, Some(cp)) = (timed.told, op.cp()) else { continue };
        // Only one that was seen as a dead letter before is one for certain.
        let seen = |got: &u32| Some(&story.got[*got as usize]).filter(|got| got.dead != NONE);
        let dead =
            deliveries.iter().filter_map(seen).any(|got| story.ops[got.op as usize].cp().is_some_and(|at| at < cp));
        let others = || case.index.times(story, sent).filter(|other| other.op != timed.op);
        let all = deliveries.iter().map(|got| &story.got[*got as usize]);
        // By a dedup id another message may have been meant.
        for got in all.filter(|got| got.id == id && (dead || got.dead == NONE)) {
            let receive = &story.ops[got.op as usize];
            let Some(received) = receive.cp().filter(|received| *received > cp && receive.ts != 0) else { continue };
            let again = others().any(|other| {
                let other = &story.ops[other.op as usize];
                other.t0 <= receive.t1 && other.cp().is_none_or(|other| cp < other && other < received)
            });
            out.expect(again || receive.ts >= at, || {
                let who = story.name(timed.op);
                format!(
                    "{} at cluster time {}: expected it from {at} on, as {who} was told",
                    case.delivery(got),
                    receive.ts
                )
            });
        }
    }
}

fn after(case: &Case, got: u64, begin: u64, delay: u64, text: impl FnOnce() -> String, out: &mut Findings) {
    let delay = delay.saturating_mul(MS);
    let from = begin.saturating_add(delay).saturating_sub(case.slack(delay));
    out.expect(got >= from, || format!("{}: came {} ms too early", text(), (from - got) / MS));
}
