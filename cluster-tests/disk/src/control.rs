//! Commands over a Unix socket: one line is asked, and the answer is `ok`, or `ok ` and what there is to tell, or
//! `error ` and why; one of each a connection.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::command::{Command, Crash};
use crate::mount::LossyDisk;
use crate::shared::Shared;
use crate::stats::Stats;

/// How long one who has connected may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client waits for an answer: a crash of a disk with much on it takes a while.
const ANSWER: Duration = Duration::from_secs(60);
/// No command is longer, in bytes.
const MAX_LINE: u64 = 64 << 10;

/// Takes commands for a disk, until dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on the socket `path`, which must not be there.
    pub fn start(disk: &LossyDisk, path: &Path) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(path).with_context(|| format!("listen on {}", path.display()))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (shared, until) = (Arc::clone(&disk.shared), Arc::clone(&stopped));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if until.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = stream.map_err(Into::into).and_then(|stream| serve(&shared, stream)) {
                    eprintln!("{error:#}");
                }
            }
        });
        Ok(Self { path: path.to_owned(), stopped, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // So that it looks.
        if UnixStream::connect(&self.path).is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(shared: &Shared, mut stream: UnixStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    match BufReader::new(&stream).take(MAX_LINE).read_line(&mut line) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            bail!("expected a command within {PATIENCE:?}, but none came")
        }
        Err(error) => return Err(error).context("read a command"),
    }
    let done =
        line.parse::<Command>().and_then(|command| shared.run(&command).with_context(|| format!("do {command}")));
    let answer = match done {
        Ok(told) if told.is_empty() => "ok".to_owned(),
        Ok(told) => format!("ok {told}"),
        Err(error) => format!("error {error:#}"),
    };
    stream.write_all(answer.as_bytes()).context("answer a command")
}

/// One who gives commands.
#[derive(Debug, Clone)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Commands go to the socket `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Gives a command; returns what the disk tells. Errors also where the disk does not obey.
    pub fn run(&self, command: &Command) -> anyhow::Result<String> {
        self.ask(&command.to_string())
    }

    /// Gives a command as text.
    pub fn ask(&self, command: &str) -> anyhow::Result<String> {
        let say = || format!("ask {} for {command:?}", self.path.display());
        let mut stream = UnixStream::connect(&self.path).with_context(say)?;
        stream.set_read_timeout(Some(ANSWER))?;
        writeln!(stream, "{command}").with_context(say)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(say)?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", told) => Ok(told.to_owned()),
            ("error", why) => bail!("{why}"),
            _ => bail!("expected ok or error, but got {answer:?}"),
        }
    }

    /// The power goes at this moment; [`Control::crash`] says what is left.
    pub fn cut(&self) -> anyhow::Result<()> {
        self.run(&Command::Cut).map(drop)
    }

    /// Loses the power. The processes that were on the disk must be dead.
    pub fn crash(&self, crash: Crash) -> anyhow::Result<Stats> {
        self.run(&Command::Crash(crash))?.parse()
    }

    /// The counts.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        self.run(&Command::Stats)?.parse()
    }
}
