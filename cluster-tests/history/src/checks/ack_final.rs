//! I7: an ack is final.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::leases::LeaseState;
use crate::story::SettledTold;

pub(super) struct AckFinal;

impl Check for AckFinal {
    fn name(&self) -> &'static str {
        "I7 an ack is final"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        for (queue, seq, _) in at.line.r.given().filter(|_| at.line.replay.is_none()) {
            let before = at.leases.newest(queue, seq).map(|lease| lease.state);
            let gone = matches!(before, Some(LeaseState::Acked | LeaseState::Gone));
            out.expect(!gone, || {
                format!("at position {}: message {} of queue {} is leased, but it is finished", at.line.cp, seq, queue)
            });
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (_, deliveries) in case.index.lives(story) {
            let settles = deliveries.iter().flat_map(|got| case.index.settles(*got));
            let acks = settles.filter(|settle| story.settles[**settle as usize].told == SettledTold::Acked);
            let end = |settle: &u32| story.ops[story.settles[*settle as usize].op as usize].t1;
            let acks = acks.map(|settle| (end(settle), story.settles[*settle as usize].op));
            // What was taken was acked with its receive.
            let taken = deliveries.iter().map(|got| &story.got[*got as usize]).filter(|got| got.taken);
            let taken = taken.map(|got| (story.ops[got.op as usize].t1, got.op));
            let Some((end, who)) = acks.chain(taken).min() else { continue };
            for got in deliveries {
                let got = &story.got[*got as usize];
                out.expect(story.ops[got.op as usize].t0 <= end, || {
                    format!(
                        "{}: expected nobody to get it, for {} had acked it before this receive began",
                        case.delivery(got),
                        story.name(who)
                    )
                });
            }
        }
    }
}
