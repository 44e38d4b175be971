//! `rail`: Ticketrail's server and operator tool in one program. A map of the house:
//!
//! - [`commands`]: a file for each noun; [`cli`]: the tree that clap reads;
//! - `demo`: `rail demo`; `child`: processes that it and `rail bench --serve` start;
//! - [`exit`]: exit codes and errors with a way out; [`output`] and [`view`]: what is printed; [`parse`], [`connect`]:
//!   what is read; [`settings`]: a queue's settings on the command line, in files and in print;
//! - [`topology`]: queues and namespaces as a file says them, and how they differ from what is there.

#[cfg(feature = "server")]
mod child;
mod cli;
mod clock;
mod commands;
mod confirm;
mod connect;
#[cfg(feature = "server")]
mod demo;
mod exit;
mod output;
mod parse;
mod settings;
mod topology;
mod view;

use std::process::ExitCode;

/// Of the server's processor time a sixth went into glibc's allocator under load.
#[cfg(feature = "server")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::say(&failure);
            failure.exit.into()
        }
    }
}
