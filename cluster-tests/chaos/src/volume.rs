//! A node's disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::sys::statvfs::statvfs;
use ticketrail_disk::LossyDisk;

use crate::program::run;

/// What kind of disk a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// A directory on the disk of this machine.
    Plain,
    /// A disk in memory of so many MiB.
    Memory(u32),
    /// A file system of its own (ext4) of so many MiB, in a file on the disk of this machine.
    Own(u32),
    /// One that forgets what was not synced when its power is lost.
    Lossy,
}

/// A disk, mounted where the node has its data. The kernel unmounts it with the last process of the drill.
pub struct Volume {
    dir: PathBuf,
    disk: Disk,
    lossy: Option<LossyDisk>,
}

impl Volume {
    /// Makes a disk and mounts it on `dir`, which is made.
    ///
    /// # Errors
    /// Where it can't be mounted.
    pub fn make(dir: &Path, disk: Disk) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let place = dir.to_str().context("expected a path that is text")?;
        let mut lossy = None;
        match disk {
            Disk::Plain => {}
            Disk::Lossy => {
                let backing = PathBuf::from(format!("{place}.backing"));
                fs::create_dir_all(&backing)?;
                lossy = Some(LossyDisk::mount(&backing, dir)?);
            }
            Disk::Memory(mib) => {
                run(&["mount", "-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", place])?;
            }
            Disk::Own(mib) => {
                let image = format!("{place}.img");
                run(&["fallocate", "-l", &format!("{mib}MiB"), &image])?;
                run(&["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", &image])?;
                run(&["mount", "-o", "loop", &image, place])?;
                // A node takes only what is its own for data.
                let _ = fs::remove_dir(dir.join("lost+found"));
            }
        }
        Ok(Self { dir: dir.to_owned(), disk, lossy })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What kind of disk it is.
    pub fn disk(&self) -> Disk {
        self.disk
    }

    /// The disk that forgets, to take its power.
    ///
    /// # Errors
    /// Where it is another kind of disk.
    pub fn lossy(&self) -> anyhow::Result<&LossyDisk> {
        self.lossy.as_ref().context("expected a disk that forgets what was not synced")
    }

    /// How many bytes are free.
    ///
    /// # Errors
    /// Where the disk does not answer.
    pub fn free(&self) -> anyhow::Result<u64> {
        let stat = statvfs(&self.dir).with_context(|| format!("ask {} how much is free", self.dir.display()))?;
        Ok(stat.blocks_available() * stat.fragment_size())
    }

    /// Fills it until `left` bytes are free. What was filled before is given back first.
    ///
    /// # Errors
    /// Where it can't be filled.
    pub fn fill(&self, left: u64) -> anyhow::Result<()> {
        self.clear()?;
        let size = self.free()?.saturating_sub(left);
        let filler = self.filler();
        run(&["fallocate", "-l", &size.to_string(), filler.to_str().context("expected a path that is text")?])?;
        Ok(())
    }

    /// Gives the space back that [`fill`](Self::fill) took.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn clear(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.filler()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("make room again"),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Stops it: whoever writes to it waits, even if killed, until it is let go on.
    ///
    /// # Errors
    /// Where it can't be stopped.
    pub fn freeze(&self) -> anyhow::Result<Frozen> {
        let note = self.dir.with_extension(FROZEN);
        // First, so that whoever comes after this process knows of it.
        fs::write(&note, self.dir.to_str().context("expected a path that is text")?)?;
        run(&["fsfreeze", "--freeze", self.dir.to_str().context("expected a path that is text")?])?;
        Ok(Frozen { dir: self.dir.clone(), note, thawed: false })
    }

    /// The number of its block device, as `major:minor`.
    ///
    /// # Errors
    /// Where the disk does not answer.
    pub fn device(&self) -> anyhow::Result<String> {
        use std::os::unix::fs::MetadataExt as _;
        let device = fs::metadata(&self.dir)?.dev();
        Ok(format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device)))
    }

    fn filler(&self) -> PathBuf {
        self.dir.join("filler")
    }
}

/// The end of the name of the note that a disk is stopped, beside where it is mounted.
const FROZEN: &str = "frozen";

/// A stopped disk. It goes on when this is dropped.
#[derive(Debug)]
pub struct Frozen {
    dir: PathBuf,
    note: PathBuf,
    thawed: bool,
}

impl Frozen {
    /// Lets it go on.
    ///
    /// # Errors
    /// Where it can't be let go on.
    pub fn thaw(mut self) -> anyhow::Result<()> {
        self.thawed = true;
        thaw(&self.dir, &self.note)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if !self.thawed
            && let Err(error) = thaw(&self.dir, &self.note)
        {
            eprintln!("chaos: {error:#}");
        }
    }
}

fn thaw(dir: &Path, note: &Path) -> anyhow::Result<()> {
    run(&["fsfreeze", "--unfreeze", dir.to_str().context("expected a path that is text")?])?;
    fs::remove_file(note).context("remove the note that a disk is stopped")
}

/// The disks that are stopped in the home of a drill.
pub fn frozen(home: &Path) -> Vec<PathBuf> {
    let Ok(nodes) = fs::read_dir(home) else { return Vec::new() };
    let notes = nodes.flatten().map(|node| node.path().join("data").with_extension(FROZEN));
    notes.filter(|note| note.is_file()).map(|note| note.with_extension("")).collect()
}

/// Lets all stopped disks of a drill go on; for the end of a process, so what fails is left.
pub fn thaw_all(home: &Path) {
    for dir in frozen(home) {
        let _ = thaw(&dir, &dir.with_extension(FROZEN));
    }
}
