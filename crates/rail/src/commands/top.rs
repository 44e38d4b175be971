//! `rail top`: queues and what goes through them, again and again.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use ticketrail_client::{Client, Error, QueueInfo};

use crate::clock::monotonic_ns;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, Row, millis, short};
use crate::parse;
use crate::view::queue::{marked, rate_text};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connection: Connection,
    /// The time between two looks, over which rates are taken
    #[arg(long, value_parser = parse::duration, default_value = "2s", value_name = "DURATION")]
    interval: Duration,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Oldest)]
    sort: Sort,
    /// Queues at most
    #[arg(long, default_value_t = 40, value_name = "N")]
    limit: usize,
    /// Look twice, print once and end, also on a terminal
    #[arg(long)]
    once: bool,
}

/// What a table is sorted by: the most first, but names by the alphabet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Oldest,
    Ready,
    In,
    Out,
    Dead,
    Name,
}

/// The shortest interval: each look reads all queues of the namespace.
const INTERVAL_LEAST: Duration = Duration::from_millis(200);

/// Home, and all below it cleared.
const CLEAR: &str = "\x1b[H\x1b[J";

/// The queues at one moment.
struct Look {
    at_ns: u64,
    queues: Vec<QueueInfo>,
}

impl Look {
    async fn take(client: &Client) -> Result<Self, Error> {
        let queues = client.admin().queues().await?;
        Ok(Self { at_ns: monotonic_ns(), queues })
    }
}

/// A queue and its rates.
#[derive(Debug, Serialize)]
struct TopLine {
    name: String,
    ready: u64,
    leased: u64,
    delayed: u64,
    blocked: u64,
    oldest_ms: Option<u64>,
    dead: u64,
    /// Messages that came, a second: enqueued and moved here.
    in_rate: f64,
    /// Messages that left, a second: acked, dead-lettered, dropped, expired.
    out_rate: f64,
    paused: bool,
    closed: bool,
}

impl TopLine {
    /// What happened to a queue between two looks, `seconds` apart. One that was not there before has no rates.
    fn new(queue: &QueueInfo, before: Option<&QueueInfo>, seconds: f64) -> Self {
        let came = |queue: &QueueInfo| queue.stats.enqueued.saturating_add(queue.stats.moved_in);
        // A queue made anew under its name counts from zero.
        let before = before.filter(|before| before.id == queue.id);
        let rate = |count: fn(&QueueInfo) -> u64, now: u64| match before {
            Some(before) if seconds > 0.0 => now.saturating_sub(count(before)) as f64 / seconds,
            Some(_) | None => 0.0,
        };
        Self {
            name: queue.name.clone(),
            ready: queue.stats.ready,
            leased: queue.stats.leased,
            delayed: queue.stats.delayed,
            blocked: queue.stats.blocked,
            oldest_ms: queue.stats.oldest_ready_age.map(millis),
            dead: queue.dead,
            in_rate: rate(came, came(queue)),
            out_rate: rate(|queue| queue.stats.finished(), queue.stats.finished()),
            paused: queue.pause.is_some(),
            closed: queue.closed,
        }
    }
}

impl Row for TopLine {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "READY", "LEASED", "DELAYED", "BLOCKED", "OLDEST", "IN/S", "OUT/S", "DEAD"];

    fn cells(&self) -> Vec<String> {
        vec![
            marked(&self.name, self.paused, self.closed),
            self.ready.to_string(),
            self.leased.to_string(),
            self.delayed.to_string(),
            self.blocked.to_string(),
            self.oldest_ms.map(|ms| short(Duration::from_millis(ms))).unwrap_or_default(),
            rate_text(self.in_rate),
            rate_text(self.out_rate),
            self.dead.to_string(),
        ]
    }
}

/// The lines of two looks, sorted, at most `limit`.
fn lines(before: &Look, now: &Look, sort: Sort, limit: usize) -> Vec<TopLine> {
    let known: BTreeMap<&str, &QueueInfo> = before.queues.iter().map(|queue| (queue.name.as_str(), queue)).collect();
    let seconds = Duration::from_nanos(now.at_ns.saturating_sub(before.at_ns)).as_secs_f64();
    let line = |queue: &QueueInfo| TopLine::new(queue, known.get(queue.name.as_str()).copied(), seconds);
    let mut lines: Vec<TopLine> = now.queues.iter().map(line).collect();
    // Stable: what is equal stays in the order of its names.
    match sort {
        Sort::Oldest => lines.sort_by_key(|line| std::cmp::Reverse(line.oldest_ms)),
        Sort::Ready => lines.sort_by_key(|line| std::cmp::Reverse(line.ready)),
        Sort::In => lines.sort_by(|one, other| other.in_rate.total_cmp(&one.in_rate)),
        Sort::Out => lines.sort_by(|one, other| other.out_rate.total_cmp(&one.out_rate)),
        Sort::Dead => lines.sort_by_key(|line| std::cmp::Reverse(line.dead)),
        Sort::Name => {}
    }
    lines.truncate(limit);
    lines
}

pub(crate) async fn run(args: TopArgs, format: Format) -> Result<Exit, Failure> {
    if args.interval < INTERVAL_LEAST {
        let what = format!("expected an --interval of at least {INTERVAL_LEAST:?}, but got {:?}", args.interval);
        return Err(Failure::usage(what, "leave it out for 2s"));
    }
    let client = args.connection.client()?;
    let again = !args.once && format == Format::Table && io::stdout().is_terminal();
    let mut before = Look::take(&client).await?;
    if again {
        output::print(&format!("{CLEAR}looking at {}...\n", args.connection.address))?;
    }
    loop {
        tokio::time::sleep(args.interval).await;
        let now = match Look::take(&client).await {
            Ok(now) => now,
            // A failover is no reason to end.
            Err(error @ Error::Unavailable { .. }) if again => {
                output::print(&format!("{CLEAR}{error}\n"))?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let lines = lines(&before, &now, args.sort, args.limit);
        if !again {
            output::list(format, &lines)?;
            return Ok(Exit::Ok);
        }
        let heading = format!(
            "{CLEAR}{} queues in {} at {}, each {:?}; Ctrl-C ends\n\n",
            now.queues.len(),
            client.namespace(),
            args.connection.address,
            args.interval
        );
        output::print(&heading)?;
        output::list(format, &lines)?;
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ticketrail_client::{QueueSettings, QueueStats};

    use super::*;

    fn queue(name: &str, id: u64, stats: QueueStats) -> QueueInfo {
        QueueInfo {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            id,
            created_at: SystemTime::UNIX_EPOCH,
            settings: QueueSettings::default(),
            pause: None,
            closed: false,
            stats,
            dead: 0,
        }
    }

    fn stats(enqueued: u64, acked: u64, oldest: Option<u64>) -> QueueStats {
        let oldest_ready_age = oldest.map(Duration::from_secs);
        QueueStats { enqueued, acked, ready: enqueued - acked, oldest_ready_age, ..QueueStats::default() }
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let before = Look {
            at_ns: 1_000_000_000,
            queues: vec![queue("a", 1, stats(100, 50, None)), queue("b", 2, stats(10, 10, None))],
        };
        let now = Look {
            at_ns: 3_000_000_000,
            queues: vec![
                queue("a", 1, stats(140, 60, Some(5))),
                queue("b", 7, stats(3, 0, Some(9))),
                queue("c", 8, stats(9, 0, None)),
            ],
        };
        let rates = |sort| -> Vec<(String, f64, f64)> {
            let lines = lines(&before, &now, sort, 40);
            lines.into_iter().map(|line| (line.name, line.in_rate, line.out_rate)).collect()
        };
        let a = || ("a".to_owned(), 20.0, 5.0);
        let (b, c) = (|| ("b".to_owned(), 0.0, 0.0), || ("c".to_owned(), 0.0, 0.0));
        assert_eq!(rates(Sort::Oldest), [b(), a(), c()]);
        assert_eq!(rates(Sort::In), [a(), b(), c()]);
        assert_eq!(rates(Sort::Name), [a(), b(), c()]);
        assert_eq!(lines(&before, &now, Sort::Ready, 1).len(), 1);
    }
}
