//! Steps, their time, and the last line.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::libtest::Tally;

/// What a run has done so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    tally: Tally,
}

#[derive(Debug)]
struct Step {
    name: String,
    took: Duration,
    fine: bool,
}

impl Report {
    /// Runs a step that fails with a text, and goes on either way.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) {
        eprintln!("== {name}");
        let start = Instant::now();
        let result = work();
        if let Err(problem) = &result {
            eprintln!("{name}: {problem}");
        }
        self.steps.push(Step { name: name.to_owned(), took: start.elapsed(), fine: result.is_ok() });
    }

    /// Runs a step that is one command.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) {
        self.step(name, || match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("expected {command:?} to succeed, but it ended with {status}")),
            Err(error) => Err(format!("expected to start {command:?}, but it failed: {error}")),
        });
    }

    /// Runs a step that runs tests.
    pub(crate) fn tests(&mut self, name: &str, work: impl FnOnce() -> Result<Tally, String>) {
        let mut tally = Tally::default();
        self.step(name, || {
            tally = work()?;
            if tally.failed == 0 { Ok(()) } else { Err(format!("{} failed", tally.failed)) }
        });
        // The failures of a test run are counted one by one: the step itself is not one more.
        if tally.failed > 0
            && let Some(step) = self.steps.last_mut()
        {
            step.fine = true;
        }
        self.tally.add(&tally);
    }

    /// Prints the time of each step, what was skipped, and `N passed, N failed` as the last line.
    pub(crate) fn finish(self) -> ExitCode {
        let (text, failed) = self.summary();
        println!("{text}");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn summary(&self) -> (String, u64) {
        let mut text = String::from("\n");
        let width = self.steps.iter().map(|step| step.name.len()).max().unwrap_or_default();
        for step in &self.steps {
            let verdict = if step.fine { "" } else { "  FAILED" };
            text.push_str(&format!("{:width$}  {:>7.1} s{verdict}\n", step.name, step.took.as_secs_f64()));
        }
        if self.tally.skipped > 0 {
            text.push_str(&format!("{} skipped, see `skipped:` above\n", self.tally.skipped));
        }
        let failed = self.tally.failed + self.steps.iter().filter(|step| !step.fine).count() as u64;
        text.push_str(&format!("{} passed, {failed} failed", self.tally.passed));
        (text, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_counts_once_and_the_last_line_stands_alone() {
        let mut report = Report::default();
        report.step("fmt", || Err("crooked".to_owned()));
        report.step("arrows", || Ok(()));
        report.tests("tests", || Ok(Tally { passed: 7, failed: 2, skipped: 1 }));
        let (text, failed) = report.summary();
        assert_eq!(failed, 3);
        assert_eq!(text.lines().last(), Some("7 passed, 3 failed"));
        assert!(text.lines().any(|line| line.starts_with("fmt ") && line.ends_with("FAILED")), "{text}");
        assert!(text.contains("1 skipped"), "{text}");
    }

    #[test]
    fn tests_that_could_not_run_count_as_a_failure() {
        let mut report = Report::default();
        report.tests("tests", || Err("no cargo".to_owned()));
        assert_eq!(report.summary().1, 1);
    }
}
