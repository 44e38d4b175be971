//! How many messages a second one node takes in, hands out and finishes, called in process, on RocksDB.
//!
//! `cargo run -p ticketrail-node --example throughput [-- <directory> [<seconds a phase>]]`
//!
//! Four producers with 256 enqueues outstanding each, one message of 1 KiB a call; four consumers that hold up to 256
//! messages each, received 16 at a time and acknowledged 16 at a time.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Commit, Content, Enqueue, QueueRef, QueueSettings, Receive, Settle, UpdateQueue, Verdict,
};
use ticketrail_core::{Command, GroupId};
use ticketrail_node::call::{Call, ReceiveCall};
use ticketrail_node::{Disk, Handle, Node, NodeConfig};
use ticketrail_storage::log::{LeaderId, LogId, LogRecord, Payload, RaftLog as _};
use ticketrail_storage::rocks::{LogOptions, RocksLog, RocksState, StateOptions};
use tokio::task::JoinSet;

const PRODUCERS: usize = 4 * 256;
const CONSUMERS: usize = 4 * 16;
const BATCH: u32 = 16;
const BODY: usize = 1_024;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let dir = arguments.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    std::fs::create_dir_all(&dir)?;
    let log = Arc::new(RocksLog::open(LogOptions::new(dir.join("raft"), dir.join("WATERMARK")))?);
    let state = RocksState::open(StateOptions::new(dir.join("sm"), GroupId::QUEUES))?;
    let started = Instant::now();
    let node = Node::start(NodeConfig::default(), log.clone(), Arc::new(state), Disk::endless()).await?;
    println!("started after {:?}", started.elapsed());
    let handle = node.handle();
    handle.serving().await;
    println!("serves after {:?}", started.elapsed());
    // The bound would end the measurement.
    handle.call(call(commit(1, 1))).await?;
    let settings = QueueSettings { max_depth: Some(0), ..QueueSettings::default() };
    let unbounded = UpdateQueue { queue: Some(orders()), settings: Some(settings) };
    handle.call(call(Command::UpdateQueue(unbounded))).await?;

    let phase = Duration::from_secs(seconds);
    let (sent, done) = run(&handle, phase, true, false).await?;
    println!("enqueue only     {:>8.0} /s", sent.max(done));
    let (_, done) = run(&handle, phase, false, true).await?;
    println!("receive and ack  {done:>8.0} /s");
    let (sent, done) = run(&handle, phase, true, true).await?;
    println!("both at once     {sent:>8.0} /s in, {done:>8.0} /s out");
    let (sent, done) = run(&handle, phase, true, true).await?;
    println!("both at once     {sent:>8.0} /s in, {done:>8.0} /s out");

    let mut times = Vec::new();
    for _ in 0..500 {
        let began = Instant::now();
        handle.call(call(commit(1, BODY))).await?;
        times.push(began.elapsed());
    }
    print_times("one at a time", times);
    print_times("the log's sync", syncs(&log).await?);
    println!("{:?}", handle.status());
    let began = Instant::now();
    node.shutdown().await?;
    println!("stopped in {:?}", began.elapsed());
    Ok(())
}

/// How long the log alone takes to make 1 KiB durable, in a group of its own.
async fn syncs(log: &RocksLog) -> Result<Vec<Duration>, Failure> {
    let (group, leader) = (GroupId(u32::MAX), LeaderId { term: 1, node: 1 });
    let first = log.state(group).last.map_or(0, |last| last.index + 1);
    let mut times = Vec::new();
    for index in first..first + 500 {
        let payload = Payload::Normal(Bytes::from(vec![b'x'; BODY]));
        let (done, durable) = tokio::sync::oneshot::channel();
        let began = Instant::now();
        let record = LogRecord { id: LogId { leader, index }, payload };
        log.append(group, vec![record], Box::new(move |result| drop(done.send(result))));
        durable.await??;
        times.push(began.elapsed());
    }
    Ok(times)
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    println!("{what:<16} p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
}

/// Runs producers, consumers or both; messages a second sent and finished.
async fn run(handle: &Handle, phase: Duration, produce: bool, consume: bool) -> Result<(f64, f64), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sent, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..if produce { PRODUCERS } else { 0 } {
        let (handle, stop, sent) = (handle.clone(), stop.clone(), sent.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                handle.call(call(commit(1, BODY))).await?;
                sent.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        });
    }
    for _ in 0..if consume { CONSUMERS } else { 0 } {
        let (handle, stop, done) = (handle.clone(), stop.clone(), done.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let receive = Receive { queues: vec![orders()], max: BATCH, ..Receive::default() };
                let wait = Duration::from_millis(100);
                let poll = ReceiveCall { receive, id: None, repeat: false, wait, auto_create: true };
                let got = handle.receive(poll).await?.deliveries;
                if got.is_empty() {
                    continue;
                }
                let verdict = || Some(Verdict::Ack(Ack::default()));
                let settle = got.iter().map(|got| Settle { token: got.token.clone(), verdict: verdict() }).collect();
                handle.call(call(Command::Commit(Commit { settle, ..Commit::default() }))).await?;
                done.fetch_add(got.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    let began = Instant::now();
    tokio::time::sleep(phase).await;
    let took = began.elapsed().as_secs_f64();
    let rates = (sent.load(Ordering::Relaxed) as f64 / took, done.load(Ordering::Relaxed) as f64 / took);
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(rates)
}

fn orders() -> QueueRef {
    QueueRef { namespace: "default".into(), name: "orders".into() }
}

fn commit(messages: usize, body: usize) -> Command {
    let content = Content { body: Bytes::from(vec![b'x'; body]), ..Content::default() };
    let enqueue = vec![Enqueue { message: Some(content), ..Enqueue::default() }; messages];
    Command::Commit(Commit { queues: vec![orders()], enqueue, auto_create: true, ..Commit::default() })
}

fn call(command: Command) -> Call {
    Call { command, id: None, repeat: false, timeout: Duration::from_secs(30) }
}
