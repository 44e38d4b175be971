//! What is done to a disk: the power goes, bits flip, or it is unmounted in peace.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use regex::Regex;

use super::{Answer, Disk, Kind};
use crate::Ino;
use crate::command::Crash;
use crate::names::{Kept, ROOT};
use crate::rng::Rng;
use crate::undo;

impl Disk {
    /// Loses the power.
    pub(crate) fn crash(&mut self, crash: Crash) -> Answer<()> {
        let (kept, seed) = match crash {
            Crash::Plain => (Kept::All, 0),
            Crash::NoDir => (Kept::Fsynced, 0),
            Crash::Torn { seed } => (Kept::First, seed),
            Crash::Reordered { seed } => (Kept::FirstInEach, seed),
        };
        let mut rng = Rng::new(seed);
        self.stats.crashes += 1;
        self.handles.clear();
        self.off = false;
        let named = |disk: &Self| -> Vec<Ino> {
            disk.inodes.keys().copied().filter(|ino| *ino == ROOT || disk.names.links(*ino) > 0).collect()
        };
        let before = named(self);
        let found = self.names.crash(kept, &mut rng);
        let all: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in all {
            if !found.contains(&ino) {
                self.stats.names_lost += u64::from(before.binary_search(&ino).is_ok());
                self.free(ino)?;
                continue;
            }
            self.stats.names_back += u64::from(before.binary_search(&ino).is_err());
            if self.inode(ino)?.kind == Kind::File {
                self.lose_bytes(ino, crash, &mut rng)?;
            }
            let inode = self.inode_mut(ino)?;
            (inode.opens, inode.file) = (0, None);
        }
        Ok(())
    }

    fn lose_bytes(&mut self, ino: Ino, crash: Crash, rng: &mut Rng) -> Answer<()> {
        let at_risk = self.inode(ino)?.undo.dirty();
        let size = self.with_file(ino, |file, undo| {
            match crash {
                Crash::Plain | Crash::NoDir => undo.crash(file)?,
                Crash::Torn { .. } => undo.crash_torn(file, rng)?,
                Crash::Reordered { .. } => undo.crash_reordered(file, rng)?,
            }
            Ok(file.metadata()?.len())
        })?;
        self.charge(ino, size);
        self.stats.bytes_at_risk += at_risk;
        self.stats.files_cut += u64::from(at_risk > 0);
        Ok(())
    }

    /// Flips a bit of a byte of each matching file; returns which.
    pub(crate) fn flip(&mut self, paths: &Regex, offset: i64) -> Answer<Vec<(Ino, PathBuf)>> {
        let files = self.inodes.iter().filter(|(ino, inode)| inode.kind == Kind::File && self.names.links(**ino) > 0);
        let mut flipped: Vec<_> = files.map(|(ino, _)| (*ino, self.names.path(*ino))).collect();
        flipped.retain(|(_, path)| paths.is_match(&path.to_string_lossy()));
        let mut done = Vec::new();
        for (ino, path) in flipped {
            let hit = self.with_file(ino, |file, _| {
                let size = file.metadata()?.len();
                let at = if offset < 0 { size.checked_sub(offset.unsigned_abs()) } else { Some(offset.unsigned_abs()) };
                let Some(at) = at.filter(|at| *at < size) else { return Ok(false) };
                let mut byte = undo::read(file, at, 1)?;
                byte.iter_mut().for_each(|byte| *byte ^= 0x10);
                file.write_all_at(&byte, at)?;
                Ok(true)
            })?;
            if hit {
                self.stats.bitflips += 1;
                done.push((ino, path));
            }
        }
        Ok(done)
    }

    /// What failed fsyncs have dropped is gone; all else is durable.
    pub(crate) fn settle(&mut self) -> Answer<()> {
        self.names.settle();
        self.sweep()?;
        let files: Vec<Ino> = self.inodes.iter().filter(|(_, i)| i.kind == Kind::File).map(|(ino, _)| *ino).collect();
        for ino in files {
            self.with_file(ino, |file, undo| {
                undo.settle();
                undo.crash(file)
            })?;
        }
        Ok(())
    }
}
