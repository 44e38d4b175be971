//! What is asked for on the command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = include_str!("usage.txt");

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Args {
    /// How many seeds; `None`: the one of `seed`.
    pub seeds: Option<u64>,
    /// The first seed.
    pub seed: Option<u64>,
    /// Processes at one time; `None`: one for each processor.
    pub jobs: Option<usize>,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// Where the history of the run is kept.
    pub keep: Option<PathBuf>,
    /// Which lines of the nodes' own log are shown.
    pub log: Option<String>,
    /// Whether the nodes draw their random numbers from the operating system.
    pub plain: bool,
    /// Whether the seeds that once found something are left out.
    pub no_regressions: bool,
    /// Whether a program reads the result.
    pub quiet: bool,
    /// Whether only the help is asked for.
    pub help: bool,
}

impl Args {
    /// Reads the command line, without the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = Args::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("expected a value after {word}, but there is none"));
            match word.as_str() {
                "--help" | "-h" => args.help = true,
                "--plain" => args.plain = true,
                "--quiet" => args.quiet = true,
                "--no-regressions" => args.no_regressions = true,
                "--seeds" => args.seeds = Some(number(&word, &value()?)?),
                "--seed" => args.seed = Some(number(&word, &value()?)?),
                "--jobs" => args.jobs = Some(usize::try_from(number(&word, &value()?)?).unwrap_or(usize::MAX).max(1)),
                "--trace" => args.trace = Some(value()?.into()),
                "--keep" => args.keep = Some(value()?.into()),
                "--log" => args.log = Some(value()?),
                _ => return Err(format!("expected one of the options below, but got {word}\n\n{USAGE}")),
            }
        }
        Ok(args)
    }

    /// The one seed to run in this process, if it is one.
    pub fn single(&self) -> Option<u64> {
        self.seed.filter(|_| self.seeds.is_none())
    }
}

fn number(option: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("expected a whole number after {option}, but got {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn one_seed_runs_alone_and_many_do_not() {
        assert_eq!(parse("--seed 7").map(|args| args.single()), Ok(Some(7)));
        assert_eq!(parse("--seed 7 --seeds 3").map(|args| args.single()), Ok(None));
        assert_eq!(parse("").map(|args| args.single()), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for line in ["--seeds", "--seeds many", "--speed 3"] {
            let told = parse(line).expect_err("an error");
            assert!(told.starts_with("expected "), "{told}");
        }
    }
}
