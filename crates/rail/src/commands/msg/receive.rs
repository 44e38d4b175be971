//! `rail msg receive`.

use std::time::Duration;

use clap::Args;
use ticketrail_client::Client;

use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::parse;
use crate::view::message::DeliveryLine;

#[derive(Debug, Args)]
pub(super) struct Receive {
    /// The queue; more of them in order of preference, at most 16
    #[arg(required = true, num_args = 1..=16, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Messages at most, 1 to 1000
    #[arg(long, default_value_t = 1, value_name = "N")]
    max: u32,
    /// How long to wait for a first one, up to 60s
    #[arg(long, value_parser = parse::duration, default_value = "10s", value_name = "DURATION")]
    wait: Duration,
    /// How long they are yours, 1s to 12h [default: the queue's lease]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    lease: Option<Duration>,
    /// Who you are, for the history
    #[arg(long, default_value = "rail", value_name = "NAME")]
    worker: String,
    /// Ack the messages as they are received: at most once, what gets lost on its way is lost
    #[arg(long, conflicts_with = "lease")]
    auto_ack: bool,
}

pub(super) async fn run(client: &Client, args: Receive, format: Format) -> Result<Exit, Failure> {
    let names = args.queues.join(", ");
    let mut queues = args.queues.into_iter();
    let first = queues.next().unwrap_or_default();
    let mut call = client.queue(first).receive().max(args.max).wait(args.wait).worker(args.worker);
    for queue in queues {
        call = call.also(queue);
    }
    if let Some(lease) = args.lease {
        call = call.lease(lease);
    }
    let lines: Vec<DeliveryLine> = if args.auto_ack {
        let taken = call.auto_ack().await?;
        if taken.messages.is_empty() && taken.position.is_some_and(|position| position.replayed) {
            output::say("the answer of an attempt got lost on its way, and the messages that it carried with it");
        }
        taken.messages.into_iter().map(DeliveryLine::taken).collect()
    } else {
        call.await?.deliveries.iter().map(DeliveryLine::new).collect()
    };
    output::list(format, &lines)?;
    if lines.is_empty() {
        output::say(format!("nothing ready in {names} within {}", output::short(args.wait)));
    }
    Ok(Exit::Ok)
}
