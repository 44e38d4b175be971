//! Damages files of a node's data: flips a bit, or cuts a file off.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::dice::Dice;

/// A file of a node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The end of the raft log.
    LogTail,
    /// The middle of the raft log.
    LogMiddle,
    /// A table of the applied state.
    Table,
    /// The list of tables of the applied state.
    Manifest,
    /// What says which list is the one.
    Current,
    /// Whose disk it is.
    Identity,
}

/// What is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// One bit is the other way round.
    Flip,
    /// The rest is cut off.
    Truncate,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] =
        [Part::LogTail, Part::LogMiddle, Part::Table, Part::Manifest, Part::Current, Part::Identity];

    /// The file in a node's data directory; `None` where there is none yet.
    ///
    /// # Errors
    /// Where the directory can't be read.
    pub fn file(self, data: &Path) -> anyhow::Result<Option<PathBuf>> {
        let ends = |end: &'static str| move |name: &str| name.ends_with(end);
        Ok(match self {
            Part::LogTail | Part::LogMiddle => newest(&data.join("raft"), &ends(".log"))?,
            Part::Table => newest(&data.join("sm"), &ends(".sst"))?,
            Part::Manifest => newest(&data.join("sm"), &|name| name.starts_with("MANIFEST-"))?,
            Part::Current => newest(&data.join("sm"), &|name| name == "CURRENT")?,
            Part::Identity => Some(data.join("IDENTITY")).filter(|path| path.is_file()),
        })
    }

    /// Where in a file that holds `used` bytes it is hurt.
    fn offset(self, used: u64, dice: &mut Dice) -> u64 {
        match self {
            Part::LogTail => used - 1 - dice.below(used.min(64)),
            Part::LogMiddle => used / 4 + dice.below(used / 2),
            Part::Table | Part::Manifest | Part::Current | Part::Identity => dice.below(used),
        }
    }
}

/// The newest file below `dir` whose name is `wanted`.
fn newest(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Option<PathBuf>> {
    let mut dirs = vec![dir.to_owned()];
    let mut found: Option<(std::time::SystemTime, PathBuf)> = None;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let name = entry.file_name();
            if meta.is_dir() {
                dirs.push(entry.path());
            } else if meta.len() > 0 && name.to_str().is_some_and(wanted) {
                let this = (meta.modified()?, entry.path());
                if found.as_ref().is_none_or(|other| *other < this) {
                    found = Some(this);
                }
            }
        }
    }
    Ok(found.map(|(_, path)| path))
}

/// Hurts a part of a node's data; returns what was done, in words, or `None` where there is no such file yet.
///
/// # Errors
/// Where the file can't be read or written.
pub fn hurt(data: &Path, part: Part, harm: Harm, dice: &mut Dice) -> anyhow::Result<Option<String>> {
    let Some(path) = part.file(data)? else { return Ok(None) };
    let before = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    // A log is made larger than what is in it.
    let used = before.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    if used < 2 {
        return Ok(None);
    }
    let offset = part.offset(used, dice).min(used - 1);
    let file = File::options().read(true).write(true).open(&path)?;
    let done = match harm {
        Harm::Flip => {
            let bit = dice.below(8);
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            file.write_all_at(&[byte[0] ^ (1 << bit)], offset)?;
            format!("bit {bit} of byte {offset} flipped")
        }
        Harm::Truncate => {
            file.set_len(offset)?;
            format!("cut off at byte {offset} of {used}")
        }
    };
    file.sync_all()?;
    let after = fs::read(&path)?;
    ensure!(after != before, "expected {} to differ after it was hurt", path.display());
    let name = path.strip_prefix(data).unwrap_or(&path).display();
    Ok(Some(format!("{name}: {done}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_and_hurt_where_they_hold_something() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path();
        for (file, bytes) in [
            ("raft/000004.log", b"old log".to_vec()),
            ("raft/000009.log", [b"the log".as_slice(), &[0; 100]].concat()),
            ("sm/1/2/000007.sst", b"a table".to_vec()),
            ("sm/1/2/CURRENT", b"MANIFEST-5".to_vec()),
            ("IDENTITY", b"node = 1".to_vec()),
        ] {
            let path = data.join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, bytes).expect("a file");
        }
        let mut dice = Dice::new(1);
        let done = hurt(data, Part::LogTail, Harm::Flip, &mut dice).expect("hurt").expect("there is a log");
        assert!(done.starts_with("raft/000009.log: bit"), "{done}");
        let log = fs::read(data.join("raft/000009.log")).expect("the log");
        assert!(log.len() == 107 && log[..7] != *b"the log" && log[7..] == [0; 100]);
        let done = hurt(data, Part::Table, Harm::Truncate, &mut dice).expect("hurt").expect("there is a table");
        assert!(done.contains("cut off") && fs::read(data.join("sm/1/2/000007.sst")).expect("it").len() < 7, "{done}");
        assert_eq!(hurt(data, Part::Manifest, Harm::Flip, &mut dice).expect("none"), None);
        assert!(hurt(data, Part::Identity, Harm::Flip, &mut dice).expect("hurt").is_some());
    }
}
