//! Cluster time goes forward along the log, and at the speed of the clients' clock, but for drift and planned jumps.

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};

#[derive(Default)]
pub(super) struct Clock {
    ts: u64,
    lc: u64,
}

impl Check for Clock {
    fn name(&self) -> &'static str {
        "clock: cluster time goes forward, at the right speed"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        out.expect(at.line.ts >= self.ts && at.line.lc >= self.lc, || {
            let (cp, ts, lc) = (at.line.cp, at.line.ts, at.line.lc);
            format!("at position {cp}: the clocks go back from {} and {} to {ts} and {lc}", self.ts, self.lc)
        });
        (self.ts, self.lc) = (at.line.ts, at.line.lc);
        if let Some(op) = at.op {
            let row = &at.case.story.ops[op as usize];
            if row.is_ok() && row.cp() == Some(at.line.cp) && !row.replayed {
                out.expect(row.ts == at.line.ts, || {
                    format!(
                        "{} was told cluster time {}, but the log has {}",
                        at.case.story.name(op),
                        row.ts,
                        at.line.ts
                    )
                });
            }
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        let told = |number: &u32| {
            let op = &story.ops[*number as usize];
            (op.ts != 0).then(|| op.cp()).flatten().map(|cp| (cp, op.ts, *number))
        };
        let mut by_position: Vec<_> = story.ended.iter().filter_map(told).collect();
        // How far cluster time is ahead of the clients' clock, in nanoseconds: the least and the most that is possible,
        // of the operations that ended so far.
        let mut bound: Option<((i128, u32), (i128, u32))> = None;
        for (_, ts, number) in &by_position {
            let op = &story.ops[*number as usize];
            if op.replayed {
                continue;
            }
            let ahead = |t: u64| i128::from(*ts) * i128::from(MS) - i128::from(t);
            // A millisecond is cut off of cluster time.
            let (least, most) = (ahead(op.t1), ahead(op.t0) + i128::from(MS));
            let slack = i128::from(case.slack(op.t1)) + i128::from(MS);
            let (low, high) = bound.get_or_insert(((least, *number), (most, *number)));
            for (gap, other) in [(low.0 - most, low.1), (least - high.0, high.1)] {
                out.expect(gap <= slack, || {
                    let (a, b) = (story.name(other), story.name(*number));
                    format!("cluster time and the clients' clock are {} ms further apart than they may be, between {a} and {b}", (gap - slack) / i128::from(MS))
                });
            }
            *low = (*low).max((least, *number));
            *high = (*high).min((most, *number));
        }
        by_position.sort_unstable();
        for pair in by_position.windows(2) {
            let ((_, before, a), (_, after, b)) = (pair[0], pair[1]);
            out.expect(before <= after, || {
                let (a, b) = (story.name(a), story.name(b));
                format!("cluster time goes back along the log: {a} was told {before}, and {b} behind it {after}")
            });
        }
    }
}
