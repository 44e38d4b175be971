//! Producers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ticketrail_client::{Confirm, Producer, Queue};
use tokio::time::{Interval, interval};

use super::Plan;
use super::ledger::Ledger;

/// When messages are due: none is left out because an earlier one was late.
struct Pace(Option<Interval>);

impl Pace {
    fn of(every: Option<Duration>) -> Self {
        Self(every.map(interval))
    }

    async fn next(&mut self) {
        if let Some(interval) = &mut self.0 {
            interval.tick().await;
        }
    }
}

/// A body that says its key, and has the size that it should have.
pub(super) fn body(key: &str, size: usize) -> Vec<u8> {
    let mut body = format!("{key}\n").into_bytes();
    // Not one that a disk could make smaller.
    let mut state = key.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |sum, byte| sum.rotate_left(7) ^ u64::from(byte) | 1);
    while body.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(size.max(key.len() + 1));
    body
}

/// Calls for each message, one after the other.
pub(super) async fn calling(ledger: Arc<Ledger>, queue: Queue, plan: Plan, name: String) -> anyhow::Result<()> {
    let mut pace = Pace::of(plan.pace());
    let mut number = 0u64;
    while !ledger.stop.load(Ordering::Relaxed) {
        pace.next().await;
        let key = format!("{name}-{number}");
        match queue.send(body(&key, plan.body)).await {
            Ok(sent) => ledger.acknowledge(key, sent.message_id, sent.position.replayed),
            Err(error) => ledger.complain(format!("send {key}: {error}")),
        }
        number += 1;
    }
    Ok(())
}

/// Keeps many messages on their way.
pub(super) async fn streaming(ledger: Arc<Ledger>, queue: Queue, plan: Plan, name: String) -> anyhow::Result<()> {
    let mut pace = Pace::of(plan.pace());
    let stream = Producer::builder(&queue).unconfirmed(plan.unconfirmed).start();
    let (handed, mut waiting) = tokio::sync::mpsc::channel::<(String, Confirm)>(plan.unconfirmed);
    let confirming = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            while let Some((key, confirm)) = waiting.recv().await {
                match confirm.await {
                    Ok(sent) => ledger.acknowledge(key, sent.message_id, sent.position.replayed),
                    Err(error) => ledger.complain(format!("send {key}: {error}")),
                }
            }
        })
    };
    let mut number = 0u64;
    while !ledger.stop.load(Ordering::Relaxed) {
        pace.next().await;
        let key = format!("{name}-{number}");
        let confirm = stream.send(body(&key, plan.body)).await?;
        handed.send((key, confirm)).await?;
        number += 1;
    }
    drop(handed);
    confirming.await?;
    stream.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_size_and_says_its_key() {
        for size in [0, 5, 64, 1_001] {
            let body = body("a-1", size);
            assert_eq!(body.len(), size.max(4));
            assert!(body.starts_with(b"a-1\n"));
        }
        assert_ne!(body("a-1", 64)[8..], body("a-2", 64)[8..]);
    }
}
