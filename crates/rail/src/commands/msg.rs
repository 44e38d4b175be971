//! `rail msg`: messages sent, received, settled, changed, looked at. A file for each.

mod change;
mod look;
mod receive;
mod send;
mod settle;

use clap::{Args, Subcommand};
use ticketrail_client::{Client, Refusal, Target};

pub(crate) use self::look::looked_at;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, exit_of};
use crate::output::{self, Format};

#[derive(Debug, Args)]
pub(crate) struct MsgArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send a message: its body from the command line, a file or stdin
    Send(Box<send::Send>),
    /// Lease messages and print them with their lease tokens
    Receive(receive::Receive),
    /// Done: delete messages for good, by their lease tokens
    Ack(settle::Ack),
    /// Failed: try again later, or with --permanent never again
    Nack(settle::Nack),
    /// Give messages back unfinished; nothing is counted
    Release(settle::Tokens),
    /// Keep messages for longer
    Extend(settle::Extend),
    /// Take messages away before anybody receives them
    Cancel(change::Cancel),
    /// Make messages ready at another time
    Reschedule(change::Reschedule),
    /// Look at messages without taking them
    Peek(look::Peek),
    /// Show one message with its history, wherever it is now, or what came of it
    Get(look::Get),
}

pub(crate) async fn run(args: MsgArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    match args.verb {
        Verb::Send(send) => send::run(&client, *send, format).await,
        Verb::Receive(receive) => receive::run(&client, receive, format).await,
        Verb::Ack(ack) => settle::ack(&client, ack, format).await,
        Verb::Nack(nack) => settle::nack(&client, nack, format).await,
        Verb::Release(tokens) => settle::release(&client, tokens, format).await,
        Verb::Extend(extend) => settle::extend(&client, extend, format).await,
        Verb::Cancel(cancel) => change::cancel(&client, cancel, format).await,
        Verb::Reschedule(reschedule) => change::reschedule(&client, reschedule, format).await,
        Verb::Peek(peek) => look::peek(&client, peek, format).await,
        Verb::Get(get) => look::get(&client, get, format).await,
    }
}

/// Messages by their ids, or by a queue and dedup ids.
#[derive(Debug, Args)]
struct Targets {
    /// Messages' ids, such as 1.17.m4.1043
    #[arg(required_unless_present = "dedup", conflicts_with = "dedup", value_name = "ID")]
    ids: Vec<String>,
    /// A dedup id in place of the id; may be given many times
    #[arg(long, value_name = "ID", requires = "queue")]
    dedup: Vec<String>,
    /// The queue that was sent to under the dedup id
    #[arg(long, value_name = "QUEUE", requires = "dedup")]
    queue: Option<String>,
}

impl Targets {
    /// Each with how it was named.
    fn each(self, client: &Client) -> Vec<(String, Target)> {
        let queue = client.queue(self.queue.unwrap_or_default());
        let ids = self.ids.into_iter().map(|id| (id.clone(), Target::from(id)));
        ids.chain(self.dedup.into_iter().map(|id| (id.clone(), queue.dedup(id)))).collect()
    }
}

/// How a list went: 0 if nothing was refused, 3 if something was, the first refusal if everything was.
fn judge<'a>(refusals: impl Iterator<Item = Option<&'a Refusal>>) -> Result<Exit, Failure> {
    let mut items = 0_usize;
    let mut refused: Vec<(usize, &Refusal)> = Vec::new();
    for refusal in refusals {
        items += 1;
        if let Some(refusal) = refusal {
            refused.push((items, refusal));
        }
    }
    let Some((_, first)) = refused.first() else { return Ok(Exit::Ok) };
    if refused.len() == items {
        let mut failure = Failure::from(ticketrail_client::Error::Refused((*first).clone()));
        failure.exit = exit_of(first);
        return Err(failure);
    }
    for (number, refusal) in &refused {
        output::say(format!("item {number}: {refusal}"));
    }
    output::say(format!("{} of {items} were refused", refused.len()));
    Ok(Exit::Partly)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ticketrail_client::{Code, Reason};

    use super::*;

    fn refusal(code: Code, reason: Reason) -> Refusal {
        Refusal { code, reason, text: "no".to_owned(), metadata: BTreeMap::new(), retry_after: None }
    }

    #[test]
    fn a_list_is_done_partly_done_or_refused() {
        let lost = refusal(Code::FailedPrecondition, Reason::LeaseLost);
        assert_eq!(judge([None, None].into_iter()).ok(), Some(Exit::Ok));
        assert_eq!(judge([None, Some(&lost)].into_iter()).ok(), Some(Exit::Partly));
        let all = judge([Some(&lost), Some(&lost)].into_iter()).expect_err("all refused");
        assert_eq!(all.exit, Exit::Conflict);
        assert_eq!(judge(std::iter::empty()).ok(), Some(Exit::Ok));
    }
}
