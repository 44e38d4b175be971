//! The follower's side: a line to the leader, with many calls on it.
//!
//! Calls wait in the line until the transport takes them, so what waits there goes out together. What they hold is
//! bounded over all lines. One task opens the lines, reads the answers, and cuts a line that says nothing any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use ticketrail_core::Request;
use ticketrail_proto::raft::{
    self as pb, ForwardReply, ForwardRequest, forward_reply::Outcome, forward_request::What,
    forward_service_client::ForwardServiceClient,
};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tonic::Streaming;

use super::{longest_silence, wire};
use crate::attempt::Attempt;
use crate::call::{CallError, Deliveries, Done, Unavailable};
use crate::clock::Instant;
use crate::consensus::Standing;
use crate::peers::{Lane, MESSAGE_BYTES, Peers};
use crate::read::ReadPoint;
use crate::release::Releases;
use crate::shared::Shared;

/// Calls on their way to leaders at one time, polls not counted.
const CALLS: usize = 1 << 16;
/// How long one attempt waits for a line; then it looks again who leads.
const LINE_WAIT: Duration = Duration::from_secs(2);
/// How long it may take to open a line.
const OPEN: Duration = Duration::from_secs(2);
/// The first pause after a line was lost or not opened; each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long an old leader is listened to once another one is known: its word spares a doubt.
const LAST_WORD: Duration = Duration::from_millis(100);
/// The leader gives up this much earlier than the caller, so that its word arrives in time.
const RESERVE: Duration = Duration::from_millis(50);

/// The lines of this node to leaders, and what is on its way over them.
pub(crate) struct Forwards {
    inner: Mutex<Inner>,
    wanted: Notify,
    /// Counts the lines that came up.
    up: watch::Sender<u64>,
    draining: watch::Sender<bool>,
    max_bytes: usize,
    max_polls: usize,
}

#[derive(Default)]
struct Inner {
    lines: BTreeMap<u64, Arc<Line>>,
    /// How many attempts wait for a line, by leader.
    wanted: BTreeMap<u64, usize>,
    load: Load,
    ended: bool,
}

/// What is on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    bytes: usize,
    calls: usize,
    polls: usize,
}

/// What kind of call is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Poll,
}

/// A forwarded call's part of what is on its way. Dropping it makes room.
struct Room {
    forwards: Arc<Forwards>,
    kind: Kind,
    bytes: usize,
}

impl Forwards {
    /// Lines over which `max_bytes` may be on their way at one time, and `max_polls` polls.
    pub(crate) fn new(max_bytes: usize, max_polls: usize) -> Self {
        Self {
            inner: Mutex::default(),
            wanted: Notify::new(),
            up: watch::Sender::new(0),
            draining: watch::Sender::new(false),
            max_bytes,
            max_polls,
        }
    }

    /// Ends the polls: this node shuts down.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Calls on their way, polls not counted.
    pub(crate) fn calls(&self) -> usize {
        self.inner.lock().load.calls
    }

    /// Polls on their way or parked at the leader.
    pub(crate) fn polls(&self) -> usize {
        self.inner.lock().load.polls
    }

    /// Whether there are no lines any more: the node has stopped.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.lock().ended
    }

    /// Whether there is a line to `leader`.
    #[cfg(test)]
    pub(super) fn has_line(&self, leader: u64) -> bool {
        self.inner.lock().lines.contains_key(&leader)
    }

    /// Room for a call of `bytes`; where there is none, says how many bytes are on their way.
    fn room(self: &Arc<Self>, kind: Kind, bytes: usize) -> Result<Room, usize> {
        let mut inner = self.inner.lock();
        let load = inner.load;
        let full = match kind {
            Kind::Call => load.calls >= CALLS,
            Kind::Poll => load.polls >= self.max_polls,
        };
        if full || (load.bytes > 0 && load.bytes + bytes > self.max_bytes) {
            return Err(load.bytes);
        }
        inner.load.bytes += bytes;
        match kind {
            Kind::Call => inner.load.calls += 1,
            Kind::Poll => inner.load.polls += 1,
        }
        Ok(Room { forwards: self.clone(), kind, bytes })
    }

    fn is_wanted(&self, leader: u64) -> bool {
        self.inner.lock().wanted.contains_key(&leader)
    }

    /// Leaders that attempts wait for.
    fn wanted(&self) -> Vec<u64> {
        self.inner.lock().wanted.keys().copied().collect()
    }

    fn install(&self, line: &Arc<Line>) {
        self.inner.lock().lines.insert(line.leader, line.clone());
        self.up.send_modify(|count| *count += 1);
    }

    fn remove(&self, line: &Arc<Line>) {
        let mut inner = self.inner.lock();
        if inner.lines.get(&line.leader).is_some_and(|known| Arc::ptr_eq(known, line)) {
            inner.lines.remove(&line.leader);
        }
    }

    fn end(&self) {
        self.inner.lock().ended = true;
        self.up.send_modify(|count| *count += 1);
    }

    async fn drained(&self) {
        let mut draining = self.draining.subscribe();
        // The sender is `self`, which lives.
        let _ = draining.wait_for(|draining| *draining).await;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut inner = self.forwards.inner.lock();
        inner.load.bytes -= self.bytes;
        match self.kind {
            Kind::Call => inner.load.calls -= 1,
            Kind::Poll => inner.load.polls -= 1,
        }
    }
}

/// An attempt that waits for a line.
struct Wanting<'f> {
    forwards: &'f Forwards,
    leader: u64,
}

impl<'f> Wanting<'f> {
    fn new(forwards: &'f Forwards, leader: u64) -> Self {
        *forwards.inner.lock().wanted.entry(leader).or_default() += 1;
        forwards.wanted.notify_one();
        Self { forwards, leader }
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        let mut inner = self.forwards.inner.lock();
        if let Some(count) = inner.wanted.get_mut(&self.leader) {
            *count -= 1;
            if *count == 0 {
                inner.wanted.remove(&self.leader);
            }
        }
    }
}

/// A stream to a leader.
struct Line {
    leader: u64,
    inner: Mutex<LineInner>,
    filled: Notify,
    releases: Arc<Releases>,
}

struct LineInner {
    open: bool,
    /// What the transport has not taken yet. Of each call at most two: itself, and that its caller has gone.
    out: VecDeque<(u64, What)>,
    calls: BTreeMap<u64, Out>,
    last: u64,
    /// Since when there have been calls without an answer.
    busy_since: Instant,
}

/// A call without an answer.
struct Out {
    sent: bool,
    owner: Owner,
    _room: Room,
}

/// Who waits for an answer.
enum Owner {
    /// An attempt.
    Waiting(oneshot::Sender<Told>),
    /// Nobody: what the call is granted is given back.
    Gone,
    /// Another attempt, elsewhere: what the call is granted is that one's.
    Moved,
}

/// What an attempt is told of its call.
#[derive(Debug)]
enum Told {
    Answer(Outcome),
    /// It never was on its way.
    Unsent,
}

impl Line {
    fn new(leader: u64, releases: Arc<Releases>, now: Instant) -> Self {
        let inner = LineInner { open: true, out: VecDeque::new(), calls: BTreeMap::new(), last: 0, busy_since: now };
        Self { leader, inner: Mutex::new(inner), filled: Notify::new(), releases }
    }

    /// Puts a call on the line; `None` where it is cut.
    fn ask(self: &Arc<Self>, what: What, room: Room, now: Instant) -> Option<Asking> {
        let mut inner = self.inner.lock();
        if !inner.open {
            return None;
        }
        if inner.calls.is_empty() {
            inner.busy_since = now;
        }
        inner.last += 1;
        let call = inner.last;
        let (owner, answer) = oneshot::channel();
        inner.calls.insert(call, Out { sent: false, owner: Owner::Waiting(owner), _room: room });
        inner.out.push_back((call, what));
        drop(inner);
        self.filled.notify_one();
        Some(Asking { line: self.clone(), call, answer })
    }

    /// What goes out next; `None` once the line is cut.
    async fn next(&self) -> Option<(u64, What)> {
        loop {
            {
                let mut inner = self.inner.lock();
                if !inner.open {
                    return None;
                }
                while let Some((call, what)) = inner.out.pop_front() {
                    // A call that was taken back in time is left out.
                    if let Some(out) = inner.calls.get_mut(&call) {
                        out.sent = true;
                        return Some((call, what));
                    }
                }
            }
            self.filled.notified().await;
        }
    }

    /// Takes a call back that the transport has not taken. False: the leader may have it.
    fn withdraw(&self, call: u64) -> bool {
        let mut inner = self.inner.lock();
        let unsent = inner.calls.get(&call).is_some_and(|out| !out.sent);
        if unsent {
            inner.calls.remove(&call);
        }
        unsent
    }

    /// Nobody waits for a call here any more. False: it has its answer.
    fn leave(&self, call: u64, owner: Owner) -> bool {
        let mut inner = self.inner.lock();
        let Some(out) = inner.calls.get_mut(&call) else { return false };
        let gone = matches!(owner, Owner::Gone) && matches!(out.owner, Owner::Waiting(_));
        let unsent = !out.sent;
        out.owner = owner;
        if unsent {
            inner.calls.remove(&call);
        } else if gone {
            inner.out.push_back((call, What::Cancel(pb::Cancel {})));
            drop(inner);
            self.filled.notify_one();
        }
        true
    }

    /// The leader has answered.
    fn told(&self, call: u64, outcome: Outcome) {
        let out = self.inner.lock().calls.remove(&call);
        let unread = match out.map(|out| out.owner) {
            Some(Owner::Waiting(owner)) => match owner.send(Told::Answer(outcome)) {
                Err(Told::Answer(outcome)) => outcome,
                Ok(()) | Err(Told::Unsent) => return,
            },
            Some(Owner::Gone) => outcome,
            Some(Owner::Moved) | None => return,
        };
        self.releases.give_back(wire::tokens(unread));
    }

    /// Ends the line: every call that was sent is in doubt.
    fn cut(&self) {
        let mut inner = self.inner.lock();
        inner.open = false;
        inner.out.clear();
        let calls = std::mem::take(&mut inner.calls);
        drop(inner);
        self.filled.notify_one();
        for out in calls.into_values() {
            match out.owner {
                Owner::Waiting(owner) if !out.sent => {
                    // Who asked may be gone.
                    let _ = owner.send(Told::Unsent);
                }
                Owner::Waiting(_) | Owner::Gone | Owner::Moved => {}
            }
        }
    }

    /// Since when there have been calls without an answer, if there are any.
    fn busy_since(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        (!inner.calls.is_empty()).then_some(inner.busy_since)
    }
}

/// A call on a line. Dropping it says that its caller has gone.
struct Asking {
    line: Arc<Line>,
    call: u64,
    answer: oneshot::Receiver<Told>,
}

impl Asking {
    /// Another attempt follows elsewhere: what this one may still be granted is that one's. Its answer, if there is one.
    async fn moved(&mut self) -> Attempt<Outcome> {
        if self.line.withdraw(self.call) {
            Attempt::Elsewhere(None)
        } else if self.line.leave(self.call, Owner::Moved) {
            Attempt::InDoubt
        } else {
            // It is being told just now, or the line is cut.
            attempt((&mut self.answer).await)
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Told::Answer(unread)) = self.answer.try_recv() {
            self.line.releases.give_back(wire::tokens(unread));
        } else if !self.line.is_moved(self.call) {
            self.line.leave(self.call, Owner::Gone);
        }
    }
}

impl Line {
    fn is_moved(&self, call: u64) -> bool {
        self.inner.lock().calls.get(&call).is_some_and(|out| matches!(out.owner, Owner::Moved))
    }
}

fn attempt(told: Result<Told, oneshot::error::RecvError>) -> Attempt<Outcome> {
    match told {
        Ok(Told::Answer(outcome)) => Attempt::Done(outcome),
        Ok(Told::Unsent) => Attempt::Elsewhere(None),
        Err(_) => Attempt::InDoubt,
    }
}

/// To whom a call goes, and until when.
pub(crate) struct Bound {
    /// The leader.
    pub(crate) leader: u64,
    /// What this node knew of it when the attempt began.
    pub(crate) seen: Standing,
    /// Until when it may wait for a line.
    pub(crate) line_by: Instant,
    /// Until when the caller waits for the answer.
    pub(crate) answer_by: Instant,
}

impl Shared {
    /// Hands a command to the leader.
    pub(crate) async fn propose_at(self: &Arc<Self>, bound: Bound, request: &Request, repeat: bool) -> Attempt<Done> {
        let (leader, by) = (bound.leader, bound.answer_by);
        let request = wire::encode_request(request);
        let outcome = self.exchange(bound, Kind::Call, request.len(), |now| {
            let left = by.saturating_duration_since(now);
            let timeout_ms = millis(left.saturating_sub(RESERVE.min(left / 8)));
            What::Propose(pb::Propose { request, repeat, timeout_ms })
        });
        outcome.await.map(|outcome| wire::to_done(leader, outcome))
    }

    /// Has the leader wait for messages until `deadline`.
    pub(crate) async fn poll_at(
        self: &Arc<Self>,
        bound: Bound,
        request: &Request,
        repeat: bool,
        (deadline, auto_create): (Instant, bool),
    ) -> Attempt<Deliveries> {
        let leader = bound.leader;
        let request = wire::encode_request(request);
        let outcome = self.exchange(bound, Kind::Poll, request.len(), |now| {
            let wait_ms = millis(deadline.saturating_duration_since(now));
            What::Poll(pb::Poll { request, repeat, wait_ms, auto_create })
        });
        outcome.await.map(|outcome| wire::to_deliveries(leader, outcome))
    }

    /// Asks the leader up to where a reader must have applied the log.
    pub(crate) async fn read_point_at(self: &Arc<Self>, bound: Bound) -> Attempt<ReadPoint> {
        let leader = bound.leader;
        let outcome = self.exchange(bound, Kind::Call, 0, |_| What::ReadIndex(pb::ReadIndex {}));
        outcome.await.map(|outcome| wire::to_read_point(leader, outcome))
    }

    async fn exchange(
        self: &Arc<Self>,
        bound: Bound,
        kind: Kind,
        bytes: usize,
        what: impl FnOnce(Instant) -> What,
    ) -> Attempt<Outcome> {
        let Bound { leader, seen, answer_by, .. } = bound;
        let room = match self.forwards.room(kind, bytes) {
            Ok(room) => room,
            Err(queued_bytes) => return Attempt::Over(CallError::Overloaded { queued_bytes }),
        };
        let line = match self.line_to(&bound).await {
            Ok(line) => line,
            Err(attempt) => return attempt,
        };
        let now = self.config.clock.now();
        let Some(mut asking) = line.ask(what(now), room, now) else { return Attempt::Elsewhere(None) };
        tokio::select! {
            biased;
            told = &mut asking.answer => attempt(told),
            () = self.forwards.drained(), if kind == Kind::Poll => {
                Attempt::Over(CallError::Unavailable(Unavailable::Draining))
            }
            () = self.superseded(leader, seen) => match timeout(LAST_WORD, &mut asking.answer).await {
                Ok(told) => attempt(told),
                Err(_) => asking.moved().await,
            },
            () = sleep_until(answer_by) => {
                let unsent = line.withdraw(asking.call);
                Attempt::Over(if unsent { CallError::Unavailable(Unavailable::NoQuorum) } else { CallError::Unknown })
            }
        }
    }

    /// The line to a leader, as soon as there is one.
    async fn line_to(&self, bound: &Bound) -> Result<Arc<Line>, Attempt<Outcome>> {
        let mut up = self.forwards.up.subscribe();
        let mut wanting = None;
        let until = bound.line_by.min(self.config.clock.now() + LINE_WAIT);
        loop {
            up.mark_unchanged();
            {
                let inner = self.forwards.inner.lock();
                if let Some(line) = inner.lines.get(&bound.leader) {
                    return Ok(line.clone());
                }
                if inner.ended {
                    return Err(Attempt::Over(CallError::Unavailable(Unavailable::Draining)));
                }
            }
            if wanting.is_none() {
                wanting = Some(Wanting::new(&self.forwards, bound.leader));
            }
            tokio::select! {
                biased;
                // The sender lives as long as the node.
                _ = up.changed() => {}
                () = self.superseded(bound.leader, bound.seen) => return Err(Attempt::Elsewhere(None)),
                () = sleep_until(until) => return Err(Attempt::Elsewhere(None)),
            }
        }
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The task that holds the lines. Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut lines = FuturesUnordered::new();
    let mut held = BTreeSet::new();
    loop {
        for leader in shared.forwards.wanted() {
            if held.insert(leader) {
                lines.push(hold(&shared, leader));
            }
        }
        tokio::select! {
            biased;
            // The sender lives as long as the node.
            _ = stop.wait_for(|stop| *stop) => break,
            Some(leader) = lines.next(), if !lines.is_empty() => {
                held.remove(&leader);
            }
            () = shared.forwards.wanted.notified() => {}
        }
    }
    drop(lines);
    shared.forwards.end();
}

/// Holds the line to a leader while somebody needs it.
async fn hold(shared: &Arc<Shared>, leader: u64) -> u64 {
    let mut pause = FIRST_PAUSE;
    while shared.forwards.is_wanted(leader) {
        match timeout(OPEN, open(shared, leader)).await {
            Ok(Ok((line, answers))) => {
                pause = FIRST_PAUSE;
                serve(shared, &line, answers).await;
            }
            Ok(Err(reason)) => tracing::debug!(leader, reason, "expected a line to the leader"),
            Err(_) => tracing::debug!(leader, "expected a line to the leader in time"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    leader
}

/// A line that is cut when this is dropped.
struct Held {
    line: Arc<Line>,
    forwards: Arc<Forwards>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.forwards.remove(&self.line);
        self.line.cut();
    }
}

async fn open(shared: &Arc<Shared>, leader: u64) -> Result<(Held, Streaming<ForwardReply>), String> {
    let channel = shared.peers.channel(leader, Lane::Forward).ok_or("it is no member, or has no address")?;
    let line = Arc::new(Line::new(leader, shared.releases.clone(), shared.config.clock.now()));
    let held = Held { line: line.clone(), forwards: shared.forwards.clone() };
    let mut client = ForwardServiceClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES)
        .max_encoding_message_size(MESSAGE_BYTES);
    let answers = client.forward(requests(line, shared.peers.clone())).await.map_err(|status| status.to_string())?;
    Ok((held, answers.into_inner()))
}

/// What goes out over a line.
fn requests(line: Arc<Line>, peers: Arc<Peers>) -> impl Stream<Item = ForwardRequest> + Send + 'static {
    futures::stream::unfold((line, peers), |(line, peers)| async move {
        let (call, what) = line.next().await?;
        let request = ForwardRequest { header: peers.header(line.leader), call, what: Some(what) };
        Some((request, (line, peers)))
    })
}

/// Reads answers until the line is lost, silent for too long, or leads to nobody who is needed.
async fn serve(shared: &Shared, held: &Held, mut answers: Streaming<ForwardReply>) {
    let line = &held.line;
    shared.forwards.install(line);
    let silence = longest_silence(&shared.config);
    let mut heard = shared.config.clock.now();
    let mut look = interval(silence / 4);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            answer = answers.message() => {
                let answer = match answer {
                    Ok(Some(answer)) => answer,
                    Ok(None) => return,
                    Err(status) => return tracing::debug!(leader = line.leader, %status, "lost the line to the leader"),
                };
                match shared.peers.check(answer.header.as_ref()) {
                    Ok(from) if from == line.leader => {}
                    Ok(from) => return tracing::warn!(leader = line.leader, from, "another node than the leader answers"),
                    Err(status) => return tracing::warn!(leader = line.leader, %status, "an answer is not for this node"),
                }
                heard = shared.config.clock.now();
                if let Some(outcome) = answer.outcome {
                    line.told(answer.call, outcome);
                }
            }
            _ = look.tick() => {
                let leads = shared.standing.borrow().leader == Some(line.leader);
                match line.busy_since() {
                    Some(since) if shared.config.clock.now().saturating_duration_since(since.max(heard)) >= silence => {
                        return tracing::warn!(leader = line.leader, "the leader is silent: its line is cut");
                    }
                    None if !leads => return,
                    Some(_) | None => {}
                }
            }
        }
    }
}
