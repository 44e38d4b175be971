//! I12: nothing is delivered before it is due.

use super::{After, Check, Findings};
use crate::case::{Case, MS};
use crate::format::Verdict;
use crate::story::{SentTold, SettledTold};

pub(super) struct Early;

impl Check for Early {
    fn name(&self) -> &'static str {
        "I12 nothing is delivered before it is due"
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (v, deliveries) in case.index.lives(story) {
            let Some(sent) = case.index.sent(v).map(|number| &story.sent[number as usize]) else { continue };
            let begin = story.ops[sent.op as usize].t0;
            for number in deliveries {
                let got = &story.got[*number as usize];
                let op = &story.ops[got.op as usize];
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
            waits(case, deliveries, out);
        }
    }
}

/// After a failure a message waits as long as it was told to.
fn waits(case: &Case, deliveries: &[u32], out: &mut Findings) {
    let story = &case.story;
    for number in deliveries {
        for settle in case.index.settles(*number) {
            let settle = &story.settles[*settle as usize];
            let SettledTold::Delayed { due } = settle.told else { continue };
            let failed = &story.ops[settle.op as usize];
            for later in deliveries.iter().map(|later| &story.got[*later as usize]) {
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

fn after(case: &Case, got: u64, begin: u64, delay: u64, text: impl FnOnce() -> String, out: &mut Findings) {
    let delay = delay.saturating_mul(MS);
    let from = begin.saturating_add(delay).saturating_sub(case.slack(delay));
    out.expect(got >= from, || format!("{}: came {} ms too early", text(), (from - got) / MS));
}
