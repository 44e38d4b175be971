//! The clients: producers and workers, and what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ticketrail_proto::v1::admin_service_client::AdminServiceClient;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use ticketrail_proto::v1::{self, enqueue_result, settle_result, settlement};
use ticketrail_proto::{metadata, reason};
use tokio::time::sleep;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::net::Dialer;
use crate::options::Options;
use crate::place::CLIENT_PORT;
use crate::rng::Rng;
use crate::trace::Trace;

/// The queue of all clients.
pub const QUEUE: &str = "orders";
/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_millis(1_500);
/// How long a receive waits.
const WAIT: Duration = Duration::from_millis(600);
/// The lease that workers ask for.
const LEASE: Duration = Duration::from_secs(1);

/// What all clients were told. Clones are the same.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// Each message, by its body.
    messages: BTreeMap<Bytes, Told>,
    counts: BTreeMap<&'static str, u64>,
    breaches: Vec<String>,
    /// Clients that have answers, and when the last one came.
    served: BTreeMap<String, Duration>,
    /// Producers that have enqueued all they wanted.
    done: BTreeSet<String>,
}

/// What was told of a message.
#[derive(Debug, Default)]
struct Told {
    /// Its id, once its enqueue was acknowledged.
    acknowledged: Option<String>,
    /// When a worker was told that its ack took effect, and who it was.
    finished: Option<(Duration, String)>,
    /// Which receive counts were delivered.
    receive_counts: BTreeSet<u32>,
    /// A worker has asked to finish it, and was not told whether it did.
    in_doubt: bool,
}

impl Ledger {
    /// What does not fit together.
    pub fn breaches(&self) -> Vec<String> {
        self.0.lock().breaches.clone()
    }

    /// How often what was told.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().counts.clone()
    }

    /// How many producers have enqueued all they wanted.
    pub fn done(&self) -> usize {
        self.0.lock().done.len()
    }

    /// Clients that are done, or were served after `since`.
    pub fn served_since(&self, since: Duration) -> usize {
        let inner = self.0.lock();
        inner.served.iter().filter(|(client, at)| **at > since || inner.done.contains(*client)).count()
    }

    /// Acknowledged messages that nobody was told to be finished and for which nobody may have finished unseen.
    pub fn unfinished(&self) -> Vec<Bytes> {
        let inner = self.0.lock();
        let open = inner
            .messages
            .iter()
            .filter(|(_, told)| told.acknowledged.is_some() && told.finished.is_none() && !told.in_doubt);
        open.map(|(body, _)| body.clone()).collect()
    }

    /// Messages that somebody was told to be finished.
    pub fn finished(&self) -> Vec<Bytes> {
        let inner = self.0.lock();
        inner.messages.iter().filter(|(_, told)| told.finished.is_some()).map(|(body, _)| body.clone()).collect()
    }

    fn count(&self, what: &'static str) {
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    fn attempted(&self, body: &Bytes) {
        self.0.lock().messages.insert(body.clone(), Told::default());
    }

    fn acknowledged(&self, who: &str, body: &Bytes, id: &str) {
        let mut inner = self.0.lock();
        let twin = inner.messages.iter().find(|(_, told)| told.acknowledged.as_deref() == Some(id));
        let twin = twin.map(|(other, _)| String::from_utf8_lossy(other).into_owned());
        if let Some(other) = twin {
            inner.breaches.push(format!("{who} was given the id {id} for {body:?}, which {other:?} has"));
        }
        if let Some(told) = inner.messages.get_mut(body) {
            told.acknowledged = Some(id.to_owned());
        }
        *inner.counts.entry("enqueued").or_default() += 1;
    }

    /// A worker got a message by a call that it began at `asked`.
    fn delivered(&self, who: &str, asked: Duration, delivery: &v1::Delivery) {
        let mut inner = self.0.lock();
        *inner.counts.entry("delivered").or_default() += 1;
        let message = delivery.message.clone().unwrap_or_default();
        let Some(told) = inner.messages.get_mut(&message.body) else {
            inner.breaches.push(format!("{who} was given {:?}, which nobody has enqueued", message.body));
            return;
        };
        let mut breaches = Vec::new();
        if let Some((at, by)) = told.finished.as_ref().filter(|(at, _)| *at < asked) {
            breaches.push(format!(
                "{who} asked at {asked:?} and was given {:?} (id {}), which {by} was told at {at:?} to be finished",
                message.body, message.id
            ));
        }
        if !told.receive_counts.insert(delivery.receive_count) {
            breaches.push(format!(
                "{who} was given {:?} (id {}) for the {}. time, as somebody was before",
                message.body, message.id, delivery.receive_count
            ));
        }
        inner.breaches.extend(breaches);
    }

    fn settled(&self, who: &str, now: Duration, body: &Bytes, verdict: &settlement::Verdict, outcome: Outcome) {
        let mut inner = self.0.lock();
        *inner.counts.entry(outcome.name()).or_default() += 1;
        let Some(told) = inner.messages.get_mut(body) else { return };
        match (verdict, outcome) {
            (settlement::Verdict::Ack(_), Outcome::Done) => {
                let before = told.finished.replace((now, who.to_owned()));
                if let Some((at, by)) = before {
                    inner.breaches.push(format!(
                        "{who} was told at {now:?} that its ack of {body:?} took effect, as {by} was at {at:?}"
                    ));
                }
            }
            (_, Outcome::Unknown) => told.in_doubt = true,
            (
                settlement::Verdict::Ack(_)
                | settlement::Verdict::Retry(_)
                | settlement::Verdict::Reject(_)
                | settlement::Verdict::Release(_),
                Outcome::Done | Outcome::Lost,
            ) => {}
        }
    }
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Lost,
    Unknown,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Done => "settled",
            Outcome::Lost => "leases lost",
            Outcome::Unknown => "settlements in doubt",
        }
    }
}

/// A client with a session, which repeats each call until it has an answer.
#[derive(Clone)]
pub struct Client {
    name: String,
    ledger: Ledger,
    trace: Trace,
    rng: Rng,
    dialer: Dialer,
    hosts: Vec<String>,
    /// One to each host. Made where the client runs.
    channels: Vec<Channel>,
    at: usize,
    session: u64,
    seq: u64,
}

/// A call has no answer that says what happened, and never will.
struct Forgotten;

impl Client {
    /// A client of `hosts`.
    pub fn new(name: &str, dialer: &Dialer, hosts: &[String], options: &Options, ledger: Ledger, trace: Trace) -> Self {
        let rng = Rng::new(options.seed).fork(name);
        let (name, dialer, hosts, channels) = (name.to_owned(), dialer.clone(), hosts.to_vec(), Vec::new());
        Self { name, ledger, trace, rng, dialer, hosts, channels, at: 0, session: 0, seq: 0 }
    }

    /// Makes the queue, unless it is there: with short pauses, so that little simulated time is needed.
    async fn prepare(&mut self) -> turmoil::Result {
        for host in &self.hosts {
            self.channels.push(self.dialer.client(&format!("{host}:{CLIENT_PORT}"))?);
        }
        let short = |ms| prost_types::Duration::try_from(Duration::from_millis(ms)).ok();
        let settings = v1::QueueSettings {
            backoff_base: short(200),
            backoff_cap: short(1_000),
            max_attempts: Some(4),
            ..v1::QueueSettings::default()
        };
        loop {
            let mut client = AdminServiceClient::new(self.channels[self.at].clone());
            let settings = Some(settings.clone());
            let request = v1::CreateQueueRequest { queue: QUEUE.into(), settings, ..Default::default() };
            match client.create_queue(bounded(request, ATTEMPT)).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code() == Code::AlreadyExists => return Ok(()),
                Err(status) => self.go_elsewhere(&status).await,
            }
        }
    }

    /// Enqueues messages, one a call, some of them delayed.
    pub async fn produce(mut self, count: u64, pause_ms: u64) -> turmoil::Result {
        self.prepare().await?;
        for number in 0..count {
            let body = Bytes::from(format!("{}-{number}", self.name));
            self.ledger.attempted(&body);
            let delay = self.rng.chance(15).then(|| self.rng.millis(100, 2_000));
            // Unknown for ever: it may be there or not.
            let _ = self.enqueue(&body, delay).await;
            sleep(self.rng.millis(0, pause_ms)).await;
        }
        self.ledger.0.lock().done.insert(self.name.clone());
        Ok(())
    }

    async fn enqueue(&mut self, body: &Bytes, delay: Option<Duration>) -> Result<(), Forgotten> {
        let available = delay.and_then(|delay| prost_types::Duration::try_from(delay).ok());
        let message = v1::NewMessage {
            body: body.clone(),
            available: available.map(v1::new_message::Available::Delay),
            ..v1::NewMessage::default()
        };
        let response = self
            .call(async |mut client, request_id, _| {
                let messages = vec![message.clone()];
                let request = v1::EnqueueRequest { request_id, queue: QUEUE.into(), messages, ..Default::default() };
                client.enqueue(bounded(request, ATTEMPT)).await
            })
            .await?;
        for result in response.results {
            match result.outcome {
                Some(enqueue_result::Outcome::Enqueued(enqueued)) => {
                    self.ledger.acknowledged(&self.name, body, &enqueued.message_id);
                }
                Some(enqueue_result::Outcome::Error(error)) => {
                    self.trace.tell(&self.name, format_args!("was refused: {}", error.reason));
                    self.ledger.count("refused");
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Receives and settles until the run ends.
    pub async fn work(mut self) -> turmoil::Result {
        self.prepare().await?;
        loop {
            let begun = self.trace.now();
            let wait = prost_types::Duration::try_from(WAIT).ok();
            let lease = prost_types::Duration::try_from(LEASE).ok();
            let worker = self.name.clone();
            let max_messages = u32::try_from(self.rng.between(1, 4)).unwrap_or(1);
            let received = self
                .call(async |mut client, request_id, _| {
                    let request = v1::ReceiveRequest {
                        request_id,
                        queue: QUEUE.into(),
                        max_messages,
                        wait,
                        lease,
                        worker: worker.clone(),
                        ..Default::default()
                    };
                    client.receive(bounded(request, ATTEMPT + WAIT)).await
                })
                .await;
            let Ok(received) = received else { continue };
            for delivery in &received.deliveries {
                let body = delivery.message.as_ref().map(|message| message.body.clone()).unwrap_or_default();
                self.trace.tell(&self.name, format_args!("has {body:?} for the {}. time", delivery.receive_count));
                self.ledger.delivered(&self.name, begun, delivery);
            }
            for delivery in received.deliveries {
                self.handle(delivery).await;
            }
        }
    }

    async fn handle(&mut self, delivery: v1::Delivery) {
        let body = delivery.message.unwrap_or_default().body;
        let verdict = match self.rng.below(100) {
            // Dies, as far as anybody can see.
            0..3 => return,
            3..6 => {
                sleep(LEASE + self.rng.millis(100, 1_500)).await;
                settlement::Verdict::Ack(v1::Ack {})
            }
            6..14 => settlement::Verdict::Retry(v1::Retry {
                code: "SHAKY".into(),
                delay: prost_types::Duration::try_from(self.rng.millis(50, 800)).ok(),
                ..v1::Retry::default()
            }),
            14..16 => settlement::Verdict::Reject(v1::Reject { code: "BAD".into(), ..v1::Reject::default() }),
            16..19 => settlement::Verdict::Release(v1::Release {}),
            _ => {
                sleep(self.rng.millis(0, 60)).await;
                settlement::Verdict::Ack(v1::Ack {})
            }
        };
        let token = delivery.lease_token;
        let response = self
            .call(async |mut client, request_id, _| {
                let part = v1::Settlement { lease_token: token.clone(), verdict: Some(verdict.clone()) };
                let request = v1::SettleRequest { request_id, settlements: vec![part] };
                client.settle(bounded(request, ATTEMPT)).await
            })
            .await;
        let outcome = match response.map(|response| response.results.into_iter().next().and_then(|part| part.outcome)) {
            Ok(Some(settle_result::Outcome::Error(error))) if error.reason == reason::LEASE_LOST => Outcome::Lost,
            Ok(Some(settle_result::Outcome::Error(error))) => {
                self.trace.tell(&self.name, format_args!("could not settle: {}", error.reason));
                Outcome::Unknown
            }
            Ok(Some(
                settle_result::Outcome::Acked(_)
                | settle_result::Outcome::DeadLettered(_)
                | settle_result::Outcome::Delayed(_)
                | settle_result::Outcome::Readied(_)
                | settle_result::Outcome::Purged(_),
            )) => Outcome::Done,
            Ok(None) | Err(Forgotten) => Outcome::Unknown,
        };
        self.trace.tell(&self.name, format_args!("{verdict:?} of {body:?}: {outcome:?}"));
        self.ledger.settled(&self.name, self.trace.now(), &body, &verdict, outcome);
    }

    /// Asks until there is an answer, always under the same request id.
    async fn call<T>(
        &mut self,
        ask: impl AsyncFn(QueueServiceClient<Channel>, Option<v1::RequestId>, bool) -> Result<Response<T>, Status>,
    ) -> Result<T, Forgotten> {
        let mut repeat = false;
        loop {
            if self.session == 0 {
                self.open().await;
                if repeat {
                    return Err(Forgotten);
                }
            }
            let id = v1::RequestId { session: self.session, seq: self.seq, acked_below: self.seq, repeat };
            let client = QueueServiceClient::new(self.channels[self.at].clone());
            match ask(client, Some(id), repeat).await {
                Ok(response) => {
                    self.seq += 1;
                    self.answered();
                    return Ok(response.into_inner());
                }
                Err(status) => {
                    let reason = reason_of(&status);
                    self.trace.tell(&self.name, format_args!("is told {:?} {reason}", status.code()));
                    if reason == reason::SESSION_EXPIRED {
                        self.session = 0;
                        self.ledger.count("sessions expired");
                        continue;
                    }
                    if is_final(&status, &reason) {
                        self.ledger.count("refused");
                        self.seq += 1;
                        return Err(Forgotten);
                    }
                    // Nothing has happened where it was unavailable to itself; otherwise it may have.
                    repeat |= !happened_not(&reason);
                    self.go_elsewhere(&status).await;
                }
            }
        }
    }

    async fn open(&mut self) {
        loop {
            let mut client = QueueServiceClient::new(self.channels[self.at].clone());
            match client.open_session(bounded(v1::OpenSessionRequest { renew: 0 }, ATTEMPT)).await {
                Ok(response) => {
                    self.session = response.into_inner().session;
                    self.seq = 1;
                    self.answered();
                    return;
                }
                Err(status) => self.go_elsewhere(&status).await,
            }
        }
    }

    fn answered(&self) {
        self.ledger.0.lock().served.insert(self.name.clone(), self.trace.now());
    }

    /// Tries the node that leads, where it was named, or another one; not at once.
    async fn go_elsewhere(&mut self, status: &Status) {
        self.ledger.count("attempts that failed");
        let named = status.metadata().get(metadata::LEADER).and_then(|address| address.to_str().ok());
        let named = named.and_then(|address| self.hosts.iter().position(|host| address.starts_with(host.as_str())));
        self.at = match named {
            Some(leader) if self.rng.chance(70) => leader,
            Some(_) | None => usize::try_from(self.rng.below(self.hosts.len() as u64)).unwrap_or(0),
        };
        sleep(self.rng.millis(10, 150)).await;
    }
}

fn bounded<T>(message: T, longest: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(longest);
    request
}

fn reason_of(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Whether a repeat would be told the same.
fn is_final(status: &Status, reason: &str) -> bool {
    let code = status.code();
    (code == Code::InvalidArgument || code == Code::NotFound || code == Code::FailedPrecondition)
        && !reason.is_empty()
        && reason != reason::SESSION_EXPIRED
}

/// Whether an answer says that nothing happened.
fn happened_not(reason: &str) -> bool {
    [reason::NOT_LEADER, reason::NO_QUORUM, reason::DRAINING, reason::NOT_INITIALIZED, reason::DISK_LOW, reason::FULL]
        .contains(&reason)
}
