//! I5: a message has one lease at a time. The lease clock decides, which stops while there is no leader.

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};
use crate::format::Verdict;
use crate::leases::LeaseState;

pub(super) struct OneLease;

impl Check for OneLease {
    fn name(&self) -> &'static str {
        "I5 a message has one lease at a time"
    }

    /// Exact: a grant comes after the end of the lease before it.
    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        if at.line.replay.is_some() {
            return;
        }
        for (queue, seq, _) in at.line.r.given() {
            let before = at.leases.newest(queue, seq);
            let held = before.filter(|lease| lease.state == LeaseState::Live && lease.end > at.line.lc);
            out.expect(held.is_none(), || {
                let end = held.map_or(0, |lease| lease.end);
                let whose = at.op.map_or_else(String::new, |op| format!(", {}", at.case.story.name(op)));
                format!(
                    "at position {} (lease clock {}{whose}): message {} of queue {} is leased while an earlier lease goes on until {end}",
                    at.line.cp, at.line.lc, seq, queue
                )
            });
        }
    }

    /// Black box: two deliveries overlap whichever of them was first.
    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        // Whether `second` may have been leased after `first`: its lease was over, or someone tried to end it.
        let may_follow = |first: u32, second: u32| {
            let (a, b) = (&story.got[first as usize], &story.got[second as usize]);
            // What was taken had no lease, and was over at once.
            if a.taken {
                return false;
            }
            let (op, until) = (&story.ops[a.op as usize], story.ops[b.op as usize].t1);
            let lease = case.lease(a);
            // An extension may end the lease earlier than it would have ended.
            let extended = case.index.settles(first).iter().filter_map(|settle| {
                let settle = &story.settles[*settle as usize];
                let Verdict::Extend { lease } = settle.how else { return None };
                let lease = if lease == 0 { case.bounds(a.queue).lease.0 } else { lease };
                Some(story.ops[settle.op as usize].t0.saturating_add(lease.saturating_mul(MS)))
            });
            let over = extended.fold(op.t0.saturating_add(lease), u64::min).saturating_sub(case.slack(lease));
            let ends = |how: Verdict| !matches!(how, Verdict::Extend { .. });
            until >= over
                || case.index.settles(first).iter().any(|settle| {
                    let settle = &story.settles[*settle as usize];
                    ends(settle.how) && story.ops[settle.op as usize].t0 < until
                })
        };
        for (_, deliveries) in case.index.lives(story) {
            for pair in deliveries.windows(2) {
                let (a, b) = (pair[0], pair[1]);
                out.expect(may_follow(a, b) || may_follow(b, a), || {
                    let (first, second) = (&story.got[a as usize], &story.got[b as usize]);
                    format!("{} and {} hold one message at the same time", case.delivery(first), case.delivery(second))
                });
            }
        }
    }
}
