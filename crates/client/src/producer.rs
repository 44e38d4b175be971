//! Producing: many messages on their way at one time, over one stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::call::{MESSAGE_BYTES, service};
use crate::error::Reason;
use crate::message::NewMessage;
use crate::position::Position;
use crate::retry::{self, Ended};
use crate::send::{self, Sent};
use crate::stream::{Asked, Failed, IN_FLIGHT, Link, Requests, halves, has_room, until};
use crate::{Client, Error, Queue, wire};

/// Messages of one request at most.
const BATCH: usize = 256;
/// Bytes of one request at which it is closed.
const BATCH_BYTES: usize = 1 << 20;
/// The largest message that is tried: the transport takes no larger requests, and would end the stream over one. What the
/// server takes is less.
const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES - (1 << 20);
/// What a message counts beside its body, in bytes.
const OVERHEAD: usize = 256;

/// Sets a [`Producer`] up.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent before it is started"]
pub struct ProducerBuilder {
    queue: Queue,
    unconfirmed: usize,
    unconfirmed_bytes: usize,
}

impl ProducerBuilder {
    /// Messages on their way at one time, at least 1: [`Producer::send`] waits past that. Default 256.
    pub fn unconfirmed(mut self, messages: usize) -> Self {
        self.unconfirmed = messages.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Bytes on their way at one time; one message always fits. Default 16 MiB.
    pub fn unconfirmed_bytes(mut self, bytes: usize) -> Self {
        self.unconfirmed_bytes = bytes.clamp(1, u32::MAX as usize);
        self
    }

    /// Starts it. Must be called within a Tokio runtime.
    pub fn start(self) -> Producer {
        let Self { queue, unconfirmed, unconfirmed_bytes } = self;
        let room = Arc::new(Room {
            messages: Semaphore::new(unconfirmed),
            bytes: Semaphore::new(unconfirmed_bytes),
            unconfirmed,
            unconfirmed_bytes,
        });
        let (items, queued) = mpsc::channel(unconfirmed);
        let driver = Driver {
            client: queue.client().clone(),
            namespace: queue.client().namespace().to_owned(),
            queue: queue.name().to_owned(),
            queued,
            closed: false,
            gathered: Vec::new(),
            requests: Requests::new(),
            room: Arc::clone(&room),
            failures: 0,
        };
        Producer { items, room, driver: tokio::spawn(driver.run()) }
    }
}

/// Sends messages to one queue over a stream of its own: many on their way at one time, each confirmed by itself.
///
/// What is at hand goes into one request; nothing waits for company. A lost connection is opened anew, to the node that
/// leads, and what is not confirmed goes out again under its old request id: no message is enqueued twice. Messages sent one
/// after the other mostly stand in that order on the queue, but not where one of them had to be sent again.
///
/// Dropped, it goes on until what was handed to it is confirmed or past its deadline; [`Producer::close`] waits for that.
///
/// ```no_run
/// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
/// let producer = client.queue("orders").producer();
/// let mut confirms = Vec::new();
/// for table in 0..1_000 {
///     confirms.push(producer.send(format!("table {table}")).await?);
/// }
/// for confirm in confirms {
///     println!("{} is on disk", confirm.await?.message_id);
/// }
/// producer.close().await
/// # }
/// ```
#[derive(Debug)]
pub struct Producer {
    items: mpsc::Sender<Item>,
    room: Arc<Room>,
    driver: JoinHandle<()>,
}

/// What may be on its way at one time.
#[derive(Debug)]
struct Room {
    messages: Semaphore,
    bytes: Semaphore,
    unconfirmed: usize,
    unconfirmed_bytes: usize,
}

impl Room {
    /// Waits for room for a message of `bytes`. It is given back when the message is confirmed.
    async fn take(&self, bytes: usize) -> Result<(), Error> {
        // The semaphores are never closed.
        let messages = self.messages.acquire().await.map_err(|_| gone())?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes.acquire_many(bytes).await.map_err(|_| gone())?.forget();
        messages.forget();
        Ok(())
    }

    fn give_back(&self, messages: usize, bytes: usize) {
        self.bytes.add_permits(bytes);
        self.messages.add_permits(messages);
    }
}

/// A message on its way.
#[derive(Debug)]
struct Item {
    message: v1::NewMessage,
    /// What it holds of the room.
    bytes: usize,
    confirm: oneshot::Sender<Result<Sent, Error>>,
}

/// A message handed over: await it for its confirmation. Dropped, the message is sent all the same.
#[derive(Debug)]
#[must_use = "only awaiting it tells whether the message is on its queue"]
pub struct Confirm(oneshot::Receiver<Result<Sent, Error>>);

impl Future for Confirm {
    type Output = Result<Sent, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or_else(|_| Err(gone())))
    }
}

/// The driver has ended while somebody waited: its runtime was shut down.
fn gone() -> Error {
    Error::Unknown { last: "the producer's task has ended".to_owned(), waited: Duration::ZERO }
}

impl Producer {
    /// Sets a producer for `queue` up.
    pub fn builder(queue: &Queue) -> ProducerBuilder {
        ProducerBuilder { queue: queue.clone(), unconfirmed: 256, unconfirmed_bytes: 16 << 20 }
    }

    /// Hands a message over, once there is room for it. The confirmation means: fsynced on a quorum.
    ///
    /// # Errors
    /// Where the message has more than 15 MiB, which no server takes; where its task has ended with its runtime. What becomes of the message, [`Confirm`] tells: as every change, see
    /// [`Error`].
    pub async fn send(&self, message: impl Into<NewMessage>) -> Result<Confirm, Error> {
        let message = message.into().into_wire();
        let size = |map: &std::collections::BTreeMap<String, String>| -> usize {
            map.iter().map(|(name, value)| name.len() + value.len()).sum()
        };
        let bytes = message.body.len() + size(&message.tags) + size(&message.headers) + OVERHEAD;
        if bytes > MESSAGE_BYTES_MAX {
            let got = format!("{bytes} bytes");
            return Err(Error::Config { expected: "a message of at most 15 MiB", got });
        }
        let bytes = bytes.min(self.room.unconfirmed_bytes);
        self.room.take(bytes).await?;
        let (confirm, confirmed) = oneshot::channel();
        // There is room for each that has taken its place.
        if self.items.send(Item { message, bytes, confirm }).await.is_err() {
            self.room.give_back(1, bytes);
            return Err(gone());
        }
        Ok(Confirm(confirmed))
    }

    /// Waits until all that was handed over is confirmed, or refused.
    ///
    /// # Errors
    /// Where its task has ended with its runtime.
    pub async fn flush(&self) -> Result<(), Error> {
        let all = u32::try_from(self.room.unconfirmed).unwrap_or(u32::MAX);
        self.room.messages.acquire_many(all).await.map(drop).map_err(|_| gone())
    }

    /// Waits until all that was handed over is confirmed, or refused, and ends.
    ///
    /// # Errors
    /// As [`Producer::flush`].
    pub async fn close(self) -> Result<(), Error> {
        let Self { items, driver, .. } = self;
        drop(items);
        driver.await.map_err(|_| gone())
    }
}

type ProduceLink = Link<v1::ProduceRequest, v1::ProduceResponse>;

/// The task behind a producer.
struct Driver {
    client: Client,
    namespace: String,
    queue: String,
    queued: mpsc::Receiver<Item>,
    /// Nothing more comes from `queued`.
    closed: bool,
    /// Taken from `queued`, not yet part of a request.
    gathered: Vec<Item>,
    requests: Requests<Vec<Item>>,
    room: Arc<Room>,
    /// Streams in a row that could not be opened.
    failures: u32,
}

/// Why a driver leaves a stream.
enum Left {
    /// All is done.
    Done,
    /// The stream has ended so.
    Broken(Ended),
}

impl Driver {
    async fn run(mut self) {
        loop {
            if self.gathered.is_empty() && self.requests.is_empty() && !self.gather().await {
                return;
            }
            let inner = self.client.changing();
            let call = async |route: crate::routes::Route, requests| {
                service!(QueueServiceClient, route.channel).produce(requests).await
            };
            let ended = match ProduceLink::open(inner, || None, call).await {
                Ok(link) => match self.drive(link).await {
                    Left::Done => return,
                    Left::Broken(ended) => ended,
                },
                Err(ended) => ended,
            };
            let failed = self.requests.broken(&ended);
            self.fail(failed);
            self.take_all();
            let failed = self.requests.expire(ended.text());
            self.fail(failed);
            self.failures = self.failures.saturating_add(1);
            tokio::time::sleep(self.client.reading().policy().backoff(self.failures)).await;
        }
    }

    /// Waits for messages. False: none will come.
    async fn gather(&mut self) -> bool {
        if !self.closed && self.queued.recv_many(&mut self.gathered, BATCH).await == 0 {
            self.closed = true;
        }
        !self.gathered.is_empty()
    }

    /// Makes requests of all that is at hand, so that their time begins.
    fn take_all(&mut self) {
        loop {
            while let Ok(item) = self.queued.try_recv() {
                self.gathered.push(item);
                if self.gathered.len() >= BATCH {
                    break;
                }
            }
            if !self.ask() {
                return;
            }
        }
    }

    /// Makes a request of what is gathered, up to its size. False: there is nothing.
    fn ask(&mut self) -> bool {
        let mut bytes = 0;
        let fitting = |item: &&Item| {
            bytes += item.bytes;
            bytes <= BATCH_BYTES
        };
        let count = self.gathered.iter().take(BATCH).take_while(fitting).count().max(1).min(self.gathered.len());
        if count == 0 {
            return false;
        }
        let rest = self.gathered.split_off(count);
        let items = std::mem::replace(&mut self.gathered, rest);
        self.requests.add(self.client.reading(), items);
        true
    }

    async fn drive(&mut self, mut link: ProduceLink) -> Left {
        let outgoing = link.outgoing.clone();
        loop {
            self.requests.wake();
            while self.requests.in_flight() < IN_FLIGHT && link.outgoing.capacity() > 0 {
                if !self.requests.has_ready() && !self.ask() {
                    break;
                }
                if self.requests.in_flight() == 0 {
                    link.heard = retry::now();
                }
                if !self.send(&link).await {
                    break;
                }
            }
            let wants = self.requests.in_flight() < IN_FLIGHT
                && (self.requests.has_ready() || !self.gathered.is_empty())
                && link.outgoing.capacity() == 0;
            let takes = !self.closed && self.gathered.len() < BATCH;
            if self.closed && self.gathered.is_empty() && self.requests.is_empty() {
                return Left::Done;
            }
            let owes = self.requests.in_flight() > 0;
            tokio::select! {
                biased;
                came = link.hear(self.client.reading(), owes) => match came {
                    Ok(response) => {
                        self.failures = 0;
                        self.answered(response);
                    }
                    Err(ended) => return Left::Broken(ended),
                },
                true = has_room(&outgoing), if wants => {}
                count = self.queued.recv_many(&mut self.gathered, BATCH), if takes => self.closed = count == 0,
                () = until(self.requests.due()) => {}
            }
        }
    }

    /// Sends the next request. False: there is none, or it cannot be sent now.
    async fn send(&mut self, link: &ProduceLink) -> bool {
        let sent = self.requests.send(self.client.reading()).await;
        let (request_id, items) = match sent {
            Ok(Some(sent)) => sent,
            Ok(None) => return false,
            Err(failed) => {
                self.fail(vec![failed]);
                return true;
            }
        };
        let request = v1::ProduceRequest {
            request_id: Some(request_id),
            namespace: self.namespace.clone(),
            queue: self.queue.clone(),
            messages: items.iter().map(|item| item.message.clone()).collect(),
            all_or_nothing: false,
        };
        // Where the transport is gone, the stream has ended: then it is sent again.
        link.outgoing.try_send(request).is_ok()
    }

    fn answered(&mut self, response: v1::ProduceResponse) {
        use v1::produce_response::Outcome;
        let v1::ProduceResponse { session, seq, commit, outcome } = response;
        let Some(asked) = self.requests.answered(session, seq) else {
            tracing::debug!(session, seq, "expected an answer to a request in flight, but it is to none");
            return;
        };
        let position = Position::from_wire(commit);
        match outcome {
            Some(Outcome::Enqueued(range)) => self.enqueued(asked, range, position),
            Some(Outcome::Results(results)) => self.results(asked, results.results, position),
            Some(Outcome::Error(error)) => {
                let ended = Ended::from_item(error);
                let whole = if ended.is_invalid() { self.requests.halve(asked, halves) } else { Some(asked) };
                let failed = whole.and_then(|asked| self.requests.again(asked, ended).err());
                self.fail(failed);
            }
            None => self.not_understood(asked, "none, or an outcome of a newer server".to_owned()),
        }
    }

    fn not_understood(&mut self, asked: Asked<Vec<Item>>, found: String) {
        let error = Error::Protocol { expected: "a result for each message", found };
        self.fail([(asked.work, error)]);
    }

    /// All messages stand one behind the other.
    fn enqueued(&mut self, asked: Asked<Vec<Item>>, range: v1::EnqueuedRange, position: Position) {
        let prefix = range.first_message_id.rsplit_once('.').map(|(prefix, _)| prefix);
        let (Some(prefix), true) = (prefix, range.count as usize == asked.work.len()) else {
            let found = format!("{} for {} messages", range.count, asked.work.len());
            return self.not_understood(asked, found);
        };
        let available_at = wire::some_time(range.available_at);
        self.confirm(asked.work.into_iter().zip(range.first_sequence..).map(|(item, sequence)| {
            let message_id = format!("{prefix}.{sequence}");
            (item, Ok(Sent { message_id, sequence, available_at, duplicate: false, position }))
        }));
    }

    /// Each message has its own result. Those for which there was no room are sent anew when there is.
    fn results(&mut self, mut asked: Asked<Vec<Item>>, results: Vec<v1::EnqueueResult>, position: Position) {
        if results.len() != asked.work.len() {
            let found = format!("{} for {} messages", results.len(), asked.work.len());
            return self.not_understood(asked, found);
        }
        let (mut again, mut why) = (Vec::new(), None);
        let items = std::mem::take(&mut asked.work);
        let known = items.into_iter().zip(results).filter_map(|(item, result)| {
            let result = match send::item(result, position) {
                Ok(Ok(sent)) => Ok(sent),
                Ok(Err(refusal)) if refusal.reason == Reason::Full => {
                    why = Some(refusal);
                    again.push(item);
                    return None;
                }
                Ok(Err(refusal)) => Err(Error::Refused(refusal)),
                Err(error) => Err(error),
            };
            Some((item, result))
        });
        let known: Vec<_> = known.collect();
        self.confirm(known);
        if let Some(refusal) = why {
            let failed = self.requests.anew(asked, again, Ended::Refused(refusal)).err();
            self.fail(failed);
        }
    }

    fn fail(&self, failed: impl IntoIterator<Item = Failed<Vec<Item>>>) {
        for (items, error) in failed {
            self.confirm(items.into_iter().map(|item| (item, Err(error.clone()))));
        }
    }

    /// Tells what became of messages, and makes room for others.
    fn confirm(&self, told: impl IntoIterator<Item = (Item, Result<Sent, Error>)>) {
        let (mut messages, mut bytes) = (0, 0);
        for (item, result) in told {
            messages += 1;
            bytes += item.bytes;
            // Nobody may wait for it.
            let _ = item.confirm.send(result);
        }
        self.room.give_back(messages, bytes);
    }
}
