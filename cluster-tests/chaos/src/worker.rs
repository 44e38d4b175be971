//! A worker as a process of its own: it takes messages one by one, works on each for a while, asks for more time and
//! acks. What it is told is one line a step on stdout. It can be stopped, let go on, and killed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ticketrail_client::{Client, Delivery, Error, Reason};

use crate::poll::pass_async;
use crate::verdict::{EXIT_FAILED, EXIT_USAGE};

/// The first word of its command line.
pub const WORD: &str = "--worker";

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The servers, with commas between.
    pub addresses: String,
    /// The queue.
    pub queue: String,
    /// The lease that it asks for.
    pub lease: Duration,
    /// How long it works on one message.
    pub work: Duration,
}

/// One step, as its line says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It has a message.
    Took {
        /// The message's id.
        id: String,
        /// How often it was delivered, this time included.
        count: u32,
    },
    /// It was given more time.
    Extended(String),
    /// Its ack was answered OK.
    Acked(String),
    /// Its extension was refused: the lease is lost.
    ExtendLost(String),
    /// Its ack was refused: the lease is lost.
    AckLost(String),
    /// Something else came.
    Odd(String),
}

impl Step {
    /// Reads a line.
    pub fn parse(line: &str) -> Step {
        let mut words = line.split_whitespace();
        let (verb, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        match verb {
            "took" => match words.next().and_then(|count| count.parse().ok()) {
                Some(count) => Step::Took { id, count },
                None => Step::Odd(line.to_owned()),
            },
            "extended" => Step::Extended(id),
            "acked" => Step::Acked(id),
            "extend-lost" => Step::ExtendLost(id),
            "ack-lost" => Step::AckLost(id),
            _ => Step::Odd(line.to_owned()),
        }
    }
}

impl Job {
    /// The words of its command line.
    pub fn words(&self) -> Vec<String> {
        [WORD, &self.addresses, &self.queue, &self.lease.as_millis().to_string(), &self.work.as_millis().to_string()]
            .map(str::to_owned)
            .to_vec()
    }

    /// Reads what [`words`](Self::words) gives, but for the first one.
    fn parse(words: &[String]) -> Option<Job> {
        let [addresses, queue, lease, work] = words else { return None };
        let millis = |text: &String| Some(Duration::from_millis(text.parse().ok()?));
        Some(Job { addresses: addresses.clone(), queue: queue.clone(), lease: millis(lease)?, work: millis(work)? })
    }
}

/// Works until it is killed.
pub fn main(words: &[String]) -> ExitCode {
    let Some(job) = Job::parse(words) else {
        eprintln!("chaos: expected addresses, a queue, a lease and a time of work in milliseconds after {WORD}");
        return ExitCode::from(EXIT_USAGE);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let worked = runtime.context("start a runtime").and_then(|runtime| runtime.block_on(work(&job)));
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("odd {error:#}"));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    // Nobody reads where the drill is over.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn work(job: &Job) -> anyhow::Result<()> {
    let client = Client::builder().addresses(job.addresses.split(',')).connect()?;
    let queue = client.queue(&job.queue);
    loop {
        let received = queue.receive().lease(job.lease).wait(Duration::from_secs(1)).await;
        let Some(delivery) = received.context("receive")?.deliveries.pop() else { continue };
        one(job, delivery).await?;
    }
}

async fn one(job: &Job, mut delivery: Delivery) -> anyhow::Result<()> {
    let id = delivery.message.id.clone();
    say(&format!("took {id} {}", delivery.receive_count));
    pass_async(job.work).await;
    match delivery.extend(Some(job.lease)).await {
        Ok(_) => say(&format!("extended {id}")),
        Err(error) => lost("extend", &id, &error)?,
    }
    match delivery.ack().await {
        Ok(_) => say(&format!("acked {id}")),
        Err(error) => lost("ack", &id, &error)?,
    }
    Ok(())
}

fn lost(what: &str, id: &str, error: &Error) -> anyhow::Result<()> {
    if error.reason() != Some(&Reason::LeaseLost) {
        bail!("{what} {id}: {error}");
    }
    say(&format!("{what}-lost {id}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_is_written() {
        let millis = Duration::from_millis;
        let job = Job { addresses: "a:1,b:2".into(), queue: "slow".into(), lease: millis(1_000), work: millis(300) };
        assert_eq!(Job::parse(&job.words()[1..]), Some(job));
        assert_eq!(Job::parse(&["a".into()]), None);
    }

    #[test]
    fn steps_are_read_as_they_are_told() {
        assert_eq!(Step::parse("took 1.2.m4.7 2"), Step::Took { id: "1.2.m4.7".into(), count: 2 });
        assert_eq!(Step::parse("acked x"), Step::Acked("x".into()));
        assert_eq!(Step::parse("ack-lost x"), Step::AckLost("x".into()));
        assert_eq!(Step::parse("odd it broke"), Step::Odd("odd it broke".into()));
        assert_eq!(Step::parse("took x"), Step::Odd("took x".into()));
    }
}
