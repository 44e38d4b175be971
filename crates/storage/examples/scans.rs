//! What a receive of one message touches and costs on RocksDB, whatever waits, whatever was there before: keys read one
//! by one, scans and the keys they return, keys written, processor time.
//!
//! `cargo run --release -p ticketrail-storage --example scans [most waiting]`

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Commit, Content, Enqueue, InitCluster, QueueRef, QueueSettings, Receive, Release, Settle, UpdateQueue, Verdict,
};
use ticketrail_core::reply::{Answered, Handle};
use ticketrail_core::view::ViewError;
use ticketrail_core::{
    Answer, Command, Entry, GroupId, LogPosition, Query, Reply, Request, Timestamp, View, answer, apply,
};
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::rocks::{RocksState, StateOptions};
use ticketrail_storage::state::{Applied, StateStore};

type Error = Box<dyn std::error::Error>;

/// Receives that are measured, one message each.
const ROUNDS: u32 = 200;
/// Messages of an entry that fills a queue.
const FILL: u64 = 500;

/// A view that counts how it is read.
struct Counting<'v> {
    view: &'v dyn View,
    gets: Cell<u32>,
    scans: Cell<u32>,
    scanned: Cell<u32>,
}

impl View for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        self.gets.set(self.gets.get() + 1);
        self.view.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError> {
        let found = self.view.scan(from, to, limit)?;
        self.scans.set(self.scans.get() + 1);
        self.scanned.set(self.scanned.get() + u32::try_from(found.len()).unwrap_or(u32::MAX));
        Ok(found)
    }
}

#[derive(Default)]
struct Touched {
    gets: u32,
    scans: u32,
    scanned: u32,
    written: u32,
    time: Duration,
    slowest: Duration,
}

struct Replica {
    state: RocksState,
    index: u64,
}

impl Replica {
    fn new(dir: &std::path::Path) -> Result<Self, Error> {
        let state = RocksState::open(StateOptions::new(dir.join("sm"), GroupId::QUEUES))?;
        let mut replica = Self { state, index: 0 };
        replica.entry(Command::InitCluster(InitCluster { secret: vec![7; 32].into() }), None)?;
        Ok(replica)
    }

    fn entry(&mut self, command: Command, touched: Option<&mut Touched>) -> Result<Reply, Error> {
        self.index += 1;
        let entry = Entry::new(Timestamp(1_000_000 + self.index), vec![Request::anonymous(command)]);
        let at = LogPosition { term: 1, index: self.index };
        let mut counted = Touched::default();
        let outcome = self.state.read(|view| {
            let view = Counting { view, gets: Cell::default(), scans: Cell::default(), scanned: Cell::default() };
            let begun = cpu()?;
            let outcome = apply(&view, at, &entry)?;
            counted.time = cpu()?.saturating_sub(begun);
            (counted.gets, counted.scans, counted.scanned) = (view.gets.get(), view.scans.get(), view.scanned.get());
            Ok::<_, Error>(outcome)
        })?;
        let last = Some(LogId { leader: LeaderId { term: 1, node: 1 }, index: self.index });
        self.state.commit(&outcome.writes, &Applied { last, membership: Bytes::new() })?;
        if let Some(touched) = touched {
            touched.gets += counted.gets;
            touched.scans += counted.scans;
            touched.scanned += counted.scanned;
            touched.written += u32::try_from(outcome.writes.iter().count())?;
            touched.time += counted.time;
            touched.slowest = touched.slowest.max(counted.time);
        }
        outcome
            .replies
            .into_iter()
            .next()
            .ok_or("expected a reply")?
            .map_err(|rejection| format!("{rejection:?}").into())
    }

    fn fill(&mut self, name: &str, count: u64, part: impl Fn(u64) -> Enqueue) -> Result<(), Error> {
        let mut from = 0;
        while from < count {
            let to = (from + FILL).min(count);
            let enqueue = (from..to).map(&part).collect();
            let commit = Commit { queues: vec![queue(name)], enqueue, auto_create: true, ..Commit::default() };
            self.entry(Command::Commit(commit), None)?;
            if from == 0 {
                let settings = Some(QueueSettings { max_depth: Some(0), ..QueueSettings::default() });
                self.entry(Command::UpdateQueue(UpdateQueue { queue: Some(queue(name)), settings }), None)?;
            }
            from = to;
        }
        Ok(())
    }

    fn receive(&mut self, name: &str, max: u32, touched: Option<&mut Touched>) -> Result<Vec<Handle>, Error> {
        let receive = Receive { queues: vec![queue(name)], max, ..Receive::default() };
        match self.entry(Command::Receive(receive), touched)?.answered {
            Some(Answered::Received(received)) => Ok(received.handles),
            other => Err(format!("expected leases, but got {other:?}").into()),
        }
    }

    fn settle(&mut self, handles: Vec<Handle>, verdict: &Verdict) -> Result<(), Error> {
        let Answer::Deliveries(deliveries) = self.state.read(|view| answer(view, &Query::Deliver(handles)))? else {
            return Err("expected deliveries".into());
        };
        let settle = |token| Settle { token, verdict: Some(verdict.clone()) };
        let settle = deliveries.into_iter().map(|delivery| settle(delivery.token)).collect();
        self.entry(Command::Commit(Commit { settle, ..Commit::default() }), None)?;
        Ok(())
    }

    /// Receives one message at a time and acks it, and prints what each receive touched.
    fn measure(&mut self, what: &str, name: &str) -> Result<(), Error> {
        let mut touched = Touched::default();
        for _ in 0..ROUNDS {
            let handles = self.receive(name, 1, Some(&mut touched))?;
            if handles.len() != 1 {
                return Err(format!("expected one lease in {what}, but got {}", handles.len()).into());
            }
            self.settle(handles, &Verdict::Ack(Ack::default()))?;
        }
        let each = |count: u32| f64::from(count) / f64::from(ROUNDS);
        println!(
            "{what:<58} {:>5.1} gets {:>5.1} scans {:>6.1} keys scanned {:>5.1} keys written {:>7.1} us (slowest {:>7.1})",
            each(touched.gets),
            each(touched.scans),
            each(touched.scanned),
            each(touched.written),
            touched.time.as_secs_f64() * 1e6 / f64::from(ROUNDS),
            touched.slowest.as_secs_f64() * 1e6,
        );
        Ok(())
    }
}

/// The processor time of this thread.
fn cpu() -> Result<Duration, Error> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = schedstat.split_whitespace().next().ok_or("expected the processor time in schedstat")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

fn queue(name: &str) -> QueueRef {
    QueueRef { namespace: "default".into(), name: name.into() }
}

fn plain() -> Enqueue {
    Enqueue { message: Some(Content { body: vec![b'x'; 256].into(), ..Content::default() }), ..Enqueue::default() }
}

fn main() -> Result<(), Error> {
    let most = std::env::args().nth(1).map_or(Ok(1_000_000), |arg| arg.parse::<u64>())?;
    let dir = tempfile::tempdir()?;
    let mut replica = Replica::new(dir.path())?;
    for waiting in [1_000, 100_000, 1_000_000].into_iter().filter(|waiting| *waiting <= most) {
        let name = format!("plain.{waiting}");
        replica.fill(&name, waiting, |_| plain())?;
        replica.measure(&format!("{waiting} waiting"), &name)?;
    }
    let many = most.min(100_000);
    replica.fill("priorities", many, |n| Enqueue { priority: Some((n % 10) as u32), ..plain() })?;
    replica.measure(&format!("{many} waiting in 10 priorities"), "priorities")?;
    replica.fill("groups", many, |n| Enqueue { group: format!("g{n}"), ..plain() })?;
    replica.measure(&format!("{many} groups of one"), "groups")?;
    replica.fill("lines", many, |n| Enqueue { group: format!("g{}", n % 10), ..plain() })?;
    replica.measure(&format!("10 groups of {}", many / 10), "lines")?;

    // One is leased first and comes back last, when a million after it are gone and others wait before it.
    replica.fill("returned", 1, |_| plain())?;
    let first = replica.receive("returned", 1, None)?;
    replica.fill("returned", most, |_| plain())?;
    for _ in 0..most / 500 {
        let handles = replica.receive("returned", 500, None)?;
        replica.settle(handles, &Verdict::Ack(Ack::default()))?;
    }
    replica.fill("returned", 10_000, |_| plain())?;
    replica.settle(first, &Verdict::Release(Release {}))?;
    replica.measure(&format!("redelivered, {most} acked since, 10000 wait"), "returned")?;
    Ok(())
}
