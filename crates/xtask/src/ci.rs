//! `cargo xtask ci`: the whole gate.

use std::process::ExitCode;

use crate::report::Report;
use crate::suite;
use crate::workspace::Workspace;
use crate::{arrows, sim, tidy};

/// Runs every step, whatever the ones before it gave, and prints the last line.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let mut report = Report::default();
    report.command("format", workspace.cargo("fmt").args(["--all", "--check"]));
    report.step("arrows", || arrows::check(workspace));
    report.step("tidy", || tidy::check(workspace));
    report.step("simulation without RocksDB", || sim::is_lean(workspace));
    // The command line must install without a C++ compiler, and the simulation's stores build without RocksDB.
    let lean = ["--no-default-features", "--package"];
    report.command("rail without server", workspace.cargo("check").args(lean).arg("ticketrail"));
    report.command("storage without RocksDB", workspace.cargo("check").args(lean).arg("ticketrail-storage"));
    let clippy = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    report.command("clippy", workspace.cargo("clippy").args(clippy));
    let mut doc = workspace.cargo("doc");
    // Not RUSTFLAGS, which would compile RocksDB again.
    report.command("docs", doc.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"));
    suite::add_all_tests(workspace, &mut report);
    Ok(report.finish())
}
