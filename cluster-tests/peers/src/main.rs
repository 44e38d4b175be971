//! Ticketrail beside NATS JetStream: three nodes each, on one machine, in turn, under the same load. Run as
//! `cargo xtask bench peers`. A map of the house:
//!
//! - [`args`]: what is asked for;
//! - [`broker`]: what a queue must do to be measured; [`rail`] and `nats` do it;
//! - [`process`]: a process of a node, its ports, its log; [`poll`]: waits until something has happened;
//! - [`load`]: producers and consumers, and what they measure;
//! - [`table`]: the figures of each run, side by side, and their ratios.

mod args;
mod broker;
mod load;
#[cfg(feature = "nats")]
mod nats;
mod poll;
mod process;
mod rail;
mod table;

use std::process::ExitCode;

use anyhow::Context as _;

use args::Args;
use broker::Broker;
use table::{Run, Side, Table};

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            eprint!("{problem}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if args.help {
        print!("{}", args::USAGE);
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    let mut table = Table::default();
    for pair in 1..=args.pairs {
        for side in [Side::Ours, Side::Theirs] {
            if args.only.is_none_or(|only| only == side) {
                let run = runtime.block_on(async {
                    match side {
                        Side::Ours => measure::<rail::Rail>(args, &args.rail).await,
                        Side::Theirs => theirs(args).await,
                    }
                })?;
                eprintln!("pair {pair}, {side}: {run}");
                table.push(side, run);
            }
        }
    }
    println!("{table}");
    Ok(())
}

#[cfg(feature = "nats")]
async fn theirs(args: &Args) -> anyhow::Result<Run> {
    measure::<nats::Nats>(args, &args.nats_server).await
}

#[cfg(not(feature = "nats"))]
async fn theirs(_: &Args) -> anyhow::Result<Run> {
    anyhow::bail!("expected to be built with the feature `nats`, but it is off; use `cargo xtask bench peers`")
}

/// One freshly started cluster, measured once, and gone.
async fn measure<B: Broker>(args: &Args, program: &std::path::Path) -> anyhow::Result<Run> {
    let dir = tempfile::Builder::new().prefix("peers-").tempdir_in(&args.dir).context("make a directory")?;
    let broker = B::start(dir.path(), program).await.with_context(|| format!("start {}", B::NAME))?;
    // First while nothing waits: a backlog would be measured along.
    let paced = load::paced(&broker, &args.load).await.with_context(|| format!("pace {}", B::NAME))?;
    let both = load::both(&broker, &args.load).await.with_context(|| format!("load {}", B::NAME))?;
    drop(broker);
    Ok(Run { both, paced })
}
