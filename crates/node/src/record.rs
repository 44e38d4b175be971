//! What this node has on record of the others: up to where each has acknowledged committed entries, so that a disk which
//! was rolled back is found out.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// What this node, while it led, was told by the others. Lost with the process.
#[derive(Debug, Default)]
pub(crate) struct Record {
    acknowledged: Mutex<BTreeMap<u64, Acknowledged>>,
}

#[derive(Debug, Default)]
struct Acknowledged {
    /// The last committed entry that the node said it has on its disk.
    index: Option<u64>,
    /// The last entry that it said so of in this term of this node's, committed or not: another leader may have taken it back.
    in_term: Option<(u64, u64)>,
    /// It has said since that it lacks an entry up to there.
    lost: bool,
}

impl Record {
    /// A node told this one, which leads `term`, that it has on its disk all entries up to `last`, of which those up to
    /// `committed` are committed.
    pub(crate) fn acknowledged(&self, node: u64, term: u64, last: Option<u64>, committed: Option<u64>) {
        let mut known = self.acknowledged.lock();
        let entry = known.entry(node).or_default();
        entry.index = entry.index.max(last.min(committed));
        entry.in_term = entry.in_term.max(last.map(|last| (term, last)));
    }

    /// A node says to this one, which leads `term`, that it lacks the entry at `index`.
    pub(crate) fn check_conflict(&self, node: u64, term: u64, index: u64) -> Result<(), String> {
        let mut known = self.acknowledged.lock();
        let entry = known.entry(node).or_default();
        let in_term = entry.in_term.filter(|(of, _)| *of == term).map(|(_, last)| last);
        if entry.index.max(in_term).is_none_or(|acknowledged| index > acknowledged) {
            return Ok(());
        }
        if !entry.lost {
            tracing::error!(
                node,
                index,
                acknowledged = entry.index,
                in_term,
                "a node has lost entries that it acknowledged"
            );
        }
        (entry.lost, entry.index) = (true, entry.index.max(in_term));
        Err(lost(node, entry.index, Some(index.saturating_sub(1))))
    }

    /// A node says that its log ends at `last`. One that is up takes entries meanwhile, so that what it says is older than
    /// what is on record; but it may have been found out.
    pub(crate) fn check_end(&self, node: u64, last: Option<u64>, is_up: bool) -> Result<(), String> {
        match self.acknowledged.lock().get(&node) {
            Some(entry) if entry.lost || (!is_up && entry.index > last) => Err(lost(node, entry.index, last)),
            Some(_) | None => Ok(()),
        }
    }

    /// A node is no member any more.
    pub(crate) fn forget(&self, node: u64) {
        self.acknowledged.lock().remove(&node);
    }
}

fn lost(node: u64, acknowledged: Option<u64>, last: Option<u64>) -> String {
    let index = |index: Option<u64>| index.map_or("nothing".to_owned(), |index| format!("entry {index}"));
    format!(
        "expected the disk of node {node} to hold the log up to {}, which it has acknowledged, but it ends at {}: the \
         disk was rolled back or is another one. Do not use it: empty the data directory, and the node joins anew by \
         itself under a new id",
        index(acknowledged),
        index(last)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_lacks_what_it_acknowledged_is_refused() {
        let record = Record::default();
        assert_eq!(record.check_end(2, None, false), Ok(()));
        record.acknowledged(2, 1, Some(9), Some(7));
        record.acknowledged(2, 1, Some(8), Some(5));
        assert_eq!(record.check_end(2, Some(7), false), Ok(()));
        assert_eq!(record.check_conflict(2, 2, 8), Ok(()), "another leader may have taken it back");
        assert!(
            record.check_end(2, Some(6), false).is_err_and(|why| why.contains("entry 7") && why.contains("entry 6"))
        );
        assert!(record.check_end(2, None, false).is_err());
        assert_eq!(record.check_end(3, None, false), Ok(()));
        assert!(record.check_conflict(2, 2, 7).is_err());
        assert!(record.check_end(2, Some(9), false).is_err(), "what it lost it has lost");
        record.forget(2);
        assert_eq!(record.check_end(2, None, false), Ok(()));
    }

    #[test]
    fn a_node_may_not_lack_what_it_acknowledged_in_this_term() {
        let record = Record::default();
        record.acknowledged(2, 4, Some(9), Some(7));
        assert_eq!(record.check_conflict(2, 4, 10), Ok(()));
        assert_eq!(record.check_end(2, Some(8), true), Ok(()));
        assert!(record.check_conflict(2, 4, 9).is_err_and(|why| why.contains("entry 9") && why.contains("entry 8")));
        assert!(
            record.check_end(2, Some(8), true).is_err_and(|why| why.contains("entry 9")),
            "it is told while it lives"
        );
        let record = Record::default();
        record.acknowledged(2, 4, Some(9), Some(7));
        record.acknowledged(2, 6, Some(8), Some(7));
        assert_eq!(record.check_conflict(2, 6, 9), Ok(()), "it was taken back before term 6");
        assert!(record.check_conflict(2, 6, 8).is_err());
    }
}
