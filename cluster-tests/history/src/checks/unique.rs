//! I4: ids, tokens and positions never repeat.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::fast::FastMap;
use crate::format::{Applied, MessageId, Position, Token};

#[derive(Default)]
pub(super) struct Unique {
    tokens: FastMap<Token, Position>,
}

impl Check for Unique {
    fn name(&self) -> &'static str {
        "I4 ids, tokens and positions never repeat"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let Applied::Granted { g } = &at.line.r else { return };
        if at.line.replay.is_some() {
            return;
        }
        for (_, token) in g.iter().filter_map(|grant| grant.tok) {
            let before = self.tokens.insert(token, at.line.cp);
            out.expect(before.is_none(), || {
                format!("at position {}: expected a new token, but {before:?} gave {token} too", at.line.cp)
            });
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        for (before, got) in &case.index.repeated_tokens {
            let (a, b) = (case.delivery(&story.got[*before as usize]), case.delivery(&story.got[*got as usize]));
            out.violation(|| format!("expected each lease to have a token of its own, but {a} and {b} share one"));
        }
        out.looked += story.got.len() as u64;
        let told = |number: &u32| story.sent[*number as usize].told.added();
        let mut ids: Vec<(MessageId, u32)> =
            (0u32..).take(story.sent.len()).filter_map(|number| told(&number).map(|id| (id, number))).collect();
        ids.sort_unstable();
        out.looked += ids.len() as u64;
        for pair in ids.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let who = |number: u32| story.name(story.sent[number as usize].op);
            let (id, a, b) = (pair[0].0, who(pair[0].1), who(pair[1].1));
            out.violation(|| {
                format!("expected each message to have an id of its own, but {a} and {b} were both told {id}")
            });
        }
        let mut positions: Vec<(Position, u32)> =
            (0u32..).zip(&story.ops).filter_map(|(number, op)| op.cp().map(|cp| (cp, number))).collect();
        positions.sort_unstable();
        out.looked += positions.len() as u64;
        for pair in positions.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            let (a, b) = (story.name(pair[0].1), story.name(pair[1].1));
            out.violation(|| {
                format!("expected each operation to have a position of its own, but {a} and {b} share one")
            });
        }
        for (v, deliveries) in case.index.lives(story) {
            let sent = case.index.sent(v).and_then(|number| told(&number));
            for got in deliveries {
                let (got, first) = (&story.got[*got as usize], &story.got[deliveries[0] as usize]);
                let expected = sent.unwrap_or(first.id);
                out.expect(got.id == expected, || {
                    format!(
                        "{}: expected the message to keep its id {expected} (one of its own is a second copy)",
                        case.delivery(got)
                    )
                });
            }
        }
    }
}
