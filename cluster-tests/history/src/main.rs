//! Judges the history of a test run: see `check-history --help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ticketrail_history::judge::{Verdict, judge};
use ticketrail_history::run::RunDir;

/// Judges the history of a test run: what clients asked and were told, against a model of the queue and against rules
/// that trust nothing but the clients' clock.
///
/// Prints a line for each check, the violations in words below it, and `N passed, N failed` at the end.
/// Exit codes: 0 all is well, 1 a violation, 2 wrong use or an unreadable run, 3 the run has not shown what it should.
#[derive(Debug, Parser)]
#[command(name = "check-history")]
struct Args {
    /// The run's directory, with `history.jsonl` and what else there is: `audit.jsonl`, `nemesis.jsonl`,
    /// `chain-<node>.jsonl`, `meta.json`.
    dir: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match judge(&RunDir::new(&args.dir)) {
        Ok(report) => {
            print!("{report}");
            match report.verdict() {
                Verdict::Green => ExitCode::SUCCESS,
                Verdict::Violated => ExitCode::from(1),
                Verdict::Invalid => ExitCode::from(3),
            }
        }
        Err(error) => {
            eprintln!("check-history: {error}");
            ExitCode::from(2)
        }
    }
}
