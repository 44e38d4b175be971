//! Commits of an ack and two enqueues while the leader is killed with -9 again and again: after all of it each message is
//! acked once, and has one child on each of two queues.
//!
//! `TICKETRAIL_TEST_COMMITS` says how many commits, 1,000 by default; `TICKETRAIL_TEST_COMMIT_KILLS` how often the leader is
//! killed, 2 by default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ticketrail_client::{Client, Delivery, MessageState, Reason};
use ticketrail_cluster_tests::cluster::Cluster;
use ticketrail_cluster_tests::load;
use ticketrail_cluster_tests::poll::poll;
use ticketrail_cluster_tests::replay;
use ticketrail_cluster_tests::size::size;

use crate::turns;

const PARENTS: &str = "orders";
const CHILDREN: [&str; 2] = ["payment", "stock"];
const WORKERS: u64 = 8;
/// What a commit may take, elections included.
const PATIENCE: Duration = Duration::from_secs(60);
/// Short, so that what a worker loses with its leader comes back soon.
const LEASE: Duration = Duration::from_secs(5);

#[test]
fn an_ack_and_its_children_stand_or_fall_together() -> anyhow::Result<()> {
    let _alone = turns::alone();
    let commits: u64 = size("TICKETRAIL_TEST_COMMITS", 1_000)?;
    let kills: u64 = size("TICKETRAIL_TEST_COMMIT_KILLS", 2)?;
    let mut cluster = Cluster::start(&[])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let client = {
        let _entered = runtime.enter();
        Client::builder().addresses(cluster.addresses()).timeout(PATIENCE).connect()?
    };
    runtime.block_on(fill(&client, commits))?;
    let done = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..WORKERS).map(|_| runtime.spawn(work(client.clone(), commits, done.clone()))).collect();
    for kill in 1..=kills {
        let wanted = commits * kill / (kills + 1);
        poll(PATIENCE * 10, || Ok((done.load(Ordering::SeqCst) >= wanted).then_some(())))
            .with_context(|| format!("wait for {wanted} commits before kill {kill}"))?;
        let leader = cluster.leader()?;
        cluster.node_mut(leader.at)?.server.kill_9()?;
        cluster.until("another leader", |cluster| {
            Ok(cluster.leader_now().filter(|next| next.at != leader.at && next.term > leader.term))
        })?;
        cluster.restart(leader.at)?;
    }
    let mut late = 0;
    for worker in workers {
        late += runtime.block_on(worker)??;
    }
    let parents = load::queue_stats(&cluster.addresses(), PARENTS)?;
    ensure!(
        (parents.acked, parents.depth()) == (commits, 0),
        "expected {commits} acked and none left, but {} were, and {} are",
        parents.acked,
        parents.depth()
    );
    for queue in CHILDREN {
        let children = runtime.block_on(children(&client, queue))?;
        let doubled = children.values().filter(|times| **times > 1).count();
        let lost = (0..commits).filter(|number| !children.contains_key(number)).count();
        ensure!(
            lost == 0 && doubled == 0 && children.len() as u64 == commits,
            "expected one child of each of {commits} on {queue}, but {lost} lack theirs, {doubled} have more than one, and \
             there are {} numbers",
            children.len()
        );
    }
    cluster.until_level()?;
    cluster.stop_all()?;
    let agreed = replay::agree(&cluster.data_dirs())?;
    println!(
        "{commits} commits of an ack and two enqueues, leader killed {kills} times: acked without child 0, child without ack 0, \
         duplicates 0; {late} commits came after their lease; {} records the same on all three",
        agreed.records
    );
    Ok(())
}

async fn fill(client: &Client, commits: u64) -> anyhow::Result<()> {
    let numbers: Vec<u64> = (0..commits).collect();
    for numbers in numbers.chunks(500) {
        let batch = client.queue(PARENTS).send_batch(numbers.iter().map(u64::to_string)).await?;
        let refused = batch.results.iter().filter(|result| result.is_err()).count();
        ensure!(refused == 0, "expected all of a batch on the queue, but {refused} were refused");
    }
    Ok(())
}

/// Receives and commits until all is done. Returns how many commits came after their lease.
async fn work(client: Client, commits: u64, done: Arc<AtomicU64>) -> anyhow::Result<u64> {
    let mut late = 0;
    while done.load(Ordering::SeqCst) < commits {
        let received = client.queue(PARENTS).receive().max(4).lease(LEASE).wait(Duration::from_secs(1)).await;
        // Whatever a receive without an answer got comes back when its lease is over.
        let Ok(received) = received else { continue };
        for delivery in received.deliveries {
            match commit(&client, &delivery).await {
                Ok(true) => {
                    done.fetch_add(1, Ordering::SeqCst);
                }
                Ok(false) => late += 1,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(late)
}

/// One commit. False: the lease was over first, so that nothing happened, and the message comes to somebody again.
async fn commit(client: &Client, delivery: &Delivery) -> anyhow::Result<bool> {
    let body = delivery.message.body.clone();
    let mut commit = client.commit().ack(delivery);
    for queue in CHILDREN {
        commit = commit.enqueue(queue, body.to_vec());
    }
    match commit.send().await {
        Ok(_) => Ok(true),
        Err(error) if error.reason() == Some(&Reason::LeaseLost) => Ok(false),
        Err(error) => Err(error).context("commit an ack and its children"),
    }
}

/// How often each number stands on a queue.
async fn children(client: &Client, queue: &str) -> anyhow::Result<BTreeMap<u64, u32>> {
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let mut peek = client.queue(queue).peek().state(MessageState::Ready).page_size(1_000);
        if let Some(after) = after.take() {
            peek = peek.after(after);
        }
        let page = peek.await?;
        for message in page.messages {
            let number = std::str::from_utf8(&message.message.body)?.parse()?;
            *found.entry(number).or_default() += 1;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}
