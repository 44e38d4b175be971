//! What a plain message costs a replica over its whole life: `apply` and the commit of its writes on RocksDB, in
//! processor time of the thread that applies, and the keys it puts and deletes.
//!
//! `cargo run --release -p ticketrail-storage --example message_life [messages] [batch] [body bytes]`

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Commit, Content, Enqueue, InitCluster, OpenSession, QueueRef, Receive, Settle, Verdict,
};
use ticketrail_core::reply::{Answered, Received};
use ticketrail_core::{
    Answer, Command, Entry, GroupId, LogPosition, Query, Reply, Request, RequestId, Timestamp, Write, answer, apply,
};
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::rocks::{RocksState, StateOptions};
use ticketrail_storage::state::{Applied, StateStore};

type Error = Box<dyn std::error::Error>;

const SESSIONS: u64 = 4;

#[derive(Default)]
struct Cost {
    apply: Duration,
    commit: Duration,
    puts: BTreeMap<char, u64>,
    deletes: BTreeMap<char, u64>,
}

struct Replica {
    state: RocksState,
    index: u64,
    cost: Cost,
    sessions: Vec<(u64, u64)>,
}

impl Replica {
    fn entry(&mut self, requests: Vec<Request>) -> Result<Vec<Reply>, Error> {
        self.index += 1;
        // Through bytes and back, as every replica gets it; the decoding is part of the cost.
        let bytes = Entry::new(Timestamp(1_000_000 + self.index), requests).to_bytes();
        let begun = cpu()?;
        let at = LogPosition { term: 1, index: self.index };
        let outcome =
            self.state.read(|view| -> Result<_, Error> { Ok(apply(view, at, &Entry::from_bytes(bytes)?)?) })?;
        self.cost.apply += cpu()?.saturating_sub(begun);
        for write in outcome.writes.iter() {
            let (counts, key) = match write {
                Write::Put { key, .. } => (&mut self.cost.puts, key),
                Write::Delete { key } => (&mut self.cost.deletes, key),
                Write::DeleteRange { from, .. } => (&mut self.cost.deletes, from),
            };
            *counts.entry(key.first().copied().map_or('?', char::from)).or_default() += 1;
        }
        let begun = cpu()?;
        let last = Some(LogId { leader: LeaderId { term: 1, node: 1 }, index: self.index });
        self.state.commit(&outcome.writes, &Applied { last, membership: Bytes::new() })?;
        self.cost.commit += cpu()?.saturating_sub(begun);
        outcome.replies.into_iter().map(|r| r.map_err(|r| format!("{r:?}").into())).collect()
    }

    /// A request of one of four sessions, whose client has seen all before it.
    fn request(&mut self, client: u64, command: Command) -> Request {
        let (session, seq) = &mut self.sessions[(client % SESSIONS) as usize];
        *seq += 1;
        let acked_below = seq.saturating_sub(256).max(1);
        Request::of(RequestId { session: *session, seq: *seq, acked_below, ..RequestId::default() }, command)
    }

    fn enqueue(&mut self, batch: u64, body: &Bytes) -> Result<(), Error> {
        let requests = (0..batch)
            .map(|n| {
                let content = Content { body: body.clone(), ..Content::default() };
                let enqueue = Enqueue { message: Some(content), ..Enqueue::default() };
                let commit =
                    Commit { queues: vec![queue()], enqueue: vec![enqueue], auto_create: true, ..Commit::default() };
                self.request(n, Command::Commit(commit))
            })
            .collect();
        self.entry(requests)?;
        Ok(())
    }

    fn receive_and_ack(&mut self, batch: u64) -> Result<(), Error> {
        let queues = vec![queue()];
        let command = Receive { queues, max: batch as u32, worker: "worker-1".into(), ..Receive::default() };
        let request = self.request(0, Command::Receive(command));
        let replies = self.entry(vec![request])?;
        let Some(Answered::Received(Received { handles, .. })) = replies.into_iter().next().and_then(|r| r.answered)
        else {
            return Err("expected leases".into());
        };
        let Answer::Deliveries(deliveries) = self.state.read(|view| answer(view, &Query::Deliver(handles)))? else {
            return Err("expected deliveries".into());
        };
        if deliveries.len() as u64 != batch {
            return Err(format!("expected {batch} deliveries, but got {}", deliveries.len()).into());
        }
        let requests = (0u64..)
            .zip(deliveries)
            .map(|(n, delivery)| {
                let settle = Settle { token: delivery.token, verdict: Some(Verdict::Ack(Ack::default())) };
                let commit = Commit { settle: vec![settle], ..Commit::default() };
                self.request(n, Command::Commit(commit))
            })
            .collect();
        self.entry(requests)?;
        Ok(())
    }

    fn report(&mut self, what: &str, messages: u64) {
        let cost = std::mem::take(&mut self.cost);
        let each = |d: Duration| d.as_secs_f64() * 1e6 / messages as f64;
        let count = |counts: &BTreeMap<char, u64>| {
            let all: Vec<String> =
                counts.iter().map(|(tag, n)| format!("{tag} {:.3}", *n as f64 / messages as f64)).collect();
            all.join(", ")
        };
        println!(
            "{what}: {:.2} us a message (apply {:.2}, commit {:.2}); puts: {}; deletes: {}",
            each(cost.apply + cost.commit),
            each(cost.apply),
            each(cost.commit),
            count(&cost.puts),
            count(&cost.deletes),
        );
    }
}

/// The processor time of this thread, so that whatever else the machine does is left out.
fn cpu() -> Result<Duration, Error> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = schedstat.split_whitespace().next().ok_or("expected the processor time in schedstat")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

fn queue() -> QueueRef {
    QueueRef { namespace: "default".into(), name: "orders".into() }
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let messages = args.next().unwrap_or(Ok(200_000))?;
    let batch = args.next().unwrap_or(Ok(64))?.clamp(1, 256);
    let body: Bytes = vec![b'x'; args.next().unwrap_or(Ok(1024))? as usize].into();
    let rounds = messages.div_ceil(batch);
    let dir = tempfile::tempdir()?;
    let state = RocksState::open(StateOptions::new(dir.path().join("sm"), GroupId::QUEUES))?;
    let mut replica = Replica { state, index: 0, cost: Cost::default(), sessions: Vec::new() };
    let init = Command::InitCluster(InitCluster { secret: vec![7; 32].into() });
    replica.entry(vec![Request::anonymous(init)])?;
    for _ in 0..SESSIONS {
        let open = Request::anonymous(Command::OpenSession(OpenSession { renew: 0 }));
        match replica.entry(vec![open])?.into_iter().next().and_then(|r| r.answered) {
            Some(Answered::SessionOpened(opened)) => replica.sessions.push((opened.session, 0)),
            other => return Err(format!("expected a session, but got {other:?}").into()),
        }
    }
    replica.cost = Cost::default();
    println!("{messages} messages of {} bytes, batches of {batch}", body.len());
    for _ in 0..rounds {
        replica.enqueue(batch, &body)?;
        replica.receive_and_ack(batch)?;
    }
    replica.report("queue nearly empty", rounds * batch);
    for _ in 0..rounds {
        replica.enqueue(batch, &body)?;
    }
    for _ in 0..rounds {
        replica.receive_and_ack(batch)?;
    }
    replica.report("all enqueued, then all drained", rounds * batch);
    Ok(())
}
