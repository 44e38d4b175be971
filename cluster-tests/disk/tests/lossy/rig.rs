//! A disk for one test.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ticketrail_disk::{Crash, LossyDisk};

/// A mounted disk, unmounted at the end of the test.
pub(crate) struct Rig {
    disk: LossyDisk,
    _home: TempDir,
}

impl Rig {
    /// `None`, and a word about it, where nothing can be mounted: under `CI=true` a skipped test is a failure.
    pub(crate) fn new() -> anyhow::Result<Option<Self>> {
        if !can_mount() {
            return Ok(None);
        }
        let home = tempfile::tempdir()?;
        let (backing, dir) = (home.path().join("backing"), home.path().join("disk"));
        fs::create_dir(&backing)?;
        fs::create_dir(&dir)?;
        Ok(Some(Self { disk: LossyDisk::mount(&backing, &dir)?, _home: home }))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) fn ask(&self, command: &str) -> anyhow::Result<String> {
        self.run(&command.parse()?)
    }

    /// What a file holds; `None` where there is none.
    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path(name)).ok()
    }

    /// The names in a directory.
    pub(crate) fn list(&self, name: &str) -> anyhow::Result<Vec<String>> {
        list(&self.path(name))
    }

    /// A file written and made durable, with its name.
    pub(crate) fn durable(&self, name: &str, content: &[u8]) -> anyhow::Result<File> {
        let mut file = File::options().read(true).write(true).create_new(true).open(self.path(name))?;
        file.write_all(content)?;
        file.sync_all()?;
        sync(self.path(name).parent().unwrap())?;
        Ok(file)
    }

    pub(crate) fn sync_root(&self) -> anyhow::Result<()> {
        sync(self.dir())
    }
}

impl Deref for Rig {
    type Target = LossyDisk;

    fn deref(&self) -> &LossyDisk {
        &self.disk
    }
}

pub(crate) fn can_mount() -> bool {
    let can = nix::unistd::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root");
    }
    can
}

pub(crate) fn list(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Fsyncs a file or a directory.
pub(crate) fn sync(path: &Path) -> anyhow::Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

/// Each kind of crash, those with seeds `seeds` times.
pub(crate) fn crashes(seeds: u64) -> impl Iterator<Item = Crash> {
    let seeded = (0..seeds).flat_map(|seed| [Crash::Torn { seed }, Crash::Reordered { seed }]);
    [Crash::Plain, Crash::NoDir].into_iter().chain(seeded)
}
