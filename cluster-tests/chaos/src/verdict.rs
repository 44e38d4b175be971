//! What became of a drill.

use std::fmt;
use std::process::ExitCode;

/// Something was violated.
pub const EXIT_FAILED: u8 = 1;
/// Wrong use, or something to install.
pub const EXIT_USAGE: u8 = 2;
/// A fault had no effect, or the load was none: nothing was tested.
pub const EXIT_INVALID: u8 = 3;

/// What became of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The fault took effect, and all held that must.
    Passed,
    /// Something did not hold.
    Failed,
    /// The fault had no effect, or the load was none.
    Invalid,
}

/// The run tested nothing: the error that makes a drill invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Vacuous(pub String);

impl Verdict {
    /// The verdict on what a drill came to.
    pub fn of<T>(result: &anyhow::Result<T>) -> Self {
        match result {
            Ok(_) => Verdict::Passed,
            Err(error) if error.chain().any(|cause| cause.is::<Vacuous>()) => Verdict::Invalid,
            Err(_) => Verdict::Failed,
        }
    }

    /// The exit code of a process that says so.
    pub fn code(self) -> u8 {
        match self {
            Verdict::Passed => 0,
            Verdict::Failed => EXIT_FAILED,
            Verdict::Invalid => EXIT_INVALID,
        }
    }

    /// What the exit code of the process of one drill says; any code that it does not give by itself is a failure.
    pub fn of_code(code: Option<i32>) -> Self {
        match code {
            Some(0) => Verdict::Passed,
            Some(code) if code == i32::from(EXIT_INVALID) => Verdict::Invalid,
            Some(_) | None => Verdict::Failed,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Invalid => "INVALID",
        })
    }
}

/// The last line of a run, and its exit code. An invalid drill is no passed one.
pub fn summary(verdicts: &[Verdict]) -> (String, ExitCode) {
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let (passed, failed, invalid) = (count(Verdict::Passed), count(Verdict::Failed), count(Verdict::Invalid));
    let mut line = String::new();
    if invalid > 0 {
        line = format!("{invalid} of the failed ones are INVALID: nothing was tested\n");
    }
    line.push_str(&format!("{passed} passed, {} failed", failed + invalid));
    let code = match (failed, invalid) {
        (0, 0) => Verdict::Passed,
        (0, _) => Verdict::Invalid,
        (_, _) => Verdict::Failed,
    };
    (line, ExitCode::from(code.code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vacuous_run_is_neither_green_nor_a_violation() {
        let vacuous = anyhow::Error::new(Vacuous("no leader was killed".into())).context("kill the leader");
        assert_eq!(Verdict::of::<()>(&Err(vacuous)), Verdict::Invalid);
        assert_eq!(Verdict::of::<()>(&Err(anyhow::anyhow!("lost"))), Verdict::Failed);
        assert_eq!(Verdict::of(&Ok(())), Verdict::Passed);
        for verdict in [Verdict::Passed, Verdict::Failed, Verdict::Invalid] {
            assert_eq!(Verdict::of_code(Some(verdict.code().into())), verdict);
        }
        assert_eq!((Verdict::of_code(Some(101)), Verdict::of_code(None)), (Verdict::Failed, Verdict::Failed));
    }

    #[test]
    fn the_last_line_counts_an_invalid_drill_as_not_passed() {
        let (line, code) = summary(&[Verdict::Passed, Verdict::Invalid]);
        assert!(line.ends_with("1 passed, 1 failed") && line.contains("1 of the failed"), "{line}");
        assert_eq!(code, ExitCode::from(EXIT_INVALID));
        assert_eq!(summary(&[Verdict::Passed]), ("1 passed, 0 failed".into(), ExitCode::SUCCESS));
        assert_eq!(summary(&[Verdict::Failed, Verdict::Invalid]).1, ExitCode::from(EXIT_FAILED));
    }
}
