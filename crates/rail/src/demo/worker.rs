//! A worker process of the demo: leases orders, charges them, acks them, and writes down what it did.
//!
//! Told `park` on its stdin, it stops between a ledger line and the ack of an order that it has just charged, says so
//! on its stdout, and waits there to be killed.

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
use ticketrail_client::{Client, Delivery, Error, Reason, Received, Settled};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;

use super::charges::Charges;
use super::dataset::Order;
use super::ledger::{AckOutcome, Charge, ChargeLine, Invocation, Ledger, WorkerLine};
use super::producer::CALL_TIMEOUT;
use crate::clock::monotonic_ns;
use crate::exit::{Exit, Failure};

/// How long a worker has an order.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// How long a receive waits: well within the lease, which counts from when the receive was sent.
const WAIT: Duration = Duration::from_secs(1);
/// Orders leased at once.
const BATCH: u32 = 16;
/// What the worker is told to stop between line and ack.
pub(crate) const PARK: &str = "park";

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The server's address
    #[arg(long)]
    address: String,
    /// The queue
    #[arg(long)]
    queue: String,
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
    /// The order that it has charged and not acked.
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
/// Told to stop at the next order charged.
const TO_PARK: u8 = 1;
/// Stopped between line and ack.
const PARKED: u8 = 2;

/// A delivery with its order.
struct Job {
    delivery: Delivery,
    order: Order,
}

pub(crate) async fn run(args: WorkerArgs) -> Result<Exit, Failure> {
    let client = Client::builder().address(&args.address).timeout(CALL_TIMEOUT).connect()?;
    let park = Arc::new(AtomicU8::new(WORKING));
    let (stop, mut stopped) = watch::channel(false);
    let listener = tokio::spawn(listen(Arc::clone(&park), stop));
    let mut worker =
        Worker { client, ledger: Ledger::open(&args.ledger)?, charges: Charges::open(&args.charges)?, park, args };
    while !*stopped.borrow() {
        let receive = worker.client.queue(&worker.args.queue).receive();
        let receive = receive.max(BATCH).wait(WAIT).lease(LEASE).worker(&worker.args.name);
        let received = tokio::select! {
            received = receive => received,
            _ = stopped.changed() => break,
        };
        match received {
            Ok(received) => worker.work(received).await?,
            // What it may have leased comes back when the lease expires.
            Err(error) => eprintln!("{}: {error}", worker.args.name),
        }
    }
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
    async fn work(&mut self, received: Received) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        if received.position.is_some_and(|position| position.replayed) {
            lines.push(WorkerLine::ReceiveReplayed { messages: received.deliveries.len() });
        }
        // A lease that is over is somebody else's work.
        let live = received.deliveries.into_iter().filter(|delivery| delivery.lease_left() > Duration::ZERO);
        let jobs = live.map(job).collect::<anyhow::Result<Vec<_>>>()?;
        let invocations = self.charge(&jobs)?;
        lines.extend(invocations.iter().cloned().map(WorkerLine::Invoked));
        tokio::task::block_in_place(|| self.ledger.append(&lines))?;

        if self.park.load(Ordering::SeqCst) == TO_PARK
            && let Some(charged) = invocations.iter().find(|invocation| invocation.charge == Charge::Charged)
        {
            self.park.store(PARKED, Ordering::SeqCst);
            park(charged)?;
        }
        let settled =
            join_all(jobs.into_iter().zip(invocations).map(|(job, invocation)| settle(job, invocation))).await;
        tokio::task::block_in_place(|| self.ledger.append(&settled))
    }

    /// Charges what is to be charged, in one step; the lines are on disk.
    fn charge(&mut self, jobs: &[Job]) -> anyhow::Result<Vec<Invocation>> {
        let invoked_ns = monotonic_ns();
        let chargeable = jobs.iter().enumerate().filter(|(_, job)| verdict(job) == Verdict::Charge);
        let (places, wanted): (Vec<usize>, Vec<ChargeLine>) =
            chargeable.map(|(place, job)| (place, self.charge_line(job))).unzip();
        let charges = tokio::task::block_in_place(|| self.charges.charge(wanted))?;
        let charged: BTreeMap<usize, Charge> = places.into_iter().zip(charges).collect();
        Ok(jobs
            .iter()
            .enumerate()
            .map(|(place, job)| Invocation {
                order: job.order.order.clone(),
                message: job.delivery.message.id.clone(),
                receive_count: job.delivery.receive_count,
                charge: charged.get(&place).copied().unwrap_or(Charge::None),
                invoked_ns,
            })
            .collect())
    }

    fn charge_line(&self, job: &Job) -> ChargeLine {
        ChargeLine {
            order: job.order.order.clone(),
            cents: job.order.cents,
            worker: self.args.name.clone(),
            message: job.delivery.message.id.clone(),
        }
    }
}

fn job(delivery: Delivery) -> anyhow::Result<Job> {
    let order = serde_json::from_slice(&delivery.message.body)
        .with_context(|| format!("the body of message {}", delivery.message.id))?;
    Ok(Job { delivery, order })
}

/// What is to be done with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Charge,
    /// Nothing to charge: it fails for good.
    Reject,
    /// The first attempt of some orders fails.
    Retry,
}

fn verdict(job: &Job) -> Verdict {
    if job.order.is_free() {
        Verdict::Reject
    } else if job.order.fails_first() && job.delivery.receive_count == 1 {
        Verdict::Retry
    } else {
        Verdict::Charge
    }
}

async fn settle(job: Job, invocation: Invocation) -> WorkerLine {
    let settled = match verdict(&job) {
        Verdict::Charge => job.delivery.ack().await,
        Verdict::Reject => job.delivery.reject("NOTHING_TO_CHARGE", "the order's total is zero").await,
        Verdict::Retry => job.delivery.retry("GATEWAY_TIMEOUT", "the payment gateway did not answer", None).await,
    };
    let outcome = match &settled {
        Ok(Settled::Acked(_)) => AckOutcome::Acked,
        Ok(Settled::DeadLettered(_)) => AckOutcome::DeadLettered,
        Ok(Settled::Delayed { .. } | Settled::Readied(_)) => AckOutcome::Again,
        Ok(Settled::Purged(_)) => AckOutcome::Refused,
        Err(Error::Refused(refusal)) if refusal.reason == Reason::LeaseLost => AckOutcome::LeaseLost,
        Err(Error::Refused(_)) => AckOutcome::Refused,
        Err(Error::Unavailable { .. } | Error::Unknown { .. } | Error::Config { .. } | Error::Protocol { .. }) => {
            AckOutcome::Unknown
        }
    };
    if let Err(error) = &settled {
        eprintln!("{} of {}: {error}", invocation.order, invocation.message);
    }
    let replayed = settled.is_ok_and(|settled| settled.position().replayed);
    WorkerLine::Settled { invocation, outcome, replayed, at_ns: monotonic_ns() }
}

/// Stops here for good: only a kill ends it.
fn park(charged: &Invocation) -> anyhow::Result<()> {
    let parked =
        Parked { order: charged.order.clone(), message: charged.message.clone(), receive_count: charged.receive_count };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(&parked)?)?;
    stdout.flush()?;
    drop(stdout);
    loop {
        std::thread::park();
    }
}
