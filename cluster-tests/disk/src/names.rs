//! Names: which inode each name in each directory is, as processes see it and as the disk has it.
//!
//! Each change of names is an operation in a journal until the disk has it. What a crash makes of the journal, four
//! ways of [`crate::Crash`] tell apart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::Ino;
use crate::rng::Rng;

/// The root directory's inode.
pub(crate) const ROOT: Ino = 1;
/// With more operations in the journal the older half of them becomes durable, as a file system commits its journal
/// now and then by itself.
const MAX_JOURNAL: usize = 65_536;
/// How deep a path is at most.
const MAX_DEPTH: usize = 128;

type Entries = BTreeMap<OsString, Ino>;

#[derive(Debug, Default)]
struct Dir {
    live: Entries,
    durable: Entries,
}

/// One name becomes another inode, or none.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    pub(crate) dir: Ino,
    pub(crate) name: OsString,
    pub(crate) to: Option<Ino>,
}

impl Edit {
    pub(crate) fn new(dir: Ino, name: &OsStr, to: Option<Ino>) -> Self {
        Self { dir, name: name.to_owned(), to }
    }

    fn is_at(&self, other: &Edit) -> bool {
        self.dir == other.dir && self.name == other.name
    }
}

/// What happens to names at one moment: more than one edit is a rename.
#[derive(Debug)]
struct Operation {
    id: u64,
    edits: Vec<Edit>,
}

/// Which operations are on the disk after a crash.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// All of them.
    All,
    /// Those of directories that were fsynced after them.
    Fsynced,
    /// The first ones, at least up to the last fsync of anything.
    First,
    /// In each directory the first ones.
    FirstInEach,
}

/// The names.
#[derive(Debug)]
pub(crate) struct Names {
    dirs: BTreeMap<Ino, Dir>,
    journal: VecDeque<Operation>,
    next: u64,
    /// Operations below it were there when something was fsynced last.
    committed: u64,
    /// How many names an inode has, as processes see it.
    links: BTreeMap<Ino, u32>,
    /// How often the disk or the journal name it.
    held: BTreeMap<Ino, u32>,
    /// The last name of each inode.
    last: BTreeMap<Ino, (Ino, OsString)>,
    /// Inodes that may be nowhere any more.
    released: Vec<Ino>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            dirs: BTreeMap::from([(ROOT, Dir::default())]),
            journal: VecDeque::new(),
            next: 0,
            committed: 0,
            links: BTreeMap::new(),
            held: BTreeMap::new(),
            last: BTreeMap::new(),
            released: Vec::new(),
        }
    }

    pub(crate) fn add_dir(&mut self, ino: Ino) {
        self.dirs.insert(ino, Dir::default());
    }

    pub(crate) fn is_dir(&self, ino: Ino) -> bool {
        self.dirs.contains_key(&ino)
    }

    pub(crate) fn get(&self, dir: Ino, name: &OsStr) -> Option<Ino> {
        self.dirs.get(&dir)?.live.get(name).copied()
    }

    /// The names in a directory; `None` where there is no such directory.
    pub(crate) fn entries(&self, dir: Ino) -> Option<&Entries> {
        Some(&self.dirs.get(&dir)?.live)
    }

    pub(crate) fn links(&self, ino: Ino) -> u32 {
        self.links.get(&ino).copied().unwrap_or(0)
    }

    pub(crate) fn parent(&self, ino: Ino) -> Ino {
        self.last.get(&ino).map_or(ROOT, |(parent, _)| *parent)
    }

    /// Operations that are not durable.
    pub(crate) fn pending(&self) -> u64 {
        self.journal.len() as u64
    }

    /// The path of an inode below the root, without a slash before it; the last one that it had.
    pub(crate) fn path(&self, mut ino: Ino) -> PathBuf {
        let mut parts = Vec::new();
        while ino != ROOT && parts.len() < MAX_DEPTH {
            let Some((parent, name)) = self.last.get(&ino) else { break };
            parts.push(name);
            ino = *parent;
        }
        parts.into_iter().rev().collect()
    }

    /// Changes names, all at one moment.
    pub(crate) fn change(&mut self, edits: Vec<Edit>) {
        for edit in &edits {
            let renamed = edit.to.is_some_and(|ino| !self.has_its_last_name(ino));
            let Some(dir) = self.dirs.get_mut(&edit.dir) else { continue };
            let before = match edit.to {
                Some(ino) => dir.live.insert(edit.name.clone(), ino),
                None => dir.live.remove(&edit.name),
            };
            if let Some(ino) = edit.to {
                *self.links.entry(ino).or_default() += 1;
                *self.held.entry(ino).or_default() += 1;
                if renamed {
                    self.last.insert(ino, (edit.dir, edit.name.clone()));
                }
            }
            if let Some(ino) = before {
                count_down(&mut self.links, ino);
                self.released.push(ino);
            }
        }
        self.journal.push_back(Operation { id: self.next, edits });
        self.next += 1;
        if self.journal.len() > MAX_JOURNAL {
            for _ in 0..MAX_JOURNAL / 2 {
                let Some(operation) = self.journal.pop_front() else { break };
                operation.edits.into_iter().for_each(|edit| self.make_durable(edit));
            }
        }
    }

    fn has_its_last_name(&self, ino: Ino) -> bool {
        self.last.get(&ino).is_some_and(|(dir, name)| self.get(*dir, name) == Some(ino))
    }

    /// Something was fsynced: a journal would have been committed.
    pub(crate) fn commit_journal(&mut self) {
        self.committed = self.next;
    }

    /// A directory was fsynced: the names in it are durable. What was renamed out of it is durable where it went, so
    /// that a rename never loses the file itself.
    pub(crate) fn sync_dir(&mut self, dir: Ino) {
        let mut durable: Vec<Edit> = Vec::new();
        let mut superseded: Vec<Ino> = Vec::new();
        for at in 0..self.journal.len() {
            let Some(operation) = self.journal.get_mut(at) else { break };
            let moved_out = operation.edits.iter().any(|edit| edit.dir == dir && edit.to.is_none());
            let taken = operation.edits.extract_if(.., |edit| edit.dir == dir || moved_out).collect::<Vec<_>>();
            for edit in taken.iter().filter(|edit| edit.dir != dir) {
                for earlier in self.journal.range_mut(..at) {
                    let dropped = earlier.edits.extract_if(.., |other| other.is_at(edit));
                    superseded.extend(dropped.filter_map(|edit| edit.to));
                }
            }
            durable.extend(taken);
        }
        self.journal.retain(|operation| !operation.edits.is_empty());
        durable.into_iter().for_each(|edit| self.make_durable(edit));
        superseded.into_iter().for_each(|ino| self.let_go(ino));
    }

    fn make_durable(&mut self, edit: Edit) {
        let Some(dir) = self.dirs.get_mut(&edit.dir) else { return };
        let before = match edit.to {
            // The journal held it: now the disk does.
            Some(ino) => dir.durable.insert(edit.name, ino),
            None => dir.durable.remove(&edit.name),
        };
        if let Some(ino) = before {
            self.let_go(ino);
        }
    }

    /// The disk or the journal names an inode once less.
    fn let_go(&mut self, ino: Ino) {
        count_down(&mut self.held, ino);
        self.released.push(ino);
    }

    /// The inodes that nothing names any more, neither for processes nor on the disk.
    pub(crate) fn take_released(&mut self) -> Vec<Ino> {
        let mut released = std::mem::take(&mut self.released);
        released.retain(|ino| self.is_gone(*ino));
        released
    }

    pub(crate) fn is_gone(&self, ino: Ino) -> bool {
        ino != ROOT && !self.links.contains_key(&ino) && !self.held.contains_key(&ino)
    }

    /// Forgets an inode that is gone; a directory with all that the disk has in it.
    pub(crate) fn forget(&mut self, ino: Ino) {
        self.last.remove(&ino);
        let Some(dir) = self.dirs.remove(&ino) else { return };
        let mut freed: Vec<Ino> = dir.durable.into_values().collect();
        for operation in &mut self.journal {
            operation.edits.retain(|edit| {
                if edit.dir == ino {
                    freed.extend(edit.to);
                }
                edit.dir != ino
            });
        }
        self.journal.retain(|operation| !operation.edits.is_empty());
        freed.into_iter().for_each(|ino| self.let_go(ino));
    }

    /// The power is gone. Returns the inodes that still have a name.
    pub(crate) fn crash(&mut self, kept: Kept, rng: &mut Rng) -> BTreeSet<Ino> {
        let span = self.next - self.committed;
        let first = self.committed + rng.below(span + 1);
        let mut firsts = BTreeMap::new();
        for operation in std::mem::take(&mut self.journal) {
            let mut survives = |dir: Ino| match kept {
                Kept::All => true,
                Kept::Fsynced => false,
                Kept::First => operation.id < first,
                Kept::FirstInEach => {
                    let oldest = operation.id;
                    let until = firsts.entry(dir).or_insert_with(|| oldest + rng.below(self.next - oldest + 1));
                    operation.id < *until
                }
            };
            let survivors: Vec<bool> = operation.edits.iter().map(|edit| survives(edit.dir)).collect();
            // A rename never loses the file itself.
            let gone = operation.edits.iter().zip(&survivors).any(|(edit, survives)| edit.to.is_none() && *survives);
            for (edit, survives) in operation.edits.into_iter().zip(survivors) {
                if survives || gone {
                    let Some(dir) = self.dirs.get_mut(&edit.dir) else { continue };
                    match edit.to {
                        Some(ino) => dir.durable.insert(edit.name, ino),
                        None => dir.durable.remove(&edit.name),
                    };
                }
            }
        }
        self.mount()
    }

    /// What the disk has is what processes see.
    fn mount(&mut self) -> BTreeSet<Ino> {
        let dirs: BTreeSet<Ino> = self.dirs.keys().copied().collect();
        let (mut found, mut todo) = (BTreeSet::from([ROOT]), vec![ROOT]);
        let mut tree = BTreeMap::new();
        (self.links, self.held, self.last) = Default::default();
        self.released.clear();
        while let Some(at) = todo.pop() {
            let mut entries = self.dirs.remove(&at).unwrap_or_default().durable;
            // A directory stands in one place.
            entries.retain(|_, ino| found.insert(*ino) || !dirs.contains(ino));
            for (name, ino) in &entries {
                if dirs.contains(ino) {
                    todo.push(*ino);
                }
                *self.links.entry(*ino).or_default() += 1;
                *self.held.entry(*ino).or_default() += 1;
                self.last.insert(*ino, (at, name.clone()));
            }
            tree.insert(at, Dir { live: entries.clone(), durable: entries });
        }
        self.dirs = tree;
        self.committed = self.next;
        found
    }

    /// All names are durable.
    pub(crate) fn settle(&mut self) {
        for operation in std::mem::take(&mut self.journal) {
            operation.edits.into_iter().for_each(|edit| self.make_durable(edit));
        }
        self.committed = self.next;
    }
}

fn count_down(counts: &mut BTreeMap<Ino, u32>, ino: Ino) {
    if let Some(count) = counts.get_mut(&ino) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&ino);
        }
    }
}
