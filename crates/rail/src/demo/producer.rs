//! A producer process of the demo: sends its share of the orders, and writes down what was acknowledged.
//!
//! The first producer sends by calls, and cuts its connection at every 100th order, after sending and before reading;
//! the SDK repeats the request under the same id. A cut that did not take effect (the reply was not that of an earlier
//! attempt) is owed, and made up for at the next order. The others send over a stream.
//!
//! The last orders are sent slowly until `hurry` comes on stdin, so that no fault finds all orders sent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use ticketrail_client::{Client, Error, NewMessage, Producer, Sent};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::cut::Cut;
use super::dataset::{self, Order};
use super::ledger::{Ledger, ProducerLine};
use super::stage::Stage;
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
/// How long an order is tried; a change of leader takes a small part of it.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// What tells it to send the last orders as fast as the others.
pub(crate) const HURRY: &str = "hurry";
/// So many of a hundred orders are sent before it goes slowly.
const SLOW_FROM_PERCENT: usize = 75;
/// So many times as slowly.
const SLOWLY: u32 = 4;
/// And so long for each order at least.
const SLOW_MIN: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct ProducerArgs {
    /// The servers' addresses
    #[arg(long, value_delimiter = ',')]
    addresses: Vec<String>,
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
    let (hurry, hurried) = watch::channel(false);
    tokio::select! {
        done = produce(args, hurried) => done,
        () = listen(hurry) => Err(Failure::new(Exit::Failed, "stdin was closed", "run `rail demo`")),
    }
}

/// Takes commands until whoever started it is gone.
async fn listen(hurry: watch::Sender<bool>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == HURRY {
            hurry.send_replace(true);
        }
    }
}

async fn produce(args: ProducerArgs, hurried: watch::Receiver<bool>) -> Result<Exit, Failure> {
    let orders = dataset::orders(args.orders)?;
    let client = Client::builder().addresses(&args.addresses).timeout(CALL_TIMEOUT).connect()?;
    let cut = Cut::default();
    let cutting = Client::builder().channel(cut.channel(&args.addresses)?).timeout(CALL_TIMEOUT).connect()?;
    let way = match args.number {
        0 => Way::Calls(client),
        _ => Way::Stream(Arc::new(client.queue(Stage::Orders.queue()).producer())),
    };

    let (lines, written) = mpsc::channel(IN_FLIGHT * 2);
    let ledger = Ledger::open(&args.ledger)?;
    let writer = tokio::task::spawn_blocking(move || write(ledger, written));

    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut flying = JoinSet::new();
    let mut pace = Pace::new(&args, hurried);
    let mut owed = Owed::default();
    for (index, order) in orders.into_iter().enumerate() {
        if owner(index, args.producers) != args.number {
            continue;
        }
        pace.wait(index).await?;
        if is_cut(index) {
            owed.add();
        }
        if owed.any() {
            let line = send_cut(&cutting, &cut, order).await;
            let took_effect = matches!(&line, ProducerLine::Acknowledged { replayed: true, .. });
            lines.send(line).await.context("the ledger's writer has ended")?;
            owed.tried(took_effect)?;
            continue;
        }
        let permit = Arc::clone(&room).acquire_owned().await.context("the semaphore is never closed")?;
        let (way, lines) = (way.clone(), lines.clone());
        flying.spawn(async move {
            let line = line(&order.order, false, way.send(&order).await);
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

/// When each order is due.
#[derive(Debug)]
struct Pace {
    /// For each order of all producers.
    every: Duration,
    /// For each of the last ones, until it is told to hurry.
    slowly: Duration,
    slow_from: usize,
    hurried: watch::Receiver<bool>,
    due: Instant,
    last: usize,
}

impl Pace {
    fn new(args: &ProducerArgs, hurried: watch::Receiver<bool>) -> Self {
        let every = Duration::from_secs(1).checked_div(args.rate).unwrap_or_default();
        Self {
            every,
            slowly: (every * SLOWLY).max(SLOW_MIN),
            slow_from: args.orders * SLOW_FROM_PERCENT / 100,
            hurried,
            due: Instant::now(),
            last: 0,
        }
    }

    /// Waits until the order at `index` is due.
    async fn wait(&mut self, index: usize) -> anyhow::Result<()> {
        let passed = u32::try_from(index - self.last).context("more orders than can be counted")?;
        self.last = index;
        let hurries = index < self.slow_from || *self.hurried.borrow();
        self.due += passed * if hurries { self.every } else { self.slowly };
        if hurries {
            sleep_until(self.due).await;
            return Ok(());
        }
        tokio::select! {
            () = sleep_until(self.due) => {}
            hurried = self.hurried.changed() => {
                hurried.context("nobody can tell it to hurry any more")?;
                self.due = Instant::now();
            }
        }
        Ok(())
    }
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

/// How orders are sent.
#[derive(Debug, Clone)]
enum Way {
    /// Each by a call.
    Calls(Client),
    /// All over one stream.
    Stream(Arc<Producer>),
}

impl Way {
    async fn send(&self, order: &Order) -> anyhow::Result<Sent> {
        let message = message(order)?;
        Ok(match self {
            Way::Calls(client) => client.queue(Stage::Orders.queue()).send(message).await?,
            Way::Stream(producer) => producer.send(message).await?.await?,
        })
    }
}

fn message(order: &Order) -> anyhow::Result<NewMessage> {
    Ok(NewMessage::new(order.body()?)
        .content_type("application/json")
        .message_type("order.placed")
        .tag("order", &order.order)
        .tag("customer", &order.customer))
}

/// Sends an order over a connection that is cut before its reply is read.
async fn send_cut(client: &Client, cut: &Cut, order: Order) -> ProducerLine {
    // A connection is made, and a session opened, before it is armed: what is cut is the order's own reply.
    let warm = async {
        client.admin().status().await?;
        client.warm_up().await
    };
    let warm: Result<(), Error> = warm.await;
    if let Err(error) = warm {
        return line(&order.order, false, Err(error.into()));
    }
    cut.arm();
    line(&order.order, true, Way::Calls(client.clone()).send(&order).await)
}

fn line(order: &str, cut: bool, result: anyhow::Result<Sent>) -> ProducerLine {
    let order = order.to_owned();
    match result {
        Ok(sent) => ProducerLine::Acknowledged {
            order,
            message: sent.message_id,
            replayed: sent.position.replayed,
            cut,
            at_ns: monotonic_ns(),
        },
        Err(error) => ProducerLine::Failed { order, error: format!("{error:#}") },
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

    #[tokio::test(start_paused = true)]
    async fn the_last_orders_are_slow_until_it_is_told_to_hurry() {
        let (hurry, hurried) = watch::channel(false);
        let args = ProducerArgs {
            addresses: Vec::new(),
            ledger: PathBuf::new(),
            orders: 100,
            number: 0,
            producers: 1,
            rate: 10,
        };
        let mut pace = Pace::new(&args, hurried);
        let started = Instant::now();
        pace.wait(74).await.expect("due");
        assert_eq!(started.elapsed(), Duration::from_millis(7_400));
        pace.wait(76).await.expect("due");
        assert_eq!(started.elapsed(), Duration::from_millis(8_200));
        hurry.send_replace(true);
        pace.wait(80).await.expect("due");
        assert_eq!(started.elapsed(), Duration::from_millis(8_600));
    }
}
