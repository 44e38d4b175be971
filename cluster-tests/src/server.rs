//! A `rail serve` process with a directory of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
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

/// A server, running or not. Killed when dropped.
pub struct Server {
    dir: PathBuf,
    address: String,
    extra: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server in `dir`, which keeps its data in `dir/data` and its log in `dir/server.log`. It gets a free
    /// port and keeps it over restarts.
    pub fn start(dir: &Path, extra: &[&str]) -> anyhow::Result<Self> {
        let extra = extra.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { dir: dir.to_owned(), address: "127.0.0.1:0".to_owned(), extra, child: None };
        server.restart()?;
        Ok(server)
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

    /// The running process.
    pub fn child(&mut self) -> anyhow::Result<&mut Child> {
        self.child.as_mut().context("expected a running server, but it is stopped")
    }

    /// Starts it again, and waits until it serves; returns how long that took.
    pub fn restart(&mut self) -> anyhow::Result<Duration> {
        let ready = self.dir.join("ready");
        let _ = fs::remove_file(&ready);
        let begun = Instant::now();
        let log = File::options().create(true).append(true).open(self.dir.join("server.log"))?;
        let child = Command::new(rail()?)
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--listen", &self.address])
            // Several servers run on this machine.
            .args(["--http-listen", "none"])
            .arg("--ready-file")
            .arg(&ready)
            .args(&self.extra)
            .env_remove("TICKETRAIL_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .context("start rail serve")?;
        self.child = Some(child);
        let address = poll(DEADLINE, || {
            if let Some(status) = self.child()?.try_wait()? {
                bail!("expected a server, but it ended with {status}:\n{}", self.log());
            }
            Ok(fs::read_to_string(&ready).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
        })
        .with_context(|| format!("wait until the server is ready; it logged:\n{}", self.log()))?;
        self.address = address;
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

    /// Waits until it is gone by itself.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = poll(DEADLINE, || Ok(self.child()?.try_wait()?)).context("wait until the server is gone")?;
        self.child = None;
        Ok(status)
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
