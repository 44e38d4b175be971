//! The disk: inodes and their names, open handles; [`bytes`], and what is done to it in [`power`].

mod bytes;
mod power;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;

use crate::Ino;
use crate::command::Op;
use crate::faults::Faults;
use crate::names::{Edit, Names, ROOT};
use crate::objects::{Objects, Owner};
use crate::stats::Stats;
use crate::undo::Undo;

/// What an operation comes to.
pub(crate) type Answer<T> = Result<T, Errno>;

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Link,
}

#[derive(Debug)]
struct Inode {
    kind: Kind,
    /// Open handles.
    opens: u32,
    /// Its object, while a handle is open.
    file: Option<File>,
    undo: Undo,
    /// The bytes that it takes of the disk's room.
    charged: u64,
}

#[derive(Debug)]
struct Handle {
    ino: Ino,
    /// What a directory held when it was opened.
    listing: Vec<Listed>,
}

/// One name in a directory.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) name: OsString,
}

/// What is told of an inode.
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) links: u32,
    pub(crate) meta: Metadata,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Disk {
    objects: Objects,
    inodes: BTreeMap<Ino, Inode>,
    names: Names,
    handles: BTreeMap<u64, Handle>,
    pub(crate) faults: Faults,
    /// Whether it has no power.
    pub(crate) off: bool,
    stats: Stats,
    /// Bytes that files take.
    used: u64,
    next_ino: Ino,
    next_handle: u64,
}

/// Where an operation is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At<'a> {
    Ino(Ino),
    Name(Ino, &'a OsStr),
}

impl Inode {
    fn new(kind: Kind) -> Self {
        Self { kind, opens: 0, file: None, undo: Undo::default(), charged: 0 }
    }
}

impl Disk {
    /// An empty disk, whose root directory is an object already.
    pub(crate) fn new(objects: Objects) -> Self {
        Self {
            objects,
            inodes: BTreeMap::from([(ROOT, Inode::new(Kind::Dir))]),
            names: Names::new(),
            handles: BTreeMap::new(),
            faults: Faults::new(),
            off: false,
            stats: Stats::default(),
            used: 0,
            next_ino: ROOT + 1,
            next_handle: 1,
        }
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Bytes that files take, and the most that they may.
    pub(crate) fn room(&self) -> (u64, Option<u64>) {
        (self.used, self.faults.room)
    }

    /// Fails without power, and where a fault says so.
    pub(crate) fn check(&mut self, op: Op, at: At<'_>) -> Answer<()> {
        if self.off {
            self.stats.cut_calls += 1;
            return Err(Errno::EIO);
        }
        if !self.faults.may_fail(op) {
            return Ok(());
        }
        let path = match at {
            At::Ino(ino) => self.names.path(ino),
            At::Name(dir, name) => self.names.path(dir).join(name),
        };
        if self.faults.fails(op, &path) {
            self.stats.eios += 1;
            return Err(Errno::EIO);
        }
        Ok(())
    }

    pub(crate) fn note_delay(&mut self) {
        self.stats.delays += 1;
    }

    // Names

    pub(crate) fn look_up(&self, dir: Ino, name: &OsStr) -> Answer<Ino> {
        self.names.get(dir, name).ok_or(Errno::ENOENT)
    }

    pub(crate) fn kind(&self, ino: Ino) -> Answer<Kind> {
        Ok(self.inode(ino)?.kind)
    }

    pub(crate) fn attributes(&self, ino: Ino) -> Answer<Attributes> {
        let inode = self.inode(ino)?;
        let meta = match &inode.file {
            Some(file) => file.metadata(),
            None => self.objects.meta(ino),
        };
        let links = if inode.kind == Kind::Dir { 2 } else { self.names.links(ino) };
        Ok(Attributes { ino, kind: inode.kind, links, meta: meta.map_err(errno)? })
    }

    fn inode(&self, ino: Ino) -> Answer<&Inode> {
        self.inodes.get(&ino).ok_or(Errno::ENOENT)
    }

    fn inode_mut(&mut self, ino: Ino) -> Answer<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }

    /// Makes a new inode with a name.
    fn make(
        &mut self,
        dir: Ino,
        name: &OsStr,
        kind: Kind,
        object: impl FnOnce(&Objects, Ino) -> io::Result<()>,
    ) -> Answer<Ino> {
        if !self.names.is_dir(dir) {
            return Err(Errno::ENOENT);
        }
        if self.names.get(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        if self.faults.room.is_some_and(|room| self.used >= room) {
            self.stats.enospcs += 1;
            return Err(Errno::ENOSPC);
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        object(&self.objects, ino).map_err(errno)?;
        self.inodes.insert(ino, Inode::new(kind));
        if kind == Kind::Dir {
            self.names.add_dir(ino);
        }
        self.names.change(vec![Edit::new(dir, name, Some(ino))]);
        Ok(ino)
    }

    pub(crate) fn create(&mut self, dir: Ino, name: &OsStr, owner: Owner) -> Answer<Ino> {
        self.make(dir, name, Kind::File, |objects, ino| objects.create_file(ino, owner).map(drop))
    }

    pub(crate) fn make_dir(&mut self, dir: Ino, name: &OsStr, owner: Owner) -> Answer<Ino> {
        self.make(dir, name, Kind::Dir, |objects, ino| objects.create_dir(ino, owner))
    }

    pub(crate) fn make_symlink(&mut self, dir: Ino, name: &OsStr, target: &Path, owner: Owner) -> Answer<Ino> {
        self.make(dir, name, Kind::Link, |objects, ino| objects.create_symlink(ino, target, owner))
    }

    /// Takes a file or a link from elsewhere on the backing file system.
    pub(crate) fn adopt(&mut self, dir: Ino, name: &OsStr, path: &Path, meta: &Metadata) -> Answer<Ino> {
        let kind = if meta.is_symlink() { Kind::Link } else { Kind::File };
        let ino = self.make(dir, name, kind, |objects, ino| fs::hard_link(path, objects.path(ino)))?;
        if kind == Kind::File {
            self.charge(ino, meta.len());
        }
        Ok(ino)
    }

    /// The same for a directory, without what is in it.
    pub(crate) fn adopt_dir(&mut self, dir: Ino, name: &OsStr, meta: &Metadata) -> Answer<Ino> {
        self.make_dir(dir, name, Owner { mode: meta.mode(), uid: meta.uid(), gid: meta.gid() })
    }

    pub(crate) fn link(&mut self, ino: Ino, dir: Ino, name: &OsStr) -> Answer<()> {
        if self.inode(ino)?.kind == Kind::Dir {
            return Err(Errno::EPERM);
        }
        if !self.names.is_dir(dir) || self.names.links(ino) == 0 {
            return Err(Errno::ENOENT);
        }
        if self.names.get(dir, name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.names.change(vec![Edit::new(dir, name, Some(ino))]);
        Ok(())
    }

    pub(crate) fn unlink(&mut self, dir: Ino, name: &OsStr) -> Answer<()> {
        let ino = self.look_up(dir, name)?;
        if self.inode(ino)?.kind == Kind::Dir {
            return Err(Errno::EISDIR);
        }
        self.names.change(vec![Edit::new(dir, name, None)]);
        self.sweep()
    }

    pub(crate) fn remove_dir(&mut self, dir: Ino, name: &OsStr) -> Answer<()> {
        let ino = self.look_up(dir, name)?;
        self.expect_empty(ino)?;
        self.names.change(vec![Edit::new(dir, name, None)]);
        self.sweep()
    }

    fn expect_empty(&self, dir: Ino) -> Answer<()> {
        let entries = self.names.entries(dir).ok_or(Errno::ENOTDIR)?;
        if entries.is_empty() { Ok(()) } else { Err(Errno::ENOTEMPTY) }
    }

    pub(crate) fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), replace: bool) -> Answer<()> {
        let ino = self.look_up(from.0, from.1)?;
        if !self.names.is_dir(to.0) {
            return Err(Errno::ENOENT);
        }
        if let Some(victim) = self.names.get(to.0, to.1) {
            if !replace {
                return Err(Errno::EEXIST);
            }
            if victim == ino {
                return Ok(());
            }
            match (self.kind(ino)?, self.kind(victim)?) {
                (Kind::Dir, Kind::Dir) => self.expect_empty(victim)?,
                (Kind::Dir, Kind::File | Kind::Link) => return Err(Errno::ENOTDIR),
                (Kind::File | Kind::Link, Kind::Dir) => return Err(Errno::EISDIR),
                (Kind::File | Kind::Link, Kind::File | Kind::Link) => {}
            }
        }
        self.names.change(vec![Edit::new(from.0, from.1, None), Edit::new(to.0, to.1, Some(ino))]);
        self.sweep()
    }

    /// Frees what nothing names and nobody has open.
    fn sweep(&mut self) -> Answer<()> {
        loop {
            let released = self.names.take_released();
            if released.is_empty() {
                return Ok(());
            }
            for ino in released {
                self.free_if_gone(ino)?;
            }
        }
    }

    fn free_if_gone(&mut self, ino: Ino) -> Answer<()> {
        let unused = self.inodes.get(&ino).is_some_and(|inode| inode.opens == 0);
        if unused && self.names.is_gone(ino) {
            self.free(ino)?;
        }
        Ok(())
    }

    fn free(&mut self, ino: Ino) -> Answer<()> {
        let Some(inode) = self.inodes.remove(&ino) else { return Ok(()) };
        self.used -= inode.charged;
        self.names.forget(ino);
        self.objects.remove(ino, inode.kind == Kind::Dir).map_err(errno)
    }

    // Handles

    pub(crate) fn open(&mut self, ino: Ino) -> Answer<u64> {
        let listing = match self.inode(ino)?.kind {
            Kind::Dir => self.list(ino)?,
            Kind::File | Kind::Link => Vec::new(),
        };
        if self.inode(ino)?.kind == Kind::File && self.inode(ino)?.file.is_none() {
            let file = self.objects.open(ino).map_err(errno)?;
            self.inode_mut(ino)?.file = Some(file);
        }
        self.inode_mut(ino)?.opens += 1;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, Handle { ino, listing });
        Ok(handle)
    }

    pub(crate) fn close(&mut self, handle: u64) -> Answer<()> {
        // One of before a crash is gone already.
        let Some(Handle { ino, .. }) = self.handles.remove(&handle) else { return Ok(()) };
        let Some(inode) = self.inodes.get_mut(&ino) else { return Ok(()) };
        inode.opens -= 1;
        if inode.opens == 0 {
            inode.file = None;
        }
        self.free_if_gone(ino)?;
        self.sweep()
    }

    fn list(&self, ino: Ino) -> Answer<Vec<Listed>> {
        let entries = self.names.entries(ino).ok_or(Errno::ENOTDIR)?;
        let mut listing = vec![
            Listed { ino, kind: Kind::Dir, name: ".".into() },
            Listed { ino: self.names.parent(ino), kind: Kind::Dir, name: "..".into() },
        ];
        for (name, ino) in entries {
            listing.push(Listed { ino: *ino, kind: self.kind(*ino)?, name: name.clone() });
        }
        Ok(listing)
    }

    pub(crate) fn listing(&mut self, handle: u64) -> Answer<&[Listed]> {
        match self.handles.get(&handle) {
            Some(handle) => Ok(&handle.listing),
            None => Err(stale(&mut self.stats)),
        }
    }

    /// The file of a handle, with what is known of it.
    fn opened(&mut self, handle: u64) -> Answer<(Ino, &mut Inode)> {
        let Some(Handle { ino, .. }) = self.handles.get(&handle) else { return Err(stale(&mut self.stats)) };
        let ino = *ino;
        Ok((ino, self.inode_mut(ino)?))
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            dirty_bytes: self.inodes.values().map(|inode| inode.undo.dirty()).sum(),
            dirty_names: self.names.pending(),
            ..self.stats
        }
    }
}

fn stale(stats: &mut Stats) -> Errno {
    stats.stale_calls += 1;
    Errno::EIO
}

/// What the backing directory's file system says.
pub(crate) fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
