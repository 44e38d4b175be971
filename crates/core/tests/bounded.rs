//! Bounds that only numbers reach. What a receive and an ack read does not grow with what waits, by a view that counts;
//! a receive and a tick stop where they should; and of requests without a session so many outcomes are kept and no more.

use std::cell::Cell;

use bytes::Bytes;
use ticketrail_core::command::{
    Ack, Command, Commit, Content, CreateQueue, Enqueue, InitCluster, QueueRef, QueueSettings, Receive, Settle, Tick,
    UpdateQueue, Verdict,
};
use ticketrail_core::query::Stats;
use ticketrail_core::reply::{Answered, Handle, Received};
use ticketrail_core::{
    Answer, Effect, Entry, LogPosition, MemView, Query, Rejection, Reply, Request, RequestId, Timestamp, View,
    ViewError, answer, apply,
};

/// Counts keys that are read, one by one or by scans.
#[derive(Default)]
struct Counting {
    view: MemView,
    keys: Cell<usize>,
}

impl View for Counting {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        self.keys.set(self.keys.get() + 1);
        self.view.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>, ViewError> {
        let found = self.view.scan(from, to, limit)?;
        // A scan that finds nothing costs a look as well.
        self.keys.set(self.keys.get() + found.len().max(1));
        Ok(found)
    }
}

/// A machine whose reads are counted.
#[derive(Default)]
struct Counted {
    counting: Counting,
    index: u64,
    stamp: u64,
    effects: Vec<Effect>,
}

fn orders() -> QueueRef {
    QueueRef { namespace: "default".into(), name: "orders".into() }
}

impl Counted {
    fn new(settings: QueueSettings) -> Result<Self, String> {
        let mut counted = Self { stamp: 1_767_225_600_000, ..Self::default() };
        counted.apply(Command::InitCluster(InitCluster { secret: vec![7; 32].into() }))?;
        counted.apply(Command::CreateQueue(CreateQueue { queue: Some(orders()), settings: Some(settings) }))?;
        Ok(counted)
    }

    /// Applies requests as one entry.
    fn apply_all(&mut self, requests: Vec<Request>) -> Result<Vec<Result<Reply, Rejection>>, String> {
        self.index += 1;
        let at = LogPosition { term: 1, index: self.index };
        let entry = Entry::new(Timestamp(self.stamp), requests);
        self.counting.keys.set(0);
        let outcome = apply(&self.counting, at, &entry).map_err(|fault| fault.to_string())?;
        self.counting.view.commit(&outcome.writes);
        self.effects = outcome.effects;
        Ok(outcome.replies)
    }

    /// Applies one command; gives its answer and how many keys it read.
    fn apply(&mut self, command: Command) -> Result<(Answered, usize), String> {
        let replies = self.apply_all(vec![Request::anonymous(command)])?;
        let keys = self.counting.keys.get();
        let reply = replies.into_iter().next().ok_or("no reply")?;
        let answered = reply.map_err(|rejection| format!("refused: {rejection:?}"))?.answered;
        Ok((answered.ok_or("no answer")?, keys))
    }

    /// Enqueues `count` messages, each as `make` says of its number.
    fn fill(&mut self, count: usize, make: impl Fn(usize, &mut Enqueue)) -> Result<(), String> {
        let numbers: Vec<usize> = (0..count).collect();
        for chunk in numbers.chunks(1_000) {
            let mut enqueue = Vec::new();
            for number in chunk {
                let message = Some(Content { body: Bytes::from_static(b"x"), ..Content::default() });
                let mut one = Enqueue { message, ..Enqueue::default() };
                make(*number, &mut one);
                enqueue.push(one);
            }
            self.apply(Command::Commit(Commit { queues: vec![orders()], enqueue, ..Commit::default() }))?;
        }
        Ok(())
    }

    fn receive(&mut self, max: u32) -> Result<(Vec<Handle>, usize), String> {
        let receive = Receive { queues: vec![orders()], max, ..Receive::default() };
        let (answered, keys) = self.apply(Command::Receive(receive))?;
        let Answered::Received(Received { handles, .. }) = answered else {
            return Err(format!("expected a receive's answer, but got {answered:?}"));
        };
        Ok((handles, keys))
    }

    fn ack(&mut self, handles: Vec<Handle>) -> Result<usize, String> {
        self.settle(handles, Verdict::Ack(Ack::default()))
    }

    /// Settles leases; gives how many keys that read.
    fn settle(&mut self, handles: Vec<Handle>, verdict: Verdict) -> Result<usize, String> {
        let Answer::Deliveries(deliveries) =
            answer(&self.counting.view, &Query::Deliver(handles)).map_err(|fault| fault.to_string())?
        else {
            return Err("expected deliveries".into());
        };
        let settle = deliveries
            .into_iter()
            .map(|delivery| Settle { token: delivery.token, verdict: Some(verdict.clone()) })
            .collect();
        self.apply(Command::Commit(Commit { settle, ..Commit::default() })).map(|(_, keys)| keys)
    }

    fn stats(&self) -> Result<Stats, String> {
        let found = answer(&self.counting.view, &Query::Queue(orders())).map_err(|fault| fault.to_string())?;
        let Answer::Queue(Some(info)) = found else { return Err(format!("expected a queue, but got {found:?}")) };
        Ok(info.stats)
    }
}

/// Keys that one message may cost a receive or an ack, and what an entry costs whatever it does.
const PER_MESSAGE: usize = 12;
const PER_ENTRY: usize = 120;

/// Receives and acks `rounds` times ten messages; neither may read more keys than ten messages are worth.
fn drain(counted: &mut Counted, rounds: usize, what: &str) -> Result<(), String> {
    for round in 0..rounds {
        let (handles, keys) = counted.receive(10)?;
        let allowed = PER_ENTRY + PER_MESSAGE * handles.len();
        if handles.is_empty() || keys > allowed {
            return Err(format!("{what}, receive {round}: {} messages for {keys} keys read", handles.len()));
        }
        let (count, keys) = (handles.len(), counted.ack(handles)?);
        if keys > PER_ENTRY + PER_MESSAGE * count {
            return Err(format!("{what}, ack {round}: {count} messages for {keys} keys read"));
        }
    }
    Ok(())
}

fn group(number: usize) -> String {
    format!("g{number}")
}

#[test]
fn a_receive_reads_no_more_where_more_waits() -> Result<(), String> {
    for waiting in [1_000, 100_000] {
        let mut counted = Counted::new(QueueSettings::default())?;
        counted.fill(waiting, |_, _| {})?;
        drain(&mut counted, 30, &format!("{waiting} waiting"))?;
    }
    Ok(())
}

#[test]
fn a_receive_reads_no_more_where_ten_priorities_wait() -> Result<(), String> {
    for waiting in [1_000, 100_000] {
        let mut counted = Counted::new(QueueSettings::default())?;
        counted.fill(waiting, |number, one| one.priority = Some(number as u32 % 10))?;
        // From the first priority to the last.
        drain(&mut counted, 30, &format!("{waiting} waiting in ten priorities"))?;
    }
    let mut counted = Counted::new(QueueSettings::default())?;
    counted.fill(100, |number, one| one.priority = Some(number as u32 % 10))?;
    drain(&mut counted, 10, "all of ten priorities")
}

#[test]
fn a_receive_reads_no_more_where_many_groups_wait() -> Result<(), String> {
    for groups in [300, 30_000] {
        let mut counted = Counted::new(QueueSettings::default())?;
        counted.fill(groups * 3, |number, one| one.group = group(number / 3))?;
        drain(&mut counted, 60, &format!("{groups} groups"))?;
    }
    Ok(())
}

/// A blocked group costs a scan nothing: behind one head that is leased, and one that goes on, everything waits.
#[test]
fn a_long_line_costs_no_more_than_a_short_one() -> Result<(), String> {
    for followers in [1_000, 100_000] {
        let mut counted = Counted::new(QueueSettings::default())?;
        counted.fill(followers, |_, one| one.group = group(1))?;
        let what = format!("{followers} in one line");
        for round in 0..50 {
            let (handles, keys) = counted.receive(10)?;
            if handles.len() != 1 || keys > PER_ENTRY {
                return Err(format!("{what}, receive {round}: {} messages for {keys} keys read", handles.len()));
            }
            let keys = counted.ack(handles)?;
            if keys > PER_ENTRY {
                return Err(format!("{what}, ack {round}: {keys} keys read"));
            }
        }
    }
    Ok(())
}

/// One receive ends at most 200 expired messages; it wakes the queue, and the next goes on where it stopped.
#[test]
fn a_receive_ends_200_expired_messages_at_most() -> Result<(), String> {
    let mut counted = Counted::new(QueueSettings::default())?;
    counted.fill(2_500, |_, one| one.ttl_ms = 1_000)?;
    counted.fill(1, |_, _| {})?;
    counted.stamp += 1_000;
    let mut left = 2_501;
    for _ in 0..2_500 {
        let (handles, _) = counted.receive(10)?;
        let ready = counted.stats()?.ready;
        if handles.len() == 1 && ready == 0 {
            return Ok(());
        }
        let woken = counted.effects.iter().any(|effect| matches!(effect, Effect::Wake(_)));
        if !handles.is_empty() || !(1..=200).contains(&(left - ready)) || !woken {
            return Err(format!("of {left} ready {ready} are left, woken: {woken}, received: {handles:?}"));
        }
        left = ready;
    }
    Err(format!("expected the one that lives, but {left} are ready"))
}

/// A line of 2,500 follows its head by ticks of at most a thousand.
#[test]
fn a_dead_letters_group_follows_in_bounded_ticks() -> Result<(), String> {
    let settings = QueueSettings { on_group_failure: Some(2), ..QueueSettings::default() };
    let mut counted = Counted::new(settings)?;
    counted.fill(2_501, |_, one| one.group = group(1))?;
    let (handles, _) = counted.receive(1)?;
    counted.settle(handles, Verdict::Reject(Default::default()))?;
    let mut ticks = Vec::new();
    let mut blocked = 2_500;
    for _ in 0..50 {
        counted.apply(Command::Tick(Tick {}))?;
        let left = counted.stats()?.blocked;
        ticks.push(blocked - left);
        blocked = left;
        if !counted.effects.contains(&Effect::TickAgain) {
            break;
        }
    }
    if blocked == 0 && ticks.iter().all(|moved| *moved <= 1_000) {
        Ok(())
    } else {
        Err(format!("expected a line that is gone, at most 1,000 a tick, but {blocked} are left after {ticks:?}"))
    }
}

/// A request with 16 bytes of its own that changes something, but leaves no message behind.
fn with_token(number: u64) -> Request {
    let settings = Some(QueueSettings { age_slo_ms: Some(number), ..QueueSettings::default() });
    let command = Command::UpdateQueue(UpdateQueue { queue: Some(orders()), settings });
    Request::of(RequestId { token_high: 1, token_low: number, ..RequestId::default() }, command)
}

/// Of requests without a session 200,000 outcomes are kept. The next is refused before any effect, while a repeat of an
/// old one gets its outcome; and when the old ones are forgotten, after 15 minutes of the lease clock, there is room again.
#[test]
fn so_many_requests_without_a_session_are_remembered_and_no_more() -> Result<(), String> {
    const TOKENS: u64 = 200_000;
    let mut counted = Counted::new(QueueSettings::default())?;
    let numbers: Vec<u64> = (1..=TOKENS).collect();
    for chunk in numbers.chunks(250) {
        let replies = counted.apply_all(chunk.iter().map(|number| with_token(*number)).collect())?;
        if let Some(refused) = replies.iter().find(|reply| reply.is_err()) {
            return Err(format!("expected {TOKENS} outcomes to be kept, but one of {chunk:?} has {refused:?}"));
        }
    }
    let before = counted.counting.view.clone();
    let one = counted.apply_all(vec![with_token(TOKENS + 1), with_token(1)])?;
    match one.as_slice() {
        [Err(Rejection::RequestIdsFull(full)), Ok(Reply { replayed: true, .. })] if full.limit == TOKENS => {}
        other => return Err(format!("expected a refusal and a replay, but got {other:?}")),
    }
    let shown = |view: &MemView| answer(view, &Query::Queue(orders())).map_err(|fault| fault.to_string());
    if shown(&before)? != shown(&counted.counting.view)? {
        return Err("a refused request had an effect".into());
    }
    // 15 minutes, in steps that the lease clock takes, with the ticks that forget.
    for _ in 0..90 {
        counted.stamp += 10_000;
        counted.apply(Command::Tick(Tick {}))?;
    }
    for _ in 0..1_000 {
        counted.apply(Command::Tick(Tick {}))?;
        if !counted.effects.contains(&Effect::TickAgain) {
            break;
        }
    }
    match counted.apply_all(vec![with_token(TOKENS + 1), with_token(1)])?.as_slice() {
        [Ok(Reply { replayed: false, .. }), Ok(Reply { replayed: false, .. })] => Ok(()),
        other => Err(format!("expected room for new outcomes, but got {other:?}")),
    }
}
