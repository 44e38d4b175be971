//! Processes that this one starts, and ends by their process ids: `rail serve`, producers, workers.
//!
//! Each is in a process group of its own, so that Ctrl-C reaches this process alone, and each ends by itself when its
//! stdin is closed: should this process be killed, none is left behind.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a server may take until it serves: RocksDB replays its log first.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often a ready file is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long an orderly stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// This program as a child, with a subcommand and arguments; what it says goes to `log`.
pub(crate) fn rail<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, log: File) -> anyhow::Result<Process> {
    let program = std::env::current_exe().context("finding this program's file")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("starting this program as a child")?;
    let pid = child.id().context("a child without a process id")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    Ok(Process { child, pid: Pid::from_raw(i32::try_from(pid)?), stdin, stdout })
}

/// A log file to append to.
pub(crate) fn log(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))
}

/// A child process; dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    /// Closed, the child ends by itself.
    pub(crate) stdin: Option<ChildStdin>,
    /// What it prints.
    pub(crate) stdout: Option<ChildStdout>,
}

impl Process {
    /// Kills it with SIGKILL and waits until it is gone. Whether it was that signal that ended it.
    pub(crate) async fn kill_9(&mut self) -> anyhow::Result<bool> {
        // ESRCH: it has ended already; the status says how.
        let _ = kill(self.pid, Signal::SIGKILL);
        let status = self.child.wait().await?;
        Ok(status.signal() == Some(Signal::SIGKILL as i32))
    }

    /// Asks it to stop, by SIGTERM and the end of its stdin, and waits; past the deadline it is killed.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        drop(self.stdin.take());
        let _ = kill(self.pid, Signal::SIGTERM);
        match tokio::time::timeout(STOP_WITHIN, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => {
                self.kill_9().await?;
                bail!("expected process {} to stop within {STOP_WITHIN:?}, but it had to be killed", self.pid)
            }
        }
    }

    /// Waits until it ends by itself.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

/// One `rail serve` with a directory of its own, which can be ended and started again on the same ports.
#[derive(Debug)]
pub(crate) struct Server {
    dir: PathBuf,
    listen: SocketAddr,
    /// What else it is told.
    flags: Vec<String>,
    process: Process,
}

impl Server {
    /// Starts a server alone in `dir` and waits until it serves.
    pub(crate) async fn start(dir: &Path) -> anyhow::Result<Self> {
        let [listen] = free_ports()?;
        // Several servers run on this machine.
        let mut server = Self::launch(dir, listen, vec!["--http-listen".to_owned(), "none".to_owned()])?;
        server.serves().await?;
        Ok(server)
    }

    /// Starts a server in `dir`, with `flags`, and does not wait for it.
    pub(crate) fn launch(dir: &Path, listen: SocketAddr, flags: Vec<String>) -> anyhow::Result<Self> {
        let process = spawn(dir, listen, &flags)?;
        Ok(Self { dir: dir.to_owned(), listen, flags, process })
    }

    /// Starts it again, after it has ended, and does not wait for it.
    pub(crate) fn relaunch(&mut self) -> anyhow::Result<()> {
        self.process = spawn(&self.dir, self.listen, &self.flags)?;
        Ok(())
    }

    /// Whether it serves.
    pub(crate) fn is_ready(&self) -> bool {
        std::fs::read_to_string(ready_file(&self.dir)).is_ok_and(|text| text.contains(':'))
    }

    /// Waits until it serves.
    pub(crate) async fn serves(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.is_ready() {
            self.check()?;
            if Instant::now() > deadline {
                bail!("expected a server to serve within {READY_WITHIN:?}; see {}", self.log_path().display());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Errors where it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.process.ended()? {
            Some(status) => {
                bail!("expected a server to run, but it ended with {status}; see {}", self.log_path().display())
            }
            None => Ok(()),
        }
    }

    /// Its address for clients.
    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Its log.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Kills it with SIGKILL. Whether it was that signal that ended it.
    pub(crate) async fn kill_9(&mut self) -> anyhow::Result<bool> {
        self.process.kill_9().await
    }

    /// Stops it in order.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.stop().await
    }
}

/// Where a server in `dir` says that it serves.
fn ready_file(dir: &Path) -> PathBuf {
    dir.join("ready")
}

fn spawn(dir: &Path, listen: SocketAddr, flags: &[String]) -> anyhow::Result<Process> {
    let ready = ready_file(dir);
    match std::fs::remove_file(&ready) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let (data, listen) = (dir.join("data"), listen.to_string());
    let args: [&OsStr; 8] = [
        "serve".as_ref(),
        "--stop-with-stdin".as_ref(),
        "--data-dir".as_ref(),
        data.as_ref(),
        "--listen".as_ref(),
        listen.as_ref(),
        "--ready-file".as_ref(),
        ready.as_ref(),
    ];
    rail(args.into_iter().chain(flags.iter().map(OsStr::new)), log(&dir.join("server.log"))?)
}

/// Ports that are free, below those that the system hands out for outgoing connections: a client that reconnects while
/// a server is down could otherwise be given the server's port as its own, and keep it.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000)?;
    // All are held until all are found.
    let held: Vec<TcpListener> = (first..first + 2_000)
        .filter_map(|port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).ok())
        .take(N)
        .collect();
    let ports = held.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    ports.try_into().ok().with_context(|| format!("expected {N} free ports between 20000 and 32000, but found fewer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_can_be_bound_and_are_not_ephemeral() {
        let ports: [SocketAddr; 3] = free_ports().expect("ports");
        let taken: Vec<TcpListener> = ports.iter().map(|port| TcpListener::bind(port).expect("free")).collect();
        assert!(ports.iter().all(|address| (20_000..32_000).contains(&address.port())), "{ports:?}");
        let [other] = free_ports().expect("another");
        assert!(!ports.contains(&other));
        drop(taken);
    }
}
