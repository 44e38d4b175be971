//! What is asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::load::Load;
use crate::table::Side;

/// What `--help` prints.
pub(crate) const USAGE: &str = include_str!("usage.txt");

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// How often both are measured.
    pub(crate) pairs: usize,
    /// The load.
    pub(crate) load: Load,
    /// The program `rail`.
    pub(crate) rail: PathBuf,
    /// The program `nats-server`.
    #[cfg_attr(not(feature = "nats"), allow(dead_code))] // parsed all the same
    pub(crate) nats_server: PathBuf,
    /// Where nodes keep their data.
    pub(crate) dir: PathBuf,
    /// The one side that is measured; `None`: both.
    pub(crate) only: Option<Side>,
    /// Whether only the help is asked for.
    pub(crate) help: bool,
}

impl Args {
    /// Reads the command line, without the program's name.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = Args {
            pairs: 3,
            load: Load::default(),
            rail: "rail".into(),
            nats_server: "nats-server".into(),
            dir: std::env::temp_dir(),
            only: None,
            help: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                args.help = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("expected a value after {word}, but there is none"))?;
            match word.as_str() {
                "--seconds" => args.load.measured = Duration::from_secs(number(&word, &value)?),
                "--pairs" => args.pairs = usize::try_from(number(&word, &value)?).unwrap_or(usize::MAX),
                "--size" => args.load.size = usize::try_from(number(&word, &value)?).unwrap_or(usize::MAX),
                "--rate" => args.load.rate = u32::try_from(number(&word, &value)?).unwrap_or(u32::MAX),
                "--only" => args.only = Some(side(&value)?),
                "--rail" => args.rail = value.into(),
                "--nats-server" => args.nats_server = value.into(),
                "--dir" => args.dir = value.into(),
                _ => return Err(format!("expected one of the options below, but got {word}")),
            }
        }
        Ok(args)
    }
}

fn side(text: &str) -> Result<Side, String> {
    match text {
        "ours" => Ok(Side::Ours),
        "theirs" => Ok(Side::Theirs),
        _ => Err(format!("expected ours or theirs after --only, but got {text:?}")),
    }
}

/// A number from 1 to a million.
fn number(option: &str, text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to 1000000 after {option}, but got {text:?}"))
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
        assert_eq!((args.pairs, args.load.measured, args.load.rate), (3, Duration::from_secs(20), 200));
        let args = parse("--pairs 1 --seconds 5 --size 100 --rail /bin/rail --nats-server n --dir d").expect("options");
        assert_eq!((args.pairs, args.load.measured, args.load.size), (1, Duration::from_secs(5), 100));
        assert_eq!((args.rail, args.nats_server, args.dir), ("/bin/rail".into(), "n".into(), "d".into()));
        assert_eq!(parse("--only theirs").expect("a side").only, Some(Side::Theirs));
        assert!(parse("--help").expect("the help").help);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, part) in [
            ("--pairs", "--pairs"),
            ("--pairs 0", "\"0\""),
            ("--pairs x", "\"x\""),
            ("--jump 1", "--jump"),
            ("--only mine", "mine"),
        ] {
            let problem = parse(line).expect_err(line);
            assert!(problem.starts_with("expected ") && problem.contains(part), "{problem}");
        }
    }
}
