//! `rail msg`: messages sent, received, settled, looked at.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use ticketrail_client::{Batch, Client, MessageState, NewMessage, Refusal, Sent, Settled, Settlement};

use crate::connect::Connection;
use crate::exit::{Exit, Failure, exit_of};
use crate::output::{self, Format, Row, millis, timestamp};
use crate::parse;
use crate::view::{DeliveryLine, MessageCard};

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
    Send(Send),
    /// Lease messages and print them with their lease tokens
    Receive(Receive),
    /// Done: delete messages for good, by their lease tokens
    Ack {
        /// Lease tokens, as `rail msg receive` printed them
        #[arg(required = true, value_parser = parse::token, value_name = "TOKEN")]
        tokens: Vec<Bytes>,
    },
    /// Failed: try again later, or with --permanent never again
    Nack(Nack),
    /// Give messages back unfinished; nothing is counted
    Release {
        /// Lease tokens, as `rail msg receive` printed them
        #[arg(required = true, value_parser = parse::token, value_name = "TOKEN")]
        tokens: Vec<Bytes>,
    },
    /// Keep messages for longer
    Extend {
        /// Lease tokens, as `rail msg receive` printed them
        #[arg(required = true, value_parser = parse::token, value_name = "TOKEN")]
        tokens: Vec<Bytes>,
        /// The lease ends so long from now, 1s to 12h [default: the queue's lease]
        #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
        lease: Option<Duration>,
    },
    /// Look at messages without taking them
    Peek {
        /// The queue
        queue: String,
        /// Messages in this state
        #[arg(long, value_enum, default_value_t = State::Ready)]
        state: State,
        /// Messages at most
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Show one message with its history, wherever it is now
    Get {
        /// The message's id, such as 1.17.m4.1043
        id: String,
    },
}

#[derive(Debug, Args)]
struct Send {
    /// The queue
    queue: String,
    /// The body; without it and --file, stdin is read
    body: Option<String>,
    /// Read the body from a file; `-` is stdin
    #[arg(long, short = 'f', conflicts_with = "body", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Each line of the file or of stdin is a message of its own
    #[arg(long, conflicts_with = "body")]
    lines: bool,
    /// Ready after so long
    #[arg(long, value_parser = parse::duration, value_name = "DURATION", conflicts_with = "at")]
    delay: Option<Duration>,
    /// Ready at this time
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    at: Option<SystemTime>,
    /// A tag; may be given many times
    #[arg(long = "tag", value_parser = parse::pair, value_name = "KEY=VALUE")]
    tags: Vec<(String, String)>,
    /// A header; may be given many times
    #[arg(long = "header", short = 'H', value_parser = parse::pair, value_name = "NAME=VALUE")]
    headers: Vec<(String, String)>,
    /// The message's type, such as order.placed
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// The body's media type, such as application/json
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Ties a reply to its request
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The queue where replies go
    #[arg(long, value_name = "QUEUE")]
    reply_to: Option<String>,
}

#[derive(Debug, Args)]
struct Receive {
    /// The queue
    queue: String,
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
}

#[derive(Debug, Args)]
struct Nack {
    /// Lease tokens, as `rail msg receive` printed them
    #[arg(required = true, value_parser = parse::token, value_name = "TOKEN")]
    tokens: Vec<Bytes>,
    /// Never again: dead-letter at once
    #[arg(long, conflicts_with = "delay")]
    permanent: bool,
    /// A short code to group failures by
    #[arg(long, default_value = "", value_name = "CODE")]
    code: String,
    /// A text for a person
    #[arg(long, default_value = "", value_name = "TEXT")]
    text: String,
    /// Try again after so long [default: the queue's backoff]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    delay: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
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

pub(crate) async fn run(args: MsgArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    match args.verb {
        Verb::Send(send) => self::send(&client, send, format).await,
        Verb::Receive(receive) => self::receive(&client, receive, format).await,
        Verb::Ack { tokens } => settle(&client, tokens, format, Settlement::ack_token).await,
        Verb::Release { tokens } => settle(&client, tokens, format, Settlement::release_token).await,
        Verb::Nack(Nack { tokens, permanent, code, text, delay }) => {
            let verdict = |token| match permanent {
                true => Settlement::reject_token(token, &*code, &*text),
                false => Settlement::retry_token(token, &*code, &*text, delay),
            };
            settle(&client, tokens, format, verdict).await
        }
        Verb::Extend { tokens, lease } => extend(&client, tokens, lease, format).await,
        Verb::Peek { queue, state, limit } => peek(&client, &queue, state.into(), limit, format).await,
        Verb::Get { id } => {
            output::card(format, &MessageCard::new(client.get(&id).await?))?;
            Ok(Exit::Ok)
        }
    }
}

/// A message sent.
#[derive(Debug, Serialize)]
struct SentLine {
    id: String,
    sequence: u64,
    available_at: String,
}

impl SentLine {
    fn new(sent: &Sent) -> Self {
        let available_at = timestamp(sent.available_at);
        Self { id: sent.message_id.clone(), sequence: sent.sequence, available_at }
    }
}

impl Row for SentLine {
    const COLUMNS: &'static [&'static str] = &["ID", "SEQUENCE", "AVAILABLE"];

    fn cells(&self) -> Vec<String> {
        vec![self.id.clone(), self.sequence.to_string(), self.available_at.clone()]
    }
}

/// Messages and bytes of one batch of `send --lines`: well within the server's 1,000 and 4 MiB.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 2 << 20;

async fn send(client: &Client, args: Send, format: Format) -> Result<Exit, Failure> {
    let queue = client.queue(&args.queue);
    let message = |body: Bytes| {
        let mut message = NewMessage::new(body);
        for (key, value) in &args.tags {
            message = message.tag(key, value);
        }
        for (name, value) in &args.headers {
            message = message.header(name, value);
        }
        if let Some(message_type) = &args.message_type {
            message = message.message_type(message_type);
        }
        if let Some(content_type) = &args.content_type {
            message = message.content_type(content_type);
        }
        if let Some(id) = &args.correlation_id {
            message = message.correlation_id(id);
        }
        if let Some(queue) = &args.reply_to {
            message = message.reply_to(queue);
        }
        match (args.delay, args.at) {
            (Some(delay), _) => message.delay(delay),
            (None, Some(at)) => message.deliver_at(at),
            (None, None) => message,
        }
    };
    let body = match (&args.body, &args.file) {
        (Some(body), _) => Bytes::copy_from_slice(body.as_bytes()),
        (None, Some(file)) => read(file)?,
        (None, None) => read(Path::new("-"))?,
    };
    if !args.lines {
        let sent = queue.send(message(body)).await?;
        output::list(format, &[SentLine::new(&sent)])?;
        return Ok(Exit::Ok);
    }
    let mut results = Vec::new();
    let mut batch = Vec::new();
    let mut bytes = 0;
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if batch.len() == BATCH_MESSAGES || bytes + line.len() > BATCH_BYTES {
            results.extend(queue.send_batch(std::mem::take(&mut batch)).await?.results);
            bytes = 0;
        }
        bytes += line.len();
        batch.push(message(body.slice_ref(line)));
    }
    if !batch.is_empty() {
        results.extend(queue.send_batch(batch).await?.results);
    }
    let lines: Vec<SentLine> = results.iter().flatten().map(SentLine::new).collect();
    output::list(format, &lines)?;
    judge(results.iter().map(|result| result.as_ref().err()))
}

fn read(file: &Path) -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut body)?;
    } else {
        body = std::fs::read(file).map_err(|error| {
            let what = format!("expected to read {}, but {error}", file.display());
            Failure::new(Exit::NotFound, what, "name another file, or `-` for stdin")
        })?;
    }
    Ok(body.into())
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

async fn receive(client: &Client, args: Receive, format: Format) -> Result<Exit, Failure> {
    let mut call = client.queue(&args.queue).receive().max(args.max).wait(args.wait).worker(args.worker);
    if let Some(lease) = args.lease {
        call = call.lease(lease);
    }
    let received = call.await?;
    let lines: Vec<DeliveryLine> = received.deliveries.iter().map(DeliveryLine::new).collect();
    output::list(format, &lines)?;
    if lines.is_empty() {
        output::say(format!("nothing ready in {} within {}", args.queue, output::short(args.wait)));
    }
    Ok(Exit::Ok)
}

/// What became of one settlement.
#[derive(Debug, Serialize)]
struct SettledLine {
    outcome: &'static str,
    due_at: Option<String>,
    reason: Option<String>,
    lease_token: String,
}

impl SettledLine {
    fn new(token: &[u8], result: &Result<Settled, Refusal>) -> Self {
        let (outcome, due_at, reason) = match result {
            Ok(settled @ Settled::Delayed { due_at, .. }) => (settled.as_str(), Some(timestamp(*due_at)), None),
            Ok(settled @ (Settled::Acked(_) | Settled::DeadLettered(_) | Settled::Readied(_) | Settled::Purged(_))) => {
                (settled.as_str(), None, None)
            }
            Err(refusal) => ("refused", None, Some(refusal.reason.to_string())),
        };
        Self { outcome, due_at, reason, lease_token: parse::token_text(token) }
    }
}

impl Row for SettledLine {
    const COLUMNS: &'static [&'static str] = &["OUTCOME", "DUE", "REASON", "TOKEN"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.outcome.to_owned(),
            self.due_at.clone().unwrap_or_default(),
            self.reason.clone().unwrap_or_default(),
            self.lease_token.clone(),
        ]
    }
}

async fn settle(
    client: &Client,
    tokens: Vec<Bytes>,
    format: Format,
    verdict: impl Fn(Bytes) -> Settlement,
) -> Result<Exit, Failure> {
    let Batch { results, .. } = client.settle(tokens.iter().cloned().map(verdict)).await?;
    let lines: Vec<SettledLine> =
        tokens.iter().zip(&results).map(|(token, result)| SettledLine::new(token, result)).collect();
    output::list(format, &lines)?;
    judge(results.iter().map(|result| result.as_ref().err()))
}

/// A lease with a new end.
#[derive(Debug, Serialize)]
struct ExtendedLine {
    lease_left_ms: u64,
    lease_token: String,
}

impl Row for ExtendedLine {
    const COLUMNS: &'static [&'static str] = &["LEASE", "TOKEN"];

    fn cells(&self) -> Vec<String> {
        vec![output::short(Duration::from_millis(self.lease_left_ms)), self.lease_token.clone()]
    }
}

async fn extend(client: &Client, tokens: Vec<Bytes>, lease: Option<Duration>, format: Format) -> Result<Exit, Failure> {
    let mut results = Vec::new();
    let mut lines = Vec::new();
    for token in tokens {
        match client.extend_token(token.clone(), lease).await {
            Ok(left) => {
                lines.push(ExtendedLine { lease_left_ms: millis(left), lease_token: parse::token_text(&token) });
                results.push(None);
            }
            Err(ticketrail_client::Error::Refused(refusal)) => results.push(Some(refusal)),
            Err(error) => return Err(error.into()),
        }
    }
    output::list(format, &lines)?;
    judge(results.iter().map(Option::as_ref))
}

async fn peek(
    client: &Client,
    queue: &str,
    state: MessageState,
    limit: usize,
    format: Format,
) -> Result<Exit, Failure> {
    let messages = looked_at(client, queue, state, limit).await?;
    let cards: Vec<MessageCard> = messages.into_iter().map(MessageCard::new).collect();
    output::list(format, &cards)?;
    if cards.is_empty() {
        output::say(format!("no {} messages in {queue}", state.as_str()));
    }
    Ok(Exit::Ok)
}

/// Up to `limit` messages of a queue in one state, page by page.
pub(crate) async fn looked_at(
    client: &Client,
    queue: &str,
    state: MessageState,
    limit: usize,
) -> Result<Vec<ticketrail_client::MessageInfo>, ticketrail_client::Error> {
    let queue = client.queue(queue);
    let mut messages = Vec::new();
    let mut after = String::new();
    while messages.len() < limit {
        let size = u32::try_from(limit - messages.len()).unwrap_or(u32::MAX).min(1_000);
        let page = queue.peek().state(state).page_size(size).after(after).await?;
        messages.extend(page.messages);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(messages)
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
