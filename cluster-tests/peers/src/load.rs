//! Producers and consumers, and what they measure.

use std::time::Duration;

use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::broker::{Broker, Consumer, Producer};
use crate::poll;

/// Latencies from 1 µs to 10 min with three digits.
const LONGEST_US: u64 = 600_000_000;

/// Who does what, for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Load {
    /// Connections that send.
    pub(crate) producers: usize,
    /// Messages that each has unconfirmed at most.
    pub(crate) unconfirmed: usize,
    /// Connections that receive.
    pub(crate) consumers: usize,
    /// Messages that each has in hand at most.
    pub(crate) prefetch: usize,
    /// Bytes of a body.
    pub(crate) size: usize,
    /// Messages a second of all producers together, where latencies are measured.
    pub(crate) rate: u32,
    /// What is not measured yet.
    pub(crate) warm_up: Duration,
    /// What is measured.
    pub(crate) measured: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            producers: 4,
            unconfirmed: 256,
            consumers: 4,
            prefetch: 256,
            size: 1_024,
            rate: 200,
            warm_up: Duration::from_secs(2),
            measured: Duration::from_secs(20),
        }
    }
}

/// Throughput with producers and consumers at work together, in messages a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Both {
    /// Confirmed to producers.
    pub(crate) confirmed: f64,
    /// Received and acked by consumers.
    pub(crate) consumed: f64,
}

impl Both {
    /// What went all the way: a backlog that grows is no throughput.
    pub(crate) fn through(&self) -> f64 {
        self.confirmed.min(self.consumed)
    }
}

/// Latencies at a rate that is far from saturation, counted from when each message was due. In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paced {
    /// Until it was confirmed: the median, and the 99th percentile.
    pub(crate) confirm_ms: [f64; 2],
    /// Until it was in a consumer's hands.
    pub(crate) deliver_ms: [f64; 2],
}

/// When something happened, and how long it took. Only what happens within the window counts.
struct Part {
    from: Instant,
    to: Instant,
    latency_us: Histogram<u64>,
    count: u64,
}

impl Part {
    fn new(from: Instant, to: Instant) -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LONGEST_US, 3).context("make a histogram")?;
        Ok(Self { from, to, latency_us, count: 0 })
    }

    fn record(&mut self, now: Instant, latency: Duration) {
        if self.from <= now && now < self.to {
            self.count += 1;
            self.latency_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        }
    }

    fn add(&mut self, other: &Part) -> anyhow::Result<()> {
        self.count += other.count;
        self.latency_us.add(&other.latency_us).context("add histograms")
    }

    fn a_second(&self) -> f64 {
        self.count as f64 / self.to.saturating_duration_since(self.from).as_secs_f64()
    }

    fn ms(&self) -> [f64; 2] {
        [0.5, 0.99].map(|quantile| self.latency_us.value_at_quantile(quantile) as f64 / 1_000.0)
    }
}

/// Producers send as fast as they are confirmed, consumers take as fast as they can.
pub(crate) async fn both<B: Broker>(broker: &B, load: &Load) -> anyhow::Result<Both> {
    let (sent, received) = run(broker, load, None).await?;
    Ok(Both { confirmed: sent.a_second(), consumed: received.a_second() })
}

/// Producers send at a fixed rate, however late answers are.
pub(crate) async fn paced<B: Broker>(broker: &B, load: &Load) -> anyhow::Result<Paced> {
    let (sent, received) = run(broker, load, Some(load.rate)).await?;
    Ok(Paced { confirm_ms: sent.ms(), deliver_ms: received.ms() })
}

async fn run<B: Broker>(broker: &B, load: &Load, rate: Option<u32>) -> anyhow::Result<(Part, Part)> {
    let mut producers = Vec::new();
    for number in 0..load.producers {
        producers.push(broker.producer(number).await.context("connect a producer")?);
    }
    let mut consumers = Vec::new();
    for number in 0..load.consumers {
        consumers.push(broker.consumer(number, load.prefetch).await.context("connect a consumer")?);
    }
    let started = Instant::now();
    let from = started + load.warm_up;
    let to = from + load.measured;
    let (stop, stopped) = watch::channel(false);
    let mut receiving = JoinSet::new();
    for consumer in consumers {
        receiving.spawn(consume(consumer, started, Part::new(from, to)?, stopped.clone()));
    }
    let mut sending = JoinSet::new();
    for (number, producer) in producers.into_iter().enumerate() {
        let schedule = Schedule::new(started, to, rate, number, load.producers);
        sending.spawn(produce(producer, load.clone(), schedule, started, Part::new(from, to)?));
    }
    let mut sent = Part::new(from, to)?;
    while let Some(part) = sending.join_next().await {
        sent.add(&part.context("a producer")??)?;
    }
    // Fails only where all consumers have ended, which is told below.
    let _ = stop.send(true);
    let mut received = Part::new(from, to)?;
    while let Some(part) = receiving.join_next().await {
        received.add(&part.context("a consumer")??)?;
    }
    Ok((sent, received))
}

/// When the messages of one producer are due.
#[derive(Debug)]
struct Schedule {
    first: Instant,
    /// Between two of them; `None`: at once.
    every: Option<Duration>,
    number: u32,
    ends: Instant,
}

impl Schedule {
    /// The schedule of producer `number` of `producers`, which share `rate` and send in turn.
    fn new(started: Instant, ends: Instant, rate: Option<u32>, number: usize, producers: usize) -> Self {
        let every = rate.map(|rate| Duration::from_secs(1) * u32::try_from(producers).unwrap_or(1) / rate.max(1));
        let offset =
            every.unwrap_or_default() * u32::try_from(number).unwrap_or(0) / u32::try_from(producers).unwrap_or(1);
        Self { first: started + offset, every, number: 0, ends }
    }

    /// When the next message is due; `None`: there is none any more.
    fn peek(&self) -> Option<Instant> {
        let due = self.every.map_or_else(Instant::now, |every| self.first + every * self.number);
        (due < self.ends).then_some(due)
    }

    fn next(&mut self) {
        self.number += 1;
    }
}

async fn produce<P: Producer>(
    mut producer: P,
    load: Load,
    mut schedule: Schedule,
    started: Instant,
    mut part: Part,
) -> anyhow::Result<Part> {
    let mut unconfirmed = FuturesUnordered::new();
    loop {
        let due = schedule.peek();
        if due.is_none() && unconfirmed.is_empty() {
            return Ok(part);
        }
        let may_send = unconfirmed.len() < load.unconfirmed;
        tokio::select! {
            biased;
            Some(confirmed) = unconfirmed.next(), if !unconfirmed.is_empty() => {
                let due: Instant = confirmed?;
                let now = Instant::now();
                part.record(now, now - due);
            }
            due = poll::due(due), if may_send && due.is_some() => {
                schedule.next();
                let confirmed = producer.send(body(load.size, started, due)).await.context("send a message")?;
                unconfirmed.push(async move {
                    confirmed.await.context("confirm a message")?;
                    anyhow::Ok(due)
                });
            }
        }
    }
}

async fn consume<C: Consumer>(
    mut consumer: C,
    started: Instant,
    mut part: Part,
    mut stopped: watch::Receiver<bool>,
) -> anyhow::Result<Part> {
    loop {
        let (body, ack) = tokio::select! {
            biased;
            // Where the other side is gone, the run has failed.
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(part),
            received = consumer.receive() => received.context("receive a message")?,
        };
        let now = Instant::now();
        consumer.ack(ack).await.context("ack a message")?;
        part.record(now, now.saturating_duration_since(due_of(&body, started)));
    }
}

/// A body of `size` bytes that begins with when it was due.
fn body(size: usize, started: Instant, due: Instant) -> Bytes {
    let nanos = due.saturating_duration_since(started).as_nanos();
    let mut body = BytesMut::with_capacity(size.max(8));
    body.put_u64(u64::try_from(nanos).unwrap_or(u64::MAX));
    body.resize(size.max(8), b'x');
    body.freeze()
}

/// When the message of a body was due. One of an earlier load, of which nothing should be left, is due now.
fn due_of(body: &[u8], started: Instant) -> Instant {
    body.first_chunk::<8>().map_or(started, |bytes| started + Duration::from_nanos(u64::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_when_it_was_due() {
        let started = Instant::now();
        let due = started + Duration::from_millis(1_234);
        let body = body(1_024, started, due);
        assert_eq!((body.len(), due_of(&body, started)), (1_024, due));
    }

    #[test]
    fn producers_share_a_rate_and_send_in_turn() {
        let started = Instant::now();
        let ends = started + Duration::from_millis(60);
        let mut dues = Vec::new();
        for number in 0..4 {
            let mut schedule = Schedule::new(started, ends, Some(200), number, 4);
            while let Some(due) = schedule.peek() {
                dues.push((due - started).as_millis());
                schedule.next();
            }
        }
        dues.sort_unstable();
        assert_eq!(dues, (0..12).map(|n| n * 5).collect::<Vec<_>>());
    }

    #[test]
    fn only_what_happens_within_the_window_counts() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        let mut part = Part::new(at(1_000), at(3_000)).expect("a part");
        for (now, latency) in [(999, 900), (1_000, 10), (2_000, 20), (2_999, 30), (3_000, 900)] {
            part.record(at(now), Duration::from_millis(latency));
        }
        let mut sum = Part::new(at(1_000), at(3_000)).expect("a part");
        sum.add(&part).expect("a sum");
        sum.add(&part).expect("a sum");
        assert_eq!((sum.count, sum.a_second()), (6, 3.0));
        let [p50, p99] = sum.ms();
        assert!((19.9..20.1).contains(&p50) && (29.9..30.1).contains(&p99), "{p50} {p99}");
    }

    /// A broker in memory: the load's own bookkeeping, without a network.
    struct Loopback(
        tokio::sync::mpsc::Sender<Bytes>,
        std::sync::Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<Bytes>>>,
    );

    struct Sender(tokio::sync::mpsc::Sender<Bytes>);

    struct Receiver(std::sync::Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<Bytes>>>);

    impl Producer for Sender {
        async fn send(
            &mut self,
            body: Bytes,
        ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static> {
            let to = self.0.clone();
            Ok(async move { to.send(body).await.context("a receiver") })
        }
    }

    impl Consumer for Receiver {
        type Ack = ();

        async fn receive(&mut self) -> anyhow::Result<(Bytes, ())> {
            Ok((self.0.lock().await.recv().await.context("a sender")?, ()))
        }

        async fn ack(&mut self, (): ()) -> anyhow::Result<()> {
            Ok(())
        }
    }

    impl Broker for Loopback {
        const NAME: &'static str = "loopback";
        type Producer = Sender;
        type Consumer = Receiver;

        async fn start(_: &std::path::Path, _: &std::path::Path) -> anyhow::Result<Self> {
            let (sender, receiver) = tokio::sync::mpsc::channel(1_000);
            Ok(Self(sender, std::sync::Arc::new(tokio::sync::Mutex::new(receiver))))
        }

        async fn producer(&self, _: usize) -> anyhow::Result<Sender> {
            Ok(Sender(self.0.clone()))
        }

        async fn consumer(&self, _: usize, _: usize) -> anyhow::Result<Receiver> {
            Ok(Receiver(self.1.clone()))
        }
    }

    /// On a clock that jumps to whatever is waited for next, so the figures are exact.
    #[tokio::test(start_paused = true)]
    async fn a_paced_load_sends_and_receives_at_its_rate() {
        let broker = Loopback::start("".as_ref(), "".as_ref()).await.expect("a broker");
        let load = Load { measured: Duration::from_secs(5), ..Load::default() };
        let (sent, received) = run(&broker, &load, Some(200)).await.expect("a run");
        assert_eq!((sent.count, received.count), (1_000, 1_000));
        assert_eq!((sent.a_second(), received.a_second()), (200.0, 200.0));
    }

    /// A timer between two messages would hold four producers to 4,000 a second.
    #[tokio::test]
    async fn a_load_without_a_rate_is_held_back_by_the_broker_alone() {
        let broker = Loopback::start("".as_ref(), "".as_ref()).await.expect("a broker");
        let load = Load { warm_up: Duration::from_millis(50), measured: Duration::from_millis(500), ..Load::default() };
        let both = both(&broker, &load).await.expect("a run");
        assert!(both.through() > 10_000.0, "{both:?}");
    }
}
