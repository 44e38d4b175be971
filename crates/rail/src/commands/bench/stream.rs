//! Producers and consumers over streams.

use std::sync::Arc;

use anyhow::Context as _;
use ticketrail_client::{Client, Confirm, Consumer, Producer, Settling};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::load::{Load, Part, Rest, Schedule, Streams, WAIT, age, body, ns_of, reached};

pub(super) async fn produce(
    client: Client,
    load: Load,
    streams: Streams,
    schedule: Arc<Schedule>,
) -> anyhow::Result<Part> {
    let producer = Producer::builder(&client.queue(&load.queue)).unconfirmed(streams.unconfirmed).start();
    let (confirms, waiting) = mpsc::channel(streams.unconfirmed);
    let confirmed = tokio::spawn(confirmed(waiting));
    while let Some(due) = schedule.next() {
        reached(due).await;
        let confirm = producer.send(body(load.size, ns_of(due))).await?;
        if confirms.send((due, confirm)).await.is_err() {
            break;
        }
    }
    drop(confirms);
    let part = confirmed.await.context("a producer's confirmations")??;
    producer.close().await?;
    Ok(part)
}

/// Waits for confirmations, in the order in which the messages were sent.
async fn confirmed(mut waiting: mpsc::Receiver<(Instant, Confirm)>) -> anyhow::Result<Part> {
    let mut part = Part::new()?;
    while let Some((due, confirm)) = waiting.recv().await {
        let confirmed = confirm.await;
        part.last = Instant::now();
        part.record(due.elapsed(), 1);
        match confirmed {
            Ok(_) => part.messages += 1,
            Err(error) => {
                part.errors += 1;
                tracing::debug!(%error, "enqueue failed");
            }
        }
    }
    Ok(part)
}

pub(super) async fn consume(client: Client, load: Load, streams: Streams, rest: Rest) -> anyhow::Result<(Part, Part)> {
    let queue = client.queue(&load.queue);
    let mut consumer = Consumer::builder(&queue).prefetch(streams.prefetch).worker("bench").start();
    let (acks, waiting) = mpsc::channel(streams.prefetch);
    let acked = tokio::spawn(acked(waiting));
    let mut delivery = Part::new()?;
    let mut last = Instant::now();
    while rest.is_more(last) {
        let Ok(batch) = timeout(WAIT, consumer.next_batch(streams.prefetch)).await else { continue };
        last = Instant::now();
        let count = batch.as_ref().map_or(0, Vec::len) as u64;
        for message in batch? {
            delivery.record(age(&message.message.body), 1);
            // Fails only where the other task has failed: that is told below.
            let _ = acks.send((Instant::now(), message.ack())).await;
        }
        delivery.messages += count;
        delivery.last = Instant::now();
        rest.done(count);
    }
    drop(acks);
    let ack = acked.await.context("a consumer's acks")??;
    consumer.close().await?;
    Ok((delivery, ack))
}

/// Waits for the answers to acks, in the order in which they were made.
async fn acked(mut waiting: mpsc::Receiver<(Instant, Settling)>) -> anyhow::Result<Part> {
    let mut part = Part::new()?;
    while let Some((sent, ack)) = waiting.recv().await {
        let settled = ack.await;
        part.last = Instant::now();
        part.record(sent.elapsed(), 1);
        match settled {
            Ok(_) => part.messages += 1,
            Err(error) => {
                part.errors += 1;
                tracing::debug!(%error, "ack failed");
            }
        }
    }
    Ok(part)
}
