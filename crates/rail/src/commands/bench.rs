//! `rail bench`: how fast it goes, and how long a call takes at a given rate.
//!
//! Over streams, as a producer and a consumer of the SDK use them; with `--unary` each call by itself. Closed loop: so many
//! messages in flight, each followed by the next. Open loop (`--rate`): messages are due at fixed times, and a latency
//! counts from when a message was due, not from when it was sent at last, so that a pause of the server is not left out
//! (coordinated omission).

mod load;
mod report;
mod stream;

#[cfg(feature = "server")]
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ticketrail_client::{Client, QueueSettings};

use self::load::{Load, Streams};
use self::report::Report;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::parse;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    connection: Connection,
    /// What to measure
    #[arg(value_enum, default_value_t = What::Both)]
    what: What,
    /// Producers, each with a connection of its own
    #[arg(long, default_value_t = 4, value_name = "N")]
    producers: usize,
    /// Consumers, each with a connection of its own
    #[arg(long, default_value_t = 4, value_name = "N")]
    consumers: usize,
    /// Messages on their way at one time, of each producer
    #[arg(long, default_value_t = 256, value_name = "N")]
    unconfirmed: usize,
    /// Deliveries held at one time, by each consumer
    #[arg(long, default_value_t = 256, value_name = "N")]
    prefetch: usize,
    /// Enqueue, receive and settle with calls, not over streams
    #[arg(long)]
    unary: bool,
    /// With --unary: messages in flight at one time, over all producers, and again over all consumers
    #[arg(long, default_value_t = 256, value_name = "N")]
    outstanding: usize,
    /// The size of a body
    #[arg(long, value_parser = parse::size, default_value = "1KiB", value_name = "SIZE")]
    size: u64,
    /// Messages a second, all producers together; without it as fast as it goes
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// With --unary: messages of one enqueue call
    #[arg(long, default_value_t = 1, value_name = "N")]
    batch: usize,
    /// With --unary: messages of one receive, and acks of one settle
    #[arg(long, default_value_t = 16, value_name = "N")]
    receive_batch: usize,
    /// How long to send
    #[arg(long, value_parser = parse::duration, default_value = "10s", value_name = "DURATION")]
    duration: Duration,
    /// Messages to put there first for `receive`
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    messages: u64,
    /// The queue; made anew, and deleted at the end
    #[arg(long, default_value = "rail-bench", value_name = "QUEUE")]
    queue: String,
    /// Start a server of its own in a temporary directory, and measure that
    #[cfg(feature = "server")]
    #[arg(long)]
    serve: bool,
    /// Where --serve puts its temporary directory: the disk to measure
    #[cfg(feature = "server")]
    #[arg(long, value_name = "DIR", requires = "serve")]
    dir: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Producers alone
    Enqueue,
    /// Consumers alone, on messages put there first
    Receive,
    /// Producers and consumers together
    Both,
}

impl What {
    fn produces(self) -> bool {
        match self {
            What::Enqueue | What::Both => true,
            What::Receive => false,
        }
    }

    fn consumes(self) -> bool {
        match self {
            What::Receive | What::Both => true,
            What::Enqueue => false,
        }
    }
}

pub(crate) async fn run(args: BenchArgs, format: Format) -> Result<Exit, Failure> {
    let counts = [args.producers, args.consumers, args.outstanding, args.batch, args.receive_batch];
    if counts.contains(&0) || args.unconfirmed == 0 || args.prefetch == 0 {
        return Err(Failure::usage("expected counts of at least 1, but one is 0", "see `rail bench --help`"));
    }
    if args.rate == Some(0) {
        return Err(Failure::usage("expected a rate of at least 1, but it is 0", "leave --rate out for full speed"));
    }
    #[cfg(feature = "server")]
    if args.serve {
        return with_server(args, format).await;
    }
    let address = args.connection.address.clone();
    measure(&args, &address, format).await
}

/// Measures a server of its own, and stops it whatever comes.
#[cfg(feature = "server")]
async fn with_server(args: BenchArgs, format: Format) -> Result<Exit, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("ticketrail-bench-");
    let dir = match &args.dir {
        Some(dir) => builder.tempdir_in(dir)?,
        None => builder.tempdir()?,
    };
    let mut server = crate::child::Server::start(dir.path()).await?;
    let address = server.address();
    let measured = tokio::select! {
        measured = measure(&args, &address, format) => measured,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    };
    server.stop().await?;
    measured
}

async fn measure(args: &BenchArgs, address: &str, format: Format) -> Result<Exit, Failure> {
    let client =
        |timeout| Client::builder().address(address).namespace(&args.connection.namespace).timeout(timeout).connect();
    let admin = client(args.connection.timeout)?.admin();
    // Made anew: what another run left would be counted.
    let settings =
        QueueSettings { max_depth: Some(0), lease: Some(Duration::from_secs(60)), ..QueueSettings::default() };
    if admin.create_queue(&args.queue, settings.clone()).await.is_err() {
        admin.delete_queue(&args.queue).await?;
        admin.create_queue(&args.queue, settings).await?;
    }
    let load = Load {
        queue: args.queue.clone(),
        producers: args.producers,
        consumers: args.consumers,
        streams: (!args.unary).then_some(Streams { unconfirmed: args.unconfirmed, prefetch: args.prefetch }),
        outstanding: args.outstanding,
        size: usize::try_from(args.size).unwrap_or(usize::MAX),
        rate: args.rate,
        batch: args.batch,
        receive_batch: args.receive_batch,
    };
    let clients = |count: usize| (0..count).map(|_| client(Duration::from_secs(30))).collect::<Result<Vec<_>, _>>();
    let (producing, consuming) = (clients(args.producers)?, clients(args.consumers)?);
    let figures = match args.what {
        What::Receive => {
            output::say(format!("putting {} messages there first", args.messages));
            load.fill(&producing, args.messages).await?;
            output::say("receiving and acking them");
            load.run(&[], &consuming, args.duration, Some(args.messages)).await?
        }
        What::Enqueue => load.run(&producing, &[], args.duration, None).await?,
        What::Both => load.run(&producing, &consuming, args.duration, None).await?,
    };
    admin.delete_queue(&args.queue).await?;
    debug_assert!(args.what.produces() || args.what.consumes());
    output::card(format, &Report::new(args, &figures))?;
    Ok(if figures.errors == 0 { Exit::Ok } else { Exit::Partly })
}
