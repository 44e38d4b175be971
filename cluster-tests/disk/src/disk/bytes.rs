//! The bytes of files, and the room that they take.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

use super::{Answer, Disk, Kind, errno};
use crate::Ino;
use crate::undo::{self, PAGE, Undo};

impl Disk {
    pub(crate) fn read(&mut self, handle: u64, offset: u64, len: u32) -> Answer<Vec<u8>> {
        let (_, inode) = self.opened(handle)?;
        let file = inode.file.as_ref().ok_or(Errno::EISDIR)?;
        undo::read(file, offset, len.into()).map_err(errno)
    }

    pub(crate) fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Answer<()> {
        let (ino, _) = self.opened(handle)?;
        self.reserve(ino, offset.saturating_add(bytes.len() as u64))?;
        let (_, inode) = self.opened(handle)?;
        let file = inode.file.as_ref().ok_or(Errno::EISDIR)?;
        inode.undo.before_write(file, offset, bytes.len() as u64).map_err(errno)?;
        file.write_all_at(bytes, offset).map_err(errno)?;
        self.stats.writes += 1;
        self.stats.written_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Takes room for a file that reaches up to `end`.
    fn reserve(&mut self, ino: Ino, end: u64) -> Answer<()> {
        let more = end.div_ceil(PAGE).saturating_mul(PAGE).saturating_sub(self.inode(ino)?.charged);
        let used = self.used.saturating_add(more);
        if more > 0 && self.faults.room.is_some_and(|room| used > room) {
            self.stats.enospcs += 1;
            return Err(Errno::ENOSPC);
        }
        self.used = used;
        self.inode_mut(ino)?.charged += more;
        Ok(())
    }

    /// Takes as much room for a file as its size needs.
    pub(super) fn charge(&mut self, ino: Ino, size: u64) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let charged = size.div_ceil(PAGE).saturating_mul(PAGE);
        self.used = self.used - inode.charged + charged;
        inode.charged = charged;
    }

    /// The object of a file, whether it is open or not.
    pub(super) fn with_file<T>(&mut self, ino: Ino, act: impl FnOnce(&File, &mut Undo) -> io::Result<T>) -> Answer<T> {
        if self.inode(ino)?.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        let opened = if self.inode(ino)?.file.is_none() { Some(self.objects.open(ino).map_err(errno)?) } else { None };
        let inode = self.inode_mut(ino)?;
        let file = inode.file.as_ref().or(opened.as_ref()).ok_or(Errno::EIO)?;
        act(file, &mut inode.undo).map_err(errno)
    }

    pub(crate) fn resize(&mut self, ino: Ino, size: u64) -> Answer<()> {
        self.with_file(ino, |file, undo| {
            undo.before_resize(file, size)?;
            file.set_len(size)
        })?;
        self.charge(ino, size);
        Ok(())
    }

    pub(crate) fn allocate(&mut self, handle: u64, offset: u64, len: u64, mode: i32) -> Answer<()> {
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
        let zeroes = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_ZERO_RANGE;
        if !(zeroes | FallocateFlags::FALLOC_FL_KEEP_SIZE).contains(flags) {
            return Err(Errno::EOPNOTSUPP);
        }
        let (ino, _) = self.opened(handle)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if !flags.contains(FallocateFlags::FALLOC_FL_PUNCH_HOLE) {
            self.reserve(ino, end)?;
        }
        let (from, length) = (signed(offset)?, signed(len)?);
        self.with_file(ino, |file, undo| {
            let size = file.metadata()?.len();
            if flags.intersects(zeroes) {
                undo.before_write(file, offset, len.min(size.saturating_sub(offset)))?;
            }
            if !flags.contains(FallocateFlags::FALLOC_FL_KEEP_SIZE) && end > size {
                undo.before_resize(file, end)?;
            }
            fallocate(file, flags, from, length).map_err(io::Error::from)
        })
    }

    pub(crate) fn seek(&mut self, handle: u64, offset: i64, whence: Whence) -> Answer<i64> {
        let (_, inode) = self.opened(handle)?;
        lseek(inode.file.as_ref().ok_or(Errno::EISDIR)?, offset, whence)
    }

    pub(crate) fn sync(&mut self, handle: u64) -> Answer<()> {
        let (ino, _) = self.opened(handle)?;
        if self.inode(ino)?.undo.dirty() > 0 && self.faults.drops(&self.names.path(ino)) {
            self.stats.gates += 1;
            self.with_file(ino, |file, undo| undo.drop_pages(file))?;
            return Err(Errno::EIO);
        }
        if self.faults.lie {
            self.stats.lies += 1;
            return Ok(());
        }
        self.stats.fsyncs += 1;
        self.inode_mut(ino)?.undo.settle();
        self.names.commit_journal();
        Ok(())
    }

    pub(crate) fn sync_dir(&mut self, dir: Ino) -> Answer<()> {
        if self.faults.lie {
            self.stats.lies += 1;
            return Ok(());
        }
        self.stats.dir_fsyncs += 1;
        self.names.sync_dir(dir);
        self.names.commit_journal();
        self.sweep()
    }
}

fn signed(number: u64) -> Answer<i64> {
    i64::try_from(number).map_err(|_| Errno::EFBIG)
}
