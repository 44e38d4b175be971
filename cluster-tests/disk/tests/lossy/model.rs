//! Random operations and crashes, beside a model that knows nothing of undo records or journals: it keeps what is
//! there and what is durable, whole.
//!
//! `TICKETRAIL_TEST_DISK_SEEDS` says how many seeds, 24 by default; `TICKETRAIL_TEST_DISK_SEED` which is the first.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use anyhow::{Context as _, ensure};
use ticketrail_disk::Crash;

use crate::rig::{Rig, sync};

const DIRS: [&str; 3] = ["d0", "d1", "d2"];
const FILES: [&str; 4] = ["w", "x", "y", "z"];
const CRASHES: u64 = 8;
const OPERATIONS: u64 = 40;
const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// A file: its bytes after each change since its last fsync, the first of them durable.
#[derive(Debug, Clone)]
struct Bytes {
    states: Vec<Vec<u8>>,
    /// Where the write began that led to each state but the first; `None`: not a write.
    from: Vec<Option<usize>>,
}

impl Bytes {
    fn durable(bytes: Vec<u8>) -> Self {
        Self { states: vec![bytes], from: Vec::new() }
    }

    fn now(&self) -> &Vec<u8> {
        self.states.last().unwrap()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut next = self.now().clone();
        next.resize(next.len().max(at + bytes.len()), 0);
        next[at..at + bytes.len()].copy_from_slice(bytes);
        self.states.push(next);
        self.from.push(Some(at));
    }

    fn resize(&mut self, size: usize) {
        let mut next = self.now().clone();
        next.resize(size, 0);
        self.states.push(next);
        self.from.push(None);
    }

    fn fsync(&mut self) {
        *self = Self::durable(self.now().clone());
    }

    /// Whether a crash that tears one write may leave `left`.
    fn may_be_torn_to(&self, left: &[u8]) -> bool {
        if self.states.iter().any(|state| state == left) {
            return true;
        }
        self.states.windows(2).zip(&self.from).any(|(pair, from)| {
            let Some(from) = *from else { return false };
            let ends = (from / SECTOR + 1..).map(|sector| sector * SECTOR).take_while(|end| *end < pair[1].len());
            ends.into_iter().any(|end| {
                // New bytes up to the end of the sector, old ones behind it.
                let mut torn = pair[0].clone();
                torn.resize(torn.len().max(end), 0);
                torn[..end].copy_from_slice(&pair[1][..end]);
                torn == left
            })
        })
    }

    /// Whether a crash that keeps any pages may leave `left`.
    fn may_be_reordered_to(&self, left: &[u8]) -> bool {
        let (old, new) = (&self.states[0], self.now());
        let page = |bytes: &[u8], at: usize| -> Vec<u8> {
            let mut page = bytes.get(at..bytes.len().min(at + PAGE)).unwrap_or_default().to_vec();
            page.resize(PAGE, 0);
            page
        };
        let long = left.len() <= old.len().max(new.len());
        long && (0..left.len()).step_by(PAGE).all(|at| {
            let found = page(left, at);
            let mut mixed = page(old, at);
            // A page of a file that became shorter than it.
            let kept = new.len().saturating_sub(at).min(PAGE);
            mixed[..kept].copy_from_slice(&page(new, at)[..kept]);
            let mut cut = page(old, at);
            cut[left.len().saturating_sub(at).min(PAGE)..].fill(0);
            mixed[left.len().saturating_sub(at).min(PAGE)..].fill(0);
            found == page(old, at) || found == page(new, at) || found == mixed || found == cut
        })
    }
}

type Names = BTreeMap<String, u64>;

/// A directory: its names after each change since its last fsync, the first of them durable.
#[derive(Debug, Clone, Default)]
struct Dir {
    states: Vec<Names>,
}

impl Dir {
    fn now(&self) -> &Names {
        self.states.last().unwrap()
    }

    fn change(&mut self, change: impl FnOnce(&mut Names)) {
        let mut next = self.now().clone();
        change(&mut next);
        self.states.push(next);
    }

    fn insert(&mut self, name: &str, ino: u64) {
        self.change(|names| {
            names.insert(name.to_owned(), ino);
        });
    }

    fn remove(&mut self, name: &str) {
        self.change(|names| {
            names.remove(name);
        });
    }
}

#[derive(Debug, Default)]
struct Model {
    files: BTreeMap<u64, Bytes>,
    dirs: Vec<Dir>,
    moves: Vec<Move>,
}

/// A rename from one directory to another, of which neither was fsynced after it.
#[derive(Debug)]
struct Move {
    from: usize,
    to: usize,
    name: String,
    ino: u64,
    /// Which state of the new directory it made.
    state: usize,
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn file(&mut self) -> (usize, String) {
        (self.below(3) as usize, FILES[self.below(4) as usize].to_owned())
    }
}

impl Model {
    fn ino(&self, (dir, name): &(usize, String)) -> Option<u64> {
        self.dirs[*dir].now().get(name).copied()
    }

    fn fsync_dir(&mut self, dir: usize) {
        let now = self.dirs[dir].now().clone();
        self.dirs[dir].states = vec![now];
        self.moves.retain(|moved| moved.to != dir);
        // What went elsewhere is there for good, whatever else is pending there.
        let done: Vec<Move> = self.moves.extract_if(.., |moved| moved.from == dir).collect();
        for moved in done {
            // It stands where an earlier one would have come to stand.
            self.moves.retain(|old| (old.to, &old.name) != (moved.to, &moved.name) || old.state > moved.state);
            for names in &mut self.dirs[moved.to].states[..moved.state] {
                names.insert(moved.name.clone(), moved.ino);
            }
        }
    }
}

fn path((dir, name): &(usize, String)) -> String {
    format!("{}/{name}", DIRS[*dir])
}

/// One operation, on the disk and in the model. Both refuse it, or neither.
fn operate(rig: &Rig, model: &mut Model, draw: &mut Draw) -> anyhow::Result<()> {
    let at = draw.file();
    let (full, ino) = (rig.path(&path(&at)), model.ino(&at));
    match draw.below(16) {
        0 | 1 => {
            let created = File::create_new(&full);
            ensure!(created.is_ok() == ino.is_none(), "create {full:?}: {created:?}");
            if let Ok(file) = created {
                let new = file.metadata()?.ino();
                ensure!(model.files.insert(new, Bytes::durable(Vec::new())).is_none(), "inode {new} is used twice");
                model.dirs[at.0].insert(&at.1, new);
            }
        }
        2..=6 => {
            let opened = File::options().write(true).open(&full);
            ensure!(opened.is_ok() == ino.is_some(), "open {full:?}: {opened:?}");
            if let (Ok(file), Some(ino)) = (opened, ino) {
                let (offset, len) = (draw.below(12_000) as usize, 1 + draw.below(9_000) as usize);
                let bytes: Vec<u8> = (0..len).map(|_| draw.below(256) as u8).collect();
                file.write_all_at(&bytes, offset as u64)?;
                model.files.get_mut(&ino).unwrap().write(offset, &bytes);
            }
        }
        7 => {
            if let Some(ino) = ino {
                let size = draw.below(20_000) as usize;
                File::options().write(true).open(&full)?.set_len(size as u64)?;
                if size != model.files[&ino].now().len() {
                    model.files.get_mut(&ino).unwrap().resize(size);
                }
            }
        }
        8 | 9 => {
            if let Some(ino) = ino {
                sync(&full)?;
                model.files.get_mut(&ino).unwrap().fsync();
            }
        }
        10 | 11 => {
            let to = draw.file();
            let renamed = fs::rename(&full, rig.path(&path(&to)));
            ensure!(renamed.is_ok() == ino.is_some(), "rename {full:?}: {renamed:?}");
            // Two names of one file stay as they are.
            if let Some(ino) = ino.filter(|ino| model.ino(&to) != Some(*ino)) {
                if at.0 == to.0 {
                    model.dirs[at.0].change(|names| {
                        names.remove(&at.1);
                        names.insert(to.1, ino);
                    });
                } else {
                    model.dirs[at.0].remove(&at.1);
                    model.dirs[to.0].insert(&to.1, ino);
                    let state = model.dirs[to.0].states.len() - 1;
                    model.moves.push(Move { from: at.0, to: to.0, name: to.1, ino, state });
                }
            }
        }
        12 => {
            let to = draw.file();
            let linked = fs::hard_link(&full, rig.path(&path(&to)));
            let may = ino.is_some() && model.ino(&to).is_none();
            ensure!(linked.is_ok() == may, "link {full:?}: {linked:?}");
            if let Some(ino) = ino.filter(|_| may) {
                model.dirs[to.0].insert(&to.1, ino);
            }
        }
        13 => {
            let removed = fs::remove_file(&full);
            ensure!(removed.is_ok() == ino.is_some(), "remove {full:?}: {removed:?}");
            if ino.is_some() {
                model.dirs[at.0].remove(&at.1);
            }
        }
        _ => {
            sync(&rig.path(DIRS[at.0]))?;
            model.fsync_dir(at.0);
        }
    }
    if let Some(ino) = model.ino(&at_of(&full)?) {
        ensure!(fs::read(&full)? == *model.files[&ino].now(), "expected other bytes in {full:?}");
    }
    Ok(())
}

fn at_of(full: &std::path::Path) -> anyhow::Result<(usize, String)> {
    let name = full.file_name().context("a name")?.to_string_lossy().into_owned();
    let parent = full.parent().and_then(|dir| dir.file_name()).context("a directory")?;
    let dir = DIRS.iter().position(|dir| parent == *dir).context("a known directory")?;
    Ok((dir, name))
}

/// What is on the disk after a crash: must be what the model allows, and is what the model goes on with.
fn take_over(rig: &Rig, model: &mut Model, crash: Crash) -> anyhow::Result<()> {
    let mut found = BTreeMap::new();
    for (dir, directory) in model.dirs.iter().enumerate() {
        let mut names = Names::new();
        for name in rig.list(DIRS[dir])? {
            let full = rig.path(DIRS[dir]).join(&name);
            let ino = fs::metadata(&full)?.ino();
            names.insert(name, ino);
            found.insert(ino, fs::read(&full)?);
        }
        let right = match crash {
            Crash::Plain => names == *directory.now(),
            Crash::NoDir => names == directory.states[0],
            // A file that was renamed into it may be there before its turn.
            Crash::Torn { .. } | Crash::Reordered { .. } => {
                directory.states.contains(&names) || model.moves.iter().any(|moved| moved.to == dir)
            }
        };
        ensure!(right, "{}: expected one of {:?}, but {names:?}; moves {:?}", DIRS[dir], directory.states, model.moves);
    }
    for (ino, left) in &found {
        let bytes = model.files.get(ino).with_context(|| format!("inode {ino} was never created"))?;
        let right = match crash {
            Crash::Plain | Crash::NoDir => *left == bytes.states[0],
            Crash::Torn { .. } => bytes.may_be_torn_to(left),
            Crash::Reordered { .. } => bytes.may_be_reordered_to(left),
        };
        let sizes: Vec<_> = bytes.states.iter().map(Vec::len).collect();
        ensure!(right, "expected other bytes in inode {ino} after states of {sizes:?}, but found {}", left.len());
    }
    model.moves.clear();
    model.files = found.into_iter().map(|(ino, left)| (ino, Bytes::durable(left))).collect();
    for (dir, name) in model.dirs.iter_mut().zip(DIRS) {
        let mut names = Names::new();
        for file in rig.list(name)? {
            let ino = fs::metadata(rig.path(name).join(&file))?.ino();
            names.insert(file, ino);
        }
        dir.states = vec![names];
    }
    Ok(())
}

fn run(seed: u64) -> anyhow::Result<Option<u64>> {
    let Some(rig) = Rig::new()? else { return Ok(None) };
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model { dirs: vec![Dir { states: vec![Names::new()] }; 3], ..Model::default() };
    for dir in DIRS {
        fs::create_dir(rig.path(dir))?;
    }
    rig.sync_root()?;
    for round in 0..CRASHES {
        for nth in 0..OPERATIONS {
            operate(&rig, &mut model, &mut draw).with_context(|| format!("round {round}, operation {nth}"))?;
        }
        let crash = match draw.below(4) {
            0 => Crash::Plain,
            1 => Crash::NoDir,
            2 => Crash::Torn { seed: draw.below(1_000) },
            _ => Crash::Reordered { seed: draw.below(1_000) },
        };
        rig.crash(crash)?;
        take_over(&rig, &mut model, crash).with_context(|| format!("round {round}, after {crash:?}"))?;
    }
    let stats = rig.stats();
    ensure!(stats.stale_calls == 0 && stats.crashes == CRASHES, "{stats}");
    Ok(Some(stats.bytes_at_risk))
}

fn number(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("expected a number in {name}, but got {text:?}")),
        Err(_) => Ok(default),
    }
}

#[test]
fn random_operations_and_crashes_do_what_a_model_says() -> anyhow::Result<()> {
    let (seeds, first) = (number("TICKETRAIL_TEST_DISK_SEEDS", 24)?, number("TICKETRAIL_TEST_DISK_SEED", 1)?);
    let mut at_risk = 0;
    for seed in first..first + seeds {
        let ran = run(seed).with_context(|| format!("seed {seed}: TICKETRAIL_TEST_DISK_SEED={seed}"))?;
        let Some(bytes) = ran else { return Ok(()) };
        at_risk += bytes;
    }
    let operations = seeds * CRASHES * OPERATIONS;
    println!("{seeds} seeds, {operations} operations, {} crashes, {at_risk} bytes at risk", seeds * CRASHES);
    ensure!(at_risk > seeds * 10_000, "expected crashes to find something, but only {at_risk} bytes");
    Ok(())
}
