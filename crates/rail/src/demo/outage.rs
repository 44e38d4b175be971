//! Write outages: how long no order was acknowledged.

use super::ledger::ProducerLine;

/// When orders were acknowledged, in order, in nanoseconds of the machine's monotonic clock.
pub(crate) fn acknowledged_ns(producers: &[ProducerLine]) -> Vec<u64> {
    let at = |line: &ProducerLine| match line {
        ProducerLine::Acknowledged { at_ns, .. } => Some(*at_ns),
        ProducerLine::Failed { .. } => None,
    };
    let mut acknowledged: Vec<u64> = producers.iter().filter_map(at).collect();
    acknowledged.sort_unstable();
    acknowledged
}

/// The longest gap between two orders acknowledged one after the other, in milliseconds.
pub(crate) fn longest_ms(acknowledged_ns: &[u64]) -> u64 {
    acknowledged_ns.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).max().unwrap_or(0)
}

/// The gap around a kill, from the last order acknowledged before it to the first one after it, in milliseconds; `None`
/// where none was acknowledged before or after it.
pub(crate) fn around_ms(acknowledged_ns: &[u64], kill_ns: u64) -> Option<u64> {
    let after = acknowledged_ns.partition_point(|at| *at <= kill_ns);
    let before = acknowledged_ns.get(after.checked_sub(1)?)?;
    Some((acknowledged_ns.get(after)? - before) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_a_gap_between_orders_acknowledged() {
        let line = |ms: u64| ProducerLine::Acknowledged {
            order: "a".to_owned(),
            message: "m".to_owned(),
            replayed: false,
            cut: false,
            at_ns: ms * 1_000_000,
        };
        let failed = ProducerLine::Failed { order: "b".to_owned(), error: "full".to_owned() };
        let lines: Vec<ProducerLine> = [1, 50, 2, 300, 51].into_iter().map(line).chain([failed]).collect();
        let at = acknowledged_ns(&lines);
        assert_eq!(longest_ms(&at), 249);
        assert_eq!(around_ms(&at, 10_000_000), Some(48));
        assert_eq!(around_ms(&at, 60_000_000), Some(249));
        assert_eq!(around_ms(&at, 400_000_000), None, "nothing was acknowledged after it");
        assert_eq!(around_ms(&at, 0), None, "nothing was acknowledged before it");
        assert_eq!(longest_ms(&[]), 0);
    }
}
