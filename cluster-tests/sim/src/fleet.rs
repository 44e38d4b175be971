//! Many seeds, each in a process of its own: ids of tasks count over a whole process, and in their order a runtime that
//! stops drops its tasks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use crate::args::Args;
use crate::nemesis::Kind;
use crate::report::{Said, from_lines};

/// A run broke something.
pub const VIOLATED: u8 = 1;
/// Nothing was broken, but a fault had no effect: the whole says nothing.
pub const VACUOUS: u8 = 3;
/// A step of the simulation did not end.
pub const STUCK: u8 = 4;

/// The seeds that once found something.
const REGRESSIONS: &str = include_str!("../seeds/regressions.txt");
/// Seeds at one time that wait to be told of.
const RESULTS: usize = 64;
/// How many seeds are enough to have seen everything.
const ENOUGH: u64 = 100;

/// What must have happened in enough seeds, beside each kind of fault.
const EFFECTS: &[&str] = &[
    "leaders",
    "log: snapshots installed",
    "unsynced operations lost",
    "unflushed commits lost",
    "nodes that gave up",
    "log: expire",
    "seen: leases_lost",
    "seen: dead",
    "told: enqueue answered",
    "told: commit answered",
    "told: enqueue unknown",
];

/// One seed to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    seed: u64,
    /// Whether it runs twice, and both runs are compared.
    twice: bool,
}

/// What came of it.
struct Done {
    task: Task,
    said: Said,
    /// Why it failed, in words.
    failed: Vec<String>,
}

/// Runs all seeds asked for, and says what came of them.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let program = std::env::current_exe().map_err(|error| format!("expected to know this program, but {error}"))?;
    let dir = std::env::temp_dir().join(format!("ticketrail-sim-{}", std::process::id()));
    fs::create_dir_all(&dir).map_err(|error| format!("expected to make {}, but {error}", dir.display()))?;
    let result = run_in(args, &program, &dir);
    fs::remove_dir_all(&dir).map_err(|error| format!("expected to remove {}, but {error}", dir.display()))?;
    result
}

fn run_in(args: &Args, program: &Path, dir: &Path) -> Result<ExitCode, String> {
    let (first, seeds) = (args.seed.unwrap_or(1), args.seeds.unwrap_or(200));
    let regressions = if args.no_regressions { Vec::new() } else { regressions(REGRESSIONS)? };
    let tasks = tasks(&regressions, first, seeds);
    let jobs = args.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    println!("{} seeds that once found something, then {seeds} from {first} on, {jobs} at one time", regressions.len());
    let begun = Instant::now();
    let mut all = Summary::default();
    let mut next_word = 10.0;
    let total = tasks.len();
    for done in work(&tasks, jobs, program, dir) {
        all.take(&done);
        let elapsed = begun.elapsed().as_secs_f64();
        if elapsed >= next_word || all.passed + all.failed == total {
            next_word = elapsed + 10.0;
            let rate = (all.passed + all.failed) as f64 * 60.0 / elapsed;
            println!("{} of {total} seeds, {} failed, {rate:.0} a minute", all.passed + all.failed, all.failed);
        }
    }
    all.control(program, dir, first);
    Ok(all.finish(seeds))
}

/// The seeds of `text`: one a line, with what it found behind it.
fn regressions(text: &str) -> Result<Vec<u64>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let seed = line.split_whitespace().next().unwrap_or_default();
            seed.parse()
                .map_err(|_| format!("expected a seed at the start of each line of regressions.txt, but got {line:?}"))
        })
        .collect()
}

/// All seeds, the known ones first. One of a hundred runs twice, and never less than two.
fn tasks(regressions: &[u64], first: u64, seeds: u64) -> Vec<Task> {
    let sample = (seeds / 100).max(2);
    let each = (seeds / sample).max(1);
    let known = regressions.iter().map(|seed| Task { seed: *seed, twice: false });
    known.chain((0..seeds).map(|at| Task { seed: first.wrapping_add(at), twice: at % each == each / 2 })).collect()
}

/// Runs the tasks in their order, some at one time.
fn work(tasks: &[Task], jobs: usize, program: &Path, dir: &Path) -> Receiver<Done> {
    let (tell, told) = sync_channel(RESULTS);
    let tasks: std::sync::Arc<[Task]> = tasks.into();
    let next = std::sync::Arc::new(AtomicUsize::new(0));
    for _ in 0..jobs {
        let (tell, tasks, next) = (tell.clone(), tasks.clone(), next.clone());
        let (program, dir) = (program.to_owned(), dir.to_owned());
        thread::spawn(move || {
            while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if tell.send(do_task(*task, &program, &dir)).is_err() {
                    return;
                }
            }
        });
    }
    told
}

fn do_task(task: Task, program: &Path, dir: &Path) -> Done {
    let (first, second) = (dir.join(format!("{}.first", task.seed)), dir.join(format!("{}.second", task.seed)));
    let (said, mut failed) = child(program, task.seed, task.twice.then_some(&*first), false);
    if task.twice {
        let (_, broke) = child(program, task.seed, Some(&second), false);
        if failed != broke {
            failed.push(format!("expected two runs to come to the same, but the second one says {broke:?}"));
        }
        failed.extend(first_difference(&first, &second).map(|line| format!("two runs tell different things: {line}")));
        for file in [&first, &second] {
            // What is left goes with the folder.
            let _ = fs::remove_file(file);
        }
    }
    Done { task, said, failed }
}

/// Runs one seed in a process of its own. Says what it said, and why it failed.
fn child(program: &Path, seed: u64, trace: Option<&Path>, plain: bool) -> (Said, Vec<String>) {
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string(), "--quiet"]);
    if let Some(trace) = trace {
        command.arg("--trace").arg(trace);
    }
    if plain {
        command.arg("--plain");
    }
    match command.output() {
        Ok(output) => judge(&output),
        Err(error) => (Said::default(), vec![format!("expected to start {}, but {error}", program.display())]),
    }
}

fn judge(output: &Output) -> (Said, Vec<String>) {
    let said = from_lines(&String::from_utf8_lossy(&output.stdout));
    let mut failed = said.broke.clone();
    if !output.status.success() && failed.is_empty() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).take(6).collect();
        failed.push(format!("its process ended with {}: {}", output.status, last.join(" | ")));
    } else if said.trace.is_empty() {
        failed.push("its process has not said what came of it".to_owned());
    }
    (said, failed)
}

/// The first line at which two files differ.
fn first_difference(one: &Path, other: &Path) -> Option<String> {
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()));
    let (one, other) = match (read(one), read(other)) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(why), _) | (_, Err(why)) => return Some(why),
    };
    if one == other {
        return None;
    }
    let mut lines = (one.lines(), other.lines());
    for number in 1u64.. {
        match (lines.0.next(), lines.1.next()) {
            (None, None) => break,
            (first, second) if first == second => {}
            (first, second) => {
                let word = |line: Option<&str>| line.unwrap_or("nothing").to_owned();
                return Some(format!("line {number}: {:?}, and then {:?}", word(first), word(second)));
            }
        }
    }
    Some("only in the ends of their lines".to_owned())
}

/// What came of all seeds.
#[derive(Default)]
struct Summary {
    passed: usize,
    failed: usize,
    compared: usize,
    simulated_ms: u64,
    counts: BTreeMap<String, u64>,
    traces: std::collections::BTreeSet<String>,
    failing: Vec<u64>,
}

impl Summary {
    fn take(&mut self, done: &Done) {
        let seed = done.task.seed;
        self.compared += usize::from(done.task.twice);
        self.simulated_ms += done.said.simulated_ms;
        for (what, count) in &done.said.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        if done.failed.is_empty() {
            self.passed += 1;
            self.traces.insert(done.said.trace.clone());
            return;
        }
        self.failed += 1;
        self.failing.push(seed);
        for why in &done.failed {
            println!("seed {seed} broke: {why}");
        }
        println!("  replay: cargo xtask sim --seed {seed}");
    }

    /// Without the seed's random numbers two runs must differ: else the comparison sees nothing.
    fn control(&mut self, program: &Path, dir: &Path, seed: u64) {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let file = || -> PathBuf { dir.join(format!("plain.{}", RUNS.fetch_add(1, Ordering::Relaxed))) };
        let (one, other) = (file(), file());
        child(program, seed, Some(&one), true);
        child(program, seed, Some(&other), true);
        match first_difference(&one, &other) {
            Some(line) => println!("control: without the seed's random numbers two runs of seed {seed} differ, {line}"),
            None => {
                self.failed += 1;
                println!(
                    "control broke: expected two runs without the seed's random numbers to differ, but they do not"
                );
            }
        }
    }

    fn finish(&self, seeds: u64) -> ExitCode {
        println!("{} seeds ran twice and were compared; {} different stories", self.compared, self.traces.len());
        println!("simulated: {:.1} minutes", self.simulated_ms as f64 / 60_000.0);
        for (what, count) in &self.counts {
            println!("  {what}: {count}");
        }
        let kinds = Kind::ALL.into_iter().map(Kind::name);
        let missing: Vec<&str> =
            kinds.chain(EFFECTS.iter().copied()).filter(|what| !self.counts.contains_key(*what)).collect();
        let vacuous = seeds >= ENOUGH && !missing.is_empty();
        if vacuous {
            println!("INVALID: expected each of these to happen in {seeds} seeds, but none has: {missing:?}");
        }
        if !self.failing.is_empty() {
            println!("failing seeds: {:?}", self.failing);
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        match (self.failed, vacuous) {
            (0, false) => ExitCode::SUCCESS,
            (0, true) => ExitCode::from(VACUOUS),
            _ => ExitCode::from(VIOLATED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_seeds_come_first_and_a_sample_runs_twice() {
        let known = regressions("# what they found\n\n 17 a lost vote\n4\n").expect("seeds");
        let all = tasks(&known, 1, 300);
        assert_eq!(all.iter().take(3).map(|task| task.seed).collect::<Vec<_>>(), [17, 4, 1]);
        assert_eq!((all.len(), all.iter().filter(|task| task.twice).count()), (302, 3));
        assert_eq!(tasks(&[], 9, 4).iter().filter(|task| task.twice).count(), 2);
        assert!(regressions("a vote").is_err());
    }

    #[test]
    fn the_seeds_that_found_something_are_readable() {
        regressions(REGRESSIONS).expect("seeds");
    }

    #[test]
    fn a_difference_is_named_by_its_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::write(&one, "a\nb\nc\n").expect("a file");
        fs::write(&other, "a\nb\nc\n").expect("a file");
        assert_eq!(first_difference(&one, &other), None);
        fs::write(&other, "a\nx\nc\n").expect("a file");
        assert_eq!(first_difference(&one, &other).expect("a difference"), "line 2: \"b\", and then \"x\"");
        fs::write(&other, "a\nb\n").expect("a file");
        assert_eq!(first_difference(&one, &other).expect("a difference"), "line 3: \"c\", and then \"nothing\"");
    }
}
