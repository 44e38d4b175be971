//! What one may ask of the disk, as a line of text.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use regex::Regex;

/// What processes do with a disk, as faults tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A read that the kernel's cache does not answer.
    Read,
    /// A write.
    Write,
    /// An fsync or fdatasync of a file or a directory.
    Fsync,
    /// An open of a file that is there.
    Open,
    /// A new file, directory or symbolic link.
    Create,
    /// Another size, or blocks for a file.
    Resize,
    /// A rename.
    Rename,
    /// A hard link.
    Link,
    /// A name removed.
    Unlink,
    /// A directory listed.
    List,
}

const OPS: [(Op, &str); 10] = [
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Fsync, "fsync"),
    (Op::Open, "open"),
    (Op::Create, "create"),
    (Op::Resize, "resize"),
    (Op::Rename, "rename"),
    (Op::Link, "link"),
    (Op::Unlink, "unlink"),
    (Op::List, "list"),
];

/// A power loss: what of that which was not fsynced the disk has afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// No byte, but all names: as ext4 right after its journal was committed. A file created is there, and empty.
    Plain,
    /// No byte and no name: a name is there only if its directory was fsynced after it, as POSIX reads strictly.
    NoDir,
    /// Of each file its first writes, one of them perhaps in part, up to the end of a sector of 512 B or a page of
    /// 4 KiB; of the names the first changes, at least those before the last fsync of anything, as ext4's journal
    /// has them.
    Torn {
        /// Decides how many.
        seed: u64,
    },
    /// Of each file some of its dirty pages of 4 KiB, whichever; in each directory the first changes.
    Reordered {
        /// Decides which.
        seed: u64,
    },
}

/// A command.
#[derive(Debug, Clone)]
pub enum Command {
    /// The power goes at this moment: nothing becomes durable any more, not even by an fsync under way, and each call
    /// fails with EIO, until a crash says what is left. So processes can be killed that wait for the disk.
    Cut,
    /// The power was lost, and is back. Handles of before it fail with EIO.
    Crash(Crash),
    /// Whether fsync answers OK and does nothing.
    Lie(bool),
    /// An operation on matching paths fails with EIO, with a probability.
    Eio {
        /// The operation.
        op: Op,
        /// The paths.
        paths: Regex,
        /// From 0 to 1.
        chance: f64,
    },
    /// The next fsync of a matching file fails with EIO, once; its dirty pages are taken for clean and never reach
    /// the disk. (Not for directories.)
    FsyncGate(Regex),
    /// So many bytes more, and the disk is full.
    Enospc(u64),
    /// An operation takes so many milliseconds more.
    Delay {
        /// The operation.
        op: Op,
        /// How long: drawn from the range each time.
        ms: RangeInclusive<u64>,
    },
    /// One bit of each matching file is flipped, on the disk as well as for processes.
    BitFlip {
        /// The paths.
        paths: Regex,
        /// The byte: from the beginning, or if negative from the end.
        offset: i64,
    },
    /// The counts.
    Stats,
    /// No faults any more: no lies, errors, delays and limits. What has happened, and the counts, stay.
    Clear,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OPS.iter().find(|(op, _)| op == self).map_or("?", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Op {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = OPS.iter().find(|(_, name)| *name == text).map(|(op, _)| *op);
        let names = || OPS.map(|(_, name)| name).join(", ");
        found.with_context(|| format!("expected an operation ({}), but got {text:?}", names()))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Cut => write!(f, "cut"),
            Command::Crash(Crash::Plain) => write!(f, "crash"),
            Command::Crash(Crash::NoDir) => write!(f, "crash-nodir"),
            Command::Crash(Crash::Torn { seed }) => write!(f, "crash-torn {seed}"),
            Command::Crash(Crash::Reordered { seed }) => write!(f, "crash-reorder {seed}"),
            Command::Lie(on) => write!(f, "lie {}", if *on { "on" } else { "off" }),
            Command::Eio { op, paths, chance } => write!(f, "eio {op} {paths} {chance}"),
            Command::FsyncGate(paths) => write!(f, "fsyncgate {paths}"),
            Command::Enospc(bytes) => write!(f, "enospc {bytes}"),
            Command::Delay { op, ms } => write!(f, "delay {op} {}..{}", ms.start(), ms.end()),
            Command::BitFlip { paths, offset } => write!(f, "bitflip {paths} {offset}"),
            Command::Stats => write!(f, "stats"),
            Command::Clear => write!(f, "clear"),
        }
    }
}

impl FromStr for Command {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["cut"] => Command::Cut,
            ["crash"] => Command::Crash(Crash::Plain),
            ["crash-nodir"] => Command::Crash(Crash::NoDir),
            ["crash-torn", seed] => Command::Crash(Crash::Torn { seed: number(seed)? }),
            ["crash-reorder", seed] => Command::Crash(Crash::Reordered { seed: number(seed)? }),
            ["lie", "on"] => Command::Lie(true),
            ["lie", "off"] => Command::Lie(false),
            ["eio", op, paths, chance] => {
                let chance = number(chance)?;
                ensure!((0.0..=1.0).contains(&chance), "expected a probability from 0 to 1, but got {chance}");
                Command::Eio { op: op.parse()?, paths: regex(paths)?, chance }
            }
            ["fsyncgate", paths] => Command::FsyncGate(regex(paths)?),
            ["enospc", bytes] => Command::Enospc(number(bytes)?),
            ["delay", op, ms] => {
                let (least, most) = ms.split_once("..").unwrap_or((ms, ms));
                let ms = number(least)?..=number(most)?;
                ensure!(!ms.is_empty(), "expected a range of milliseconds, but {} is above {}", ms.start(), ms.end());
                Command::Delay { op: op.parse()?, ms }
            }
            ["bitflip", paths, offset] => Command::BitFlip { paths: regex(paths)?, offset: number(offset)? },
            ["stats"] => Command::Stats,
            ["clear"] => Command::Clear,
            _ => bail!("expected a command, but got {line:?}; the commands are:\n{COMMANDS}"),
        })
    }
}

/// The commands, one a line, with what they do.
pub const COMMANDS: &str = "\
  cut                     the power goes now: all fails with EIO and nothing becomes durable, until a crash
  crash                   the power goes: no byte that was not fsynced, but all names
  crash-nodir             the same, and no name whose directory was not fsynced after it
  crash-torn SEED         of each file the first writes, one of them torn at 512 B or 4 KiB
  crash-reorder SEED      of each file some of its dirty pages of 4 KiB
  lie on|off              fsync answers OK and does nothing
  eio OP REGEX P          OP on matching paths fails with EIO, with the probability P
  fsyncgate REGEX         one fsync fails, its dirty pages are taken for clean and are never written
  enospc BYTES            so many bytes more, and the disk is full
  delay OP MS[..MS]       OP takes so much longer
  bitflip REGEX OFFSET    flips one bit of a byte of each matching file; below 0: from its end
  stats                   what was done, what is not durable, and which faults took effect
  clear                   no faults any more
OP: read, write, fsync, open, create, resize, rename, link, unlink, list. REGEX is searched in paths below
the mount, which begin without a slash; it has no spaces.";

fn number<T: FromStr>(text: &str) -> anyhow::Result<T> {
    text.parse().ok().with_context(|| format!("expected a number, but got {text:?}"))
}

fn regex(text: &str) -> anyhow::Result<Regex> {
    Regex::new(text).with_context(|| format!("expected a regular expression, but got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        for line in [
            "cut",
            "crash",
            "crash-nodir",
            "crash-torn 7",
            "crash-reorder 8",
            "lie on",
            "lie off",
            "eio fsync ^raft/.*\\.log$ 0.5",
            "fsyncgate MANIFEST",
            "enospc 4096",
            "delay write 3..30",
            "bitflip sst$ -17",
            "stats",
            "clear",
        ] {
            assert_eq!(line.parse::<Command>().unwrap().to_string(), line);
        }
        assert_eq!("delay read 5".parse::<Command>().unwrap().to_string(), "delay read 5..5");
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for (line, says) in [
            ("", "the commands are"),
            ("crash-torn x", "a number"),
            ("eio reads . 1", "expected an operation (read, "),
            ("eio read ( 1", "a regular expression"),
            ("eio read . 2", "from 0 to 1"),
            ("delay read 9..3", "is above"),
        ] {
            let error = line.parse::<Command>().unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
