//! What the demo prints at its end, and how it ends.

use std::collections::BTreeSet;

use serde::Serialize;

use super::audit::{Audit, StageAudit};
use super::faults::Struck;
use crate::exit::Exit;
use crate::output::{Card, Row};

/// The demo's result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Orders that were to be sent.
    orders: usize,
    /// Orders acknowledged to a producer.
    acknowledged: usize,
    /// Orders that passed all stages.
    confirmed: usize,
    /// Orders in the dead-letter queue of a stage.
    dead_lettered: usize,
    /// Orders lost at any stage.
    lost: BTreeSet<String>,
    /// Orders finished twice at any stage.
    finished_twice: BTreeSet<String>,
    #[serde(flatten)]
    audit: Audit,
    faults: Struck,
    /// Faults that took no effect: the run proves nothing.
    invalid: Vec<String>,
    seconds: u64,
    exit: u8,
}

impl Report {
    pub(crate) fn new(orders: usize, audit: Audit, faults: Struck, mut invalid: Vec<String>, seconds: u64) -> Self {
        let counts = [
            ("kills of the leader", faults.leader_kills.len(), faults.leader_kills_wanted),
            ("kills of a worker", faults.worker_kills, faults.worker_kills_wanted),
            ("cut connections", faults.connections_cut, faults.connections_to_cut),
            ("absences of a node", usize::from(faults.absence.is_some()), 1),
        ];
        let short = counts.into_iter().filter(|(_, count, wanted)| count < wanted);
        invalid.extend(short.map(|(what, count, wanted)| format!("{count} of {wanted} {what} took effect")));
        let mut report = Self {
            orders,
            acknowledged: audit.stages.first().map_or(0, |stage| stage.acknowledged),
            confirmed: audit.stages.last().map_or(0, |stage| stage.finished),
            dead_lettered: audit.stages.iter().map(|stage| stage.dead_lettered).sum(),
            lost: audit.all(|stage| &stage.lost),
            finished_twice: audit.all(|stage| &stage.finished_twice),
            audit,
            faults,
            invalid,
            seconds,
            exit: 0,
        };
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

    /// A line for each stage.
    pub(crate) fn stages(&self) -> &[StageAudit] {
        &self.audit.stages
    }
}

impl Row for StageAudit {
    const COLUMNS: &'static [&'static str] = &[
        "STAGE",
        "ACKNOWLEDGED",
        "FINISHED",
        "DEAD-LETTERED",
        "REDELIVERED",
        "ABSORBED",
        "TWICE",
        "LOST",
        "ACK W/O CHILD",
        "CHILD W/O ACK",
    ];

    fn cells(&self) -> Vec<String> {
        let counts = [
            self.acknowledged,
            self.finished,
            self.dead_lettered,
            self.redeliveries,
            self.duplicates_absorbed,
            self.finished_twice.len(),
            self.lost.len(),
            self.acked_without_child.len(),
            self.child_without_ack.len(),
        ];
        std::iter::once(self.stage.to_string()).chain(counts.iter().map(usize::to_string)).collect()
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

/// Milliseconds for a person: `12.3 s`.
fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

impl Card for Report {
    fn fields(&self) -> Vec<(&'static str, String)> {
        let Self { orders, audit, faults, .. } = self;
        let torn = [audit.all(|stage| &stage.acked_without_child), audit.all(|stage| &stage.child_without_ack)];
        let [acked_without_child, child_without_ack] = torn;
        let absorbed: usize = audit.stages.iter().map(|stage| stage.duplicates_absorbed).sum();
        let mut fields = vec![
            ("orders acknowledged", format!("{} of {orders}", self.acknowledged)),
            ("confirmed", format!("{}, through all stages", self.confirmed)),
            ("dead-lettered", format!("{}, at the stage where each must fail", self.dead_lettered)),
            ("duplicates absorbed", format!("{absorbed}: requests sent twice that took effect once")),
            ("charges absorbed", format!("{}: payments worked on twice and charged once", audit.charges_absorbed)),
            ("finished twice", named(self.finished_twice.iter())),
            ("lost", named(self.lost.iter())),
            ("acked without child", named(acked_without_child.iter())),
            ("child without ack", named(child_without_ack.iter())),
            ("longest write outage", format!("{} ms", faults.longest_write_outage_ms)),
        ];
        fields.extend(faults.leader_kills.iter().map(|kill| {
            let terms = format!("term {} → {}", kill.old_term, kill.new_term);
            (
                "leader killed -9",
                format!("{}, then {} led: {terms}, write outage {} ms", kill.node, kill.next, kill.outage_ms),
            )
        }));
        fields.push(("workers killed -9", format!("{}, between ledger line and commit", faults.worker_kills)));
        fields.push(("connections cut", format!("{}, between sending and reading", faults.connections_cut)));
        fields.extend(faults.absence.iter().map(|absence| {
            let (away, back) = (seconds(absence.away_ms), seconds(absence.back_ms));
            let logs = format!("its log ended at {}, the others' began at {}", absence.log_end, absence.purged + 1);
            let text = format!("{} for {away}; {logs}; back in {back}", absence.node);
            ("node away", format!("{text}, snapshots installed: {}", absence.snapshots_installed))
        }));
        fields.push(("took", format!("{} s", self.seconds)));
        fields.extend(audit.findings.iter().take(20).map(|finding| ("WRONG", finding.clone())));
        fields.extend(self.invalid.iter().map(|reason| ("INVALID", reason.clone())));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{Absence, LeaderKill};
    use super::super::stage::Stage;
    use super::*;

    fn audit(lost: &[&str]) -> Audit {
        let stages = Stage::ALL.map(|stage| StageAudit {
            stage,
            acknowledged: 3,
            finished: 3,
            dead_lettered: 0,
            redeliveries: 1,
            duplicates_absorbed: 1,
            finished_twice: BTreeSet::new(),
            lost: lost.iter().map(|name| (*name).to_owned()).collect(),
            acked_without_child: BTreeSet::new(),
            child_without_ack: BTreeSet::new(),
        });
        Audit { stages: stages.into(), charges_absorbed: 1, findings: Vec::new() }
    }

    fn struck() -> Struck {
        let kill = LeaderKill { node: "a", next: "b", old_term: 1, new_term: 2, outage_ms: 700 };
        let absence =
            Absence { node: "c", away_ms: 12_345, log_end: 90, purged: 120, snapshots_installed: 1, back_ms: 800 };
        Struck {
            leader_kills: vec![kill],
            leader_kills_wanted: 1,
            worker_kills: 2,
            worker_kills_wanted: 2,
            connections_cut: 2,
            connections_to_cut: 2,
            absence: Some(absence),
            longest_write_outage_ms: 700,
        }
    }

    fn report(audit: Audit, faults: Struck, invalid: &[&str]) -> Report {
        Report::new(3, audit, faults, invalid.iter().map(|text| (*text).to_owned()).collect(), 9)
    }

    fn text(report: &Report) -> String {
        report.fields().into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    #[test]
    fn a_clean_run_exits_0_and_says_lost_0() {
        let report = report(audit(&[]), struck(), &[]);
        assert_eq!(report.exit(), Exit::Ok);
        let text = text(&report);
        for line in [
            "lost=0\n",
            "finished twice=0\n",
            "leader killed -9=a, then b led: term 1 → 2, write outage 700 ms\n",
            "node away=c for 12.3 s; its log ended at 90, the others' began at 121; back in 0.8 s, snapshots installed: 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("INVALID"), "{text}");
    }

    #[test]
    fn a_fault_without_effect_is_invalid_and_exits_2() {
        let without = [
            report(audit(&[]), Struck { leader_kills: Vec::new(), ..struck() }, &[]),
            report(audit(&[]), Struck { worker_kills: 1, ..struck() }, &[]),
            report(audit(&[]), Struck { connections_cut: 1, ..struck() }, &[]),
            report(audit(&[]), Struck { absence: None, ..struck() }, &[]),
            report(audit(&[]), struck(), &["node c installed no snapshot"]),
        ];
        for report in without {
            assert_eq!(report.exit().code(), 2);
            assert!(text(&report).contains("INVALID="));
        }
    }

    #[test]
    fn a_loss_exits_1_even_where_a_fault_took_no_effect() {
        let report = report(audit(&["CD-1", "CD-2"]), Struck { absence: None, ..struck() }, &[]);
        assert_eq!(report.exit().code(), 1);
        assert!(text(&report).contains("lost=2: CD-1 CD-2\n"));
        let json = serde_json::to_value(&report).expect("json");
        assert_eq!(json["exit"], 1);
        assert_eq!(json["stages"][1]["stage"], "payment");
        assert_eq!(json["stages"][1]["lost"], serde_json::json!(["CD-1", "CD-2"]));
    }

    #[test]
    fn a_stage_has_a_cell_for_each_column() {
        for stage in audit(&[]).stages {
            assert_eq!(stage.cells().len(), StageAudit::COLUMNS.len());
        }
    }
}
