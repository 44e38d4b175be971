//! How long a synced append takes with the log's own options.
//!
//! `cargo run -p ticketrail-storage --example append_latency [directory on the disk to measure]`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketrail_core::GroupId;
use ticketrail_storage::log::{LeaderId, LogError, LogId, LogRecord, Payload, RaftLog, Vote};
use ticketrail_storage::rocks::{LogOptions, RocksLog};

const GROUP: GroupId = GroupId(1);

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(parent)?;
    println!(
        "{:>10} {:>12} {:>8} {:>9} {:>9} {:>9} {:>10}",
        "bytes", "outstanding", "appends", "p50 ms", "p99 ms", "max ms", "MB/s"
    );
    for (len, outstanding, count) in
        [(1 << 10, 1, 2000), (4 << 10, 1, 2000), (64 << 10, 1, 1000), (1 << 10, 64, 40_000), (64 << 10, 8, 3000)]
    {
        measure(dir.path(), len, outstanding, count)?;
    }
    let votes = measure_votes(dir.path(), 200)?;
    println!("a vote, with its watermark: p50 {:.2} ms, p99 {:.2} ms", at(&votes, 50), at(&votes, 99));
    Ok(())
}

fn measure(dir: &Path, len: usize, outstanding: usize, count: u64) -> Result<(), Box<dyn Error>> {
    let log = open(dir)?;
    let (sender, answers) = mpsc::sync_channel::<(Instant, Result<(), LogError>)>(outstanding);
    let mut times = Vec::new();
    let mut next = log.state(GROUP).last.map_or(0, |last| last.index + 1);
    let began = Instant::now();
    let mut waiting = 0;
    let mut sent = 0;
    while sent < count || waiting > 0 {
        while sent < count && waiting < outstanding {
            let sender = sender.clone();
            let start = Instant::now();
            let done = Box::new(move |result| sender.try_send((start, result)).unwrap_or_default());
            log.append(GROUP, vec![record(next, len)], done);
            next += 1;
            sent += 1;
            waiting += 1;
            if next.is_multiple_of(1000) {
                log.purge(GROUP, id(next - 500))?;
            }
        }
        let (start, result) = answers.recv()?;
        result?;
        waiting -= 1;
        times.push(start.elapsed());
    }
    let mb = (len as u64 * count) as f64 / 1e6 / began.elapsed().as_secs_f64();
    times.sort();
    println!(
        "{len:>10} {outstanding:>12} {count:>8} {:>9.2} {:>9.2} {:>9.2} {mb:>10.1}",
        at(&times, 50),
        at(&times, 99),
        at(&times, 100)
    );
    Ok(())
}

fn measure_votes(dir: &Path, count: u64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let log = open(dir)?;
    let (sender, answers) = mpsc::sync_channel(1);
    let mut times = Vec::new();
    for term in 1..=count {
        let sender = sender.clone();
        let start = Instant::now();
        let vote = Vote { leader: LeaderId { term, node: 1 }, committed: false };
        log.save_vote(GROUP, vote, Box::new(move |result| sender.try_send(result).unwrap_or_default()));
        answers.recv()??;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times)
}

fn open(dir: &Path) -> Result<RocksLog, Box<dyn Error>> {
    Ok(RocksLog::open(LogOptions::new(dir.join("raft"), dir.join("WATERMARK")))?)
}

fn id(index: u64) -> LogId {
    LogId { leader: LeaderId { term: 1, node: 1 }, index }
}

fn record(index: u64, len: usize) -> LogRecord {
    LogRecord { id: id(index), payload: Payload::Normal(Bytes::from(vec![index as u8; len])) }
}

/// The `percent`th percentile of sorted `times`, in milliseconds.
fn at(times: &[Duration], percent: usize) -> f64 {
    let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}
