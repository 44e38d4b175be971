//! Drill 26: very many things are due at one moment: leases that run out within a second, messages delayed to one instant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use ticketrail_client::{Client, Delivery, NewMessage, QueueSettings};
use ticketrail_cluster_tests::poll::poll_async;
use ticketrail_cluster_tests::server::DEADLINE;

use crate::scene::Scene;
use crate::world::USUAL;

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 26,
    name: "herds",
    broken: "Many leases run out within one second, and many delayed messages are due at one instant, beside the usual load: 100,000 and \
             1,000,000 on a machine of its own, here as many as the line says.",
    holds: "No message comes before its time or is lost, each lease that ran out is counted once, no leader changes, and the load's writes \
            go on with at most 1 s between two.",
    tools: &[],
    setup: USUAL,
    run,
};

const LEASED: &str = "leased";
const DELAYED: &str = "delayed";
const PROBE: &str = "probe";
/// What is promised.
const GAP: Duration = Duration::from_secs(1);
/// Messages of one call.
const BATCH: u32 = 1_000;

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    let before = scene.warm()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = {
        let _entered = runtime.enter();
        Client::builder().addresses(scene.world.cluster.addresses()).connect()?
    };
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 1) {
        round += 1;
        let probe = Probe::start(&runtime, &client);
        runtime.block_on(leases(scene, &client, round))?;
        runtime.block_on(delays(scene, &client, round))?;
        scene.say(runtime.block_on(probe.end())?);
        if scene.options.large {
            break;
        }
    }
    let elections = scene.world.cluster.leader()?.term - before.term;
    scene.note(format!("{elections} elections"));
    if scene.options.strict {
        ensure!(elections == 0, "expected no election, but there were {elections}");
    }
    scene.nemesis.demand("leases run out", 1_000)?;
    scene.nemesis.demand("due at one instant", 1_000)?;
    scene.finish()
}

/// One of three values: in the form that the gate runs, usually, and as large as the design says.
fn sized<T>(scene: &Scene, short: T, long: T, large: T) -> T {
    if scene.options.large { large } else { scene.sized(short, long) }
}

/// Enqueues one message after the other while a herd is under way.
struct Probe {
    ends: Arc<AtomicBool>,
    sent: tokio::task::JoinHandle<anyhow::Result<Histogram<u64>>>,
}

impl Probe {
    fn start(runtime: &tokio::runtime::Runtime, client: &Client) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (client, over) = (client.clone(), ends.clone());
        let sent = runtime.spawn(async move {
            let mut took_us = Histogram::<u64>::new(3)?;
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.queue(PROBE).send(NewMessage::new("probe")).await?;
                took_us.record(u64::try_from(begun.elapsed().as_micros())?)?;
            }
            client.admin().delete_queue(PROBE).await?;
            Ok(took_us)
        });
        Self { ends, sent }
    }

    /// What it found, in words.
    async fn end(self) -> anyhow::Result<String> {
        self.ends.store(true, Ordering::Relaxed);
        let took_us = self.sent.await.context("join the probe")??;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| took_us.value_at_quantile(share) as f64 / 1_000.0);
        let count = took_us.len();
        Ok(format!(
            "{count} enqueues one after the other beside it: p50 {p50:.1} ms, p99 {p99:.1} ms, longest {max:.1} ms"
        ))
    }
}

async fn fill(client: &Client, queue: &str, messages: u32, message: impl Fn(u32) -> NewMessage) -> anyhow::Result<()> {
    let settings = QueueSettings { max_depth: Some(0), ..QueueSettings::default() };
    client.admin().create_queue(queue, settings).await?;
    for first in (0..messages).step_by(BATCH as usize) {
        let last = messages.min(first + BATCH);
        let sent = client.queue(queue).send_batch((first..last).map(&message)).await?;
        ensure!(sent.results.iter().all(Result::is_ok), "expected room for all, but {sent:?}");
    }
    Ok(())
}

/// Takes `messages`, the first of which are there before `by`, and acks them; returns how often each had been delivered,
/// by its body.
async fn take_all(client: &Client, queue: &str, messages: u32, by: Instant) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut taken = BTreeMap::new();
    while taken.len() < messages as usize {
        let received = client.queue(queue).receive().max(BATCH).lease(DEADLINE).wait(DEADLINE).await?;
        if received.deliveries.is_empty() {
            if Instant::now() < by {
                continue;
            }
            bail!("expected {messages} messages, but there are no more than {}", taken.len());
        }
        let acks: Vec<_> = received.deliveries.iter().map(ticketrail_client::Settlement::ack).collect();
        for delivery in &received.deliveries {
            let body = String::from_utf8_lossy(&delivery.message.body).into_owned();
            if let Some(before) = taken.insert(body.clone(), delivery.receive_count) {
                bail!("expected {body} once, but it was delivered again after delivery {before}");
            }
        }
        let settled = client.settle(acks).await?;
        ensure!(settled.refused() == 0, "expected all acks to be taken, but {} were refused", settled.refused());
    }
    Ok(taken)
}

/// Many leases that run out within one second.
async fn leases(scene: &mut Scene, client: &Client, round: u32) -> anyhow::Result<()> {
    let (queue, messages) = (format!("{LEASED}-{round}"), sized(scene, 4_000, 30_000, 100_000));
    fill(client, &queue, messages, |number| NewMessage::new(format!("{number}"))).await?;
    scene.forget_outage()?;
    let granted = Instant::now();
    let mut held: Vec<Delivery> = Vec::new();
    // All are to end at the same time: each is shorter by what has passed since the first one.
    let lease = Duration::from_secs(5) + Duration::from_millis(u64::from(messages) / 4);
    while held.len() < messages as usize {
        let left = lease.saturating_sub(granted.elapsed()).max(Duration::from_secs(1));
        let received = client.queue(&queue).receive().max(BATCH).lease(left).wait(DEADLINE).await?;
        held.extend(received.deliveries);
    }
    scene.nemesis.begin("leases run out", "all", &format!("{messages} leases that end together"));
    let expired = poll_async(DEADLINE + lease, async || {
        let stats = client.admin().queue(&queue).await?.stats;
        Ok((stats.lease_expired >= u64::from(messages)).then_some(stats.lease_expired))
    })
    .await
    .context("wait until the leases have run out")?;
    ensure!(expired == u64::from(messages), "expected {messages} leases to run out, but {expired} did");
    scene.nemesis.effect("leases run out", "all", "lease_expired of the queue's stats", expired);
    drop(held);
    let again = take_all(client, &queue, messages, Instant::now()).await?;
    let wrong: Vec<_> = again.iter().filter(|(_, count)| **count != 2).take(8).collect();
    ensure!(wrong.is_empty(), "expected each to come the second time, but {wrong:?}");
    scene.nemesis.end("leases run out", "all", "all delivered again and finished");
    let outage = scene.outage()?;
    scene.say(format!("{messages} leases ran out together, all came again; no write for {} ms", outage.as_millis()));
    scene.promised("a gap between two writes", outage, GAP)
}

/// Many messages that are due at one instant.
async fn delays(scene: &mut Scene, client: &Client, round: u32) -> anyhow::Result<()> {
    let (queue, messages) = (format!("{DELAYED}-{round}"), sized(scene, 4_000, 50_000, 1_000_000));
    let far = Duration::from_secs(600);
    // A first one says what time it is to the cluster.
    client.queue(&queue).send(NewMessage::new("clock").delay(far)).await?;
    let clock = client.queue(&queue).peek().state(ticketrail_client::MessageState::Delayed).await?;
    let due = clock.messages.first().and_then(|message| message.due_at).context("expected a time")?;
    let ahead = Duration::from_secs(sized(scene, 4, 12, 240));
    let due = due - far + ahead;
    client.admin().delete_queue(&queue).await?;
    scene.forget_outage()?;
    let filling = Instant::now();
    fill(client, &queue, messages, |number| NewMessage::new(format!("{number}")).deliver_at(due)).await?;
    let filled = filling.elapsed();
    let waiting = client.admin().queue(&queue).await?.stats.delayed;
    scene.nemesis.begin("due at one instant", "all", &format!("{messages} messages for one instant, {waiting} wait"));
    scene.nemesis.effect("due at one instant", "all", "delayed of the queue's stats", waiting);
    let taken = take_all(client, &queue, messages, filling + ahead).await?;
    let wrong: Vec<_> = taken.iter().filter(|(_, count)| **count != 1).take(8).collect();
    ensure!(wrong.is_empty(), "expected each to come the first time, but {wrong:?}");
    scene.nemesis.end("due at one instant", "all", "all delivered and finished");
    let outage = scene.outage()?;
    scene.say(format!(
        "{messages} messages ({waiting} of them waited) due at one instant, filled in {} ms: all came; no write for {} ms",
        filled.as_millis(),
        outage.as_millis()
    ));
    scene.promised("a gap between two writes", outage, GAP)
}
