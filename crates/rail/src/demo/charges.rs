//! The payment provider of the demo: a ledger of charges that all workers share.
//!
//! Charging is idempotent: under a lock on the file, the ledger is read first, and only an order that does not stand
//! there is appended. A worker that is killed right after its line has charged; whoever gets the order next finds it.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::ledger::{self, Charge, ChargeLine, Tail};

/// The shared ledger, in one worker's hands.
#[derive(Debug)]
pub(crate) struct Charges {
    file: File,
    path: PathBuf,
    tail: Tail,
    charged: HashSet<String>,
}

impl Charges {
    /// Opens the ledger, or begins it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .with_context(|| format!("opening the charge ledger {}", path.display()))?;
        Ok(Self { file, path: path.to_owned(), tail: Tail::new(path), charged: HashSet::new() })
    }

    /// Charges each order that is not charged yet, each at most once; the lines are on disk when it returns.
    pub(crate) fn charge(&mut self, wanted: Vec<ChargeLine>) -> anyhow::Result<Vec<Charge>> {
        self.file.lock().with_context(|| format!("locking the charge ledger {}", self.path.display()))?;
        let charged = self.charge_locked(wanted);
        // Closing the file would release it too; a worker killed here has its lock released by the kernel.
        self.file.unlock().with_context(|| format!("unlocking the charge ledger {}", self.path.display()))?;
        charged
    }

    fn charge_locked(&mut self, wanted: Vec<ChargeLine>) -> anyhow::Result<Vec<Charge>> {
        ledger::seal(&mut self.file)?;
        self.charged.extend(self.tail.read::<ChargeLine>()?.into_iter().map(|line| line.order));
        let mut new = Vec::new();
        let mut charges = Vec::new();
        for line in wanted {
            if self.charged.insert(line.order.clone()) {
                charges.push(Charge::Charged);
                new.push(line);
            } else {
                charges.push(Charge::AlreadyCharged);
            }
        }
        ledger::append(&mut self.file, &new)?;
        Ok(charges)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(order: &str, worker: &str) -> ChargeLine {
        ChargeLine { order: order.to_owned(), cents: 1, worker: worker.to_owned(), message: "m".to_owned() }
    }

    #[test]
    fn an_order_is_charged_once_by_whoever_comes_first() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("charges.jsonl");
        let mut one = Charges::open(&path).expect("opened");
        let mut two = Charges::open(&path).expect("opened");
        let charged = one.charge(vec![line("a", "one"), line("b", "one"), line("a", "one")]).expect("charged");
        assert_eq!(charged, [Charge::Charged, Charge::Charged, Charge::AlreadyCharged]);
        let charged = two.charge(vec![line("b", "two"), line("c", "two")]).expect("charged");
        assert_eq!(charged, [Charge::AlreadyCharged, Charge::Charged]);
        assert_eq!(one.charge(vec![line("c", "one")]).expect("charged"), [Charge::AlreadyCharged]);
        let lines: Vec<ChargeLine> = ledger::read_all(&path).expect("read");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_torn_charge_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("charges.jsonl");
        let mut charges = Charges::open(&path).expect("opened");
        charges.charge(vec![line("a", "one")]).expect("charged");
        let mut torn = OpenOptions::new().append(true).open(&path).expect("opened");
        torn.write_all(br#"{"order":"b","cents":1,"wor"#).expect("written");
        assert_eq!(charges.charge(vec![line("b", "two")]).expect("charged"), [Charge::Charged]);
        let mut fresh = Charges::open(&path).expect("opened");
        let charged = fresh.charge(vec![line("a", "three"), line("b", "three")]).expect("charged");
        assert_eq!(charged, [Charge::AlreadyCharged, Charge::AlreadyCharged]);
    }

    #[test]
    fn workers_at_once_charge_each_order_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("charges.jsonl");
        std::thread::scope(|scope| {
            for worker in ["one", "two", "three", "four"] {
                let path = &path;
                scope.spawn(move || {
                    let mut charges = Charges::open(path).expect("opened");
                    for order in 0..50 {
                        charges.charge(vec![line(&format!("o{order}"), worker)]).expect("charged");
                    }
                });
            }
        });
        let lines: Vec<ChargeLine> = ledger::read_all(&path).expect("read");
        let orders: HashSet<_> = lines.iter().map(|line| &line.order).collect();
        assert_eq!((lines.len(), orders.len()), (50, 50));
    }
}
