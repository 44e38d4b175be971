//! `lossy-disk`: mounts a disk that forgets what was not fsynced, and tells it when the power goes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use ticketrail_disk::command::COMMANDS;
use ticketrail_disk::control::{Control, Server};
use ticketrail_disk::mount::{LossyDisk, detach};

/// A disk that forgets what was not fsynced.
#[derive(Debug, Parser)]
#[command(name = "lossy-disk")]
struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Mount a disk; it is unmounted at SIGTERM, SIGINT and SIGHUP, and when it fails. Needs root
    Mount {
        /// An empty directory for its bytes, or one that an unmounted disk has left
        #[arg(long)]
        backing: PathBuf,
        /// The socket on which it takes commands
        #[arg(long)]
        socket: PathBuf,
        /// Where it is mounted
        dir: PathBuf,
    },
    /// Give a mounted disk a command
    #[command(after_help = format!("Commands:\n{COMMANDS}"))]
    Send {
        /// The socket on which it takes commands
        #[arg(long)]
        socket: PathBuf,
        /// The command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Unmount a directory, even if the disk's own process was killed
    Unmount {
        /// Where it is mounted
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lossy-disk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> anyhow::Result<()> {
    match action {
        Action::Mount { backing, socket, dir } => {
            // Before any thread is there: each has them blocked then, and one waits for them.
            let mut signals = SigSet::empty();
            for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
                signals.add(signal);
            }
            signals.thread_block().context("block signals")?;
            let disk = LossyDisk::mount(&backing, &dir)?;
            let server = Server::start(&disk, &socket)?;
            println!("mounted on {}, commands at {}", disk.dir().display(), socket.display());
            // Whichever ends it first.
            let (signalled, ended) = sync_channel(2);
            let unmounted = signalled.clone();
            let end = disk.end();
            std::thread::spawn(move || {
                let signal = signals.wait();
                let _ = signalled.send(signal.map_or_else(|errno| errno.to_string(), |signal| signal.to_string()));
            });
            std::thread::spawn(move || {
                end.wait();
                let _ = unmounted.send("unmounted".to_owned());
            });
            let why = ended.recv().context("wait for the end")?;
            eprintln!("lossy-disk: ends: {why}");
            drop(server);
            disk.unmount()
        }
        Action::Send { socket, command } => {
            let told = Control::new(&socket).ask(&command.join(" "))?;
            if !told.is_empty() {
                println!("{told}");
            }
            Ok(())
        }
        Action::Unmount { dir } => detach(&dir),
    }
}
