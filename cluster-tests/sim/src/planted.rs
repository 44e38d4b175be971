//! Bugs planted on purpose: each must be caught by a seed that is green without it.
//!
//! A bug is planted in a process of its own, by the environment; the campaign runs seed after seed until one breaks.

use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ticketrail_core::planted::Bug;

use crate::fleet::VIOLATED;
use crate::report;

/// Which bug is planted in this process.
const VARIABLE: &str = "TICKETRAIL_TEST_PLANT";
/// The first word of the command line that asks for the campaign.
const WORD: &str = "planted";
/// What `sim planted --help` prints.
const USAGE: &str = include_str!("planted.txt");
/// Seeds tried for a bug, unless told otherwise.
const SEEDS: u64 = 100;
/// Seeds that caught a bug before, which are tried first: `BUG SEED`, a line each.
const KNOWN: &str = include_str!("../seeds/planted.txt");

/// Runs the campaign if the command line asks for it, and else plants the bug that the environment names. `Some`: there is
/// nothing more to do.
pub fn begin() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(WORD) {
        return Some(match Campaign::parse(words) {
            Ok(campaign) => campaign.run(),
            Err(text) => {
                eprintln!("{text}");
                ExitCode::from(2)
            }
        });
    }
    let name = std::env::var(VARIABLE).ok()?;
    match named(&name).and_then(plant) {
        Ok(()) => None,
        Err(text) => {
            eprintln!("{VARIABLE}: {text}");
            Some(ExitCode::from(2))
        }
    }
}

#[cfg(feature = "planted")]
fn plant(bug: Bug) -> Result<(), String> {
    ticketrail_core::planted::plant(bug);
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn plant(bug: Bug) -> Result<(), String> {
    Err(format!("expected a build with the feature `planted` for {}; use `cargo xtask planted`", bug.name()))
}

fn named(name: &str) -> Result<Bug, String> {
    Bug::ALL.iter().copied().find(|bug| bug.name() == name).ok_or_else(|| {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        format!("expected one of {}, but got {name:?}", names.join(", "))
    })
}

/// The seed that is tried first for a bug.
fn known(bug: Bug) -> Option<u64> {
    KNOWN.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == bug.name())?.1.trim().parse().ok()
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Campaign {
    bugs: Vec<Bug>,
    seeds: u64,
    jobs: usize,
}

/// A seed that caught a bug.
struct Caught {
    seed: u64,
    broke: String,
}

impl Campaign {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut campaign = Self { bugs: Vec::new(), seeds: SEEDS, jobs };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("expected a value after {word}, but there is none"));
            match word.as_str() {
                "--bug" => campaign.bugs.push(named(&value()?)?),
                "--seeds" => campaign.seeds = number(&word, &value()?)?,
                "--jobs" => campaign.jobs = usize::try_from(number(&word, &value()?)?).unwrap_or(usize::MAX).max(1),
                _ => return Err(format!("expected one of the options below, but got {word}\n\n{USAGE}")),
            }
        }
        if campaign.bugs.is_empty() {
            campaign.bugs = Bug::ALL.to_vec();
        }
        Ok(campaign)
    }

    fn run(&self) -> ExitCode {
        let (mut passed, mut failed) = (0, 0);
        for bug in &self.bugs {
            let runs = AtomicU64::new(0);
            match self.hunt(*bug, &runs) {
                Some(Caught { seed, broke }) => {
                    passed += 1;
                    println!("{}: caught by seed {seed}, run {}: {broke}", bug.name(), runs.into_inner());
                }
                None => {
                    failed += 1;
                    println!("{}: NOT CAUGHT by {} seeds. With it, {}", bug.name(), runs.into_inner(), bug.about());
                }
            }
        }
        println!("{passed} passed, {failed} failed");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
    }

    /// Runs seeds, some at a time, until one catches the bug.
    fn hunt(&self, bug: Bug, runs: &AtomicU64) -> Option<Caught> {
        let caught = Mutex::new(None);
        let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= self.seeds {
                            return;
                        }
                        let seed = if number == 0 { known(bug).unwrap_or(0) } else { number };
                        runs.fetch_add(1, Ordering::SeqCst);
                        let Some(broke) = breaks(seed, Some(bug)) else { continue };
                        // A seed that breaks by itself proves nothing about the bug.
                        if breaks(seed, None).is_none() {
                            over.store(true, Ordering::SeqCst);
                            let mut caught = caught.lock().unwrap_or_else(PoisonError::into_inner);
                            caught.get_or_insert(Caught { seed, broke });
                        }
                    }
                });
            }
        });
        caught.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a seed breaks, if it does. A process that ends in another way breaks nothing: it is no proof.
fn breaks(seed: u64, bug: Option<Bug>) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--seed", &seed.to_string(), "--quiet"]).stdin(Stdio::null()).stderr(Stdio::null());
    command.env_remove(VARIABLE);
    if let Some(bug) = bug {
        command.env(VARIABLE, bug.name());
    }
    let output = command.output().ok()?;
    let broke = report::from_lines(&String::from_utf8_lossy(&output.stdout)).broke;
    if output.status.code() != Some(i32::from(VIOLATED)) {
        return None;
    }
    broke.into_iter().next()
}

fn number(option: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("expected a whole number after {option}, but got {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Campaign, String> {
        Campaign::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn all_bugs_are_hunted_unless_some_are_named() {
        assert_eq!(parse("").map(|campaign| campaign.bugs), Ok(Bug::ALL.to_vec()));
        assert_eq!(parse("--bug child-lost").map(|campaign| campaign.bugs), Ok(vec![Bug::ChildLost]));
        assert!(parse("--bug none").is_err_and(|text| text.contains("accept-old-token")));
    }

    #[test]
    fn seeds_are_known_for_bugs_that_exist() {
        for line in KNOWN.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (name, seed) = line.split_once(' ').expect("a bug and a seed");
            assert_eq!(named(name).map(known), Ok(seed.trim().parse().ok()), "{line}");
        }
    }

    #[test]
    fn a_build_without_the_feature_plants_nothing() {
        assert_eq!(plant(Bug::ChildLost).is_err(), cfg!(not(feature = "planted")));
    }
}
