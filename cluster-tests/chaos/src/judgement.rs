//! The judgement of a drill: its nodes' disks are compared, what they applied is written down, and what clients were told
//! is held against that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ticketrail_cluster_tests::replay::{agree, audit_dir, chain_dir, check_dir};
use ticketrail_history::format::{Expect, Meta};
use ticketrail_history::judge::{Verdict, judge};
use ticketrail_history::run::{META, RunDir};

use crate::verdict::Vacuous;

/// What is judged.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The directory with what clients and faults recorded.
    pub home: &'a Path,
    /// The stopped nodes' Raft ids and data.
    pub disks: Vec<(u64, PathBuf)>,
    /// Whether their logs hold all entries from the first on.
    pub keeps_log: bool,
    /// The seed of the drill.
    pub seed: u64,
    /// The drill's name.
    pub drill: &'static str,
    /// When the last fault was over, in nanoseconds since the drill's begin.
    pub healed_at: Option<u64>,
    /// What the run must have shown.
    pub expect: Expect,
}

impl Evidence<'_> {
    /// Judges, and returns what was looked at, in words.
    ///
    /// # Errors
    /// Where replicas differ, a log does not give the state beside it, or a client was told what is not so; [`Vacuous`]
    /// where the run has shown too little.
    pub fn judge(&self) -> anyhow::Result<String> {
        let dirs: Vec<PathBuf> = self.disks.iter().map(|(_, dir)| dir.clone()).collect();
        let agreed = agree(&dirs).context("compare the replicas")?;
        let mut replayed = "their logs are not whole".to_owned();
        if self.keeps_log {
            for (at, (node, dir)) in self.disks.iter().enumerate() {
                let replay = check_dir(dir).with_context(|| format!("replay {}", dir.display()))?;
                replayed = format!("{} entries replayed on each", replay.entries);
                let written = if at == 0 {
                    audit_dir(dir, *node, self.home).map(|_| ())
                } else {
                    chain_dir(dir, *node, self.home)
                };
                written.with_context(|| format!("audit {}", dir.display()))?;
            }
        }
        let report = self.hold_history_against_it()?;
        Ok(format!(
            "{} records the same on all {}, to the hash {:016x}; {replayed}; {report}",
            agreed.records,
            self.disks.len(),
            agreed.clock.digest
        ))
    }

    fn hold_history_against_it(&self) -> anyhow::Result<String> {
        let meta = Meta {
            seed: self.seed,
            options: BTreeMap::from([("drill".to_owned(), self.drill.to_owned())]),
            healed_at: self.healed_at,
            drained: true,
            expect: self.expect.clone(),
            ..Meta::default()
        };
        fs::write(self.home.join(META), serde_json::to_vec_pretty(&meta)?).context("write down what the run was")?;
        let report = judge(&RunDir::new(self.home)).context("read what clients and nodes wrote down")?;
        fs::write(self.home.join("report.txt"), report.to_string())?;
        match report.verdict() {
            Verdict::Green => Ok(format!(
                "{} checks of {} operations against {} applied requests",
                report.checks.len(),
                report.ops,
                report.audited
            )),
            Verdict::Violated => bail!("expected no violation in the history, but:\n{report}"),
            Verdict::Invalid => bail!(Vacuous(format!("expected the run to show more:\n{report}"))),
        }
    }
}
