//! `rail msg cancel|reschedule`: messages that nobody has received yet.

use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use ticketrail_client::{Batch, Cancelled, Client, Refusal, Rescheduled, When};

use super::{Targets, judge};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, Row, timestamp};
use crate::parse;

#[derive(Debug, Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    targets: Targets,
}

#[derive(Debug, Args)]
pub(super) struct Reschedule {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    when: Time,
}

/// When.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Time {
    /// Ready so long from now
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    delay: Option<Duration>,
    /// Ready at this time
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    at: Option<SystemTime>,
    /// Ready at once
    #[arg(long)]
    now: bool,
}

impl Time {
    fn when(&self) -> When {
        match (self.delay, self.at) {
            (Some(delay), _) => When::After(delay),
            (None, Some(at)) => When::At(at),
            (None, None) => When::Now,
        }
    }
}

/// What became of one message.
#[derive(Debug, Serialize)]
struct ChangedLine {
    /// How it was named.
    target: String,
    outcome: &'static str,
    id: Option<String>,
    available_at: Option<String>,
    reason: Option<String>,
}

impl ChangedLine {
    fn cancelled(target: &str, result: &Result<Cancelled, Refusal>) -> Self {
        let mut line = Self::named(target);
        match result {
            Ok(cancelled) => {
                line.outcome = cancelled.as_str();
                if let Cancelled::Cancelled { message_id } = cancelled {
                    line.id = Some(message_id.clone());
                }
            }
            Err(refusal) => line.reason = Some(refusal.reason.to_string()),
        }
        line
    }

    fn rescheduled(target: &str, result: &Result<Rescheduled, Refusal>) -> Self {
        let mut line = Self::named(target);
        match result {
            Ok(Rescheduled { message_id, available_at }) => {
                line.outcome = "rescheduled";
                line.id = Some(message_id.clone());
                line.available_at = Some(timestamp(*available_at));
            }
            Err(refusal) => line.reason = Some(refusal.reason.to_string()),
        }
        line
    }

    fn named(target: &str) -> Self {
        Self { target: target.to_owned(), outcome: "refused", id: None, available_at: None, reason: None }
    }
}

impl Row for ChangedLine {
    const COLUMNS: &'static [&'static str] = &["MESSAGE", "OUTCOME", "ID", "AVAILABLE", "REASON"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.target.clone(),
            self.outcome.to_owned(),
            self.id.clone().unwrap_or_default(),
            self.available_at.clone().unwrap_or_default(),
            self.reason.clone().unwrap_or_default(),
        ]
    }
}

pub(super) async fn cancel(client: &Client, args: Cancel, format: Format) -> Result<Exit, Failure> {
    let (names, targets): (Vec<_>, Vec<_>) = args.targets.each(client).into_iter().unzip();
    let Batch { results, .. } = client.cancel_batch(targets).await?;
    let lines: Vec<_> = names.iter().zip(&results).map(|(name, result)| ChangedLine::cancelled(name, result)).collect();
    output::list(format, &lines)?;
    judge(results.iter().map(|result| result.as_ref().err()))
}

pub(super) async fn reschedule(client: &Client, args: Reschedule, format: Format) -> Result<Exit, Failure> {
    let when = args.when.when();
    let (names, targets): (Vec<_>, Vec<_>) = args.targets.each(client).into_iter().unzip();
    let Batch { results, .. } = client.reschedule_batch(targets.into_iter().map(|target| (target, when))).await?;
    let lines: Vec<_> =
        names.iter().zip(&results).map(|(name, result)| ChangedLine::rescheduled(name, result)).collect();
    output::list(format, &lines)?;
    judge(results.iter().map(|result| result.as_ref().err()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reschedule: Reschedule,
    }

    fn parse(line: &str) -> Result<Reschedule, clap::Error> {
        Line::try_parse_from(["reschedule"].into_iter().chain(line.split_whitespace())).map(|line| line.reschedule)
    }

    #[test]
    fn messages_are_named_by_ids_or_by_dedup_ids() {
        assert_eq!(parse("1.1.m4.1 1.1.m4.2 --now").expect("ids").targets.ids.len(), 2);
        let dedup = parse("--queue orders --dedup a --dedup b --delay 5s").expect("dedup ids");
        assert_eq!((dedup.targets.dedup.len(), dedup.when.when()), (2, When::After(Duration::from_secs(5))));
        for line in [
            "--now",
            "1.1.m4.1",
            "--dedup a --now",
            "--queue orders --now",
            "1.1.m4.1 --queue orders --dedup a --now",
            "1.1.m4.1 --now --delay 5s",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
