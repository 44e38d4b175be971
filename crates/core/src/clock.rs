//! How an entry's stamp moves the two clocks (SEMANTICS "Time").

use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::records::Header;
use crate::time::{LeaseTime, Timestamp};

/// Moves the clocks by an entry of `term`, stamped `proposed_at`.
///
/// An entry of a new term may advance cluster time freely and adds nothing to the lease clock; any other adds
/// min(step, 10 s), never less than 0, to both.
pub(crate) fn advance(header: &mut Header, term: u64, proposed_at: Timestamp) {
    let step = proposed_at.since(Timestamp(header.cluster_ms));
    if term == header.term {
        let step = step.min(limits::CLOCK_STEP_MS);
        header.cluster_ms = header.cluster_ms.saturating_add(step);
        header.lease_ms = header.lease_ms.saturating_add(step);
    } else {
        header.cluster_ms = header.cluster_ms.saturating_add(step);
        if is_planted(Bug::LeaseClockJumps) && header.term > 0 {
            header.lease_ms = header.lease_ms.saturating_add(step);
        }
        header.term = term;
    }
}

impl Header {
    /// Cluster time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.cluster_ms)
    }

    /// The lease clock.
    pub(crate) fn lease_now(&self) -> LeaseTime {
        LeaseTime(self.lease_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cluster_ms: u64, lease_ms: u64, term: u64) -> Header {
        Header { cluster_ms, lease_ms, term, ..Header::default() }
    }

    #[test]
    fn one_term_advances_both_clocks_by_at_most_ten_seconds() {
        let mut header = at(1_000, 50, 1);
        advance(&mut header, 1, Timestamp(3_000));
        assert_eq!((header.cluster_ms, header.lease_ms), (3_000, 2_050));
        advance(&mut header, 1, Timestamp(1_000_000));
        assert_eq!((header.cluster_ms, header.lease_ms), (13_000, 12_050));
        advance(&mut header, 1, Timestamp(5));
        assert_eq!((header.cluster_ms, header.lease_ms), (13_000, 12_050));
    }

    #[test]
    fn a_new_term_advances_cluster_time_alone() {
        let mut header = at(1_000, 50, 1);
        advance(&mut header, 2, Timestamp(1_000_000));
        assert_eq!((header.cluster_ms, header.lease_ms, header.term), (1_000_000, 50, 2));
        advance(&mut header, 3, Timestamp(7));
        assert_eq!((header.cluster_ms, header.lease_ms, header.term), (1_000_000, 50, 3));
    }
}
