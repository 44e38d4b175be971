//! A disk that is mounted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::command::{Command, Crash};
use crate::disk::Disk;
use crate::fs::Fs;
use crate::names::ROOT;
use crate::objects::{Objects, Owner};
use crate::rest;
use crate::shared::Shared;
use crate::stats::Stats;

/// Requests that are worked on at one time: so many may wait in a delay.
const THREADS: usize = 8;

/// A disk that forgets what was not fsynced, mounted. Unmounted when dropped, even if processes are still in it.
#[derive(Debug)]
pub struct LossyDisk {
    dir: PathBuf,
    backing: PathBuf,
    pub(crate) shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

impl LossyDisk {
    /// Mounts a disk on the directory `dir`, which must be there. Its bytes are kept below `backing`, an empty
    /// directory or one that a disk has left behind that was unmounted. Needs root and /dev/fuse.
    pub fn mount(backing: &Path, dir: &Path) -> anyhow::Result<Self> {
        let at = rest::objects(backing);
        ensure!(
            !at.exists(),
            "expected an empty directory or one of a disk that was unmounted, but {} is of one that was killed, and \
             nothing tells its names; empty it",
            backing.display()
        );
        fs::create_dir_all(&at).with_context(|| format!("create {}", at.display()))?;
        let objects = Objects::new(&at);
        objects.create_dir(ROOT, Owner { mode: 0o755, uid: 0, gid: 0 })?;
        let mut disk = Disk::new(objects);
        rest::import(backing, &mut disk).with_context(|| format!("read what is in {}", backing.display()))?;
        let shared = Arc::new(Shared::new(disk));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("lossy-disk".into()),
            MountOption::Subtype("lossy".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let dir = dir.canonicalize().with_context(|| format!("find {}", dir.display()))?;
        let session = fuser::spawn_mount(Fs::new(Arc::clone(&shared)), &dir, &config)
            .with_context(|| format!("mount on {}: it needs root and /dev/fuse", dir.display()))?;
        shared.mounted(session.notifier());
        Ok(Self { dir, backing: backing.to_owned(), shared, session: Some(session) })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Does what a command says; returns what there is to tell. Errors tell what the backing directory said.
    pub fn run(&self, command: &Command) -> anyhow::Result<String> {
        self.shared.run(command).with_context(|| format!("do {command}"))
    }

    /// The power goes at this moment; [`LossyDisk::crash`] says what is left.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.run(&Command::Cut).map(drop)
    }

    /// Loses the power. The processes that were on the disk must be dead.
    pub fn crash(&self, crash: Crash) -> anyhow::Result<()> {
        self.run(&Command::Crash(crash)).map(drop)
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        self.shared.disk().stats()
    }

    /// The end of the mount, to be waited for.
    pub fn end(&self) -> End {
        End(Arc::clone(&self.shared))
    }

    /// Unmounts it; its files are then in the backing directory, below `tree`. Fails while a process is in it: it is
    /// unmounted then all the same, as soon as the process has ended, but leaves nothing behind.
    pub fn unmount(mut self) -> anyhow::Result<()> {
        let session = self.session.take().context("expected a mounted disk")?;
        match umount2(&self.dir, MntFlags::empty()) {
            // It is not mounted: somebody else has unmounted it.
            Ok(()) | Err(Errno::EINVAL) => session.join().context("end the file system")?,
            Err(errno) => {
                detach(&self.dir)?;
                return Err(errno).with_context(|| format!("expected no process in {}", self.dir.display()));
            }
        }
        let mut disk = self.shared.disk();
        disk.settle()?;
        rest::export(&self.backing, &disk).with_context(|| format!("leave the files in {}", self.backing.display()))
    }
}

impl Drop for LossyDisk {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let Err(error) = detach(&self.dir) {
            eprintln!("{error:#}");
        }
        // Its thread ends when the last process has left.
        drop(session);
    }
}

/// The end of a mount.
#[derive(Debug)]
pub struct End(Arc<Shared>);

impl End {
    /// Blocks until the disk is unmounted, by whomever.
    pub fn wait(&self) {
        self.0.until_ended();
    }
}

/// Unmounts what is mounted on `dir`, even if processes are in it, and even if the disk's own process is gone.
pub fn detach(dir: &Path) -> anyhow::Result<()> {
    umount2(dir, MntFlags::MNT_DETACH).with_context(|| format!("unmount {}", dir.display()))
}
