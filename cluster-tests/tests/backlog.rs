//! A backlog costs disk, not memory, and a restart does not read it.
//!
//! `TICKETRAIL_TEST_BACKLOG` says how many messages, 20,000 by default; `TICKETRAIL_TEST_RAIL_BIN` may name a release build.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ticketrail_client::{Client, QueueSettings};
use ticketrail_cluster_tests::faults::anonymous_mib;
use ticketrail_cluster_tests::server::Server;

const SENDERS: usize = 8;
const BATCH: usize = 500;
const BODY: usize = 1 << 10;
/// Far more than it takes; the figure is printed.
const RESTART: Duration = Duration::from_secs(30);

async fn fill(url: String, left: Arc<AtomicUsize>) -> anyhow::Result<()> {
    let queue = Client::builder().address(url).connect()?.queue("backlog");
    let take = |left: usize| Some(left.saturating_sub(BATCH));
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok_and(|before| before > 0) {
        let sent = queue.send_batch((0..BATCH).map(|_| vec![b'x'; BODY])).await?;
        ensure!(sent.results.iter().all(Result::is_ok), "expected room for all, but {sent:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_not_kept_in_memory_and_not_read_at_a_restart() -> anyhow::Result<()> {
    let messages: usize = std::env::var("TICKETRAIL_TEST_BACKLOG").map_or(Ok(20_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let mut server = Server::start(dir.path(), &[])?;
    let empty_mib = anonymous_mib(server.child()?)?;
    let client = Client::builder().address(server.url()).connect()?;
    let settings = QueueSettings { max_depth: Some(0), ..QueueSettings::default() };
    client.admin().create_queue("backlog", settings).await?;

    let begun = Instant::now();
    let left = Arc::new(AtomicUsize::new(messages));
    let senders: Vec<_> = (0..SENDERS).map(|_| tokio::spawn(fill(server.url(), left.clone()))).collect();
    for sender in senders {
        sender.await??;
    }
    let filled = begun.elapsed();
    let full_mib = anonymous_mib(server.child()?)?;
    let ready = client.admin().queue("backlog").await?.stats.ready;
    ensure!(usize::try_from(ready)? >= messages, "expected {messages} waiting, but {ready}");

    server.kill_9()?;
    let begun = Instant::now();
    server.restart()?;
    let serving = begun.elapsed();
    client.queue("backlog").send("one more").await?;
    let first = client.queue("backlog").receive().await?.deliveries.pop().context("expected the first message")?;
    first.ack().await?;
    let served = begun.elapsed();
    let restarted_mib = anonymous_mib(server.child()?)?;
    println!(
        "{ready} waiting, filled at {:.0}/s; anonymous memory {empty_mib} MiB empty, {full_mib} MiB full, {restarted_mib} MiB \
         restarted; after -9 ready in {} ms, a send, a receive and an ack done in {} ms",
        ready as f64 / filled.as_secs_f64(),
        serving.as_millis(),
        served.as_millis(),
    );
    ensure!(served < RESTART, "expected to serve within {RESTART:?}, but it took {served:?}");
    // Memtables, log tail and caches have fixed sizes, 260 MiB at most together; the backlog must not stand beside them.
    ensure!(full_mib < 512, "expected memory that does not grow with the backlog, but it is {full_mib} MiB");
    ensure!(server.stop()?.success(), "expected a clean stop:\n{}", server.log());
    Ok(())
}
