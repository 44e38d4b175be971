//! The program: mounts, takes commands, and leaves no mount behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use ticketrail_disk::{Control, Crash};

use crate::rig::can_mount;

struct Program {
    child: Child,
    home: TempDir,
}

fn lossy_disk() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lossy-disk"))
}

fn is_mounted(dir: &Path) -> anyhow::Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    Ok(mounts.contains(dir.to_str().context("a path")?))
}

impl Program {
    fn start() -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        fs::create_dir(home.path().join("disk"))?;
        let mut child = lossy_disk()
            .arg("mount")
            .arg("--backing")
            .arg(home.path().join("backing"))
            .arg("--socket")
            .arg(home.path().join("socket"))
            .arg(home.path().join("disk"))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("expected its output")?).read_line(&mut line)?;
        let program = Self { child, home };
        ensure!(line.starts_with("mounted on "), "expected it to be mounted, but it said {line:?}");
        Ok(program)
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("disk")
    }

    fn send(&self, command: &str) -> anyhow::Result<Output> {
        let socket = self.home.path().join("socket");
        Ok(lossy_disk().arg("send").arg("--socket").arg(socket).args(command.split(' ')).output()?)
    }

    fn end(&mut self, signal: Signal) -> anyhow::Result<bool> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = ticketrail_disk::mount::detach(&self.dir());
    }
}

#[test]
fn it_obeys_and_unmounts_at_signals() -> anyhow::Result<()> {
    if !can_mount() {
        return Ok(());
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut program = Program::start()?;
        let file = program.dir().join("a");
        fs::write(&file, b"not fsynced")?;
        let stats = program.send("stats")?;
        let told = String::from_utf8_lossy(&stats.stdout).into_owned();
        ensure!(told.contains("dirty_bytes=11 dirty_names=1"), "{told}");
        ensure!(program.send("crash")?.status.success(), "expected it to obey");
        assert_eq!(fs::read(&file)?, b"");
        let refused = program.send("crush")?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && said.contains("the commands are:"), "{said}");
        let control = Control::new(&program.home.path().join("socket"));
        let stats = control.crash(Crash::NoDir)?;
        ensure!((stats.crashes, control.stats()?.files_cut) == (2, 1), "{stats}");
        ensure!(program.end(signal)?, "expected it to end well at {signal}");
        ensure!(!is_mounted(&program.dir())?, "expected no mount after {signal}");
        ensure!(!program.home.path().join("socket").exists(), "expected no socket after {signal}");
    }
    Ok(())
}

#[test]
fn it_ends_when_somebody_unmounts_it_and_what_a_kill_leaves_can_be_unmounted() -> anyhow::Result<()> {
    if !can_mount() {
        return Ok(());
    }
    let mut program = Program::start()?;
    let unmounted = lossy_disk().arg("unmount").arg(program.dir()).status()?;
    ensure!(unmounted.success() && program.child.wait()?.success(), "expected it to end");
    let again = lossy_disk().arg("unmount").arg(program.dir()).output()?;
    ensure!(!again.status.success(), "expected nothing to be mounted");

    let mut program = Program::start()?;
    program.end(Signal::SIGKILL)?;
    ensure!(is_mounted(&program.dir())?, "expected a stale mount");
    ensure!(fs::read_dir(program.dir()).is_err(), "expected it to be dead");
    ensure!(lossy_disk().arg("unmount").arg(program.dir()).status()?.success(), "expected it to be unmounted");
    ensure!(!is_mounted(&program.dir())?, "expected no mount");
    Ok(())
}
