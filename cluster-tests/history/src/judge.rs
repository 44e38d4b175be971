//! Judges a run: reads its directory, shows the audit to the model and the checks, and reports.

use std::fmt;

use crate::case::Case;
use crate::checks::{self, After, Applying, Check, Findings};
use crate::fates::Fates;
use crate::format::AuditLine;
use crate::leases::Leases;
use crate::model::Model;
use crate::run::{ReadError, RunDir};
use crate::story::{Story, StoryError};

/// Why a run cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The history makes no sense.
    #[error("expected a history that makes sense: {0}")]
    Story(#[from] StoryError),
}

/// What is said of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All checks passed.
    Green,
    /// Some check found a violation.
    Violated,
    /// No violation, but the run has not shown what it should.
    Invalid,
}

/// What the checks found.
#[derive(Debug)]
pub struct Report {
    /// Operations in the history.
    pub ops: u64,
    /// Requests in the audit; 0: there is none.
    pub audited: u64,
    /// Each check by name, and what it found.
    pub checks: Vec<(&'static str, Findings)>,
}

impl Report {
    /// What is said of the run.
    pub fn verdict(&self) -> Verdict {
        if self.checks.iter().any(|(_, findings)| findings.found > 0) {
            Verdict::Violated
        } else if self.checks.iter().any(|(_, findings)| !findings.invalid.is_empty()) {
            Verdict::Invalid
        } else {
            Verdict::Green
        }
    }

    /// The names of the checks that found a violation.
    pub fn failed(&self) -> Vec<&'static str> {
        self.checks.iter().filter(|(_, findings)| findings.found > 0).map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations, {} applied requests", self.ops, self.audited)?;
        for (name, findings) in &self.checks {
            let verdict = match (findings.found, findings.invalid.is_empty()) {
                (0, true) => "ok",
                (0, false) => "INVALID",
                (1.., _) => "FAILED",
            };
            writeln!(f, "{verdict:7} {name}: {} looked at, {} violations", findings.looked, findings.found)?;
            for text in findings.violations.iter().chain(&findings.invalid) {
                writeln!(f, "        - {text}")?;
            }
            let kept = findings.violations.len() as u64;
            if findings.found > kept {
                writeln!(f, "        - and {} more", findings.found - kept)?;
            }
            for text in &findings.notes {
                writeln!(f, "        ({text})")?;
            }
        }
        let failed = self.checks.iter().filter(|(_, f)| f.found > 0 || !f.invalid.is_empty()).count();
        if self.verdict() == Verdict::Invalid {
            writeln!(f, "INVALID RUN: it has not shown what it should")?;
        }
        writeln!(f, "{} passed, {failed} failed", self.checks.len() - failed)
    }
}

/// Judges the run in a directory.
pub fn judge(run: &RunDir) -> Result<Report, JudgeError> {
    let story = Story::read(run.history()?.map(|event| event.map_err(JudgeError::from)))?;
    let case = Case::new(story, run.meta()?, run.nemesis()?, run.chains()?);
    match run.audit()? {
        Some(lines) => judge_case(&case, lines.map(|line| line.map_err(JudgeError::from))),
        None => judge_case(&case, std::iter::empty()),
    }
}

/// Judges a run that is in memory, but for its audit.
pub fn judge_case<E>(case: &Case, audit: impl Iterator<Item = Result<AuditLine, E>>) -> Result<Report, E> {
    let mut checks: Vec<(Box<dyn Check>, Findings)> =
        checks::all().into_iter().map(|check| (check, Findings::default())).collect();
    let (mut leases, mut fates) = (Leases::default(), Fates::default());
    let mut model = Some(Model::new());
    let (mut lines, mut last_index) = (0, 0);
    for line in audit {
        let line = line?;
        (lines, last_index) = (lines + 1, line.cp.index);
        let by_rid = line.rid.and_then(|rid| case.index.by_rid(rid));
        let op = by_rid.or_else(|| case.index.by_position(line.cp));
        let stop = model.as_mut().and_then(|model| model.step(&line).err());
        if stop.is_some() {
            model = None;
        }
        let turns = fates.apply(&line);
        let (model_now, stop) = (model.as_ref(), stop.as_ref());
        let (line, leases_before) = (&line, &leases);
        let at =
            Applying { case, line, op, leases: leases_before, turns: &turns, fates: &fates, model: model_now, stop };
        for (check, findings) in &mut checks {
            check.applied(&at, findings);
        }
        leases.apply(line);
    }
    let model = model.filter(|_| lines > 0);
    let after = After { model: model.as_ref(), leases: &leases, lines, last_index };
    let mut judged = Vec::with_capacity(checks.len());
    for (mut check, mut findings) in checks {
        check.end(case, &after, &mut findings);
        judged.push((check.name(), findings));
    }
    Ok(Report { ops: case.story.ops.len() as u64, audited: lines, checks: judged })
}
