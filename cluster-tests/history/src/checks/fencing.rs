//! I6: fencing, both ways. Only the live lease settles; and a live lease is not refused. The lease clock decides, which
//! stops while there is no leader.

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};
use crate::format::{Applied, Command, SettleOutcome, Verdict};

pub(super) struct Fencing;

impl Check for Fencing {
    fn name(&self) -> &'static str {
        "I6 only a live lease settles"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (Command::Commit { s, .. }, Applied::Committed { s: outcomes, .. }) = (&at.line.c, &at.line.r) else {
            return;
        };
        if at.line.replay.is_some() {
            return;
        }
        let whose = || at.op.map_or_else(String::new, |op| format!(", {}", at.case.story.name(op)));
        for (number, (part, outcome)) in s.iter().zip(outcomes).enumerate() {
            // The same lease may come twice in one request; the first one decides.
            if s[..number].iter().any(|before| before.tok == part.tok) {
                continue;
            }
            let live = at.leases.is_live(part.tok, at.line.lc);
            let (cp, how) = (at.line.cp, part.how);
            match outcome {
                SettleOutcome::No(refusal) if refusal.why == "LEASE_LOST" => out.expect(!live, || {
                    format!("at position {cp}{}: {how:?} was refused with {refusal}, but the lease was live", whose())
                }),
                SettleOutcome::No(_) => {}
                SettleOutcome::Acked
                | SettleOutcome::Dead { .. }
                | SettleOutcome::Delayed { .. }
                | SettleOutcome::Readied
                | SettleOutcome::Extended { .. }
                | SettleOutcome::Purged
                | SettleOutcome::Expired
                | SettleOutcome::Dropped
                | SettleOutcome::Gone
                | SettleOutcome::Unseen => out.expect(live, || {
                    format!("at position {cp}{}: {how:?} took effect ({outcome:?}), but the lease was over", whose())
                }),
            }
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (number, got) in (0u32..).zip(&story.got).filter(|(_, got)| !got.taken) {
            let receive = &story.ops[got.op as usize];
            let mut until = receive.t1.saturating_add(case.lease(got));
            for settle in case.index.settles(number) {
                let settle = &story.settles[*settle as usize];
                let op = &story.ops[settle.op as usize];
                let slack = case.slack(until.saturating_sub(receive.t0)) + case.leaderless(receive.t0, op.t0);
                if settle.told.took_effect() {
                    out.expect(op.t0 <= until.saturating_add(slack), || {
                        let late = op.t0.saturating_sub(until) / MS;
                        format!(
                            "{}: {:?} took effect, but it began {late} ms after the lease of {} had ended",
                            story.name(settle.op),
                            settle.how,
                            case.delivery(got)
                        )
                    });
                }
                if let Verdict::Extend { lease } = settle.how {
                    let lease = if lease == 0 { case.bounds(got.queue).lease.1 } else { lease };
                    until = until.max(op.t1.saturating_add(lease.saturating_mul(MS)));
                }
            }
        }
    }
}
