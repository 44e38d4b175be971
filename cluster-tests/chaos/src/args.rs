//! What is asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::drills::{self, Drill};

/// What `--help` prints.
pub const USAGE: &str = include_str!("usage.txt");

/// How long faults last where nothing else is said.
const LENGTH: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Args {
    /// The drills, in the order of their list; never empty.
    pub drills: Vec<&'static Drill>,
    /// How long faults last.
    pub length: Duration,
    /// Whether drills are as short as the gate needs them.
    pub short: bool,
    /// The seed of what is left to chance; `None`: a new one.
    pub seed: Option<u64>,
    /// Whether latencies are held against what is promised on a machine of its own.
    pub strict: bool,
    /// Whether herds are as large as the design says.
    pub large: bool,
    /// Whether what was written is kept of drills that pass, too.
    pub keep: bool,
    /// The program `rail`; `None`: as the tests have it.
    pub rail: Option<PathBuf>,
    /// Where runs have their directories.
    pub dir: PathBuf,
    /// The directory of this run, in the process that runs one drill.
    pub inside: Option<PathBuf>,
    /// Whether only the list is asked for.
    pub list: bool,
    /// Whether only the help is asked for.
    pub help: bool,
}

impl Args {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = Args {
            drills: Vec::new(),
            length: LENGTH,
            short: false,
            seed: None,
            strict: false,
            large: false,
            keep: false,
            rail: None,
            dir: std::env::temp_dir(),
            inside: None,
            list: false,
            help: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => args.help = true,
                "--list" => args.list = true,
                "--short" => args.short = true,
                "--strict" => args.strict = true,
                "--large" => args.large = true,
                "--keep" => args.keep = true,
                _ => {
                    let value =
                        words.next().ok_or_else(|| format!("expected a value after {word}, but there is none"))?;
                    args.set(&word, value)?;
                }
            }
        }
        if args.drills.is_empty() {
            args.drills = drills::ALL.iter().collect();
        }
        Ok(args)
    }

    fn set(&mut self, option: &str, value: String) -> Result<(), String> {
        match option {
            "--drill" => {
                let drill = drills::named(&value)
                    .ok_or_else(|| format!("expected a drill after --drill, but got {value:?}; see --list"))?;
                self.drills.push(drill);
            }
            "--seconds" => self.length = Duration::from_secs(number(option, &value, 86_400)?),
            "--minutes" => self.length = Duration::from_secs(60 * number(option, &value, 1_440)?),
            "--seed" => {
                let seed = value.parse();
                self.seed = Some(seed.map_err(|_| format!("expected a number after --seed, but got {value:?}"))?);
            }
            "--rail" => self.rail = Some(value.into()),
            "--dir" => self.dir = value.into(),
            "--inside" => self.inside = Some(value.into()),
            _ => return Err(format!("expected one of the options below, but got {option}")),
        }
        Ok(())
    }
}

/// A number from 1 to `most`.
fn number(option: &str, text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most} after {option}, but got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_change_the_defaults() {
        let args = parse("").expect("the defaults");
        assert_eq!((args.drills.len(), args.length, args.seed), (drills::ALL.len(), LENGTH, None));
        let args = parse("--drill kill-leader --drill kill-all --minutes 2 --seed 7 --short --strict --large")
            .expect("options");
        assert_eq!(args.drills.iter().map(|drill| drill.name).collect::<Vec<_>>(), ["kill-leader", "kill-all"]);
        assert_eq!((args.length, args.seed), (Duration::from_secs(120), Some(7)));
        assert!(args.short && args.strict && args.large && !args.keep);
        assert!(parse("--list").expect("a list").list && parse("-h").expect("the help").help);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, part) in [
            ("--drill", "--drill"),
            ("--drill flood", "flood"),
            ("--seconds 0", "\"0\""),
            ("--minutes x", "\"x\""),
            ("--seed x", "\"x\""),
            ("--jump 1", "--jump"),
        ] {
            let problem = parse(line).expect_err(line);
            assert!(problem.starts_with("expected ") && problem.contains(part), "{problem}");
        }
    }
}
