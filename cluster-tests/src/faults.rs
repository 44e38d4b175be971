//! What goes wrong on purpose, and what it costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// Sends `signal` to a process that this test started.
pub fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    kill(pid, signal).with_context(|| format!("send {signal} to process {pid}"))
}

/// Kills a process that this test started, as a power cut of its machine would, and waits until it is gone.
pub fn kill_9(child: &mut Child) -> anyhow::Result<()> {
    signal(child, Signal::SIGKILL)?;
    let status = child.wait().context("wait for the killed process")?;
    use std::os::unix::process::ExitStatusExt;
    ensure!(status.signal() == Some(9), "expected a process killed by signal 9, but it ended with {status}");
    Ok(())
}

/// What a process holds itself in memory, files not counted, in MiB.
pub fn anonymous_mib(child: &Child) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("expected RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}

/// Copies a directory with all that is in it, as it is at this moment: what a copy of a disk would be.
pub fn copy_dir(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Whether this test runs as root. Says so where it does not: under `CI=true` a skipped test is a failure.
pub fn needs_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// A small disk of its own, in memory; unmounted when dropped.
pub struct SmallDisk {
    dir: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of `mebibytes` on `dir`, an empty directory. Needs root.
    pub fn mount(dir: &Path, mebibytes: u32) -> anyhow::Result<Self> {
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]).arg(dir))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Fills the disk until `left` bytes are free; returns the file that does it. Removing it makes room again.
    pub fn fill(&self, left: u64) -> anyhow::Result<PathBuf> {
        let stat = nix::sys::statvfs::statvfs(&self.dir)?;
        let free = stat.blocks_available() * stat.fragment_size();
        let filler = self.dir.join("filler");
        run(Command::new("fallocate").arg("-l").arg(free.saturating_sub(left).to_string()).arg(&filler))?;
        Ok(filler)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have a process in it.
        if let Err(e) = run(Command::new("umount").arg("-l").arg(&self.dir)) {
            eprintln!("{e:#}");
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
