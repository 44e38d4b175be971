//! Load on a cluster through the SDK: producers and consumers that keep a ledger of what they were told, and how long
//! nobody was told that a message is safe.

mod consume;
mod fill;
mod ledger;
mod produce;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ticketrail_client::{Client, QueueStats};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::ledger::Ledger;
pub use self::ledger::{Drained, Tally};
use crate::poll::poll;
use crate::server::DEADLINE;

/// A call is tried for so long: longer than anything that a test does to a cluster.
const PATIENCE: Duration = Duration::from_secs(60);
/// Consumers that empty a queue.
const DRAINERS: usize = 3;

/// Who does what.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The queue.
    pub queue: String,
    /// Producers that call for each message.
    pub callers: usize,
    /// Producers with a stream.
    pub streamers: usize,
    /// Messages a second, all producers together; `None`: as fast as it goes.
    pub per_second: Option<u32>,
    /// Messages that each stream has on its way at one time.
    pub unconfirmed: usize,
    /// Consumers with a stream.
    pub consumers: usize,
    /// Consumers that poll.
    pub receivers: usize,
    /// The size of a body, in bytes.
    pub body: usize,
    /// How long a consumer has a message: so long it takes until what was on its way to one is delivered anew.
    pub lease: Duration,
}

impl Plan {
    /// Nobody does anything with this queue yet.
    pub fn of(queue: &str) -> Self {
        Self {
            queue: queue.to_owned(),
            callers: 0,
            streamers: 0,
            per_second: None,
            unconfirmed: 256,
            consumers: 0,
            receivers: 0,
            body: 128,
            lease: Duration::from_secs(5),
        }
    }

    fn producers(&self) -> usize {
        self.callers + self.streamers
    }

    /// The time between two messages of one producer.
    fn pace(&self) -> Option<Duration> {
        let producers = u32::try_from(self.producers()).unwrap_or(u32::MAX);
        self.per_second.map(|rate| Duration::from_secs(1) * producers / rate.max(1))
    }
}

/// Load that goes on until it is stopped.
pub struct Load {
    ledger: Arc<Ledger>,
    plan: Plan,
    begun: Instant,
    producers: Vec<JoinHandle<anyhow::Result<()>>>,
    consumers: Vec<JoinHandle<anyhow::Result<()>>>,
    // Ends whatever still runs.
    runtime: Runtime,
}

fn client(addresses: &[String]) -> anyhow::Result<Client> {
    Ok(Client::builder().addresses(addresses).timeout(PATIENCE).connect()?)
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl Load {
    /// Starts it, by all these addresses.
    pub fn start(addresses: &[String], plan: Plan) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let ledger = Arc::new(Ledger::default());
        let entered = runtime.enter();
        // Each has a client, and so a session and connections, of its own.
        let queue = || Ok::<_, anyhow::Error>(client(addresses)?.queue(&plan.queue));
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        for number in 0..plan.callers {
            producers.push(tokio::spawn(produce::calling(
                ledger.clone(),
                queue()?,
                plan.clone(),
                format!("call-{number}"),
            )));
        }
        for number in 0..plan.streamers {
            let name = format!("stream-{number}");
            producers.push(tokio::spawn(produce::streaming(ledger.clone(), queue()?, plan.clone(), name)));
        }
        for _ in 0..plan.consumers {
            consumers.push(tokio::spawn(consume::streaming(ledger.clone(), queue()?, plan.lease)));
        }
        for _ in 0..plan.receivers {
            consumers.push(tokio::spawn(consume::polling(ledger.clone(), queue()?, plan.lease)));
        }
        drop(entered);
        Ok(Self { ledger, plan, begun: Instant::now(), producers, consumers, runtime })
    }

    /// Messages acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.ledger.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until `more` messages than now are acknowledged.
    pub fn until_more(&self, more: u64) -> anyhow::Result<()> {
        let wanted = self.acknowledged() + more;
        poll(DEADLINE, || Ok((self.acknowledged() >= wanted).then_some(()))).with_context(|| {
            let (is, wrong) = (self.acknowledged(), self.ledger.wrong());
            format!("wait until {wanted} messages are acknowledged, of which there are {is}; wrong so far: {wrong:?}")
        })
    }

    /// The longest time between two acknowledged messages since this was asked last, and up to now.
    pub fn longest_gap(&self) -> Duration {
        self.ledger.meter.lock().unwrap().take(Instant::now())
    }

    /// Stops the producers, waits until each message is acknowledged and, where there are consumers, finished; then it
    /// stops these.
    pub fn stop(self) -> anyhow::Result<Tally> {
        let Self { ledger, plan, begun, producers, consumers, runtime } = self;
        ledger.stop.store(true, Ordering::Relaxed);
        runtime.block_on(all(producers)).context("produce")?;
        let seconds = begun.elapsed();
        if !consumers.is_empty() {
            let sent = ledger.acknowledged.load(Ordering::Relaxed);
            until_done(|| Ok((sent, ledger.finished_keys())))
                .with_context(|| format!("finish {}; wrong so far: {:#?}", plan.queue, ledger.wrong()))?;
        }
        ledger.done.store(true, Ordering::Relaxed);
        runtime.block_on(all(consumers)).context("consume")?;
        Ok(ledger.tally(seconds))
    }
}

async fn all(tasks: Vec<JoinHandle<anyhow::Result<()>>>) -> anyhow::Result<()> {
    for task in tasks {
        tokio::time::timeout(2 * PATIENCE, task).await.context("expected it to end")???;
    }
    Ok(())
}

/// Waits until so much is done as is wanted; gives up once nothing has moved for the usual deadline.
fn until_done(mut look: impl FnMut() -> anyhow::Result<(u64, u64)>) -> anyhow::Result<()> {
    let mut last = look()?;
    while last.1 < last.0 {
        let (wanted, done) = last;
        last = poll(DEADLINE, || {
            let now = look()?;
            Ok((now.1 != done || now.1 >= now.0).then_some(now))
        })
        .with_context(|| format!("{done} of {wanted}, and no more"))?;
    }
    Ok(())
}

/// Receives and acknowledges all that is on a queue, until it is empty.
pub fn drain(addresses: &[String], queue: &str) -> anyhow::Result<Drained> {
    let runtime = runtime()?;
    let ledger = Arc::new(Ledger::default());
    let before = stats(&runtime, addresses, queue)?;
    let consumers = (0..DRAINERS).map(|_| {
        let _entered = runtime.enter();
        let queue = client(addresses)?.queue(queue);
        Ok(runtime.spawn(consume::streaming(ledger.clone(), queue, PATIENCE)))
    });
    let consumers = consumers.collect::<anyhow::Result<Vec<_>>>()?;
    until_done(|| Ok((before.depth(), before.depth() - stats(&runtime, addresses, queue)?.depth())))?;
    ledger.done.store(true, Ordering::Relaxed);
    runtime.block_on(all(consumers)).context("drain")?;
    let after = stats(&runtime, addresses, queue)?;
    ensure!(ledger.wrong().is_empty(), "wrong while {queue} was drained: {:?}", ledger.wrong());
    Ok(Drained { ids: ledger.ids(), enqueued: after.enqueued, left: after.depth() })
}

/// Makes a queue without a bound and puts `messages` of `bytes` on it, many at a time; returns how long that took.
pub fn fill(addresses: &[String], queue: &str, messages: u64, bytes: usize) -> anyhow::Result<Duration> {
    let runtime = runtime()?;
    let begun = Instant::now();
    runtime.block_on(async {
        let clients = (0..4).map(|_| client(addresses)).collect::<anyhow::Result<Vec<_>>>()?;
        fill::fill(clients, queue.to_owned(), messages, bytes).await
    })?;
    Ok(begun.elapsed())
}

/// The figures of a queue, as the leader has them.
pub fn queue_stats(addresses: &[String], queue: &str) -> anyhow::Result<QueueStats> {
    stats(&runtime()?, addresses, queue)
}

fn stats(runtime: &Runtime, addresses: &[String], queue: &str) -> anyhow::Result<QueueStats> {
    runtime.block_on(async { Ok(client(addresses)?.admin().queue(queue).await?.stats) })
}

/// Sends and takes one message: whoever gets this done, is served.
pub fn one_message(addresses: &[String], queue: &str) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let queue = client(addresses)?.queue(queue);
        queue.send("one").await?;
        let got = queue.receive().wait(DEADLINE).await?.deliveries.pop().context("expected the message")?;
        got.ack().await?;
        Ok(())
    })
}
