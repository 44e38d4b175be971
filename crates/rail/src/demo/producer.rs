//! A producer process of the demo: sends its share of the orders, and writes down what was acknowledged.
//!
//! One producer cuts its connection at every 100th order, after sending and before reading; the SDK repeats the request
//! under the same id. A cut that did not take effect (the reply was not that of an earlier attempt) is owed, and made
//! up for at the next order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use ticketrail_client::{Client, Error, Sent};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cut::Cut;
use super::dataset::{self, Order};
use super::ledger::{Ledger, ProducerLine};
use crate::clock::monotonic_ns;
use crate::exit::{Exit, Failure};

/// Orders of one producer in flight at a time.
const IN_FLIGHT: usize = 32;
/// Every so many orders the connection is cut.
pub(crate) const CUT_EVERY: usize = 100;
/// Where within each hundred: not at its end, so that a cut that fails can be made up for before the orders end.
const CUT_AT: usize = 50;
/// A cut that has not taken effect after so long never will.
const CUT_WITHIN: Duration = Duration::from_secs(30);
/// How long an order is tried; killing and restarting the server takes a small part of it.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct ProducerArgs {
    /// The server's address
    #[arg(long)]
    address: String,
    /// The queue
    #[arg(long)]
    queue: String,
    /// The ledger to append to
    #[arg(long)]
    ledger: PathBuf,
    /// Orders to send, all producers together
    #[arg(long)]
    orders: usize,
    /// Which producer this is, from 0; the first one cuts its connections
    #[arg(long)]
    number: usize,
    /// How many producers there are
    #[arg(long)]
    producers: usize,
    /// Orders a second, all producers together; 0: as fast as it goes
    #[arg(long)]
    rate: u32,
}

/// How many cuts there are among the first `orders`.
pub(crate) fn cuts(orders: usize) -> usize {
    (0..orders).filter(|index| is_cut(*index)).count()
}

fn is_cut(index: usize) -> bool {
    index % CUT_EVERY == CUT_AT - 1
}

/// Whose order the one at `index` is: those with a cut are the first producer's, the others go around.
fn owner(index: usize, producers: usize) -> usize {
    if is_cut(index) { 0 } else { index % producers }
}

pub(crate) async fn run(args: ProducerArgs) -> Result<Exit, Failure> {
    tokio::select! {
        done = produce(args) => done,
        () = stdin_closed() => Err(Failure::new(Exit::Failed, "stdin was closed", "run `rail demo`")),
    }
}

/// Whoever started it is gone.
async fn stdin_closed() {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {}
}

async fn produce(args: ProducerArgs) -> Result<Exit, Failure> {
    let orders = dataset::orders(args.orders)?;
    let client = Client::builder().address(&args.address).timeout(CALL_TIMEOUT).connect()?;
    let cut = Cut::default();
    let cutting = Client::builder().channel(cut.channel(&args.address)?).timeout(CALL_TIMEOUT).connect()?;

    let (lines, written) = mpsc::channel(IN_FLIGHT * 2);
    let ledger = Ledger::open(&args.ledger)?;
    let writer = tokio::task::spawn_blocking(move || write(ledger, written));

    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut flying = JoinSet::new();
    let started = Instant::now();
    let mut owed = Owed::default();
    for (index, order) in orders.into_iter().enumerate() {
        if owner(index, args.producers) != args.number {
            continue;
        }
        if args.rate > 0 {
            let position = u32::try_from(index).context("more orders than can be counted")?;
            tokio::time::sleep_until(started + Duration::from_secs(1) * position / args.rate).await;
        }
        if is_cut(index) {
            owed.add();
        }
        if owed.any() {
            let line = send_cut(&cutting, &cut, &args.queue, order).await;
            let took_effect = matches!(&line, ProducerLine::Acknowledged { replayed: true, .. });
            lines.send(line).await.context("the ledger's writer has ended")?;
            owed.tried(took_effect)?;
            continue;
        }
        let permit = Arc::clone(&room).acquire_owned().await.context("the semaphore is never closed")?;
        let (client, queue, lines) = (client.clone(), args.queue.clone(), lines.clone());
        flying.spawn(async move {
            let line = line(&order.order, false, send(&client, &queue, &order).await);
            let sent = lines.send(line).await;
            drop(permit);
            sent
        });
        while let Some(done) = flying.try_join_next() {
            done.context("an order's task")?.context("the ledger's writer has ended")?;
        }
    }
    while let Some(done) = flying.join_next().await {
        done.context("an order's task")?.context("the ledger's writer has ended")?;
    }
    drop(lines);
    writer.await.context("the ledger's writer")??;
    owed.settled()
}

/// Cuts that have not taken effect yet.
#[derive(Debug, Default)]
struct Owed {
    cuts: usize,
    since: Option<Instant>,
}

impl Owed {
    fn add(&mut self) {
        self.cuts += 1;
    }

    fn any(&self) -> bool {
        self.cuts > 0
    }

    fn tried(&mut self, took_effect: bool) -> Result<(), Failure> {
        if took_effect {
            self.cuts -= 1;
            self.since = None;
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > CUT_WITHIN { Err(self.invalid()) } else { Ok(()) }
    }

    fn settled(&self) -> Result<Exit, Failure> {
        if self.any() { Err(self.invalid()) } else { Ok(Exit::Ok) }
    }

    fn invalid(&self) -> Failure {
        let what = format!("INVALID: {} cut connections took no effect", self.cuts);
        Failure { exit: Exit::Usage, what, next: None }
    }
}

async fn send(client: &Client, queue: &str, order: &Order) -> Result<Sent, Error> {
    let body = serde_json::to_vec(order).unwrap_or_default();
    client
        .queue(queue)
        .send(body)
        .content_type("application/json")
        .message_type("order.placed")
        .tag("order", &order.order)
        .tag("customer", &order.customer)
        .await
}

/// Sends an order over a connection that is cut before its reply is read.
async fn send_cut(client: &Client, cut: &Cut, queue: &str, order: Order) -> ProducerLine {
    // A connection is made, and a session opened, before it is armed: what is cut is the order's own reply.
    let warm = async {
        client.admin().status().await?;
        client.warm_up().await
    };
    if let Err(error) = warm.await {
        return line(&order.order, false, Err(error));
    }
    cut.arm();
    line(&order.order, true, send(client, queue, &order).await)
}

fn line(order: &str, cut: bool, result: Result<Sent, Error>) -> ProducerLine {
    let order = order.to_owned();
    match result {
        Ok(sent) => ProducerLine::Acknowledged {
            order,
            message: sent.message_id,
            replayed: sent.position.replayed,
            cut,
            at_ns: monotonic_ns(),
        },
        Err(error) => ProducerLine::Failed { order, error: error.to_string() },
    }
}

/// Writes lines as they come: all that wait go to disk in one sync.
fn write(mut ledger: Ledger, mut lines: mpsc::Receiver<ProducerLine>) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    while lines.blocking_recv_many(&mut batch, IN_FLIGHT * 2) > 0 {
        ledger.append(&batch)?;
        batch.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundredth_order_is_the_first_producers_cut() {
        assert_eq!(cuts(5_000), 50);
        assert_eq!(cuts(dataset::ORDERS), 697);
        assert_eq!(cuts(99), 1, "the 50th is the first");
        let shares: Vec<usize> =
            (0..3).map(|number| (0..5_000).filter(|index| owner(*index, 3) == number).count()).collect();
        assert_eq!(shares.iter().sum::<usize>(), 5_000);
        assert!((0..5_000).filter(|index| is_cut(*index)).all(|index| owner(index, 3) == 0));
    }

    #[tokio::test]
    async fn a_cut_without_effect_is_owed_until_it_has_one() {
        let mut owed = Owed::default();
        owed.add();
        owed.tried(false).expect("not late yet");
        assert!(owed.any());
        assert!(owed.settled().is_err());
        owed.tried(true).expect("made up for");
        assert!(!owed.any());
        assert!(owed.settled().is_ok());
    }
}
