//! What the demo prints at its end, and how it ends.

use serde::Serialize;

use super::audit::Audit;
use crate::exit::Exit;
use crate::output::Card;

/// The faults that took effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Faults {
    /// Times that the server was killed with SIGKILL and started again.
    pub(crate) server_kills: usize,
    /// Workers killed with SIGKILL between their ledger line and their ack.
    pub(crate) worker_kills: usize,
    /// Connections cut after a request was sent and before its reply was read.
    pub(crate) connections_cut: usize,
    /// How many were to be cut.
    pub(crate) connections_to_cut: usize,
}

/// The demo's result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    orders: usize,
    #[serde(flatten)]
    audit: Audit,
    faults: Faults,
    /// Faults that took no effect: the run proves nothing.
    invalid: Vec<String>,
    seconds: u64,
    exit: u8,
}

impl Report {
    pub(crate) fn new(orders: usize, audit: Audit, faults: Faults, mut invalid: Vec<String>, seconds: u64) -> Self {
        if faults.connections_cut < faults.connections_to_cut {
            let Faults { connections_cut, connections_to_cut, .. } = faults;
            invalid.push(format!("{connections_cut} of {connections_to_cut} cut connections took effect"));
        }
        let mut report = Self { orders, audit, faults, invalid, seconds, exit: 0 };
        report.exit = report.exit().code();
        report
    }

    /// 1 if anything is lost or finished twice or otherwise wrong; 2 if a fault took no effect.
    pub(crate) fn exit(&self) -> Exit {
        match (self.audit.is_clean(), self.invalid.is_empty()) {
            (false, _) => Exit::Failed,
            (true, false) => Exit::Usage,
            (true, true) => Exit::Ok,
        }
    }
}

/// A count, and the first few names behind it.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = names.len();
    let some: Vec<&str> = names.take(5).map(String::as_str).collect();
    match (count, count > some.len()) {
        (0, _) => "0".to_owned(),
        (_, false) => format!("{count}: {}", some.join(" ")),
        (_, true) => format!("{count}: {} …", some.join(" ")),
    }
}

impl Card for Report {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { orders, audit, faults, .. } = self;
        let mut fields = vec![
            ("orders acknowledged", format!("{} of {orders}", audit.acknowledged)),
            ("finished", audit.finished.to_string()),
            ("dead-lettered", audit.dead_lettered.to_string()),
            ("redeliveries", audit.redeliveries.to_string()),
            ("duplicates absorbed", audit.duplicates_absorbed.to_string()),
            ("charges absorbed", audit.charges_absorbed.to_string()),
            ("finished twice", named(audit.finished_twice.iter())),
            ("lost", named(audit.lost.iter())),
            ("longest write outage", format!("{} ms", audit.longest_write_outage_ms)),
            ("server killed -9", format!("{} times", faults.server_kills)),
            ("workers killed -9", format!("{}, between ledger line and ack", faults.worker_kills)),
            ("connections cut", format!("{}, between sending and reading", faults.connections_cut)),
            ("took", format!("{} s", self.seconds)),
        ];
        fields.extend(audit.findings.iter().take(20).map(|finding| ("WRONG", finding.clone())));
        fields.extend(self.invalid.iter().map(|reason| ("INVALID", reason.clone())));
        fields
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn audit(lost: &[&str]) -> Audit {
        Audit {
            acknowledged: 3,
            finished: 2,
            dead_lettered: 1,
            redeliveries: 1,
            duplicates_absorbed: 1,
            charges_absorbed: 1,
            finished_twice: BTreeSet::new(),
            lost: lost.iter().map(|name| (*name).to_owned()).collect(),
            longest_write_outage_ms: 700,
            findings: Vec::new(),
        }
    }

    fn report(audit: Audit, cut: usize, invalid: &[&str]) -> Report {
        let faults = Faults { server_kills: 4, worker_kills: 2, connections_cut: cut, connections_to_cut: 2 };
        Report::new(3, audit, faults, invalid.iter().map(|text| (*text).to_owned()).collect(), 9)
    }

    fn text(report: &Report) -> String {
        report.fields().into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    #[test]
    fn a_clean_run_exits_0_and_says_lost_0() {
        let report = report(audit(&[]), 2, &[]);
        assert_eq!(report.exit(), Exit::Ok);
        let text = text(&report);
        assert!(
            text.contains("lost=0\n") && text.contains("finished twice=0\n") && !text.contains("INVALID"),
            "{text}"
        );
    }

    #[test]
    fn a_fault_without_effect_is_invalid_and_exits_2() {
        for report in [report(audit(&[]), 1, &[]), report(audit(&[]), 2, &["no worker parked"])] {
            assert_eq!(report.exit().code(), 2);
            assert!(text(&report).contains("INVALID="));
        }
    }

    #[test]
    fn a_loss_exits_1_even_where_a_fault_took_no_effect() {
        let report = report(audit(&["CD-1", "CD-2"]), 1, &[]);
        assert_eq!(report.exit().code(), 1);
        assert!(text(&report).contains("lost=2: CD-1 CD-2\n"));
        let json = serde_json::to_value(&report).expect("json");
        assert_eq!(json.get("exit").and_then(serde_json::Value::as_u64), Some(1));
    }
}
