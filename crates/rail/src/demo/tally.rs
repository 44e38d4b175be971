//! Where the orders stand while the demo runs, read from the growing ledgers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::ledger::{AckOutcome, ProducerLine, Tail, WorkerLine};
use super::progress::Standing;
use super::stage::Stage;

/// The ledgers read so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    orders: usize,
    producers: Vec<Tail>,
    workers: Vec<(Stage, Tail)>,
    pub(crate) producer_lines: Vec<ProducerLine>,
    pub(crate) worker_lines: BTreeMap<Stage, Vec<WorkerLine>>,
    acknowledged: BTreeSet<String>,
    finished: BTreeMap<Stage, BTreeSet<String>>,
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

    /// Reads the ledger of a worker of `stage` from now on.
    pub(crate) fn follow_worker(&mut self, stage: Stage, ledger: &Path) {
        self.workers.push((stage, Tail::new(ledger)));
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
        for (stage, tail) in &mut self.workers {
            let lines = self.worker_lines.entry(*stage).or_default();
            for line in tail.read::<WorkerLine>()? {
                if let WorkerLine::Settled { invocation, outcome, .. } = &line {
                    let ends = match outcome {
                        AckOutcome::Acked => Some(self.finished.entry(*stage).or_default()),
                        AckOutcome::DeadLettered => Some(&mut self.dead_lettered),
                        AckOutcome::Again | AckOutcome::LeaseLost | AckOutcome::Refused | AckOutcome::Unknown => None,
                    };
                    if let Some(ends) = ends {
                        ends.insert(invocation.order.clone());
                    }
                }
                lines.push(line);
            }
        }
        Ok(())
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing {
            orders: self.orders,
            acknowledged: self.acknowledged.len(),
            finished: Stage::ALL.map(|stage| self.finished.get(&stage).map_or(0, BTreeSet::len)),
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

    /// Whether each order has come to its end: through the last stage, or to the dead letters of one.
    pub(crate) fn all_ended(&self) -> bool {
        self.standing().ended() >= self.orders
    }

    /// Whether a message was invoked again after that delivery.
    pub(crate) fn redelivered(&self, message: &str, receive_count: u32) -> bool {
        self.worker_lines.values().flatten().any(|line| match line {
            WorkerLine::Invoked(invocation) | WorkerLine::Settled { invocation, .. } => {
                invocation.message == message && invocation.receive_count > receive_count
            }
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
        let (producer, first, last) = (dir.path().join("p"), dir.path().join("f"), dir.path().join("l"));
        let mut tally = Tally::new(1);
        tally.follow_producer(&producer);
        tally.follow_worker(Stage::Orders, &first);
        tally.follow_worker(Stage::Confirmation, &last);
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
        let lines = |message: &str, child: Option<&str>| {
            let invocation = Invocation {
                order: "a".to_owned(),
                message: message.to_owned(),
                receive_count: 2,
                charge: Charge::None,
                invoked_ns: 8,
            };
            let settled = WorkerLine::Settled {
                invocation: invocation.clone(),
                outcome: AckOutcome::Acked,
                child: child.map(str::to_owned),
                replayed: false,
                at_ns: 9,
            };
            [WorkerLine::Invoked(invocation), settled]
        };
        Ledger::open(&first).and_then(|mut ledger| ledger.append(&lines("m", Some("n")))).expect("written");
        tally.read().expect("read");
        assert!(tally.all_acknowledged() && !tally.all_ended());
        Ledger::open(&last).and_then(|mut ledger| ledger.append(&lines("o", None))).expect("written");
        tally.read().expect("read");
        assert!(tally.all_ended());
        assert!(tally.acknowledged_after(6) && !tally.acknowledged_after(7));
        assert!(tally.redelivered("m", 1) && !tally.redelivered("m", 2) && !tally.redelivered("q", 1));
        let standing = Standing { orders: 1, acknowledged: 1, finished: [1, 0, 0, 1], dead_lettered: 0 };
        assert_eq!(tally.standing(), standing);
    }
}
