//! The backing directory: while the disk is mounted one object for each inode, named by its number.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::Ino;

/// The objects. A file's object holds its bytes as processes see them now; those of directories and links hold
/// their attributes.
#[derive(Debug)]
pub(crate) struct Objects {
    dir: PathBuf,
}

/// Who a new inode belongs to, and what may be done with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Objects {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn path(&self, ino: Ino) -> PathBuf {
        self.dir.join(ino.to_string())
    }

    pub(crate) fn create_file(&self, ino: Ino, owner: Owner) -> io::Result<File> {
        let path = self.path(ino);
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        self.own(ino, owner)?;
        Ok(file)
    }

    pub(crate) fn create_dir(&self, ino: Ino, owner: Owner) -> io::Result<()> {
        fs::create_dir(self.path(ino))?;
        self.own(ino, owner)
    }

    pub(crate) fn create_symlink(&self, ino: Ino, target: &Path, owner: Owner) -> io::Result<()> {
        symlink(target, self.path(ino))?;
        lchown(self.path(ino), Some(owner.uid), Some(owner.gid))
    }

    fn own(&self, ino: Ino, owner: Owner) -> io::Result<()> {
        let path = self.path(ino);
        lchown(&path, Some(owner.uid), Some(owner.gid))?;
        self.set_mode(ino, owner.mode)
    }

    pub(crate) fn set_mode(&self, ino: Ino, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.path(ino), Permissions::from_mode(mode & 0o7777))
    }

    pub(crate) fn open(&self, ino: Ino) -> io::Result<File> {
        File::options().read(true).write(true).open(self.path(ino))
    }

    pub(crate) fn meta(&self, ino: Ino) -> io::Result<Metadata> {
        fs::symlink_metadata(self.path(ino))
    }

    pub(crate) fn remove(&self, ino: Ino, is_dir: bool) -> io::Result<()> {
        if is_dir { fs::remove_dir(self.path(ino)) } else { fs::remove_file(self.path(ino)) }
    }
}
