//! One node, killed with -9 again and again under load: nothing acknowledged is lost, nothing is applied twice.
//!
//! `TICKETRAIL_TEST_SERVER_KILLS` says how often, 5 by default.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ticketrail_client::{Client, Effect, Error};
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::server::{DEADLINE, Server};

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 3;

/// What producers and workers saw, in their own words.
#[derive(Default)]
struct Ledger {
    /// Message ids by key, from acknowledged sends.
    sent: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Keys whose ack was answered OK, with how often.
    finished: Mutex<BTreeMap<String, u32>>,
    /// Keys delivered after their ack was answered OK.
    after_ack: Mutex<Vec<String>>,
    acknowledged: AtomicU64,
    redelivered: AtomicU64,
    replayed: AtomicU64,
    stop: AtomicBool,
}

fn client(url: &str) -> anyhow::Result<Client> {
    Ok(Client::builder().address(url).timeout(DEADLINE).connect()?)
}

async fn produce(ledger: Arc<Ledger>, url: String, producer: usize) -> anyhow::Result<()> {
    let queue = client(&url)?.queue("kills");
    for number in 0u64.. {
        if ledger.stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{producer}-{number}");
        let sent = queue.send(key.clone()).await.with_context(|| format!("send {key}"))?;
        ledger.sent.lock().unwrap().entry(key).or_default().insert(sent.message_id);
        ledger.acknowledged.fetch_add(1, Ordering::Relaxed);
        ledger.replayed.fetch_add(sent.position.replayed.into(), Ordering::Relaxed);
    }
    Ok(())
}

async fn consume(ledger: Arc<Ledger>, url: String, consumer: usize, done: Arc<AtomicBool>) -> anyhow::Result<()> {
    let queue = client(&url)?.queue("kills");
    while !done.load(Ordering::Relaxed) {
        let call = queue.receive().max(8).wait(Duration::from_millis(500)).lease(Duration::from_secs(2));
        for delivery in call.worker(format!("consumer-{consumer}")).await.context("receive")?.deliveries {
            let key = String::from_utf8(delivery.message.body.to_vec())?;
            if ledger.finished.lock().unwrap().contains_key(&key) {
                ledger.after_ack.lock().unwrap().push(key.clone());
            }
            ledger.redelivered.fetch_add((delivery.receive_count > 1).into(), Ordering::Relaxed);
            match delivery.ack().await {
                Ok(_) => *ledger.finished.lock().unwrap().entry(key).or_default() += 1,
                Err(Error::Refused { .. }) => {}
                Err(e) if e.effect() == Effect::Nothing => {}
                Err(e) => return Err(e).with_context(|| format!("ack {key}")),
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_applied_twice() -> anyhow::Result<()> {
    let kills: u32 = std::env::var("TICKETRAIL_TEST_SERVER_KILLS").map_or(Ok(5), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let mut server = tokio::task::block_in_place(|| Server::start(dir.path(), &[]))?;
    let ledger = Arc::new(Ledger::default());
    let done = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..PRODUCERS).map(|n| tokio::spawn(produce(ledger.clone(), server.url(), n))).collect();
    let consumers: Vec<_> =
        (0..CONSUMERS).map(|n| tokio::spawn(consume(ledger.clone(), server.url(), n, done.clone()))).collect();

    let mut outages = Vec::new();
    let acknowledged = || ledger.acknowledged.load(Ordering::Relaxed);
    for _ in 0..kills {
        let before = acknowledged();
        let waited = tokio::task::block_in_place(|| -> anyhow::Result<Duration> {
            poll(DEADLINE, || Ok((acknowledged() > before + 50).then_some(()))).context("wait for load")?;
            server.kill_9()?;
            let (killed, at_kill) = (Instant::now(), acknowledged());
            server.restart()?;
            poll(DEADLINE, || Ok((acknowledged() > at_kill + 1).then_some(()))).context("wait for the first write")?;
            Ok(killed.elapsed())
        })?;
        outages.push(waited);
    }
    ledger.stop.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await??;
    }
    let sent = ledger.sent.lock().unwrap().clone();
    tokio::task::block_in_place(|| {
        poll(DEADLINE, || Ok((ledger.finished.lock().unwrap().len() >= sent.len()).then_some(())))
    })
    .with_context(|| format!("{} sent, {} finished", sent.len(), ledger.finished.lock().unwrap().len()))?;
    done.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.await??;
    }
    let status = tokio::task::block_in_place(|| server.stop())?;
    ensure!(status.success(), "expected a clean stop, but {status}:\n{}", server.log());

    let finished = ledger.finished.lock().unwrap();
    let lost: Vec<_> = sent.keys().filter(|key| !finished.contains_key(*key)).collect();
    let doubled: Vec<_> = sent.iter().filter(|(_, ids)| ids.len() > 1).collect();
    let twice: Vec<_> = finished.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(lost.is_empty(), "lost: {lost:?}");
    ensure!(doubled.is_empty(), "on the queue twice: {doubled:?}");
    ensure!(twice.is_empty(), "finished twice: {twice:?}");
    ensure!(ledger.after_ack.lock().unwrap().is_empty(), "delivered after their ack: {:?}", ledger.after_ack);

    let replay = tokio::task::block_in_place(|| replay::check_dir(&server.data_dir()))?;
    outages.sort();
    println!(
        "{kills} kills, {} acknowledged, {} redelivered, {} replayed, lost 0, finished twice 0; write outage median {} ms, \
         longest {} ms; {} entries with {} requests replayed to the same hash {:016x}",
        sent.len(),
        ledger.redelivered.load(Ordering::Relaxed),
        ledger.replayed.load(Ordering::Relaxed),
        outages.get(outages.len() / 2).map_or(0, Duration::as_millis),
        outages.last().map_or(0, Duration::as_millis),
        replay.entries,
        replay.requests,
        replay.clock.digest,
    );
    Ok(())
}
