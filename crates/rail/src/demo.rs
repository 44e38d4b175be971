//! `rail demo`: real orders through a pipeline of queues on three nodes while everything is killed, and an audit of what
//! became of them.
//!
//! - [`mod@run`]: the stage manager; [`faults`]: what it breaks; [`nodes`] and [`figures`]: its cluster;
//! - [`producer`] and [`worker`]: its other processes; [`cut`]: a network that cuts connections;
//! - [`dataset`]: the orders; [`stage`]: their way; [`ledger`] and [`charges`]: what the processes write down;
//! - [`tally`] and [`progress`]: where it stands; [`audit`], [`outage`] and [`report`]: how it ended.

mod audit;
mod charges;
mod cut;
mod dataset;
mod faults;
mod figures;
mod ledger;
mod nodes;
mod outage;
pub(crate) mod producer;
mod progress;
mod report;
mod run;
mod stage;
mod tally;
pub(crate) mod worker;

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use self::run::{Run, Settings};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::parse;

/// Fewer orders leave no room for the faults.
const ORDERS_MIN: usize = 500;
/// Sending is stretched over so many seconds, so that faults meet work in progress.
const FEED_SECONDS: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Orders to send, 500 to 69659
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    orders: usize,
    /// Orders a second; 0: as fast as it goes [default: all of them in 50 s]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// How long the nodes keep log for one that is away
    #[arg(long, default_value = "10s", value_parser = parse::duration, value_name = "DURATION", hide = true)]
    retention: Duration,
    /// Keep the directory with data, ledgers and logs
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(args: DemoArgs, format: Format) -> Result<Exit, Failure> {
    if !(ORDERS_MIN..=dataset::ORDERS).contains(&args.orders) {
        let what = format!("expected {ORDERS_MIN} to {} orders, but got {}", dataset::ORDERS, args.orders);
        return Err(Failure::usage(what, "name a number in between, or leave --orders out for 5000"));
    }
    let rate = match args.rate {
        Some(rate) => rate,
        None => u32::try_from(args.orders.div_ceil(FEED_SECONDS)).unwrap_or(0),
    };
    let dir = tempfile::Builder::new().prefix("ticketrail-demo-").tempdir()?;
    let mut run = Run::new(dir.path(), Settings { orders: args.orders, rate, retention: args.retention })?;
    let result = tokio::select! {
        result = run.play() => Some(result),
        () = interrupted() => None,
    };
    run.end().await;
    let Some(result) = result else {
        output::say("interrupted: all processes are killed and the directory is removed");
        return Ok(Exit::Interrupted);
    };
    let exit = match &result {
        Ok(report) => report.exit(),
        Err(_) => Exit::Failed,
    };
    if args.keep || exit != Exit::Ok {
        output::say(format!("data, ledgers and logs stand in {}", dir.keep().display()));
    }
    let report = result?;
    if format == Format::Table {
        output::list(format, report.stages())?;
        output::print("\n")?;
    }
    output::card(format, &report)?;
    Ok(exit)
}

/// Ctrl-C, or a request to stop.
async fn interrupted() {
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}
