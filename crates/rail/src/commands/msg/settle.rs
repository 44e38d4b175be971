//! `rail msg ack|nack|release|extend`.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use ticketrail_client::{Batch, Client, Refusal, Settled, Settlement};

use super::judge;
use super::send::read;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, Row, millis, timestamp};
use crate::parse;

/// Which deliveries.
#[derive(Debug, Args)]
pub(super) struct Tokens {
    /// Lease tokens, as `rail msg receive` printed them
    #[arg(required = true, value_parser = parse::token, value_name = "TOKEN")]
    tokens: Vec<Bytes>,
}

#[derive(Debug, Args)]
pub(super) struct Ack {
    #[command(flatten)]
    tokens: Tokens,
    /// What came of it, at most 64 KiB: `rail msg get` shows it where the queue retains outcomes
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
    /// Read what came of it from a file; `-` is stdin
    #[arg(long, conflicts_with = "result", value_name = "FILE")]
    result_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Nack {
    #[command(flatten)]
    tokens: Tokens,
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

#[derive(Debug, Args)]
pub(super) struct Extend {
    #[command(flatten)]
    tokens: Tokens,
    /// The lease ends so long from now, 1s to 12h [default: the queue's lease]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    lease: Option<Duration>,
}

pub(super) async fn ack(client: &Client, args: Ack, format: Format) -> Result<Exit, Failure> {
    let result = match (args.result, args.result_file) {
        (Some(text), _) => text.into(),
        (None, Some(file)) => read(&file)?,
        (None, None) => Bytes::new(),
    };
    settle(client, args.tokens.tokens, format, |token| Settlement::ack_token_with(token, result.clone())).await
}

pub(super) async fn nack(client: &Client, args: Nack, format: Format) -> Result<Exit, Failure> {
    let Nack { tokens: Tokens { tokens }, permanent, code, text, delay } = args;
    let verdict = |token| match permanent {
        true => Settlement::reject_token(token, &*code, &*text),
        false => Settlement::retry_token(token, &*code, &*text, delay),
    };
    settle(client, tokens, format, verdict).await
}

pub(super) async fn release(client: &Client, tokens: Tokens, format: Format) -> Result<Exit, Failure> {
    settle(client, tokens.tokens, format, Settlement::release_token).await
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
            Ok(
                settled @ (Settled::Acked(_)
                | Settled::DeadLettered(_)
                | Settled::Readied(_)
                | Settled::Purged(_)
                | Settled::Expired(_)
                | Settled::Dropped(_)),
            ) => (settled.as_str(), None, None),
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

pub(super) async fn extend(client: &Client, args: Extend, format: Format) -> Result<Exit, Failure> {
    let Extend { tokens: Tokens { tokens }, lease } = args;
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
