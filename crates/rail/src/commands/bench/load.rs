//! Producers and consumers, and what they measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use hdrhistogram::Histogram;
use ticketrail_client::{Client, Error, Settlement};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::stream;
use crate::clock::monotonic_ns;

/// Latencies from 1 µs to 10 min with three digits.
const LONGEST_US: u64 = 600_000_000;
/// How long consumers go on without getting anything, once producers have ended.
const DRY_AFTER: Duration = Duration::from_secs(2);
/// How long a receive waits.
pub(super) const WAIT: Duration = Duration::from_millis(500);
/// Messages of one call that fills the queue.
const FILL_BATCH: u64 = 500;

/// Who does what, how much at a time.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) queue: String,
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    /// Over streams; `None`: with calls.
    pub(crate) streams: Option<Streams>,
    pub(crate) outstanding: usize,
    pub(crate) size: usize,
    pub(crate) rate: Option<u32>,
    pub(crate) batch: usize,
    pub(crate) receive_batch: usize,
}

/// How much is on a stream at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams {
    /// Messages that are not confirmed, of each producer.
    pub(crate) unconfirmed: usize,
    /// Deliveries that are not settled, of each consumer.
    pub(crate) prefetch: usize,
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Messages from when each was due until it was confirmed.
    pub(crate) enqueue: Measured,
    /// Messages from when their enqueue was due until they were in a consumer's hands.
    pub(crate) delivery: Measured,
    /// Acks from when each was made until it was confirmed.
    pub(crate) ack: Measured,
    /// Items refused and calls that failed.
    pub(crate) errors: u64,
}

/// Latencies, how many messages they stand for, and over how long.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) latency_us: Histogram<u64>,
    pub(crate) messages: u64,
    pub(crate) took: Duration,
}

/// What one task has measured.
#[derive(Debug)]
pub(super) struct Part {
    latency_us: Histogram<u64>,
    pub(super) messages: u64,
    pub(super) errors: u64,
    /// When its last message was answered.
    pub(super) last: Instant,
}

impl Part {
    pub(super) fn new() -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LONGEST_US, 3).context("a histogram")?;
        Ok(Self { latency_us, messages: 0, errors: 0, last: Instant::now() })
    }

    pub(super) fn record(&mut self, latency: Duration, messages: u64) {
        self.latency_us.saturating_record_n(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), messages);
    }
}

/// Adds the parts up.
fn total(parts: Vec<Part>, started: Instant) -> anyhow::Result<(Measured, u64)> {
    let mut sum = Part::new()?;
    sum.last = started;
    for part in parts {
        sum.latency_us.add(&part.latency_us).context("adding histograms")?;
        sum.messages += part.messages;
        sum.errors += part.errors;
        sum.last = sum.last.max(part.last);
    }
    let took = sum.last.saturating_duration_since(started);
    Ok((Measured { latency_us: sum.latency_us, messages: sum.messages, took }, sum.errors))
}

/// When calls are due.
#[derive(Debug)]
pub(super) struct Schedule {
    started: Instant,
    ends: Instant,
    /// Calls a second; `None`: as soon as the last one is answered.
    rate: Option<f64>,
    drawn: AtomicU64,
}

impl Schedule {
    /// When the next call is due; `None`: no more.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = match self.rate {
            None => Instant::now(),
            Some(rate) => {
                let number = self.drawn.fetch_add(1, Ordering::Relaxed);
                self.started + Duration::from_secs_f64(number as f64 / rate)
            }
        };
        (due < self.ends).then_some(due)
    }
}

/// A body of `size` bytes that begins with the time of its enqueue.
pub(super) fn body(size: usize, due_ns: u64) -> Bytes {
    let mut body = BytesMut::with_capacity(size.max(8));
    body.put_u64(due_ns);
    body.resize(size.max(8), b'x');
    body.freeze()
}

/// The time that a body begins with.
fn due_ns(body: &[u8]) -> Option<u64> {
    body.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Waits until `due`. A timer would round what is due now up to the next millisecond.
pub(super) async fn reached(due: Instant) {
    if due > Instant::now() {
        tokio::time::sleep_until(due).await;
    }
}

/// How long ago a body was due.
pub(super) fn age(body: &[u8]) -> Duration {
    Duration::from_nanos(due_ns(body).map_or(0, |due| monotonic_ns().saturating_sub(due)))
}

/// The same clock's time when `due` was due, which may be some time ago: the body says so too.
pub(super) fn ns_of(due: Instant) -> u64 {
    monotonic_ns().saturating_sub(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

impl Load {
    /// Puts messages there, unmeasured.
    pub(crate) async fn fill(&self, producing: &[Client], messages: u64) -> anyhow::Result<()> {
        let left = Arc::new(AtomicU64::new(messages));
        let mut tasks = JoinSet::new();
        for client in producing {
            let (queue, left, size) = (client.queue(&self.queue), Arc::clone(&left), self.size);
            tasks.spawn(async move {
                loop {
                    let take = |left: u64| (left > 0).then(|| left - left.min(FILL_BATCH));
                    let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
                        return Ok(());
                    };
                    let now = monotonic_ns();
                    let batch = queue.send_batch((0..before.min(FILL_BATCH)).map(|_| body(size, now))).await?;
                    if let Some(refusal) = batch.results.into_iter().find_map(Result::err) {
                        return Err(Error::Refused(refusal));
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a producer")??;
        }
        Ok(())
    }

    /// Runs producers for `duration`, and consumers until they have acked `messages`, or until the queue is dry.
    pub(crate) async fn run(
        &self,
        producing: &[Client],
        consuming: &[Client],
        duration: Duration,
        messages: Option<u64>,
    ) -> anyhow::Result<Figures> {
        for client in producing.iter().chain(consuming) {
            client.warm_up().await?;
        }
        let started = Instant::now();
        let batch = if self.streams.is_some() { 1 } else { self.batch };
        let rate = self.rate.map(|rate| f64::from(rate) / batch as f64);
        let schedule = Schedule { started, ends: started + duration, rate, drawn: AtomicU64::new(0) };
        let schedule = Arc::new(schedule);
        let produced = Arc::new(AtomicBool::new(producing.is_empty()));
        let left = Arc::new(AtomicU64::new(messages.unwrap_or(u64::MAX)));

        let mut producers = JoinSet::new();
        for client in producing {
            let (client, schedule) = (client.clone(), Arc::clone(&schedule));
            match self.streams {
                Some(streams) => {
                    producers.spawn(stream::produce(client, self.clone(), streams, schedule));
                }
                None => {
                    for _ in 0..share(self.outstanding, self.producers, self.batch) {
                        producers.spawn(produce(client.clone(), self.clone(), Arc::clone(&schedule)));
                    }
                }
            }
        }
        let mut consumers = JoinSet::new();
        for client in consuming {
            let rest = Rest { produced: Arc::clone(&produced), left: Arc::clone(&left) };
            match self.streams {
                Some(streams) => {
                    consumers.spawn(stream::consume(client.clone(), self.clone(), streams, rest));
                }
                None => {
                    for _ in 0..share(self.outstanding, self.consumers, self.receive_batch) {
                        consumers.spawn(consume(client.clone(), self.clone(), rest.clone()));
                    }
                }
            }
        }
        let mut sent = Vec::new();
        while let Some(part) = producers.join_next().await {
            sent.push(part.context("a producer")??);
        }
        produced.store(true, Ordering::Relaxed);
        let (mut received, mut acked) = (Vec::new(), Vec::new());
        while let Some(parts) = consumers.join_next().await {
            let (delivery, ack) = parts.context("a consumer")??;
            received.push(delivery);
            acked.push(ack);
        }
        let (enqueue, enqueue_errors) = total(sent, started)?;
        let (delivery, delivery_errors) = total(received, started)?;
        let (ack, ack_errors) = total(acked, started)?;
        Ok(Figures { enqueue, delivery, ack, errors: enqueue_errors + delivery_errors + ack_errors })
    }
}

/// Calls in flight of one client, so that all together hold `outstanding` messages.
fn share(outstanding: usize, clients: usize, batch: usize) -> usize {
    (outstanding / clients / batch).max(1)
}

async fn produce(client: Client, load: Load, schedule: Arc<Schedule>) -> anyhow::Result<Part> {
    let queue = client.queue(&load.queue);
    let mut part = Part::new()?;
    while let Some(due) = schedule.next() {
        reached(due).await;
        let due_ns = ns_of(due);
        let sent = if load.batch == 1 {
            queue.send(body(load.size, due_ns)).await.map(|_| 0)
        } else {
            let bodies = (0..load.batch).map(|_| body(load.size, due_ns));
            queue.send_batch(bodies).await.map(|batch| batch.refused())
        };
        part.last = Instant::now();
        part.record(due.elapsed(), load.batch as u64);
        match sent {
            Ok(refused) => {
                part.messages += (load.batch - refused) as u64;
                part.errors += refused as u64;
            }
            Err(error) => {
                part.errors += load.batch as u64;
                tracing::debug!(%error, "enqueue failed");
            }
        }
    }
    Ok(part)
}

/// What consumers still have to do.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    produced: Arc<AtomicBool>,
    left: Arc<AtomicU64>,
}

impl Rest {
    /// Whether there may be something, for a consumer that got something `last`.
    pub(super) fn is_more(&self, last: Instant) -> bool {
        let dry = self.produced.load(Ordering::Relaxed) && last.elapsed() > DRY_AFTER;
        self.left.load(Ordering::Relaxed) > 0 && !dry
    }

    pub(super) fn done(&self, count: u64) {
        let fewer = |left: u64| Some(left.saturating_sub(count));
        // Always updates: `fewer` never declines.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }
}

async fn consume(client: Client, load: Load, rest: Rest) -> anyhow::Result<(Part, Part)> {
    let queue = client.queue(&load.queue);
    let (mut delivery, mut ack) = (Part::new()?, Part::new()?);
    let mut last = Instant::now();
    while rest.is_more(last) {
        let max = u32::try_from(load.receive_batch).unwrap_or(u32::MAX);
        let received = match queue.receive().max(max).wait(WAIT).worker("bench").await {
            Ok(received) => received.deliveries,
            Err(error) => {
                delivery.errors += 1;
                tracing::debug!(%error, "receive failed");
                continue;
            }
        };
        if received.is_empty() {
            continue;
        }
        for message in &received {
            delivery.record(age(&message.message.body), 1);
        }
        let count = received.len() as u64;
        delivery.messages += count;
        delivery.last = Instant::now();
        last = delivery.last;
        let sent = Instant::now();
        let settled = client.settle(received.iter().map(Settlement::ack)).await;
        ack.last = Instant::now();
        ack.record(sent.elapsed(), count);
        match settled {
            Ok(batch) => {
                let refused = batch.refused() as u64;
                ack.messages += count - refused;
                ack.errors += refused;
            }
            Err(error) => {
                ack.errors += count;
                tracing::debug!(%error, "ack failed");
            }
        }
        rest.done(count);
    }
    Ok((delivery, ack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_tells_when_it_was_due() {
        let body = body(1_024, 77);
        assert_eq!((body.len(), due_ns(&body)), (1_024, Some(77)));
        assert_eq!(due_ns(b"short"), None);
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(share(256, 4, 1), 64);
        assert_eq!(share(256, 4, 16), 4);
        assert_eq!(share(1, 4, 16), 1, "at least one call each");
    }

    #[test]
    fn an_open_loop_is_due_at_fixed_times_and_ends() {
        let started = Instant::now();
        let schedule = Schedule {
            started,
            ends: started + Duration::from_millis(30),
            rate: Some(100.0),
            drawn: AtomicU64::new(0),
        };
        let dues: Vec<u128> =
            std::iter::from_fn(|| schedule.next()).map(|due| due.duration_since(started).as_millis()).collect();
        assert_eq!(dues, [0, 10, 20]);
    }

    #[test]
    fn parts_are_added_up() {
        let started = Instant::now();
        let mut parts = Vec::new();
        for latency in [10, 20] {
            let mut part = Part::new().expect("a part");
            part.record(Duration::from_micros(latency), 1);
            part.messages = 5;
            part.errors = 1;
            parts.push(part);
        }
        let (sum, errors) = total(parts, started).expect("added");
        assert_eq!((sum.messages, errors, sum.latency_us.len(), sum.latency_us.max()), (10, 2, 2, 20));
    }
}
