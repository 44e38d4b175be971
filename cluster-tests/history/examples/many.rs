//! Makes a legal history of many operations and judges it: how long that takes, and in how much memory.
//!
//! `cargo run --release -p ticketrail-history --example many -- 10000000`, and `… -- 10000000 whole` for clients that use all
//! that a queue can do.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use ticketrail_history::RunDir;
use ticketrail_history::generate::{Line, Options, generate};
use ticketrail_history::judge::{Verdict, judge};
use ticketrail_history::recorder::JsonLines;
use ticketrail_history::run;

fn main() -> anyhow::Result<()> {
    let ops = std::env::args().nth(1).context("expected how many operations, such as 10000000")?.parse()?;
    let whole = std::env::args().nth(2).is_some_and(|word| word == "whole");
    let dir = tempfile::tempdir()?;
    let begin = Instant::now();
    let mut history = JsonLines::create(&dir.path().join(run::HISTORY))?;
    let mut audit = JsonLines::create(&dir.path().join(run::AUDIT))?;
    let options = Options { seed: 1, ops, clients: 64, queues: 4, backlog: 10_000, whole, held_up: false };
    let meta = generate(options, &mut |line| match line {
        Line::Event(event) => history.write(&*event),
        Line::Audit(line) => audit.write(&*line),
    })
    .map_err(anyhow::Error::msg)?;
    history.finish()?;
    audit.finish()?;
    let run = RunDir::new(dir.path());
    run.write_meta(&meta)?;
    println!("made in {:.1} s; all received: {}", begin.elapsed().as_secs_f64(), meta.drained);
    let begin = Instant::now();
    let report = judge(&run)?;
    let judged = begin.elapsed().as_secs_f64();
    print!("{report}");
    println!("judged {} operations in {judged:.1} s; {}", report.ops, peak_memory()?);
    ensure!(report.verdict() == Verdict::Green, "expected a legal history to be green");
    Ok(())
}

/// The most memory that this process ever held.
fn peak_memory() -> anyhow::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).context("expected VmHWM in /proc/self/status")?;
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}
