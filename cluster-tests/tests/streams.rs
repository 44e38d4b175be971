//! One node, killed with -9 again and again under streams: nothing confirmed is lost, nothing is enqueued or finished twice.
//!
//! `TICKETRAIL_TEST_SERVER_KILLS` says how often, 5 by default.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, ensure};
use ticketrail_client::{Client, Consumer, Effect, Error, Producer, Reason};
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::server::{DEADLINE, Server};

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 2;
const QUEUE: &str = "streams";

/// What producers and consumers saw, in their own words.
#[derive(Default)]
struct Ledger {
    confirmed: AtomicU64,
    replayed: AtomicU64,
    /// How often each key's ack was answered OK.
    finished: Mutex<BTreeMap<String, u32>>,
    redelivered: AtomicU64,
    stop: AtomicBool,
    done: AtomicBool,
}

fn client(url: &str) -> anyhow::Result<Client> {
    Ok(Client::builder().address(url).timeout(DEADLINE).connect()?)
}

/// Keeps its messages on their way; returns how many were confirmed.
async fn produce(ledger: Arc<Ledger>, url: String, producer: usize) -> anyhow::Result<u64> {
    let stream = Producer::builder(&client(&url)?.queue(QUEUE)).unconfirmed(128).start();
    let (confirms, mut waiting) = tokio::sync::mpsc::channel(128);
    let confirming = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            let mut count = 0;
            while let Some(confirm) = waiting.recv().await {
                let confirm: ticketrail_client::Confirm = confirm;
                let sent = confirm.await.context("a confirmation")?;
                ledger.confirmed.fetch_add(1, Ordering::Relaxed);
                ledger.replayed.fetch_add(sent.position.replayed.into(), Ordering::Relaxed);
                count += 1;
            }
            anyhow::Ok(count)
        })
    };
    let mut number = 0u64;
    while !ledger.stop.load(Ordering::Relaxed) {
        confirms.send(stream.send(format!("{producer}-{number}")).await?).await.context("who confirms has failed")?;
        number += 1;
    }
    drop(confirms);
    let confirmed = confirming.await??;
    ensure!(confirmed == number, "expected {number} confirmations, but got {confirmed}");
    stream.close().await?;
    Ok(confirmed)
}

async fn consume(ledger: Arc<Ledger>, url: String) -> anyhow::Result<()> {
    let queue = client(&url)?.queue(QUEUE);
    let mut consumer = Consumer::builder(&queue).prefetch(128).lease(Duration::from_secs(2)).start();
    while !ledger.done.load(Ordering::Relaxed) {
        let next = tokio::time::timeout(Duration::from_millis(200), consumer.next_batch(128)).await;
        let Ok(batch) = next else { continue };
        let acks = batch?.into_iter().map(|delivery| {
            ledger.redelivered.fetch_add((delivery.receive_count > 1).into(), Ordering::Relaxed);
            (String::from_utf8_lossy(&delivery.message.body).into_owned(), delivery.ack())
        });
        for (key, ack) in acks.collect::<Vec<_>>() {
            match ack.await {
                Ok(_) => *ledger.finished.lock().unwrap().entry(key).or_default() += 1,
                Err(Error::Refused(refusal)) if refusal.reason == Reason::LeaseLost => {}
                Err(e) if e.effect() == Effect::Nothing => {}
                Err(e) => return Err(e).with_context(|| format!("ack {key}")),
            }
        }
    }
    consumer.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_outlive_kills() -> anyhow::Result<()> {
    let kills: u32 = std::env::var("TICKETRAIL_TEST_SERVER_KILLS").map_or(Ok(5), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let mut server = tokio::task::block_in_place(|| Server::start(dir.path(), &[]))?;
    let ledger = Arc::new(Ledger::default());
    let producers: Vec<_> = (0..PRODUCERS).map(|n| tokio::spawn(produce(ledger.clone(), server.url(), n))).collect();
    let consumers: Vec<_> = (0..CONSUMERS).map(|_| tokio::spawn(consume(ledger.clone(), server.url()))).collect();
    let confirmed = || ledger.confirmed.load(Ordering::Relaxed);
    for _ in 0..kills {
        let before = confirmed();
        tokio::task::block_in_place(|| -> anyhow::Result<()> {
            poll(DEADLINE, || Ok((confirmed() > before + 500).then_some(()))).context("wait for load")?;
            server.kill_9()?;
            server.restart()?;
            Ok(())
        })?;
    }
    ledger.stop.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for producer in producers {
        sent += producer.await??;
    }
    let sent = usize::try_from(sent)?;
    tokio::task::block_in_place(|| {
        poll(DEADLINE, || Ok((ledger.finished.lock().unwrap().len() >= sent).then_some(())))
    })
    .with_context(|| format!("{sent} sent, {} finished", ledger.finished.lock().unwrap().len()))?;
    ledger.done.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.await??;
    }
    let stats = client(&server.url())?.admin().queue(QUEUE).await?.stats;
    let finished = ledger.finished.lock().unwrap();
    let twice: Vec<_> = finished.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "finished twice: {twice:?}");
    let whole = (sent, sent as u64, sent as u64, 0);
    let held = (finished.len(), stats.enqueued, stats.acked, stats.ready + stats.delayed + stats.leased);
    ensure!(held == whole, "expected (finished, enqueued, acked, left) to be {whole:?}, but they are {held:?}");
    let status = tokio::task::block_in_place(|| server.stop())?;
    ensure!(status.success(), "expected a clean stop, but {status}:\n{}", server.log());
    let replay = tokio::task::block_in_place(|| replay::check_dir(&server.data_dir()))?;
    println!(
        "{kills} kills, {sent} confirmed, {} redelivered, {} replayed, lost 0, doubled 0, finished twice 0; {} entries with \
         {} requests replayed to the same hash {:016x}",
        ledger.redelivered.load(Ordering::Relaxed),
        ledger.replayed.load(Ordering::Relaxed),
        replay.entries,
        replay.requests,
        replay.clock.digest,
    );
    Ok(())
}
