//! Where the orders stand while the demo runs, read from the growing ledgers.

use std::collections::BTreeSet;
use std::path::Path;

use super::ledger::{AckOutcome, ProducerLine, Tail, WorkerLine};
use super::progress::Standing;

/// The ledgers read so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    orders: usize,
    producers: Vec<Tail>,
    workers: Vec<Tail>,
    pub(crate) producer_lines: Vec<ProducerLine>,
    pub(crate) worker_lines: Vec<WorkerLine>,
    acknowledged: BTreeSet<String>,
    finished: BTreeSet<String>,
    dead_lettered: BTreeSet<String>,
    last_acknowledged_ns: u64,
}

impl Tally {
    pub(crate) fn new(orders: usize) -> Self {
        Self { orders, ..Self::default() }
    }

    /// Reads a producer's ledger from now on.
    pub(crate) fn follow_producer(&mut self, ledger: &Path) {
        self.producers.push(Tail::new(ledger));
    }

    /// Reads a worker's ledger from now on.
    pub(crate) fn follow_worker(&mut self, ledger: &Path) {
        self.workers.push(Tail::new(ledger));
    }

    /// Reads what has come.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        for tail in &mut self.producers {
            for line in tail.read::<ProducerLine>()? {
                if let ProducerLine::Acknowledged { order, at_ns, .. } = &line {
                    self.acknowledged.insert(order.clone());
                    self.last_acknowledged_ns = self.last_acknowledged_ns.max(*at_ns);
                }
                self.producer_lines.push(line);
            }
        }
        for tail in &mut self.workers {
            for line in tail.read::<WorkerLine>()? {
                if let WorkerLine::Settled { invocation, outcome, .. } = &line {
                    let ends = match outcome {
                        AckOutcome::Acked => Some(&mut self.finished),
                        AckOutcome::DeadLettered => Some(&mut self.dead_lettered),
                        AckOutcome::Again | AckOutcome::LeaseLost | AckOutcome::Refused | AckOutcome::Unknown => None,
                    };
                    if let Some(ends) = ends {
                        ends.insert(invocation.order.clone());
                    }
                }
                self.worker_lines.push(line);
            }
        }
        Ok(())
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing {
            orders: self.orders,
            acknowledged: self.acknowledged.len(),
            finished: self.finished.len(),
            dead_lettered: self.dead_lettered.len(),
        }
    }

    /// Whether an order was acknowledged after this time.
    pub(crate) fn acknowledged_after(&self, ns: u64) -> bool {
        self.last_acknowledged_ns > ns
    }

    /// Whether each order has been acknowledged.
    pub(crate) fn all_acknowledged(&self) -> bool {
        self.acknowledged.len() >= self.orders
    }

    /// Whether each order has come to its end.
    pub(crate) fn all_ended(&self) -> bool {
        self.finished.union(&self.dead_lettered).count() >= self.orders
    }

    /// Whether a message was invoked again after that delivery.
    pub(crate) fn redelivered(&self, message: &str, receive_count: u32) -> bool {
        self.worker_lines.iter().any(|line| match line {
            WorkerLine::Invoked(invocation) | WorkerLine::Settled { invocation, .. } => {
                invocation.message == message && invocation.receive_count > receive_count
            }
            WorkerLine::ReceiveReplayed { .. } => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Charge, Invocation, Ledger};
    use super::*;

    #[test]
    fn a_tally_follows_the_ledgers() {
        let dir = tempfile::tempdir().expect("a directory");
        let (producer, worker) = (dir.path().join("p"), dir.path().join("w"));
        let mut tally = Tally::new(1);
        tally.follow_producer(&producer);
        tally.follow_worker(&worker);
        tally.read().expect("nothing there yet");
        assert!(!tally.all_acknowledged() && !tally.all_ended());

        let acknowledged = ProducerLine::Acknowledged {
            order: "a".to_owned(),
            message: "m".to_owned(),
            replayed: false,
            cut: false,
            at_ns: 7,
        };
        Ledger::open(&producer).and_then(|mut ledger| ledger.append(&[acknowledged])).expect("written");
        let invocation = Invocation {
            order: "a".to_owned(),
            message: "m".to_owned(),
            receive_count: 2,
            charge: Charge::Charged,
            invoked_ns: 8,
        };
        let lines = [
            WorkerLine::Invoked(invocation.clone()),
            WorkerLine::Settled { invocation, outcome: AckOutcome::Acked, replayed: false, at_ns: 9 },
        ];
        Ledger::open(&worker).and_then(|mut ledger| ledger.append(&lines)).expect("written");
        tally.read().expect("read");
        assert!(tally.all_acknowledged() && tally.all_ended());
        assert!(tally.acknowledged_after(6) && !tally.acknowledged_after(7));
        assert!(tally.redelivered("m", 1) && !tally.redelivered("m", 2) && !tally.redelivered("n", 1));
        assert_eq!(tally.standing(), Standing { orders: 1, acknowledged: 1, finished: 1, dead_lettered: 0 });
    }
}
