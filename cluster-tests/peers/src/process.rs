//! Processes of nodes: their ports, their logs, their end.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// A process, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, which logs to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone()?))
            .stderr(Stdio::from(file))
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Fails where it has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        bail!(
            "expected a running node, but it ended with {status}:\n{}",
            lines[lines.len().saturating_sub(20)..].join("\n")
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `count` ports of the loopback address that nobody listens on.
pub(crate) fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    // All are held until all are found, so that none comes twice.
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different() {
        let ports = free_ports(6).expect("ports");
        let mut unique = ports.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 6);
        TcpListener::bind(("127.0.0.1", ports[0])).expect("a free port");
    }

    #[test]
    fn a_node_that_ended_is_told_with_its_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no disk; exit 3"]);
        let mut process = Process::start(command, &dir.path().join("log")).expect("a process");
        process.child.wait().expect("its end");
        let error = process.check().expect_err("it has ended").to_string();
        assert!(error.contains("no disk") && error.contains('3'), "{error}");
    }
}
