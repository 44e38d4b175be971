//! A worker process of the demo: leases the orders of its stage over a stream, works on them, passes each on with one
//! commit that acks it and enqueues it for the next stage, and writes down what it did.
//!
//! Told `park` on its stdin, it stops between the ledger line and the commit of an order that it has just worked on,
//! says so on its stdout, and waits there to be killed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use ticketrail_client::{Client, Consumer, Delivery, Error, NewMessage, Reason, Settled, SettledPart};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;

use super::charges::Charges;
use super::dataset::Order;
use super::ledger::{AckOutcome, Charge, ChargeLine, Invocation, Ledger, WorkerLine};
use super::producer::CALL_TIMEOUT;
use super::stage::{Stage, Verdict};
use crate::clock::monotonic_ns;
use crate::exit::{Exit, Failure};

/// How long a worker has an order.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// Orders worked on at once.
const BATCH: usize = 16;
/// Orders held at one time, those that wait among them.
const PREFETCH: usize = 2 * BATCH;
/// What the worker is told to stop between line and commit.
pub(crate) const PARK: &str = "park";

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The servers' addresses
    #[arg(long, value_delimiter = ',')]
    addresses: Vec<String>,
    /// The stage
    #[arg(long, value_enum)]
    stage: Stage,
    /// The ledger to append to
    #[arg(long)]
    ledger: PathBuf,
    /// The ledger of charges, shared by all workers
    #[arg(long)]
    charges: PathBuf,
    /// The worker's name
    #[arg(long)]
    name: String,
}

/// What a parked worker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parked {
    /// The order that it has worked on and not passed on.
    pub(crate) order: String,
    /// Its message.
    pub(crate) message: String,
    /// The receive count of the delivery.
    pub(crate) receive_count: u32,
}

struct Worker {
    args: WorkerArgs,
    client: Client,
    ledger: Ledger,
    charges: Charges,
    park: Arc<AtomicU8>,
}

/// Not told to park.
const WORKING: u8 = 0;
/// Told to stop at the next order worked on.
const TO_PARK: u8 = 1;
/// Stopped between line and commit.
const PARKED: u8 = 2;

/// A delivery with what is to be done with it.
struct Job {
    delivery: Delivery,
    /// As its tag says: its body may be torn.
    name: String,
    order: Option<Order>,
    verdict: Verdict,
}

pub(crate) async fn run(args: WorkerArgs) -> Result<Exit, Failure> {
    let client = Client::builder().addresses(&args.addresses).timeout(CALL_TIMEOUT).connect()?;
    let park = Arc::new(AtomicU8::new(WORKING));
    let (stop, mut stopped) = watch::channel(false);
    let listener = tokio::spawn(listen(Arc::clone(&park), stop));
    let queue = client.queue(args.stage.queue());
    let consumer = Consumer::builder(&queue).prefetch(PREFETCH).lease(LEASE).worker(&args.name);
    let mut worker =
        Worker { client, ledger: Ledger::open(&args.ledger)?, charges: Charges::open(&args.charges)?, park, args };
    let mut consumer = consumer.start();
    while !*stopped.borrow() {
        let deliveries = tokio::select! {
            deliveries = consumer.next_batch(BATCH) => deliveries?,
            _ = stopped.changed() => break,
        };
        if deliveries.is_empty() {
            break;
        }
        worker.work(deliveries).await?;
    }
    consumer.close().await?;
    // Before it ends the process as failed.
    listener.abort();
    Ok(Exit::Ok)
}

/// Takes commands until stdin is closed: that is the command to end.
async fn listen(park: Arc<AtomicU8>, stop: watch::Sender<bool>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == PARK {
            park.store(TO_PARK, Ordering::SeqCst);
        }
    }
    let _ = stop.send(true);
    if park.load(Ordering::SeqCst) != PARKED {
        // What it has in hand is finished in order, unless everybody else is gone.
        tokio::time::sleep(LEASE).await;
    }
    std::process::exit(i32::from(Exit::Failed.code()));
}

impl Worker {
    async fn work(&mut self, deliveries: Vec<Delivery>) -> anyhow::Result<()> {
        // Before it looks at the leases: a delivery that is live at this time is nobody else's.
        let invoked_ns = monotonic_ns();
        // A lease that is over is somebody else's work.
        let live = deliveries.into_iter().filter(|delivery| delivery.lease_left() > Duration::ZERO);
        let jobs = live.map(|delivery| job(self.args.stage, delivery)).collect::<anyhow::Result<Vec<_>>>()?;
        let invocations = self.invoke(&jobs, invoked_ns)?;
        let lines: Vec<WorkerLine> = invocations.iter().cloned().map(WorkerLine::Invoked).collect();
        tokio::task::block_in_place(|| self.ledger.append(&lines))?;

        if self.park.load(Ordering::SeqCst) == TO_PARK
            && let Some((_, worked)) =
                jobs.iter().zip(&invocations).find(|(job, invocation)| self.parks_at(job, invocation))
        {
            self.park.store(PARKED, Ordering::SeqCst);
            park(worked)?;
        }
        let (client, stage) = (&self.client, self.args.stage);
        let settled = join_all(jobs.into_iter().zip(invocations).map(|(job, done)| settle(client, stage, job, done)));
        let settled = settled.await;
        tokio::task::block_in_place(|| self.ledger.append(&settled))
    }

    /// Whether the kill of a worker at this job shows something: it was worked on, and at payment charged.
    fn parks_at(&self, job: &Job, invocation: &Invocation) -> bool {
        job.verdict == Verdict::Pass && (self.args.stage != Stage::Payment || invocation.charge == Charge::Charged)
    }

    /// Works on the jobs; at payment, charges what is to be charged, in one step: those lines are on disk.
    fn invoke(&mut self, jobs: &[Job], invoked_ns: u64) -> anyhow::Result<Vec<Invocation>> {
        let lines = |(place, job): (usize, &Job)| Some((place, self.charge_line(job)?));
        let (places, wanted): (Vec<usize>, Vec<ChargeLine>) = jobs.iter().enumerate().filter_map(lines).unzip();
        let charges = match wanted.is_empty() {
            true => Vec::new(),
            false => tokio::task::block_in_place(|| self.charges.charge(wanted))?,
        };
        let charged: BTreeMap<usize, Charge> = places.into_iter().zip(charges).collect();
        let invocation = |(place, job): (usize, &Job)| Invocation {
            order: job.name.clone(),
            message: job.delivery.message.id.clone(),
            receive_count: job.delivery.receive_count,
            charge: charged.get(&place).copied().unwrap_or(Charge::None),
            invoked_ns,
        };
        Ok(jobs.iter().enumerate().map(invocation).collect())
    }

    /// What is to be charged for a job; `None`: nothing.
    fn charge_line(&self, job: &Job) -> Option<ChargeLine> {
        let order = job.order.as_ref().filter(|_| job.verdict == Verdict::Pass)?;
        (self.args.stage == Stage::Payment).then(|| ChargeLine {
            order: order.order.clone(),
            cents: order.cents,
            worker: self.args.name.clone(),
            message: job.delivery.message.id.clone(),
        })
    }
}

fn job(stage: Stage, delivery: Delivery) -> anyhow::Result<Job> {
    let message = &delivery.message;
    let name = message.tags.get("order").with_context(|| format!("message {} has no tag `order`", message.id))?.clone();
    let order = serde_json::from_slice(&message.body).ok();
    let verdict = stage.verdict(order.as_ref(), delivery.receive_count);
    Ok(Job { delivery, name, order, verdict })
}

/// What became of a delivery: outcome, the message for the next stage, and whether the reply was an earlier attempt's.
type Ended = (AckOutcome, Option<String>, bool);

async fn settle(client: &Client, stage: Stage, job: Job, invocation: Invocation) -> WorkerLine {
    let ended = match (job.verdict, stage.next()) {
        (Verdict::Pass, Some(next)) => pass_on(client, next, &job.delivery).await,
        (Verdict::Pass, None) => job.delivery.ack().await.map(settled),
        (Verdict::Reject(code, text), _) => job.delivery.reject(code, text).await.map(settled),
        (Verdict::Retry(code, text), _) => job.delivery.retry(code, text, None).await.map(settled),
    };
    let (outcome, child, replayed) = ended.unwrap_or_else(|error| {
        eprintln!("{} of {}: {error}", invocation.order, invocation.message);
        (refused(&error), None, false)
    });
    WorkerLine::Settled { invocation, outcome, child, replayed, at_ns: monotonic_ns() }
}

/// Acks a delivery and enqueues its order for the next stage: both or neither.
async fn pass_on(client: &Client, next: Stage, delivery: &Delivery) -> Result<Ended, Error> {
    let message = &delivery.message;
    let onward = message.tags.iter().fold(
        NewMessage::new(message.body.clone()).content_type(&message.content_type).message_type(&message.message_type),
        |onward, (key, value)| onward.tag(key, value),
    );
    let done = client.commit().ack(delivery).enqueue(next.queue(), onward).send().await?;
    let outcome = match done.settled.first() {
        Some(SettledPart::Acked) => AckOutcome::Acked,
        Some(
            SettledPart::DeadLettered
            | SettledPart::Delayed { .. }
            | SettledPart::Readied
            | SettledPart::Extended { .. }
            | SettledPart::Purged
            | SettledPart::Expired
            | SettledPart::Dropped,
        )
        | None => AckOutcome::Refused,
    };
    Ok((outcome, done.enqueued.into_iter().next().map(|sent| sent.message_id), done.position.replayed))
}

fn settled(settled: Settled) -> Ended {
    let outcome = match &settled {
        Settled::Acked(_) => AckOutcome::Acked,
        Settled::DeadLettered(_) => AckOutcome::DeadLettered,
        Settled::Delayed { .. } | Settled::Readied(_) => AckOutcome::Again,
        Settled::Purged(_) | Settled::Expired(_) | Settled::Dropped(_) => AckOutcome::Refused,
    };
    (outcome, None, settled.position().replayed)
}

fn refused(error: &Error) -> AckOutcome {
    match error {
        Error::Refused(refusal) if refusal.reason == Reason::LeaseLost => AckOutcome::LeaseLost,
        Error::Refused(_) => AckOutcome::Refused,
        Error::Unavailable { .. } | Error::Unknown { .. } | Error::Config { .. } | Error::Protocol { .. } => {
            AckOutcome::Unknown
        }
    }
}

/// Stops here for good: only a kill ends it.
fn park(worked: &Invocation) -> anyhow::Result<()> {
    let parked =
        Parked { order: worked.order.clone(), message: worked.message.clone(), receive_count: worked.receive_count };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(&parked)?)?;
    stdout.flush()?;
    drop(stdout);
    loop {
        std::thread::park();
    }
}
