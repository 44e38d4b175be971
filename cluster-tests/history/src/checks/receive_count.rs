//! I8: the i-th lease of a message in a queue has receive count i. Clients may miss some, but no two are alike.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::story::NONE;

pub(super) struct ReceiveCount;

impl Check for ReceiveCount {
    fn name(&self) -> &'static str {
        "I8 the receive count counts leases"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        for (queue, seq, rc) in at.line.r.given().filter(|_| at.line.replay.is_none()) {
            let before = at.leases.newest(queue, seq).map_or(0, |lease| lease.rc);
            out.expect(rc == before + 1, || {
                let cp = at.line.cp;
                format!("at position {cp}: message {seq} of queue {queue} has receive count {rc} after {before}")
            });
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        let mut counts = Vec::new();
        for (_, deliveries) in case.index.lives(story) {
            counts.clear();
            counts.extend(deliveries.iter().map(|got| {
                let row = &story.got[*got as usize];
                (row.dead != NONE, row.rc, *got)
            }));
            counts.sort_unstable();
            for pair in counts.windows(2) {
                out.expect((pair[0].0, pair[0].1) != (pair[1].0, pair[1].1), || {
                    let (a, b) = (&story.got[pair[0].2 as usize], &story.got[pair[1].2 as usize]);
                    format!("{} and {} have one receive count", case.delivery(a), case.delivery(b))
                });
            }
            for (_, rc, got) in &counts {
                out.expect(*rc > 0, || {
                    format!("{}: expected a receive count from 1", case.delivery(&story.got[*got as usize]))
                });
            }
        }
    }
}
