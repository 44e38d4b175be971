//! `rail msg send`.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use ticketrail_client::{Client, Error, NewMessage, Part, Refusal, Sent};

use super::judge;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, Row, timestamp};
use crate::parse;

#[derive(Debug, Args)]
pub(super) struct Send {
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
    /// Its group: of the unfinished messages of one group only the first is received
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// 0 to 9, 9 first [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9), value_name = "N")]
    priority: Option<u8>,
    /// Your own key of what it is about: while the queue remembers it, nothing is added twice
    #[arg(long, conflicts_with = "lines", value_name = "ID")]
    dedup: Option<String>,
    /// It expires so long after it is first ready [default: the queue's]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    ttl: Option<Duration>,
    /// It expires at this time; with --ttl too, the earlier counts
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    expires_at: Option<SystemTime>,
    /// Failures until it is dead-lettered, 1 to 100; 0: without limit [default: the queue's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Its n-th failure waits up to this times 2^n [default: the queue's]
    #[arg(long, value_parser = parse::duration, requires = "backoff_cap", value_name = "DURATION")]
    backoff_base: Option<Duration>,
    /// Its longest backoff [default: the queue's]
    #[arg(long, value_parser = parse::duration, requires = "backoff_base", value_name = "DURATION")]
    backoff_cap: Option<Duration>,
    /// Where it goes when it dies [default: the queue's]
    #[arg(long, value_name = "QUEUE")]
    dead_letter_queue: Option<String>,
    /// One line's refusal refuses all; at most 1000 lines
    #[arg(long, requires = "lines", conflicts_with = "body")]
    all_or_nothing: bool,
}

impl Send {
    /// A message of `body` with all that was said.
    fn message(&self, body: Bytes) -> NewMessage {
        let mut message = NewMessage::new(body);
        for (key, value) in &self.tags {
            message = message.tag(key, value);
        }
        for (name, value) in &self.headers {
            message = message.header(name, value);
        }
        message = with(message, self.message_type.as_ref(), NewMessage::message_type);
        message = with(message, self.content_type.as_ref(), NewMessage::content_type);
        message = with(message, self.correlation_id.as_ref(), NewMessage::correlation_id);
        message = with(message, self.reply_to.as_ref(), NewMessage::reply_to);
        message = with(message, self.group.as_ref(), NewMessage::group);
        message = with(message, self.priority, NewMessage::priority);
        message = with(message, self.dedup.as_ref(), NewMessage::dedup);
        message = with(message, self.ttl, NewMessage::ttl);
        message = with(message, self.expires_at, NewMessage::expires_at);
        message = with(message, self.max_attempts, NewMessage::max_attempts);
        message = with(message, self.dead_letter_queue.as_ref(), NewMessage::dead_letter_queue);
        if let (Some(base), Some(cap)) = (self.backoff_base, self.backoff_cap) {
            message = message.backoff(base, cap);
        }
        message = with(message, self.delay, NewMessage::delay);
        with(message, self.at, NewMessage::deliver_at)
    }
}

/// The message with what was said, if it was.
fn with<T>(message: NewMessage, said: Option<T>, set: impl FnOnce(NewMessage, T) -> NewMessage) -> NewMessage {
    match said {
        Some(said) => set(message, said),
        None => message,
    }
}

/// The lines of a body that are not empty.
fn lines(body: &Bytes) -> impl Iterator<Item = Bytes> {
    body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| body.slice_ref(line))
}

/// A refusal of all for the sake of one, with its line.
fn named(error: Error) -> Failure {
    let part = error.refusal().and_then(Refusal::part);
    let mut failure = Failure::from(error);
    if let Some(Part::Enqueue(index)) = part {
        failure.what = format!("line {}: {}; nothing was sent", index + 1, failure.what);
    }
    failure
}

/// A message sent.
#[derive(Debug, Serialize)]
struct SentLine {
    id: String,
    sequence: u64,
    available_at: String,
    duplicate: bool,
}

impl SentLine {
    fn new(sent: &Sent) -> Self {
        let available_at = timestamp(sent.available_at);
        Self { id: sent.message_id.clone(), sequence: sent.sequence, available_at, duplicate: sent.duplicate }
    }
}

impl Row for SentLine {
    const COLUMNS: &'static [&'static str] = &["ID", "SEQUENCE", "AVAILABLE", "DUPLICATE"];

    fn cells(&self) -> Vec<String> {
        let duplicate = if self.duplicate { "yes" } else { "" };
        vec![self.id.clone(), self.sequence.to_string(), self.available_at.clone(), duplicate.to_owned()]
    }
}

/// Messages and bytes of one batch of `send --lines`: well within the server's 1,000 and 4 MiB.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 2 << 20;

pub(super) async fn run(client: &Client, args: Send, format: Format) -> Result<Exit, Failure> {
    let queue = client.queue(&args.queue);
    let message = |body: Bytes| args.message(body);
    let body = match (&args.body, &args.file) {
        (Some(body), _) => Bytes::copy_from_slice(body.as_bytes()),
        (None, Some(file)) => read(file)?,
        (None, None) => read(Path::new("-"))?,
    };
    if !args.lines {
        let sent = queue.send(message(body)).await?;
        output::list(format, &[SentLine::new(&sent)])?;
        if sent.duplicate {
            output::say("nothing was added: the queue remembers a message with this dedup id");
        }
        return Ok(Exit::Ok);
    }
    if args.all_or_nothing {
        let sent = queue.send_all_or_nothing(lines(&body).map(message)).await.map_err(named)?;
        output::list(format, &sent.iter().map(SentLine::new).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let mut results = Vec::new();
    let mut batch = Vec::new();
    let mut bytes = 0;
    for line in lines(&body) {
        if batch.len() == BATCH_MESSAGES || bytes + line.len() > BATCH_BYTES {
            results.extend(queue.send_batch(std::mem::take(&mut batch)).await?.results);
            bytes = 0;
        }
        bytes += line.len();
        batch.push(message(line));
    }
    if !batch.is_empty() {
        results.extend(queue.send_batch(batch).await?.results);
    }
    let lines: Vec<SentLine> = results.iter().flatten().map(SentLine::new).collect();
    output::list(format, &lines)?;
    judge(results.iter().map(|result| result.as_ref().err()))
}

/// All of a file, or of stdin.
pub(super) fn read(file: &Path) -> Result<Bytes, Failure> {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        send: Send,
    }

    fn parse(line: &str) -> Result<Send, clap::Error> {
        Line::try_parse_from(["send"].into_iter().chain(line.split_whitespace())).map(|line| line.send)
    }

    #[test]
    fn all_that_is_said_goes_with_the_message() {
        let send = parse(
            "orders x --group g --priority 9 --dedup d --ttl 1h --expires-at 2030-01-01T00:00:00Z --max-attempts 2 \
             --backoff-base 1s --backoff-cap 5s --dead-letter-queue morgue --delay 5s --tag a=b",
        );
        let at = parse::time("2030-01-01T00:00:00Z").expect("a time");
        let expected = NewMessage::new("x")
            .group("g")
            .priority(9)
            .dedup("d")
            .ttl(Duration::from_secs(3_600))
            .expires_at(at)
            .max_attempts(2)
            .backoff(Duration::from_secs(1), Duration::from_secs(5))
            .dead_letter_queue("morgue")
            .delay(Duration::from_secs(5))
            .tag("a", "b");
        assert_eq!(send.expect("flags").message("x".into()), expected);
        assert_eq!(parse("orders x").expect("flags").message("x".into()), NewMessage::new("x"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "orders x --priority 10",
            "orders --lines --dedup d",
            "orders x --all-or-nothing",
            "orders x --backoff-base 1s",
            "orders x --delay 1s --at 2030-01-01T00:00:00Z",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn empty_lines_are_no_messages() {
        let all: Vec<_> = lines(&Bytes::from_static(b"a\n\nb\n")).collect();
        assert_eq!(all, ["a", "b"]);
    }
}
