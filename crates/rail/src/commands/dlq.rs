//! `rail dlq`: dead letters, and why they died.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;
use ticketrail_client::{Client, MessageState, QueueInfo};

use super::msg::looked_at;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, Row, millis, short};
use crate::view::message::DeadLine;
use crate::view::queue::dead_letter_queue;

#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List dead-letter queues: messages, their sources, the oldest one's age
    #[command(visible_alias = "list")]
    Ls,
    /// Show dead letters with reason and last failure
    Show {
        /// A dead-letter queue, or a queue whose dead letters to show
        queue: String,
        /// Messages at most
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
}

/// A dead-letter queue.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DlqLine {
    name: String,
    messages: u64,
    sources: Vec<String>,
    oldest_ms: Option<u64>,
}

impl Row for DlqLine {
    const COLUMNS: &'static [&'static str] = &["NAME", "MESSAGES", "OLDEST", "SOURCES"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.messages.to_string(),
            self.oldest_ms.map(|ms| short(std::time::Duration::from_millis(ms))).unwrap_or_default(),
            self.sources.join(" "),
        ]
    }
}

/// The dead-letter queues among `queues`: those that another one names, and that are there.
fn dead_letter_queues(queues: &[QueueInfo]) -> Vec<DlqLine> {
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for queue in queues {
        sources.entry(dead_letter_queue(&queue.name, &queue.settings)).or_default().push(queue.name.clone());
    }
    queues
        .iter()
        .filter_map(|queue| {
            let sources = sources.remove(&queue.name)?;
            Some(DlqLine {
                name: queue.name.clone(),
                messages: queue.stats.depth(),
                sources,
                oldest_ms: queue.stats.oldest_ready_age.map(millis),
            })
        })
        .collect()
}

pub(crate) async fn run(args: DlqArgs, format: Format) -> Result<Exit, Failure> {
    let client = args.connection.client()?;
    match args.verb {
        Verb::Ls => {
            let lines = dead_letter_queues(&client.admin().queues().await?);
            output::list(format, &lines)?;
            if lines.is_empty() {
                output::say("no dead letters");
            }
        }
        Verb::Show { queue, limit } => show(&client, &queue, limit, format).await?,
    }
    Ok(Exit::Ok)
}

async fn show(client: &Client, queue: &str, limit: usize, format: Format) -> Result<(), Failure> {
    let queues = client.admin().queues().await?;
    let name = if dead_letter_queues(&queues).iter().any(|line| line.name == queue) {
        queue.to_owned()
    } else {
        // Not a dead-letter queue itself: that of the queue named. An unknown queue says so here.
        let info = client.admin().queue(queue).await?;
        dead_letter_queue(queue, &info.settings)
    };
    let mut lines = Vec::new();
    if queues.iter().any(|info| info.name == name) {
        for state in MessageState::ALL {
            let left = limit - lines.len();
            lines
                .extend(looked_at(client, &name, |look| look.state(state), left).await?.into_iter().map(DeadLine::new));
        }
    }
    output::list(format, &lines)?;
    if lines.is_empty() {
        output::say(format!("no dead letters in {name}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ticketrail_client::{QueueSettings, QueueStats};

    use super::*;

    fn queue(name: &str, dead_letters: &str, ready: u64) -> QueueInfo {
        QueueInfo {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            id: 1,
            created_at: SystemTime::UNIX_EPOCH,
            settings: QueueSettings { dead_letter_queue: Some(dead_letters.to_owned()), ..QueueSettings::default() },
            pause: None,
            closed: false,
            stats: QueueStats { ready, ..QueueStats::default() },
            dead: 0,
        }
    }

    #[test]
    fn a_dead_letter_queue_is_one_that_another_names() {
        let queues = [
            queue("a", "", 1),
            queue("a.dlq", "", 2),
            queue("b", "morgue", 3),
            queue("c", "morgue", 4),
            queue("morgue", "", 5),
            queue("d", "", 6),
        ];
        let found = dead_letter_queues(&queues);
        let names: Vec<_> = found.iter().map(|line| (line.name.as_str(), line.messages)).collect();
        assert_eq!(names, [("a.dlq", 2), ("morgue", 5)]);
        assert_eq!(found.last().map(|line| line.sources.join(" ")), Some("b c".to_owned()));
    }
}
