//! `rail queue`: queues made, looked at, changed, emptied.

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde::Serialize;
use ticketrail_client::{Admin, Error, Pause, QueueSettings, Reason};

use crate::confirm::{Sure, confirm};
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{self, Card, Format};
use crate::parse;
use crate::settings::SettingsArgs;
use crate::view::queue::{QueueCard, QueueLine};

#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a queue
    Create {
        /// Its name
        queue: String,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// A queue of that name is as good
        #[arg(long)]
        if_not_exists: bool,
    },
    /// List queues: ready, leased, delayed, the oldest ready message's age, dead letters
    #[command(visible_alias = "list")]
    Ls,
    /// Show one queue: settings and figures
    Show {
        /// Its name
        queue: String,
    },
    /// Change a queue's settings; what is not given stays
    Update {
        /// Its name
        queue: String,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
    },
    /// Remove a queue and all its messages
    Delete {
        /// Its name
        queue: String,
        #[command(flatten)]
        sure: Sure,
        /// No queue of that name is as good
        #[arg(long)]
        if_exists: bool,
    },
    /// Remove all messages of a queue that are not leased
    Purge {
        /// Its name
        queue: String,
        #[command(flatten)]
        sure: Sure,
    },
    /// Stop delivery; enqueues go on
    Pause {
        /// Its name
        queue: String,
        /// Why, for whoever wonders
        #[arg(long)]
        reason: String,
        /// Resume by itself at this time
        #[arg(long, value_parser = parse::time, value_name = "TIME", conflicts_with = "for")]
        until: Option<SystemTime>,
        /// Resume by itself after so long
        #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
        r#for: Option<Duration>,
    },
    /// Let delivery go on
    Resume {
        /// Its name
        queue: String,
    },
    /// Refuse enqueues; delivery goes on
    Close {
        /// Its name
        queue: String,
    },
    /// Admit enqueues again
    Reopen {
        /// Its name
        queue: String,
    },
}

/// How many messages went.
#[derive(Debug, Serialize)]
struct Gone {
    queue: String,
    messages: u64,
}

impl Card for Gone {
    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![("queue", self.queue.clone()), ("messages removed", self.messages.to_string())]
    }
}

pub(crate) async fn run(args: QueueArgs, format: Format) -> Result<Exit, Failure> {
    let admin = args.connection.client()?.admin();
    match args.verb {
        Verb::Create { queue, settings, if_not_exists } => {
            match admin.create_queue(&queue, (*settings).into()).await {
                Err(Error::Refused(refusal)) if if_not_exists && refusal.reason == Reason::QueueExists => {
                    output::say(format!("queue {queue} is there already"));
                }
                made => {
                    made?;
                }
            }
            changed(&admin, &queue, format).await
        }
        Verb::Ls => {
            let lines: Vec<QueueLine> = admin.queues().await?.iter().map(QueueLine::new).collect();
            output::list(format, &lines)?;
            if lines.is_empty() {
                output::say("no queues yet: the first message makes one, `rail msg send orders hello`");
            }
            Ok(Exit::Ok)
        }
        Verb::Show { queue } => show(&admin, &queue, format).await,
        Verb::Update { queue, settings } => {
            let settings = QueueSettings::from(*settings);
            if settings == QueueSettings::default() {
                return Err(Failure::usage("expected a setting to change, but none is given", "see --help"));
            }
            admin.update_queue(&queue, settings).await?;
            changed(&admin, &queue, format).await
        }
        Verb::Delete { queue, sure, if_exists } => {
            let info = match admin.queue(&queue).await {
                Err(Error::Refused(refusal)) if if_exists && refusal.reason == Reason::QueueNotFound => {
                    output::say(format!("no queue {queue} is there"));
                    return Ok(Exit::Ok);
                }
                info => info?,
            };
            let depth = info.stats.depth();
            confirm(&sure, &format!("delete queue {queue} with its {depth} messages ({} leased)?", info.stats.leased))?;
            let messages = admin.delete_queue(&queue).await?;
            output::card(format, &Gone { queue, messages })?;
            Ok(Exit::Ok)
        }
        Verb::Purge { queue, sure } => {
            let stats = admin.queue(&queue).await?.stats;
            let free = stats.depth() - stats.leased;
            confirm(
                &sure,
                &format!("remove {free} messages of {queue} ({} leased ones are let finish)?", stats.leased),
            )?;
            let messages = admin.purge_queue(&queue).await?;
            output::card(format, &Gone { queue, messages })?;
            Ok(Exit::Ok)
        }
        Verb::Pause { queue, reason, until, r#for } => {
            #[expect(clippy::disallowed_methods, reason = "the person means their own clock")]
            let until = until.or_else(|| r#for.map(|duration| SystemTime::now() + duration));
            let author = std::env::var("USER").unwrap_or_else(|_| "rail".to_owned());
            admin.pause_queue(&queue, Pause { reason, author, until }).await?;
            changed(&admin, &queue, format).await
        }
        Verb::Resume { queue } => {
            admin.resume_queue(&queue).await?;
            changed(&admin, &queue, format).await
        }
        Verb::Close { queue } => {
            admin.close_queue(&queue).await?;
            changed(&admin, &queue, format).await
        }
        Verb::Reopen { queue } => {
            admin.reopen_queue(&queue).await?;
            changed(&admin, &queue, format).await
        }
    }
}

/// A queue after a change: for people as short as in a list.
async fn changed(admin: &Admin, queue: &str, format: Format) -> Result<Exit, Failure> {
    if format != Format::Table {
        return show(admin, queue, format).await;
    }
    output::list(format, &[QueueLine::new(&admin.queue(queue).await?)])?;
    Ok(Exit::Ok)
}

async fn show(admin: &Admin, queue: &str, format: Format) -> Result<Exit, Failure> {
    output::card(format, &QueueCard::new(admin.queue(queue).await?))?;
    Ok(Exit::Ok)
}
