//! What the kernel asks, as operations on the disk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::Whence;

use crate::Ino;
use crate::command::Op;
use crate::disk::{Answer, At, Attributes, Disk, Kind, errno};
use crate::objects::Owner;
use crate::shared::Shared;

/// The kernel asks each time: what it knows may be wrong after a crash.
const TTL: Duration = Duration::ZERO;
const ONCE: Generation = Generation(0);

/// The file system.
pub(crate) struct Fs {
    shared: Arc<Shared>,
}

impl Fs {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Does `act` after the delay, and unless the error, that are set for `op`.
    fn act<T>(&self, op: Op, at: At<'_>, act: impl FnOnce(&mut Disk) -> Answer<T>) -> Answer<T> {
        let mut disk = self.shared.enter(op);
        disk.check(op, at)?;
        act(&mut disk)
    }

    fn new_entry(
        &self,
        dir: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
        make: impl FnOnce(&mut Disk, Ino) -> Answer<Ino>,
    ) {
        let made = self.act(Op::Create, At::Name(dir.0, name), |disk| {
            let ino = make(disk, dir.0)?;
            disk.attributes(ino)
        });
        answer_entry(reply, made);
    }
}

fn owner(request: &Request, mode: u32) -> Owner {
    Owner { mode, uid: request.uid(), gid: request.gid() }
}

fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

fn answer(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

fn answer_entry(reply: ReplyEntry, answer: Answer<Attributes>) {
    match answer {
        Ok(attributes) => reply.entry(&TTL, &attr(&attributes), ONCE),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Link => FileType::Symlink,
    }
}

fn attr(attributes: &Attributes) -> FileAttr {
    let meta = &attributes.meta;
    let ctime = UNIX_EPOCH + Duration::new(meta.ctime().unsigned_abs(), u32::try_from(meta.ctime_nsec()).unwrap_or(0));
    FileAttr {
        ino: INodeNo(attributes.ino),
        size: meta.len(),
        blocks: meta.blocks(),
        atime: meta.accessed().unwrap_or(UNIX_EPOCH),
        mtime: meta.modified().unwrap_or(UNIX_EPOCH),
        ctime,
        crtime: ctime,
        kind: file_type(attributes.kind),
        perm: (meta.permissions().mode() & 0o7777) as u16,
        nlink: attributes.links,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn time_spec(time: Option<TimeOrNow>) -> TimeSpec {
    match time {
        None => TimeSpec::UTIME_OMIT,
        Some(TimeOrNow::Now) => TimeSpec::UTIME_NOW,
        Some(TimeOrNow::SpecificTime(time)) => TimeSpec::from(time.duration_since(UNIX_EPOCH).unwrap_or_default()),
    }
}

impl Filesystem for Fs {
    fn destroy(&mut self) {
        self.shared.end();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let disk = self.shared.disk();
        answer_entry(reply, disk.look_up(parent.0, name).and_then(|ino| disk.attributes(ino)));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.shared.disk().attributes(ino.0) {
            Ok(attributes) => reply.attr(&TTL, &attr(&attributes)),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = |disk: &mut Disk| {
            disk.kind(ino.0)?;
            if let Some(size) = size {
                disk.resize(ino.0, size)?;
            }
            let path = disk.objects().path(ino.0);
            if let Some(mode) = mode {
                disk.objects().set_mode(ino.0, mode).map_err(errno)?;
            }
            if uid.is_some() || gid.is_some() {
                lchown(&path, uid, gid).map_err(errno)?;
            }
            if atime.is_some() || mtime.is_some() {
                let (atime, mtime) = (time_spec(atime), time_spec(mtime));
                utimensat(AT_FDCWD, &path, &atime, &mtime, UtimensatFlags::NoFollowSymlink)?;
            }
            disk.attributes(ino.0)
        };
        let changed = match size {
            Some(_) => self.act(Op::Resize, At::Ino(ino.0), change),
            None => change(&mut self.shared.disk()),
        };
        match changed {
            Ok(attributes) => reply.attr(&TTL, &attr(&attributes)),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let path = self.shared.disk().objects().path(ino.0);
        match std::fs::read_link(path) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(fuse_errno(errno(error))),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        const TYPE: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        if mode & TYPE != REGULAR && mode & TYPE != 0 {
            return reply.error(fuser::Errno::EPERM);
        }
        self.new_entry(parent, name, reply, |disk, dir| disk.create(dir, name, owner(req, mode)));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.new_entry(parent, name, reply, |disk, dir| disk.make_dir(dir, name, owner(req, mode)));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.new_entry(parent, name, reply, |disk, dir| disk.make_symlink(dir, name, target, owner(req, 0o777)));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.act(Op::Unlink, At::Name(parent.0, name), |disk| disk.unlink(parent.0, name)));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.act(Op::Unlink, At::Name(parent.0, name), |disk| disk.remove_dir(parent.0, name)));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(fuser::Errno::EINVAL);
        }
        let replace = flags.is_empty();
        let renamed = self.act(Op::Rename, At::Name(parent.0, name), |disk| {
            disk.rename((parent.0, name), (newparent.0, newname), replace)
        });
        answer(reply, renamed);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.act(Op::Link, At::Name(newparent.0, newname), |disk| {
            disk.link(ino.0, newparent.0, newname)?;
            disk.attributes(ino.0)
        });
        answer_entry(reply, linked);
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.act(Op::Open, At::Ino(ino.0), |disk| disk.open(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.act(Op::Create, At::Name(parent.0, name), |disk| {
            let ino = disk.create(parent.0, name, owner(req, mode))?;
            Ok((disk.open(ino)?, disk.attributes(ino)?))
        });
        match created {
            Ok((handle, attributes)) => {
                reply.created(&TTL, &attr(&attributes), ONCE, FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.act(Op::Read, At::Ino(ino.0), |disk| disk.read(fh.0, offset, size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.act(Op::Write, At::Ino(ino.0), |disk| {
            disk.write(fh.0, offset, data)?;
            // O_SYNC contains O_DSYNC.
            if flags.0 & OFlag::O_DSYNC.bits() != 0 {
                disk.sync(fh.0)?;
            }
            Ok(())
        });
        match written {
            // The kernel sends no more than a u32 can count.
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.shared.disk().close(fh.0));
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.act(Op::Fsync, At::Ino(ino.0), |disk| disk.sync(fh.0)));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.act(Op::List, At::Ino(ino.0), |disk| disk.open(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut disk = self.shared.disk();
        let listing = match disk.listing(fh.0) {
            Ok(listing) => listing,
            Err(errno) => return reply.error(fuse_errno(errno)),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, listed) in listing.iter().enumerate().skip(from) {
            if reply.add(INodeNo(listed.ino), at as u64 + 1, file_type(listed.kind), &listed.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        answer(reply, self.shared.disk().close(fh.0));
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let synced = self.act(Op::Fsync, At::Ino(ino.0), |disk| {
            disk.listing(fh.0)?;
            disk.sync_dir(ino.0)
        });
        answer(reply, synced);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let disk = self.shared.disk();
        let stat = match nix::sys::statvfs::statvfs(&disk.objects().path(crate::names::ROOT)) {
            Ok(stat) => stat,
            Err(errno) => return reply.error(fuse_errno(errno)),
        };
        let unit = stat.fragment_size().max(1);
        let (mut blocks, mut free) = (stat.blocks(), stat.blocks_available());
        if let (used, Some(room)) = disk.room() {
            blocks = room / unit;
            free = free.min(room.saturating_sub(used) / unit);
        }
        let unit = u32::try_from(unit).unwrap_or(4096);
        reply.statfs(blocks, free, free, stat.files(), stat.files_free(), unit, 255, unit);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.act(Op::Resize, At::Ino(ino.0), |disk| disk.allocate(fh.0, offset, length, mode)));
    }

    fn lseek(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let whence = match whence {
            w if w == Whence::SeekData as i32 => Whence::SeekData,
            w if w == Whence::SeekHole as i32 => Whence::SeekHole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        match self.shared.disk().seek(fh.0, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }
}
