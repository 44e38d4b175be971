//! A `rail serve` process with a directory of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::Signal;

use crate::faults;
use crate::poll::poll;

/// How long anything may take before a test gives up on it.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The program under test: `TICKETRAIL_TEST_RAIL_BIN`, which `cargo xtask test` sets.
pub fn rail() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("TICKETRAIL_TEST_RAIL_BIN").map(PathBuf::from);
    path.context("expected the path of a built `rail` in TICKETRAIL_TEST_RAIL_BIN; run `cargo xtask test`")
}

/// Why a server did not come up, or ended.
#[derive(Debug)]
pub struct Refusal {
    /// How it ended.
    pub status: ExitStatus,
    /// What it logged in this life.
    pub log: String,
}

impl Refusal {
    /// Its exit code says that it failed, and its message has all of `says`.
    pub fn check(&self, says: &[&str]) -> anyhow::Result<()> {
        let code = self.status.code();
        ensure!(code.is_some_and(|code| code != 0), "expected an exit code, but {}:\n{}", self.status, self.log);
        let last = self.log.lines().last().unwrap_or_default();
        println!("refused with exit code {}: {last}", code.unwrap_or_default());
        for part in says {
            ensure!(self.log.contains(part), "expected a message with {part:?}, but it logged:\n{}", self.log);
        }
        Ok(())
    }
}

/// A server, running or not. Killed when dropped.
pub struct Server {
    dir: PathBuf,
    address: String,
    args: Vec<String>,
    /// The program and its arguments that the server is started through; empty: none.
    through: Vec<String>,
    child: Option<Child>,
    /// Where the log of this life begins.
    life: u64,
}

impl Server {
    /// Starts a server in `dir`, which keeps its data in `dir/data` and its log in `dir/server.log`. It gets a free
    /// port and keeps it over restarts.
    pub fn start(dir: &Path, extra: &[&str]) -> anyhow::Result<Self> {
        // Several servers run on this machine.
        let args = ["--http-listen", "none"].iter().chain(extra).map(|arg| (*arg).to_owned()).collect();
        let mut server = Self::new(dir, "127.0.0.1:0", args);
        server.restart()?;
        Ok(server)
    }

    /// One that does not run yet: it will listen on `address` and take `args` beside those for its directory.
    pub fn new(dir: &Path, address: &str, args: Vec<String>) -> Self {
        Self { dir: dir.to_owned(), address: address.to_owned(), args, through: Vec::new(), child: None, life: 0 }
    }

    /// Its address, as clients want it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where its data is.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    /// What it has logged since it was started last.
    pub fn log_of_this_life(&self) -> String {
        self.log().split_off(usize::try_from(self.life).unwrap_or(0))
    }

    /// Gives it other arguments and another address from its next start on.
    pub fn move_to(&mut self, address: &str, args: Vec<String>) {
        self.address = address.to_owned();
        self.args = args;
    }

    /// Has it started through another program, which must become it (as `nsenter` does), from its next start on.
    pub fn through(&mut self, program: Vec<String>) {
        self.through = program;
    }

    /// Whether its process runs, as far as this test has started and not ended it.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// The running process.
    pub fn child(&mut self) -> anyhow::Result<&mut Child> {
        self.child.as_mut().context("expected a running server, but it is stopped")
    }

    /// Starts its process, and waits for nothing.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let ready = self.dir.join("ready");
        let _ = fs::remove_file(&ready);
        let path = self.dir.join("server.log");
        let log = File::options().create(true).append(true).open(&path)?;
        self.life = log.metadata()?.len();
        let rail = rail()?;
        let mut command = match self.through.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(&rail);
                command
            }
            None => Command::new(&rail),
        };
        let child = command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--listen", &self.address])
            .arg("--ready-file")
            .arg(&ready)
            .args(&self.args)
            .env_remove("TICKETRAIL_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("start rail serve")?;
        self.child = Some(child);
        Ok(())
    }

    /// Whether it serves. Errors where it has ended.
    pub fn is_ready(&mut self) -> anyhow::Result<bool> {
        if let Some(status) = self.child()?.try_wait()? {
            bail!("expected a server, but it ended with {status}:\n{}", self.log_of_this_life());
        }
        let address = fs::read_to_string(self.dir.join("ready")).unwrap_or_default().trim().to_owned();
        if !address.is_empty() {
            self.address = address;
            return Ok(true);
        }
        Ok(false)
    }

    /// Waits until it serves.
    pub fn until_ready(&mut self) -> anyhow::Result<()> {
        poll(DEADLINE, || Ok(self.is_ready()?.then_some(())))
            .with_context(|| format!("wait until the server is ready; it logged:\n{}", self.log_of_this_life()))
    }

    /// Starts it again, and waits until it serves; returns how long that took.
    pub fn restart(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.spawn()?;
        self.until_ready()?;
        Ok(begun.elapsed())
    }

    /// Kills it with -9.
    pub fn kill_9(&mut self) -> anyhow::Result<()> {
        faults::kill_9(self.child()?)?;
        self.child = None;
        Ok(())
    }

    /// Stops it with SIGTERM, and waits until it is gone.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        faults::signal(self.child()?, Signal::SIGTERM)?;
        self.wait()
    }

    /// How it ended, if it has ended by itself: then it is stopped from now on.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let status = self.child()?.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    /// Waits until it is gone by itself.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = poll(DEADLINE, || Ok(self.child()?.try_wait()?)).context("wait until the server is gone")?;
        self.child = None;
        Ok(status)
    }

    /// Starts it, and waits until it has given up.
    pub fn refused(&mut self) -> anyhow::Result<Refusal> {
        self.spawn()?;
        let status = self
            .wait()
            .with_context(|| format!("expected it to be refused, but it logged:\n{}", self.log_of_this_life()))?;
        ensure!(!status.success(), "expected a failure, but it ended well:\n{}", self.log_of_this_life());
        Ok(Refusal { status, log: self.log_of_this_life() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
