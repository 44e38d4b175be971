//! Fills a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use ticketrail_client::{Client, QueueSettings};

use super::produce::body;

/// Who sends.
const SENDERS: usize = 8;
/// Messages of one call.
const BATCH: u64 = 200;

/// Makes a queue without a bound and puts `messages` of `bytes` on it, many at a time.
pub(super) async fn fill(clients: Vec<Client>, queue: String, messages: u64, bytes: usize) -> anyhow::Result<()> {
    let settings = QueueSettings { max_depth: Some(0), ..QueueSettings::default() };
    if let Some(client) = clients.first() {
        client.admin().create_queue(&queue, settings).await?;
    }
    let next = Arc::new(AtomicU64::new(0));
    let senders = clients.into_iter().cycle().take(SENDERS).map(|client| {
        let (next, queue) = (Arc::clone(&next), client.queue(&queue));
        tokio::spawn(async move {
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                if first >= messages {
                    return Ok(());
                }
                let batch = first..messages.min(first + BATCH);
                let sent = queue.send_batch(batch.map(|number| body(&format!("fill-{number}"), bytes))).await?;
                ensure!(sent.results.iter().all(Result::is_ok), "expected room for all, but {sent:?}");
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await??;
    }
    Ok(())
}
