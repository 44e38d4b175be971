//! `rail msg peek|get`.

use std::time::SystemTime;

use clap::{Args, ValueEnum};
use ticketrail_client::{Client, Error, Found, MessageInfo, MessageState, Peek as Look, Target};

use crate::exit::{Exit, Failure};
use crate::output::{self, Format};
use crate::parse;
use crate::view::message::{MessageCard, OutcomeCard};

#[derive(Debug, Args)]
pub(super) struct Peek {
    /// The queue
    queue: String,
    /// Messages in this state
    #[arg(long, value_enum, default_value_t = State::Ready)]
    state: State,
    /// Messages at most
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Only messages of this group
    #[arg(long, value_name = "GROUP", help_heading = "Filters, which must all hold")]
    group: Option<String>,
    /// Only messages of this type
    #[arg(long = "type", value_name = "TYPE", help_heading = "Filters, which must all hold")]
    message_type: Option<String>,
    /// Only messages with this tag; may be given many times
    #[arg(long = "tag", value_parser = parse::pair, value_name = "KEY=VALUE", help_heading = "Filters, which must all hold")]
    tags: Vec<(String, String)>,
    /// Only messages of this priority, 0 to 9
    #[arg(
        long,
        value_parser = clap::value_parser!(u8).range(0..=9),
        value_name = "N",
        help_heading = "Filters, which must all hold"
    )]
    priority: Option<u8>,
    /// Only messages that came to the queue at or before this time
    #[arg(long, value_parser = parse::time, value_name = "TIME", help_heading = "Filters, which must all hold")]
    enqueued_until: Option<SystemTime>,
    /// Only messages with at least so many failures
    #[arg(long, value_name = "N", help_heading = "Filters, which must all hold")]
    min_failures: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    /// The message's id, such as 1.17.m4.1043
    #[arg(required_unless_present = "dedup", conflicts_with = "dedup")]
    id: Option<String>,
    /// The message's dedup id in place of its id
    #[arg(long, value_name = "ID", requires = "queue")]
    dedup: Option<String>,
    /// The queue that was sent to under the dedup id
    #[arg(long, value_name = "QUEUE", requires = "dedup")]
    queue: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    Ready,
    Delayed,
    Blocked,
    Leased,
}

impl From<State> for MessageState {
    fn from(state: State) -> Self {
        match state {
            State::Ready => MessageState::Ready,
            State::Delayed => MessageState::Delayed,
            State::Blocked => MessageState::Blocked,
            State::Leased => MessageState::Leased,
        }
    }
}

impl Peek {
    fn filter(&self, mut look: Look) -> Look {
        look = look.state(self.state.into());
        for (key, value) in &self.tags {
            look = look.tag(key, value);
        }
        if let Some(group) = &self.group {
            look = look.group(group);
        }
        if let Some(message_type) = &self.message_type {
            look = look.message_type(message_type);
        }
        if let Some(priority) = self.priority {
            look = look.priority(priority);
        }
        if let Some(at) = self.enqueued_until {
            look = look.enqueued_until(at);
        }
        if let Some(failures) = self.min_failures {
            look = look.min_failures(failures);
        }
        look
    }
}

pub(super) async fn peek(client: &Client, args: Peek, format: Format) -> Result<Exit, Failure> {
    let messages = looked_at(client, &args.queue, |look| args.filter(look), args.limit).await?;
    let cards: Vec<MessageCard> = messages.into_iter().map(MessageCard::new).collect();
    output::list(format, &cards)?;
    if cards.is_empty() {
        output::say(format!("no such {} messages in {}", MessageState::from(args.state).as_str(), args.queue));
    }
    Ok(Exit::Ok)
}

pub(super) async fn get(client: &Client, args: Get, format: Format) -> Result<Exit, Failure> {
    let target = match (args.id, args.dedup) {
        (_, Some(dedup)) => client.queue(args.queue.unwrap_or_default()).dedup(dedup),
        (id, None) => Target::Id(id.unwrap_or_default()),
    };
    match client.get(target).await? {
        Found::Message(info) => output::card(format, &MessageCard::new(*info))?,
        Found::Done(outcome) => output::card(format, &OutcomeCard::new(outcome))?,
    }
    Ok(Exit::Ok)
}

/// Up to `limit` messages of a queue that a filter lets through, page by page.
pub(crate) async fn looked_at(
    client: &Client,
    queue: &str,
    filter: impl Fn(Look) -> Look,
    limit: usize,
) -> Result<Vec<MessageInfo>, Error> {
    let queue = client.queue(queue);
    let mut messages = Vec::new();
    let mut after = String::new();
    while messages.len() < limit {
        let size = u32::try_from(limit - messages.len()).unwrap_or(u32::MAX).min(1_000);
        let page = filter(queue.peek()).page_size(size).after(after).await?;
        messages.extend(page.messages);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(messages)
}
