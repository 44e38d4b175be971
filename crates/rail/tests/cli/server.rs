//! A server, and `rail` as people run it against one.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// A server that ends with its stdin.
pub(crate) struct Server {
    process: Child,
    stdin: Option<ChildStdin>,
    pub(crate) address: String,
    /// The rest of its log.
    log: Option<JoinHandle<Vec<String>>>,
    pub(crate) dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = Command::new(env!("CARGO_BIN_EXE_rail"))
            .args(["serve", "--stop-with-stdin", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(["--http-listen", "none", "--log-level", "info", "--ballast-bytes", "0 B", "--data-dir"])
            .arg(dir.path().join("data"))
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let stdin = process.stdin.take();
        let mut lines = BufReader::new(process.stderr.take().expect("stderr")).lines();
        let address = lines
            .by_ref()
            .map(|line| line.expect("a log line"))
            .find_map(|line| {
                let line: Value = serde_json::from_str(&line).ok()?;
                let serving = line["message"] == "serving";
                serving.then(|| line["address"].as_str().map(str::to_owned)).flatten()
            })
            .expect("the server ended before it served");
        // Its log is read to the end, so that it never waits for room.
        let log = Some(std::thread::spawn(move || lines.map_while(Result::ok).collect()));
        Self { process, stdin, address: format!("http://{address}"), log, dir }
    }

    /// A program that finds this server where `rail` looks for one.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("TICKETRAIL_ADDR", &self.address).env_remove("TICKETRAIL_NAMESPACE");
        command
    }

    /// Runs `rail` with `args` and something on stdin.
    pub(crate) fn rail_with(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(env!("CARGO_BIN_EXE_rail"));
        command.args(args);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        process.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("written");
        Ran::new(args, process.wait_with_output().expect("ended"))
    }

    pub(crate) fn rail(&self, args: &[&str]) -> Ran {
        self.rail_with(args, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let status = self.process.wait().expect("ended");
        if !std::thread::panicking() {
            let log = self.log.take().map(|log| log.join().expect("read")).unwrap_or_default().join("\n");
            assert!(status.success(), "expected the server to stop in order, but: {status}\n{log}");
        }
    }
}

pub(crate) struct Ran {
    args: String,
    code: Option<i32>,
    pub(crate) stdout: String,
    stderr: String,
}

impl Ran {
    pub(crate) fn new(args: &[&str], output: Output) -> Self {
        Self {
            args: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "rail {}\n{}\n{}", self.args, self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "rail {}: expected {text:?} in {:?}", self.args, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("rail {}: {error}: {}", self.args, self.stdout))
    }
}
