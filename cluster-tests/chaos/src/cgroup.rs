//! Control groups (version 1): what a node may use of processor, memory and disk, and which can be taken from it while it
//! runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::leftovers::PREFIX;
use crate::poll::poll;

/// Where the controllers are.
const ROOT: &str = "/sys/fs/cgroup";
/// Those that drills use.
const CONTROLLERS: [&str; 4] = ["blkio", "cpu", "freezer", "memory"];
/// A group can be removed once its last process is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A group of one controller. Removed when dropped, its processes with it put back where they came from.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// A new group of `controller` for this run; its `name` is unique in it.
    ///
    /// # Errors
    /// Where there is no such controller.
    pub fn make(controller: &str, run: &str, name: &str) -> anyhow::Result<Self> {
        ensure!(CONTROLLERS.contains(&controller), "expected one of {CONTROLLERS:?}, but got {controller}");
        let parent = Path::new(ROOT).join(controller);
        ensure!(
            parent.join("cgroup.procs").is_file(),
            "expected the controller {controller} of control groups version 1 at {}, but it is not there",
            parent.display()
        );
        let dir = parent.join(format!("{PREFIX}{run}-{name}"));
        fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Puts a running process and all its threads into it.
    ///
    /// # Errors
    /// Where the process is gone.
    pub fn hold(&self, pid: u32) -> anyhow::Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Sets a value.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let path = self.dir.join(key);
        fs::write(&path, value).with_context(|| format!("write {value:?} to {}", path.display()))
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Where it is not there.
    pub fn read(&self, key: &str) -> anyhow::Result<String> {
        let path = self.dir.join(key);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// Reads a number: the whole value, or the one behind `name` in a value of several lines.
    ///
    /// # Errors
    /// Where there is none.
    pub fn number(&self, key: &str, name: Option<&str>) -> anyhow::Result<u64> {
        let text = self.read(key)?;
        let found = match name {
            None => Some(text.trim()),
            Some(name) => text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')),
        };
        let found = found.with_context(|| format!("expected {name:?} in {key}, but it says {text:?}"))?;
        found.trim().parse().with_context(|| format!("read {key}: {found:?}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            eprintln!("chaos: {error:#}");
        }
    }
}

/// Removes a group; its processes go back to the one above.
fn remove(dir: &Path) -> anyhow::Result<()> {
    let parent = dir.parent().context("expected a group above")?;
    poll(PATIENCE, || {
        for pid in fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default().lines() {
            // One that is gone meanwhile is what is wanted.
            let _ = fs::write(parent.join("cgroup.procs"), pid);
        }
        Ok((fs::remove_dir(dir).is_ok() || !dir.exists()).then_some(()))
    })
    .with_context(|| format!("remove the control group {}", dir.display()))
}

/// Removes all groups of a run.
///
/// # Errors
/// Where one can't be removed.
pub fn remove_all(run: &str) -> anyhow::Result<()> {
    for controller in CONTROLLERS {
        let Ok(entries) = fs::read_dir(Path::new(ROOT).join(controller)) else { continue };
        for entry in entries {
            let entry = entry?;
            let own = format!("{PREFIX}{run}-");
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&own)) {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
}
