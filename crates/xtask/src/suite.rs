//! `cargo xtask test`: all tests, counted.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::deploy_tools;
use crate::libtest::{Reader, Tally};
use crate::planted;
use crate::report::Report;
use crate::workspace::{Profile, RAIL_BIN, Workspace};

/// How long the output may stay open after cargo has ended: longer means that a test left a process behind.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// How many lines may wait to be shown.
const LINES_WAITING: usize = 1024;

/// Builds `rail`, runs all tests, prints the last line.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let mut report = Report::default();
    add_all_tests(workspace, &mut report);
    Ok(report.finish())
}

/// Adds the build of `rail`, all tests of the workspace and a hunt for planted bugs to `report`.
pub(crate) fn add_all_tests(workspace: &Workspace, report: &mut Report) {
    report.tests("tests", || {
        let rail = workspace.build_rail(Profile::Dev)?;
        run_tests(workspace, &["--workspace".to_owned()], Some(&rail))
    });
    report.step("planted bugs", || planted::few(workspace));
}

/// Runs the tests of the packages that `selection` names to cargo, shows their output and counts.
pub(crate) fn run_tests(workspace: &Workspace, selection: &[String], rail: Option<&Path>) -> Result<Tally, String> {
    let mut command = workspace.cargo("test");
    command.args(selection).args(["--no-fail-fast", "--", "--show-output"]);
    if let Some(rail) = rail {
        command.env(RAIL_BIN, rail);
        // The tests that drive the program check what deploys it, too.
        if let Some(tools) = deploy_tools::ensure(workspace) {
            command.env(deploy_tools::VARIABLE, tools);
        }
    }
    counted(&mut command, &mut std::io::stdout(), skips_are_failures(), STRAGGLERS)
}

/// Whether this is the gate, where nothing may be skipped.
fn skips_are_failures() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs `command`, shows its output on `out` as it comes, and counts. Waits at most `stragglers` for the output to close
/// once `command` has ended.
fn counted(command: &mut Command, out: &mut dyn Write, strict: bool, stragglers: Duration) -> Result<Tally, String> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("expected to start {command:?}, but it failed: {error}"))?;
    let output = child.stdout.take().ok_or("expected the output of cargo test, but it has none")?;
    let lines = lines_of(output);
    let mut reader = Reader::new(strict);
    let mut ended: Option<Instant> = None;
    let mut left_open = false;
    loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => show(out, &reader.line(&line))?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let exited = child.try_wait().map_err(|error| format!("expected to ask for cargo, but {error}"))?;
                if exited.is_some() && ended.get_or_insert_with(Instant::now).elapsed() > stragglers {
                    left_open = true;
                    break;
                }
            }
        }
    }
    let status = child.wait().map_err(|error| format!("expected cargo to end, but waiting failed: {error}"))?;
    let mut tally = reader.finish(status.success());
    if left_open {
        eprintln!("expected all processes of the tests to have ended, but one still holds their output open");
        tally.failed += 1;
    }
    Ok(tally)
}

/// Reads lines on a thread of its own, so that a process left behind can't stop the reading for ever.
fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_WAITING);
    std::thread::spawn(move || {
        let mut input = BufReader::new(output);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match input.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&bytes);
            if sender.send(line.trim_end_matches(['\n', '\r']).to_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn show(out: &mut dyn Write, lines: &[String]) -> Result<(), String> {
    for line in lines {
        writeln!(out, "{line}").map_err(|error| format!("expected to write to the terminal, but {error}"))?;
    }
    out.flush().map_err(|error| format!("expected to write to the terminal, but {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `script` shows and counts. Not on stdout, where the run of these very tests is being counted.
    fn shell(script: &str) -> (String, Tally) {
        let mut shown = Vec::new();
        let mut command = Command::new("sh");
        let tally = counted(command.args(["-c", script]), &mut shown, false, Duration::from_millis(200));
        (String::from_utf8(shown).expect("text"), tally.expect("a shell runs"))
    }

    const PASSED: &str =
        "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn the_output_of_a_real_process_is_counted() {
        let (shown, tally) = shell(&format!("echo 'running 1 test'; echo '{PASSED}'"));
        assert_eq!(shown, format!("running 1 test\n{PASSED}\n"));
        assert_eq!(tally, Tally { passed: 1, failed: 0, skipped: 0 });
    }

    #[test]
    fn a_build_that_fails_is_one_failure() {
        assert_eq!(shell("exit 101").1, Tally { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_process_left_behind_ends_the_wait_and_is_a_failure() {
        let begun = Instant::now();
        let (shown, tally) = shell(&format!("sleep 4 & echo '{PASSED}'; exit 0"));
        assert_eq!(shown, format!("{PASSED}\n"));
        assert_eq!(tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}
