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

/// The longest gap around a change of leader, in milliseconds: of those that end after the old one was killed and begin
/// before the new one was seen to lead. A reply may still have been on its way when the old one was killed. `None` where
/// nothing was acknowledged before or after it.
pub(crate) fn around_ms(acknowledged_ns: &[u64], killed_ns: u64, led_ns: u64) -> Option<u64> {
    let around = acknowledged_ns.windows(2).filter(|pair| pair[1] > killed_ns && pair[0] <= led_ns);
    around.map(|pair| (pair[1] - pair[0]) / 1_000_000).max()
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
        let around = |killed_ms: u64, led_ms: u64| around_ms(&at, killed_ms * 1_000_000, led_ms * 1_000_000);
        assert_eq!(around(10, 40), Some(48));
        assert_eq!(around(49, 60), Some(249), "what came at 50 and 51 was on its way");
        assert_eq!(around(60, 70), Some(249));
        assert_eq!(around(400, 500), None, "nothing was acknowledged after it");
        assert_eq!(around(0, 0), None, "nothing was acknowledged before it");
        assert_eq!(longest_ms(&[]), 0);
    }
}
