//! Consumers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ticketrail_client::{Consumer, Delivery, Error, Queue, Reason, Settled};

use super::ledger::Ledger;

/// Deliveries that a stream holds at one time.
const PREFETCH: usize = 256;
/// How long one wait takes.
const WAIT: Duration = Duration::from_millis(200);

fn take(ledger: &Ledger, delivery: &Delivery) -> String {
    let key = delivery.message.body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let key = String::from_utf8_lossy(key).into_owned();
    ledger.deliver(&key, &delivery.message.id, delivery.receive_count);
    key
}

fn settled(ledger: &Ledger, key: String, answer: Result<Settled, Error>) {
    match answer {
        Ok(_) => ledger.finish(key),
        Err(error) if error.reason() == Some(&Reason::LeaseLost) => ledger.lose_lease(),
        Err(error) => ledger.complain(format!("ack {key}: {error}")),
    }
}

/// Takes what a stream brings.
pub(super) async fn streaming(ledger: Arc<Ledger>, queue: Queue, lease: Duration) -> anyhow::Result<()> {
    let mut consumer = Consumer::builder(&queue).prefetch(PREFETCH).lease(lease).start();
    while !ledger.done.load(Ordering::Relaxed) {
        let Ok(batch) = tokio::time::timeout(WAIT, consumer.next_batch(PREFETCH)).await else { continue };
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                ledger.complain(format!("a consumer has ended: {error}"));
                return Ok(());
            }
        };
        let acks: Vec<_> = batch.into_iter().map(|delivery| (take(&ledger, &delivery), delivery.ack())).collect();
        for (key, ack) in acks {
            settled(&ledger, key, ack.await);
        }
    }
    consumer.close().await?;
    Ok(())
}

/// Polls, and acks one by one.
pub(super) async fn polling(ledger: Arc<Ledger>, queue: Queue, lease: Duration) -> anyhow::Result<()> {
    while !ledger.done.load(Ordering::Relaxed) {
        let received = match queue.receive().max(8).wait(2 * WAIT).lease(lease).await {
            Ok(received) => received,
            Err(error) => {
                ledger.complain(format!("receive: {error}"));
                continue;
            }
        };
        for delivery in received.deliveries {
            // Those before it may have taken longer than its lease: then it may be somebody else's.
            if delivery.lease_left().is_zero() {
                ledger.lose_lease();
                continue;
            }
            let key = take(&ledger, &delivery);
            settled(&ledger, key, delivery.ack().await);
        }
    }
    Ok(())
}
