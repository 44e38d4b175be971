//! One client: one call at a time, over its attempts, and what of it is recorded.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ticketrail_history::Recorder;
use ticketrail_history::format::{
    Answer, Call, CancelOutcome, Delivery, EnqueueOutcome, EnqueuePart, Kind, NewMessage, NewTime, Op, Output,
    QueueName, Refusal, Rid, Settings, Settle, SettleOutcome, Stats, Target, TimeOutcome, Token, Told, Verdict, body,
    fingerprint,
};
use ticketrail_proto::reason;
use ticketrail_proto::v1;
use ticketrail_proto::v1::admin_service_client::AdminServiceClient;
use ticketrail_proto::v1::commit_service_client::CommitServiceClient;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::attempt::Ended;
use crate::meter::Meter;
use crate::poll::pause;
use crate::tally::Tally;
use crate::wire;

/// Makes the channel from a client, by its number from 0, to a node, by its place from 0. Called where the client runs.
pub type Dial = Arc<dyn Fn(u32, usize) -> Channel + Send + Sync>;

/// How long calls are tried.
#[derive(Debug, Clone)]
pub struct Patience {
    /// An attempt without an answer for so long is given up; a receive's wait comes on top.
    pub attempt: Duration,
    /// A call is given up after so long; a receive's wait comes on top.
    pub whole: Duration,
    /// The pause between two attempts.
    pub pause: Range<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(2),
            whole: Duration::from_secs(20),
            pause: Duration::from_millis(20)..Duration::from_millis(200),
        }
    }
}

/// What all clients of a load share.
pub(crate) struct Shared {
    pub(crate) recorder: Recorder,
    pub(crate) tally: Tally,
    /// Ticks with each successful enqueue.
    pub(crate) writes: Meter,
    dial: Dial,
    nodes: usize,
    /// The next name of a client in the history.
    names: AtomicU32,
    /// The next value of a message.
    values: AtomicU64,
}

impl Shared {
    pub(crate) fn new(recorder: Recorder, dial: Dial, nodes: usize) -> Self {
        Self {
            recorder,
            tally: Tally::default(),
            writes: Meter::default(),
            dial,
            nodes,
            names: AtomicU32::new(1),
            values: AtomicU64::new(1),
        }
    }
}

/// A client. Each of its calls is recorded: asked, and answered, failed, or unknown. After an unknown one it goes on under
/// another name, in another session.
pub struct Caller {
    shared: Arc<Shared>,
    name: u32,
    channels: Vec<Channel>,
    /// The node that it talks to: the next one after a failure.
    at: usize,
    session: Option<Session>,
    patience: Patience,
    /// How many of a hundred changes have an id of their own instead of a session's number.
    free: u8,
    rng: fastrand::Rng,
}

struct Session {
    id: u64,
    next: u64,
}

/// A delivery in hand.
#[derive(Debug, Clone)]
pub struct Held {
    /// As recorded.
    pub delivery: Delivery,
    /// The lease token, as it is sent.
    pub token: Bytes,
    /// When the receive was sent that brought it: its lease counts from here.
    pub since: Instant,
}

/// What becomes of one lease.
#[derive(Debug, Clone)]
pub struct Part {
    /// The token.
    pub token: Bytes,
    /// What becomes of it.
    pub verdict: Verdict,
    /// What came of it, of an ack; empty: nothing.
    pub output: Bytes,
}

/// What one commit asks for.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Leases to settle.
    pub settle: Vec<Part>,
    /// Messages to cancel.
    pub cancel: Vec<Target>,
    /// Messages to put at another time.
    pub reschedule: Vec<NewTime>,
    /// Messages to enqueue: queue, message and body.
    pub enqueue: Vec<(String, NewMessage, Bytes)>,
}

impl Part {
    fn recorded(&self) -> Settle {
        let out = Output { h: fingerprint(&self.output), n: self.output.len() as u64 };
        let out = (self.verdict == Verdict::Ack && !self.output.is_empty()).then_some(out);
        Settle { tok: Token::of(&self.token), how: self.verdict, out }
    }
}

impl Caller {
    /// Client number `number`. Its choices follow from `seed`. To be called where it runs.
    pub(crate) fn new(shared: Arc<Shared>, number: u32, patience: Patience, free: u8, seed: u64) -> Self {
        let channels = (0..shared.nodes).map(|node| (shared.dial)(number, node)).collect();
        let name = shared.names.fetch_add(1, Ordering::Relaxed);
        let rng = fastrand::Rng::with_seed(seed);
        let at = number as usize % shared.nodes.max(1);
        Self { shared, name, channels, at, session: None, patience, free, rng }
    }

    /// The source of its choices.
    pub fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }

    /// A message with a value of its own, and its body.
    pub fn message(&self, bytes: usize, delay: Duration) -> (NewMessage, Bytes) {
        let v = self.shared.values.fetch_add(1, Ordering::Relaxed);
        let body = body::make(v, bytes);
        let d = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        (NewMessage { d, ..NewMessage::plain(v, fingerprint(&body), body.len() as u64) }, body.into())
    }

    /// Makes a queue. One that is there already is not an error.
    pub async fn create(&mut self, queue: &str, settings: Settings) -> Result<(), Ended> {
        let q = QueueName::new("", queue);
        let make = |id, _| v1::CreateQueueRequest {
            request_id: Some(id),
            queue: queue.to_owned(),
            settings: Some(wire::settings(&settings)),
            ..Default::default()
        };
        let read = |response: v1::CreateQueueResponse| {
            Ok((wire::told(response.commit, None, Answer::Changed { q: response.queue_id }), ()))
        };
        let call = Call::Create { q, set: settings.clone() };
        match self.change(call, Duration::ZERO, make, create, read).await {
            Err(Ended::Refused(refusal)) if refusal.why == reason::QUEUE_EXISTS => Ok(()),
            other => other,
        }
    }

    /// Puts messages on a queue, each by itself; returns what became of each.
    pub async fn enqueue(
        &mut self,
        queue: &str,
        messages: &[(NewMessage, Bytes)],
    ) -> Result<Vec<EnqueueOutcome>, Ended> {
        let wire: Vec<_> = messages.iter().map(|(message, body)| wire::new_message(body.clone(), message)).collect();
        let m = messages.iter().map(|(message, _)| message.clone()).collect();
        let call = Call::Enqueue { q: QueueName::new("", queue), m, all: false };
        let make = |id, _| v1::EnqueueRequest {
            request_id: Some(id),
            queue: queue.to_owned(),
            messages: wire.clone(),
            ..Default::default()
        };
        let read = |response: v1::EnqueueResponse| {
            let e = response.results.into_iter().map(wire::enqueue_result).collect::<Result<Vec<_>, _>>()?;
            Ok((wire::told(response.commit, None, Answer::Enqueued { e: e.clone() }), e))
        };
        let outcomes = self.change(call, Duration::ZERO, make, enqueue, read).await?;
        self.shared.writes.tick();
        let accepted = outcomes.iter().filter(|outcome| matches!(outcome, EnqueueOutcome::In { .. })).count();
        self.shared.tally.see("messages", accepted);
        let duplicates = outcomes.iter().filter(|outcome| matches!(outcome, EnqueueOutcome::In { dup: true, .. }));
        self.shared.tally.see("duplicates", duplicates.count());
        Ok(outcomes)
    }

    /// Leases messages of queues, in order of preference.
    pub async fn receive(
        &mut self,
        queues: &[String],
        max: u32,
        wait: Duration,
        lease: Duration,
    ) -> Result<Vec<Held>, Ended> {
        let since = Instant::now();
        let (queue, more) = split(queues);
        let call = Call::Receive {
            q: QueueName::new("", queue),
            then: more.iter().map(|queue| QueueName::new("", queue)).collect(),
            max,
            wait: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            lease: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            auto: false,
        };
        let worker = format!("client {}", self.name);
        let make = |id, left: Duration| v1::ReceiveRequest {
            request_id: Some(id),
            queue: queue.to_owned(),
            more_queues: more.to_vec(),
            max_messages: max,
            wait: Some(wire::duration(left)),
            lease: (!lease.is_zero()).then(|| wire::duration(lease)),
            worker: worker.clone(),
            ..Default::default()
        };
        let read = |response: v1::ReceiveResponse| {
            let read = |delivery| wire::delivery(delivery, !more.is_empty());
            let deliveries = response.deliveries.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let d = deliveries.iter().map(|(delivery, _)| delivery.clone()).collect();
            let told = wire::told(response.commit, response.origin, Answer::Received { d });
            Ok((told, deliveries))
        };
        let deliveries = self.change(call, wait, make, receive, read).await?;
        let tally = &self.shared.tally;
        tally.see("deliveries", deliveries.len());
        tally.see("redeliveries", deliveries.iter().filter(|(delivery, _)| delivery.rc > 1).count());
        tally.see("dead", deliveries.iter().filter(|(delivery, _)| delivery.dead.is_some()).count());
        Ok(deliveries.into_iter().map(|(delivery, token)| Held { delivery, token, since }).collect())
    }

    /// Takes messages of a queue at most once: they are acked as they are received. Returns how many came.
    pub async fn take(&mut self, queue: &str, max: u32, wait: Duration) -> Result<usize, Ended> {
        let call = Call::Receive {
            q: QueueName::new("", queue),
            then: Vec::new(),
            max,
            wait: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            lease: 0,
            auto: true,
        };
        let worker = format!("client {}", self.name);
        let make = |id, left: Duration| v1::ReceiveRequest {
            request_id: Some(id),
            queue: queue.to_owned(),
            max_messages: max,
            wait: Some(wire::duration(left)),
            worker: worker.clone(),
            auto_ack: true,
            ..Default::default()
        };
        let read = |response: v1::ReceiveResponse| {
            let d = response.deliveries.into_iter().map(|delivery| wire::taken(delivery, false));
            let d = d.collect::<Result<Vec<_>, _>>()?;
            let count = d.len();
            Ok((wire::told(response.commit, response.origin, Answer::Taken { d }), count))
        };
        let count = self.change(call, wait, make, receive, read).await?;
        self.shared.tally.see("taken", count);
        Ok(count)
    }

    /// Takes messages away before anybody receives them, each by itself.
    pub async fn cancel(&mut self, targets: &[Target]) -> Result<Vec<CancelOutcome>, Ended> {
        let call = Call::Cancel { c: targets.to_vec() };
        let make = |id, _| v1::CancelRequest {
            request_id: Some(id),
            targets: targets.iter().map(wire::target).collect(),
            ..Default::default()
        };
        let read = |response: v1::CancelResponse| {
            let c = response.results.into_iter().map(wire::cancel_result).collect::<Result<Vec<_>, _>>()?;
            Ok((wire::told(response.commit, None, Answer::Cancelled { c: c.clone() }), c))
        };
        let outcomes = self.change(call, Duration::ZERO, make, cancel, read).await?;
        let cancelled = outcomes.iter().filter(|outcome| matches!(outcome, CancelOutcome::Cancelled { .. }));
        self.shared.tally.see("cancelled", cancelled.count());
        Ok(outcomes)
    }

    /// Makes messages ready at another time, each by itself.
    pub async fn reschedule(&mut self, times: &[NewTime]) -> Result<Vec<TimeOutcome>, Ended> {
        let call = Call::Reschedule { t: times.to_vec() };
        let make = |id, _| v1::RescheduleRequest {
            request_id: Some(id),
            messages: times.iter().map(wire::new_time).collect(),
            ..Default::default()
        };
        let read = |response: v1::RescheduleResponse| {
            let t = response.results.into_iter().map(wire::reschedule_result).collect::<Result<Vec<_>, _>>()?;
            Ok((wire::told(response.commit, None, Answer::Rescheduled { t: t.clone() }), t))
        };
        let outcomes = self.change(call, Duration::ZERO, make, reschedule, read).await?;
        let moved = outcomes.iter().filter(|outcome| matches!(outcome, TimeOutcome::Moved { .. }));
        self.shared.tally.see("rescheduled", moved.count());
        Ok(outcomes)
    }

    /// Settles leases, each by itself. None of them may be an extension.
    pub async fn settle(&mut self, parts: &[Part]) -> Result<Vec<SettleOutcome>, Ended> {
        let call = Call::Settle { s: parts.iter().map(Part::recorded).collect() };
        let make = |id, _| v1::SettleRequest {
            request_id: Some(id),
            settlements: parts.iter().map(wire::settlement).collect(),
        };
        let read = |response: v1::SettleResponse| {
            let s = response.results.into_iter().map(wire::settle_result).collect::<Result<Vec<_>, _>>()?;
            Ok((wire::told(response.commit, None, Answer::Settled { s: s.clone() }), s))
        };
        let outcomes = self.change(call, Duration::ZERO, make, settle, read).await?;
        self.saw(&outcomes);
        Ok(outcomes)
    }

    /// Extends leases, each by itself, to end `lease` from when it is applied.
    pub async fn extend(&mut self, tokens: &[Bytes], lease: Duration) -> Result<Vec<SettleOutcome>, Ended> {
        let how = Verdict::Extend { lease: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX) };
        let call =
            Call::Settle { s: tokens.iter().map(|token| Settle { tok: Token::of(token), how, out: None }).collect() };
        let make = |id, _| v1::ExtendRequest {
            request_id: Some(id),
            extensions: tokens
                .iter()
                .map(|token| v1::Extension { lease_token: token.clone(), lease: Some(wire::duration(lease)) })
                .collect(),
        };
        let read = |response: v1::ExtendResponse| {
            let s = response.results.into_iter().map(wire::extend_result).collect::<Result<Vec<_>, _>>()?;
            Ok((wire::told(response.commit, None, Answer::Settled { s: s.clone() }), s))
        };
        let outcomes = self.change(call, Duration::ZERO, make, extend, read).await?;
        self.saw(&outcomes);
        Ok(outcomes)
    }

    /// Settles leases, cancels and reschedules messages and puts messages on queues, all or nothing. Returns what became of
    /// the messages.
    pub async fn commit(&mut self, parts: &Parts) -> Result<Vec<EnqueueOutcome>, Ended> {
        let enqueue =
            |(queue, m, _): &(String, NewMessage, Bytes)| EnqueuePart { q: QueueName::new("", queue), m: m.clone() };
        let call = Call::Commit {
            s: parts.settle.iter().map(Part::recorded).collect(),
            c: parts.cancel.clone(),
            t: parts.reschedule.clone(),
            e: parts.enqueue.iter().map(enqueue).collect(),
            alone: false,
        };
        let make = |id, _| v1::CommitRequest {
            request_id: Some(id),
            settle: parts.settle.iter().map(wire::settle_part).collect(),
            cancel: parts.cancel.iter().map(wire::target).collect(),
            reschedule: parts.reschedule.iter().map(wire::new_time).collect(),
            enqueue: parts
                .enqueue
                .iter()
                .map(|(queue, message, body)| v1::EnqueuePart {
                    queue: queue.clone(),
                    message: Some(wire::new_message(body.clone(), message)),
                })
                .collect(),
            ..Default::default()
        };
        let read = |response: v1::CommitResponse| {
            let s = response.settled.into_iter().map(wire::settled_part).collect::<Result<Vec<_>, _>>()?;
            let c = response.cancelled.into_iter().map(wire::cancel_result).collect::<Result<Vec<_>, _>>()?;
            let t = response.rescheduled.into_iter().map(wire::reschedule_result).collect::<Result<Vec<_>, _>>()?;
            let e = response.enqueued.into_iter().map(wire::enqueued).collect::<Result<Vec<_>, _>>()?;
            let answer = Answer::Committed { s: s.clone(), c, t, e: e.clone() };
            Ok((wire::told(response.commit, None, answer), (s, e)))
        };
        match self.change(call, Duration::ZERO, make, commit, read).await {
            Ok((settled, enqueued)) => {
                self.shared.writes.tick();
                self.shared.tally.see("children", parts.enqueue.len());
                self.saw(&settled);
                Ok(enqueued)
            }
            Err(ended) => {
                if matches!(&ended, Ended::Refused(refusal) if refusal.why == reason::LEASE_LOST) {
                    self.shared.tally.see("leases_lost", 1);
                }
                Err(ended)
            }
        }
    }

    /// A queue's figures; `None`: no such queue.
    pub async fn stats(&mut self, queue: &str) -> Result<Option<Stats>, Ended> {
        let call = Call::Stats { q: QueueName::new("", queue) };
        let make = || v1::GetQueueRequest { queue: queue.to_owned(), ..Default::default() };
        let read = |response: v1::GetQueueResponse| {
            let info = response.queue.ok_or_else(|| wire::nonsense("an answer without the queue"))?;
            let stats = wire::stats(info)?;
            Ok((wire::told(None, response.origin, Answer::Stats(Some(stats))), Some(stats)))
        };
        self.read(call, make, get_queue, read, reason::QUEUE_NOT_FOUND, Answer::Stats(None)).await
    }

    /// Counts something that the client does on purpose.
    pub(crate) fn see(&self, what: &'static str) {
        self.shared.tally.see(what, 1);
    }

    fn saw(&self, outcomes: &[SettleOutcome]) {
        let lost = |outcome: &&SettleOutcome| matches!(outcome, SettleOutcome::No(refusal) if refusal.why == reason::LEASE_LOST);
        let tally = &self.shared.tally;
        tally.see("acked", outcomes.iter().filter(|outcome| matches!(outcome, SettleOutcome::Acked)).count());
        tally.see("leases_lost", outcomes.iter().filter(lost).count());
    }

    /// Makes a change under a number of its session.
    async fn change<Req, Resp, T, Sent>(
        &mut self,
        call: Call,
        wait: Duration,
        make: impl Fn(v1::RequestId, Duration) -> Req,
        send: impl Fn(Channel, Request<Req>) -> Sent,
        read: impl Fn(Resp) -> Result<(Told, T), Refusal>,
    ) -> Result<T, Ended>
    where
        Sent: Future<Output = Result<Response<Resp>, Status>>,
    {
        let rid = if self.rng.u8(0..100) < self.free {
            Rid::token(self.rng.u64(..), self.rng.u64(..))
        } else {
            let session = self.session().await?;
            let seq = session.next;
            session.next += 1;
            Rid::of(session.id, seq)
        };
        let make = |repeat, left| {
            let Rid { session, seq, free } = rid;
            let id = if free {
                let token = [session.to_be_bytes(), seq.to_be_bytes()].concat();
                v1::RequestId { token: token.into(), repeat, ..Default::default() }
            } else {
                // One call at a time: all before it are over.
                v1::RequestId { session, seq, acked_below: seq, repeat, ..Default::default() }
            };
            make(id, left)
        };
        self.attempts(Some(rid), call, wait, make, send, read).await
    }

    /// The session, opened where there is none.
    async fn session(&mut self) -> Result<&mut Session, Ended> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let make = |_, _| v1::OpenSessionRequest { renew: 0 };
                let read = |response: v1::OpenSessionResponse| {
                    let answer = Answer::Session { s: response.session };
                    Ok((wire::told(response.commit, None, answer), response.session))
                };
                let id = self.attempts(None, Call::Open { renew: 0 }, Duration::ZERO, make, open_session, read).await?;
                Session { id, next: 1 }
            }
        };
        Ok(self.session.insert(session))
    }

    /// Reads. `missing` is the reason that stands for the answer `nothing`.
    async fn read<Req, Resp, T: Default, Sent>(
        &mut self,
        call: Call,
        make: impl Fn() -> Req,
        send: impl Fn(Channel, Request<Req>) -> Sent,
        read: impl Fn(Resp) -> Result<(Told, T), Refusal>,
        missing: &'static str,
        nothing: Answer,
    ) -> Result<T, Ended>
    where
        Sent: Future<Output = Result<Response<Resp>, Status>>,
    {
        let kind = call.kind();
        let op = self.shared.recorder.invoke(self.name, None, call);
        let ended = match self.attempt(self.patience.attempt, make(), send, read).await {
            Ok((told, value)) => {
                self.answered(kind, op, told);
                return Ok(value);
            }
            Err(ended) => ended,
        };
        if matches!(&ended, Ended::Refused(refusal) if refusal.why == missing) {
            self.answered(kind, op, wire::told(None, None, nothing));
            return Ok(T::default());
        }
        // Reading changes nothing: there is no doubt about what happened.
        self.shared.recorder.fail(self.name, op, ended.clone().refusal());
        self.shared.tally.end(kind, |count| count.failed += 1);
        self.at = (self.at + 1) % self.channels.len();
        Err(ended)
    }

    /// One attempt, at the node that it talks to.
    async fn attempt<Req, Resp, T, Sent>(
        &self,
        budget: Duration,
        request: Req,
        send: impl Fn(Channel, Request<Req>) -> Sent,
        read: impl Fn(Resp) -> Result<(Told, T), Refusal>,
    ) -> Result<(Told, T), Ended>
    where
        Sent: Future<Output = Result<Response<Resp>, Status>>,
    {
        let mut request = Request::new(request);
        request.set_timeout(budget);
        match timeout(budget, send(self.channels[self.at].clone(), request)).await {
            Ok(Ok(response)) => read(response.into_inner()).map_err(Ended::Unknown),
            Ok(Err(status)) => Err(Ended::of(&status)),
            Err(_) => Err(Ended::Unknown(Refusal::new("NO_ANSWER"))),
        }
    }

    fn answered(&self, kind: Kind, op: Op, told: Told) {
        self.shared.recorder.ok(self.name, op, told);
        self.shared.tally.end(kind, |count| count.ok += 1);
    }

    /// One call over its attempts.
    async fn attempts<Req, Resp, T, Sent>(
        &mut self,
        rid: Option<Rid>,
        call: Call,
        wait: Duration,
        make: impl Fn(bool, Duration) -> Req,
        send: impl Fn(Channel, Request<Req>) -> Sent,
        read: impl Fn(Resp) -> Result<(Told, T), Refusal>,
    ) -> Result<T, Ended>
    where
        Sent: Future<Output = Result<Response<Resp>, Status>>,
    {
        let kind = call.kind();
        let op = self.shared.recorder.invoke(self.name, rid, call);
        let begun = Instant::now();
        let last = begun + self.patience.whole + wait;
        let mut in_doubt = false;
        loop {
            let left = wait.saturating_sub(begun.elapsed());
            let request = make(in_doubt, left);
            let ended = match self.attempt(self.patience.attempt + left, request, &send, &read).await {
                Ok((told, value)) => {
                    self.answered(kind, op, told);
                    return Ok(value);
                }
                Err(ended) => ended,
            };
            let over = match &ended {
                Ended::Nothing(_) => Instant::now() >= last,
                Ended::Unknown(_) => {
                    // A session that nobody uses ends by itself: to open one more is no harm.
                    in_doubt |= rid.is_some();
                    Instant::now() >= last
                }
                Ended::Refused(_) => {
                    // `apply` has decided, whatever came before.
                    in_doubt = false;
                    true
                }
                Ended::NoSession(_) => {
                    self.session = None;
                    true
                }
            };
            if over {
                self.give_up(kind, op, in_doubt, ended.clone().refusal());
                return Err(ended);
            }
            self.at = (self.at + 1) % self.channels.len();
            let Range { start, end } = self.patience.pause;
            pause(start + end.saturating_sub(start).mul_f64(self.rng.f64())).await;
        }
    }

    fn give_up(&mut self, kind: Kind, op: Op, in_doubt: bool, why: Refusal) {
        if in_doubt {
            self.shared.recorder.info(self.name, op, why);
            self.shared.tally.end(kind, |count| count.unknown += 1);
            self.name = self.shared.names.fetch_add(1, Ordering::Relaxed);
            self.session = None;
        } else {
            self.shared.recorder.fail(self.name, op, why);
            self.shared.tally.end(kind, |count| count.failed += 1);
        }
    }
}

/// The first of some queues, and the others.
fn split(queues: &[String]) -> (&str, &[String]) {
    queues.split_first().map_or(("", &[]), |(first, more)| (first, more))
}

type Answered<T> = Result<Response<T>, Status>;

async fn open_session(to: Channel, request: Request<v1::OpenSessionRequest>) -> Answered<v1::OpenSessionResponse> {
    QueueServiceClient::new(to).open_session(request).await
}

async fn enqueue(to: Channel, request: Request<v1::EnqueueRequest>) -> Answered<v1::EnqueueResponse> {
    QueueServiceClient::new(to).enqueue(request).await
}

async fn receive(to: Channel, request: Request<v1::ReceiveRequest>) -> Answered<v1::ReceiveResponse> {
    QueueServiceClient::new(to).receive(request).await
}

async fn cancel(to: Channel, request: Request<v1::CancelRequest>) -> Answered<v1::CancelResponse> {
    QueueServiceClient::new(to).cancel(request).await
}

async fn reschedule(to: Channel, request: Request<v1::RescheduleRequest>) -> Answered<v1::RescheduleResponse> {
    QueueServiceClient::new(to).reschedule(request).await
}

async fn settle(to: Channel, request: Request<v1::SettleRequest>) -> Answered<v1::SettleResponse> {
    QueueServiceClient::new(to).settle(request).await
}

async fn extend(to: Channel, request: Request<v1::ExtendRequest>) -> Answered<v1::ExtendResponse> {
    QueueServiceClient::new(to).extend(request).await
}

async fn commit(to: Channel, request: Request<v1::CommitRequest>) -> Answered<v1::CommitResponse> {
    CommitServiceClient::new(to).commit(request).await
}

async fn create(to: Channel, request: Request<v1::CreateQueueRequest>) -> Answered<v1::CreateQueueResponse> {
    AdminServiceClient::new(to).create_queue(request).await
}

async fn get_queue(to: Channel, request: Request<v1::GetQueueRequest>) -> Answered<v1::GetQueueResponse> {
    AdminServiceClient::new(to).get_queue(request).await
}
