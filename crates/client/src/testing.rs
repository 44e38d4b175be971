//! A real node for tests: a `rail` process of its own, in a directory of its own, on a free port.
//!
//! Behind the feature `testing`. The program is the file that `TICKETRAIL_TEST_RAIL_BIN` names, else `rail` on the PATH.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ticketrail_client::testing::Server::start().await?;
//! let orders = server.client()?.queue("orders");
//! orders.send("one table for two").await?;
//! assert_eq!(orders.receive().await?.deliveries.len(), 1);
//! # Ok(())
//! # }
//! ```

mod poll;

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Client, Error};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program, or its directory, is not to be had.
    #[error(
        "expected to run {program:?}, but {error}; put `rail` on the PATH, or its path into TICKETRAIL_TEST_RAIL_BIN"
    )]
    NotRun {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// It ended, or did not serve in time.
    #[error("expected a server, but {why}; it logged:\n{log}")]
    NotServing {
        /// What happened.
        why: String,
        /// Its log.
        log: String,
    },
}

/// A running server. Dropped, it is ended and its directory removed.
#[derive(Debug)]
pub struct Server {
    /// Its stdin is a pipe: where this process is killed, the server sees its end and stops by itself.
    child: Child,
    address: String,
    dir: TempDir,
}

impl Server {
    /// Starts one node with an empty directory, and waits until it serves, at most 30 s.
    ///
    /// # Errors
    /// Where there is no program, or it does not serve: with its log.
    pub async fn start() -> Result<Self, StartError> {
        let program = std::env::var_os("TICKETRAIL_TEST_RAIL_BIN").map_or_else(|| PathBuf::from("rail"), PathBuf::from);
        let not_run = |error| StartError::NotRun { program: program.clone(), error };
        let dir = tempfile::Builder::new().prefix("ticketrail-test-").tempdir().map_err(not_run)?;
        let log = File::create(dir.path().join("server.log")).map_err(not_run)?;
        let ready = dir.path().join("ready");
        let mut command = Command::new(&program);
        command
            .args(["serve", "--stop-with-stdin", "--listen", "127.0.0.1:0"])
            // Small tests on small disks.
            .args(["--disk-low-bytes", "64MiB", "--disk-critical-bytes", "0", "--ballast-bytes", "0"])
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::piped())
            .stdout(Stdio::from(log.try_clone().map_err(not_run)?))
            .stderr(Stdio::from(log));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TICKETRAIL_")) {
            command.env_remove(name);
        }
        let child = command.spawn().map_err(not_run)?;
        let mut server = Self { child, address: String::new(), dir };
        let address = poll::poll(|| match server.child.try_wait() {
            Ok(Some(status)) => Some(Err(format!("it ended with {status}"))),
            Ok(None) => fs::read_to_string(&ready).ok().filter(|text| text.contains(':')).map(Ok),
            Err(error) => Some(Err(format!("the system does not know it: {error}"))),
        });
        let address = address.await.unwrap_or_else(|| Err("it does not serve in time".to_owned()));
        server.address = address
            .map(|address| address.trim().to_owned())
            .map_err(|why| StartError::NotServing { why, log: server.log() })?;
        Ok(server)
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A client of it.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`](crate::ClientBuilder::connect).
    pub fn client(&self) -> Result<Client, Error> {
        Client::builder().address(&self.address).connect()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already. Its directory goes with it: nothing needs to be written down.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
