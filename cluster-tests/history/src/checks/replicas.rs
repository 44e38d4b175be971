//! I20: replicas agree: equal hashes at equal indexes; one leader a term; terms never go back along the log.

use std::collections::BTreeMap;

use super::{After, Applying, Check, Findings};
use crate::case::Case;

#[derive(Default)]
pub(super) struct Replicas {
    term: u64,
}

impl Check for Replicas {
    fn name(&self) -> &'static str {
        "I20 replicas agree, and a term has one leader"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        out.expect(at.line.term >= self.term, || {
            format!("at position {}: expected term {} or later, but it is {}", at.line.cp, self.term, at.line.term)
        });
        self.term = at.line.term;
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let mut hashes: BTreeMap<u64, (&str, crate::format::Hash)> = BTreeMap::new();
        let mut shared = 0;
        for (name, lines) in &case.chains {
            for line in lines {
                let (first, hash) = *hashes.entry(line.index).or_insert((name, line.hash));
                shared += u64::from(first != name);
                out.expect(hash == line.hash, || {
                    format!(
                        "expected {first} and {name} to have one hash at index {}, but they have {hash} and {}",
                        line.index, line.hash
                    )
                });
            }
        }
        if case.chains.len() > 1 && shared == 0 {
            let text = format!("the chains of {} nodes have no index in common", case.chains.len());
            out.invalid.push(text);
        }
        let story = &case.story;
        let mut leaders: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for number in &story.ended {
            let op = &story.ops[*number as usize];
            if op.cp().is_none() || op.term == 0 || op.node == 0 {
                continue;
            }
            let (node, first) = *leaders.entry(op.term).or_insert((op.node, *number));
            out.expect(node == op.node, || {
                let (a, b, term) = (story.name(first), story.name(*number), op.term);
                format!("two leaders in term {term}: node {node} answered {a}, and node {} answered {b}", op.node)
            });
        }
    }
}
