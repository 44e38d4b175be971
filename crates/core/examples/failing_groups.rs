//! What failing groups cost the others: ten minutes of cluster time with 10,000 groups, once with none and once with one
//! group in a hundred whose every message fails each time; how long messages of the healthy groups wait for a worker.
//!
//! `cargo run --release -p ticketrail-core --example failing_groups [minutes]`

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Commit, Content, Enqueue, InitCluster, QueueRef, Receive, Retry, Settle, Tick, Verdict,
};
use ticketrail_core::query::Delivery;
use ticketrail_core::reply::{Answered, Handle};
use ticketrail_core::{
    Answer, Command, Entry, LogPosition, MemView, Query, Reply, Request, Timestamp, answer, apply, next_due,
};

type Error = Box<dyn std::error::Error>;

const GROUPS: u64 = 10_000;
/// One group in so many fails.
const FAILING: u64 = 100;
/// One message so often, in milliseconds.
const EVERY_MS: u64 = 5;
/// What a worker needs for a message.
const WORK_MS: u64 = 100;
/// A fifth more than what is needed on average.
const WORKERS: u32 = 24;
/// When the story begins.
const MORNING_MS: u64 = 1_767_225_600_000;

struct Machine {
    view: MemView,
    index: u64,
}

impl Machine {
    fn propose(&mut self, now: u64, command: Command) -> Result<Reply, Error> {
        self.index += 1;
        let entry = Entry::new(Timestamp(now), vec![Request::anonymous(command)]);
        let outcome = apply(&self.view, LogPosition { term: 1, index: self.index }, &entry)?;
        self.view.commit(&outcome.writes);
        outcome
            .replies
            .into_iter()
            .next()
            .ok_or("expected a reply")?
            .map_err(|rejection| format!("{rejection:?}").into())
    }

    fn receive(&mut self, now: u64, max: u32) -> Result<Vec<Delivery>, Error> {
        let receive = Receive { queues: vec![orders()], max, ..Receive::default() };
        let handles: Vec<Handle> = match self.propose(now, Command::Receive(receive))?.answered {
            Some(Answered::Received(received)) => received.handles,
            other => return Err(format!("expected leases, but got {other:?}").into()),
        };
        let answered = answer(&self.view, &Query::Deliver(handles))?;
        let Answer::Deliveries(deliveries) = answered else {
            return Err(format!("expected deliveries, but got {answered:?}").into());
        };
        Ok(deliveries)
    }
}

fn orders() -> QueueRef {
    QueueRef { namespace: "default".into(), name: "orders".into() }
}

/// Which group the nth message belongs to: each gets its share, in an order without a pattern.
fn group_of(n: u64) -> u64 {
    let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 31;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)) % GROUPS
}

/// The waits of healthy groups' messages for their first delivery, in milliseconds, sorted.
fn run(minutes: u64, fails: bool) -> Result<Vec<u64>, Error> {
    let mut machine = Machine { view: MemView::new(), index: 0 };
    let init = InitCluster { secret: Bytes::from_static(&[7; 32]) };
    machine.propose(MORNING_MS, Command::InitCluster(init))?;
    let is_failing = |group: u64| fails && group.is_multiple_of(FAILING);
    let mut waits = Vec::new();
    let mut busy: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut at_work: BTreeMap<u64, (Bytes, bool)> = BTreeMap::new();
    let (mut serial, mut idle) = (0, WORKERS);
    for step in 0..minutes * 60_000 / EVERY_MS {
        let now = MORNING_MS + step * EVERY_MS;
        while busy.peek().is_some_and(|Reverse((done, _))| *done <= now) {
            let Some(Reverse((_, job))) = busy.pop() else { break };
            let (token, failed) = at_work.remove(&job).ok_or("expected a job")?;
            let verdict = if failed { Verdict::Retry(Retry::default()) } else { Verdict::Ack(Ack::default()) };
            let settle = vec![Settle { token, verdict: Some(verdict) }];
            machine.propose(now, Command::Commit(Commit { settle, ..Commit::default() }))?;
            idle += 1;
        }
        let message = Some(Content { body: step.to_be_bytes().to_vec().into(), ..Content::default() });
        let part = Enqueue { message, group: format!("customer-{}", group_of(step)), ..Enqueue::default() };
        let commit = Commit { queues: vec![orders()], enqueue: vec![part], auto_create: true, ..Commit::default() };
        machine.propose(now, Command::Commit(commit))?;
        if next_due(&machine.view)?.is_some_and(|due| due <= Timestamp(now)) {
            machine.propose(now, Command::Tick(Tick {}))?;
        }
        if idle == 0 {
            continue;
        }
        for delivery in machine.receive(now, idle)? {
            let number: u64 = delivery.group.trim_start_matches("customer-").parse()?;
            let failed = is_failing(number);
            if !is_failing(number) && delivery.receive_count == 1 {
                waits.push(now.saturating_sub(delivery.enqueued_at.0));
            }
            serial += 1;
            at_work.insert(serial, (delivery.token, failed));
            busy.push(Reverse((now + WORK_MS, serial)));
            idle -= 1;
        }
    }
    waits.sort_unstable();
    Ok(waits)
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn main() -> Result<(), Error> {
    let minutes = std::env::args().nth(1).map_or(Ok(10), |arg| arg.parse())?;
    println!("{GROUPS} groups, a message each {EVERY_MS} ms, {WORKERS} workers of {WORK_MS} ms, {minutes} min");
    for (what, fails) in [("none fails", false), ("one in a hundred fails", true)] {
        let waits = run(minutes, fails)?;
        println!(
            "{what:<24} {:>7} healthy messages waited p50 {} ms, p99 {} ms, longest {} ms",
            waits.len(),
            percentile(&waits, 50),
            percentile(&waits, 99),
            waits.last().copied().unwrap_or_default()
        );
    }
    Ok(())
}
