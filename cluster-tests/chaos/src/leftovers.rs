//! What a run owns on this machine beside its processes and namespaces, which the kernel takes down with their first
//! process: a directory and control groups. Whoever is killed leaves them; the next run removes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup;
use crate::poll::poll;

/// What all names begin with.
pub const PREFIX: &str = "ticketrail-chaos-";
/// The file in a run's directory that says whose it is.
const OWNER: &str = "owner";
/// The last processes of a run may still be on their way out.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a run owns. Removed when dropped.
#[derive(Debug)]
pub struct Run {
    id: String,
    dir: PathBuf,
}

impl Run {
    /// A new run below `parent`.
    ///
    /// # Errors
    /// Where its directory can't be made.
    pub fn begin(parent: &Path) -> anyhow::Result<Self> {
        let id = format!("{:06x}", fastrand::u32(..1 << 24));
        let dir = parent.join(format!("{PREFIX}{id}"));
        fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        let pid = std::process::id();
        let born = born(pid).context("expected to find this process in /proc")?;
        // It gets its name once it says whose it is: another run could take it for a leftover.
        let nameless = parent.join(format!("chaos-making-{id}"));
        fs::create_dir(&nameless).with_context(|| format!("make {}", nameless.display()))?;
        fs::write(nameless.join(OWNER), format!("{pid} {born}"))?;
        fs::rename(&nameless, &dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(Self { id, dir })
    }

    /// The part of its names that no other run has.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes all of it, once the last of its processes are gone.
    fn remove(&self) -> anyhow::Result<()> {
        cgroup::remove_all(&self.id)?;
        remove_dir(&self.dir)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("chaos: expected to remove {}, but {error:#}", self.dir.display());
        }
    }
}

/// Removes a directory that processes on their way out may still write to.
pub fn remove_dir(dir: &Path) -> anyhow::Result<()> {
    let mut last = String::new();
    poll(PATIENCE, || match fs::remove_dir_all(dir) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Some(())),
        Err(error) => {
            last = error.to_string();
            Ok(None)
        }
    })
    .with_context(|| format!("remove {}: {last}", dir.display()))
}

/// Removes what runs below `parent` left whose process is gone; returns their ids.
///
/// # Errors
/// Where something can't be removed.
pub fn sweep(parent: &Path) -> anyhow::Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(parent) else { return Ok(Vec::new()) };
    let mut swept = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if !is_owned(&entry.path()) {
            cgroup::remove_all(id)?;
            remove_dir(&entry.path())?;
            swept.push(id.to_owned());
        }
    }
    Ok(swept)
}

/// Whether the process lives that made a directory.
fn is_owned(dir: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(dir.join(OWNER)) else { return false };
    let Some((pid, since)) = owner.trim().split_once(' ') else { return false };
    pid.parse().ok().and_then(born).is_some_and(|born| born == since)
}

/// When a process was started, in the kernel's own words: an id that is used again has another one.
fn born(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a bracket too: what follows its last one is counted from the third field.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_run_left_is_removed_and_a_living_one_is_not_touched() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = Run::begin(parent.path()).expect("a run");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let pid = child.id();
        child.wait().expect("its end");
        let dead = parent.path().join(format!("{PREFIX}dead00"));
        fs::create_dir_all(dead.join("a/data")).expect("a directory");
        fs::write(dead.join(OWNER), format!("{pid} 12345")).expect("an owner");
        fs::create_dir(parent.path().join("another")).expect("a directory");
        // Of a process that has this id, but began at another time.
        let again = parent.path().join(format!("{PREFIX}again0"));
        fs::create_dir(&again).expect("a directory");
        fs::write(again.join(OWNER), format!("{} 1", std::process::id())).expect("an owner");
        let mut swept = sweep(parent.path()).expect("a sweep");
        swept.sort();
        assert_eq!(swept, ["again0", "dead00"]);
        assert!(living.dir().is_dir() && !dead.exists() && parent.path().join("another").is_dir());
        let dir = living.dir().to_owned();
        drop(living);
        assert!(!dir.exists());
    }
}
