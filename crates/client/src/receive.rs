//! Receiving: leases on messages.

use std::future::IntoFuture;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use tokio::sync::oneshot;

use crate::call::{Attempt, service};
use crate::consumer::gone;
use crate::consumer::outbox::{Extend, Hold};
use crate::message::Message;
use crate::position::Position;
use crate::queue::{Calling, WAIT_DEFAULT};
use crate::settle::{self, Settled, Settlement};
use crate::{Client, Error, Queue, retry, wire};

/// A receive about to be made; await it.
///
/// A receive that is dropped while it waits may have leased messages already: those come back when their lease expires.
#[derive(Debug, Clone)]
#[must_use = "nothing is received until it is awaited"]
pub struct ReceiveCall {
    queue: Queue,
    request: v1::ReceiveRequest,
    wait: Duration,
}

impl ReceiveCall {
    pub(crate) fn new(queue: Queue) -> Self {
        let request = v1::ReceiveRequest {
            namespace: queue.client().namespace().to_owned(),
            queue: queue.name().to_owned(),
            max_messages: 1,
            ..Default::default()
        };
        Self { queue, request, wait: WAIT_DEFAULT }
    }

    /// Messages at most, 1 to 1,000. Default 1.
    pub fn max(mut self, messages: u32) -> Self {
        self.request.max_messages = messages;
        self
    }

    /// Bytes at most, up to 4 MiB; one message always fits. Default 4 MiB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.request.max_bytes = bytes;
        self
    }

    /// How long to wait for a first message, 0 to 60 s. Default 10 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the messages are this receiver's, 1 s to 12 h. Default: the queue's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request.lease = Some(wire::to_duration(lease));
        self
    }

    /// Who receives, for the history; at most 256 bytes.
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.request.worker = worker.into();
        self
    }

    /// Another queue of the namespace to receive from, behind those before it: what those have to give comes first. At most
    /// 15.
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let received = client.queue("urgent").receive().also("orders").also("reports").max(16).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn also(mut self, queue: impl Into<String>) -> Self {
        self.request.more_queues.push(queue.into());
        self
    }

    /// Has the messages acked as they are received: at most once. Nothing is leased, so there is nothing to settle; what
    /// gets lost on its way, or with its worker, is lost.
    pub fn auto_ack(mut self) -> TakeCall {
        self.request.auto_ack = true;
        TakeCall(self)
    }

    /// Receives, and has `read` make something of the answer and of from when its leases count.
    async fn receive<T>(
        self,
        read: impl Fn(&Client, v1::ReceiveResponse, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let make = |attempt: Attempt| v1::ReceiveRequest {
            request_id: Some(attempt.id),
            wait: Some(wire::to_duration(attempt.wait_left)),
            ..self.request.clone()
        };
        // What is left of a lease counts from when the attempt was sent that got it, and what that waited for it.
        let send = async |channel, request| {
            let sent_at = retry::now();
            let response = service!(QueueServiceClient, channel).receive(request).await?;
            Ok(response.map(|received| {
                let waited = received.waited.and_then(wire::duration).unwrap_or_default();
                (received, sent_at + waited)
            }))
        };
        let client = self.queue.client();
        let read = |(response, from): (v1::ReceiveResponse, Instant)| read(client, response, from).map(Ok);
        client.changing().change(self.wait, make, send, read).await
    }
}

impl IntoFuture for ReceiveCall {
    type Output = Result<Received, Error>;
    type IntoFuture = Calling<Received>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.receive(|client, response, from| {
                let position = response.commit.map(|commit| Position::from_wire(Some(commit)));
                let deliveries =
                    response.deliveries.into_iter().map(|d| Delivery::from_wire(client, d, from)).collect();
                Ok(Received { deliveries, position })
            })
            .await
        })
    }
}

/// A receive of messages that are acked as they are received; await it.
#[derive(Debug, Clone)]
#[must_use = "nothing is received until it is awaited"]
pub struct TakeCall(ReceiveCall);

impl IntoFuture for TakeCall {
    type Output = Result<Taken, Error>;
    type IntoFuture = Calling<Taken>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.0
                .receive(|_, response, _| {
                    let position = response.commit.map(|commit| Position::from_wire(Some(commit)));
                    let messages = response.deliveries.into_iter().map(TakenMessage::from_wire).collect();
                    Ok(Taken { messages, position })
                })
                .await
        })
    }
}

/// Messages received and acked in one.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// The messages, in order of delivery; none where the wait was over first, or where the answer of an attempt got lost on
    /// its way and the messages with it: then [`Position::replayed`] is true.
    pub messages: Vec<TakenMessage>,
    /// Where in the log they were acked; `None` where there were none.
    pub position: Option<Position>,
}

/// A message that was received and acked in one.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenMessage {
    /// The message.
    pub message: Message,
    /// How often it was received, this time included.
    pub receive_count: u32,
    /// Failures counted in the current window, before.
    pub failures: u32,
}

impl TakenMessage {
    fn from_wire(delivery: v1::Delivery) -> Self {
        Self {
            message: Message::from_wire(delivery.message),
            receive_count: delivery.receive_count,
            failures: delivery.failures,
        }
    }
}

/// What a receive got.
#[derive(Debug)]
pub struct Received {
    /// The messages, in order of delivery; none where the wait was over first.
    pub deliveries: Vec<Delivery>,
    /// Where in the log the leases were granted; `None` where none was.
    pub position: Option<Position>,
}

/// A message with a lease on it. Dropped without being settled, its lease expires and it is delivered again.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Proof of the lease; opaque.
    pub token: Bytes,
    /// Leases ever granted on it, this one included; never goes down. Pass it to your own database as the epoch.
    pub receive_count: u32,
    /// Failures counted so far in the current window.
    pub failures: u32,
    client: Client,
    /// The stream that brought it; `None`: it is settled by calls.
    hold: Option<Hold>,
    lease_ends: Instant,
}

impl Delivery {
    /// What is left of its lease counts from `from`.
    fn from_wire(client: &Client, delivery: v1::Delivery, from: Instant) -> Self {
        let remaining = delivery.lease_remaining.and_then(wire::duration).unwrap_or_default();
        Self {
            message: Message::from_wire(delivery.message),
            token: delivery.lease_token,
            receive_count: delivery.receive_count,
            failures: delivery.failures,
            client: client.clone(),
            hold: None,
            lease_ends: from + remaining,
        }
    }

    /// A delivery of a stream, answered after `sent_at`.
    pub(crate) fn of_stream(client: &Client, delivery: v1::Delivery, sent_at: Instant, hold: Hold) -> Self {
        Self { hold: Some(hold), ..Self::from_wire(client, delivery, sent_at) }
    }

    fn settle(self, settlement: Settlement) -> Settling {
        match self.hold {
            Some(hold) if !settlement.is_long() => Settling(Way::Stream(hold.settle(settlement.into_wire()))),
            Some(_) | None => {
                let client = self.client;
                Settling(Way::Call(Box::pin(async move { settle::settle_one(&client, settlement).await })))
            }
        }
    }

    /// What is left of the lease, counted from when the receive (or the last extension) was sent, and so at least.
    /// Zero: it may be over, and the message somebody else's.
    pub fn lease_left(&self) -> Duration {
        self.lease_ends.saturating_duration_since(retry::now())
    }

    /// Done: the message is deleted for good.
    ///
    /// # Errors
    /// [`Reason::LeaseLost`](crate::Reason::LeaseLost) where the lease is over: the work is somebody else's now.
    pub fn ack(self) -> Settling {
        let settlement = Settlement::ack(&self);
        self.settle(settlement)
    }

    /// Done, and `output` is what came of it, at most 64 KiB: [`Client::get`] shows it for a while where the queue retains
    /// outcomes.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub fn ack_with(self, output: impl Into<Bytes>) -> Settling {
        let settlement = Settlement::ack_with(&self, output);
        self.settle(settlement)
    }

    /// Failed, worth another attempt: one failure is counted. `delay` takes the place of the queue's backoff.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub fn retry(self, code: impl Into<String>, text: impl Into<String>, delay: Option<Duration>) -> Settling {
        let settlement = Settlement::retry(&self, code, text, delay);
        self.settle(settlement)
    }

    /// Failed for good: dead-lettered at once.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub fn reject(self, code: impl Into<String>, text: impl Into<String>) -> Settling {
        let settlement = Settlement::reject(&self, code, text);
        self.settle(settlement)
    }

    /// Given back unfinished: ready at once, nothing is counted.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub fn release(self) -> Settling {
        let settlement = Settlement::release(&self);
        self.settle(settlement)
    }

    /// More time: the lease ends so long from now, 1 s to 12 h, at most 12 h after its grant. `None`: the queue's lease.
    /// Returns what is left.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn extend(&mut self, lease: Option<Duration>) -> Result<Duration, Error> {
        let (sent_at, remaining) = match &self.hold {
            Some(hold) => {
                let (reply, extended) = oneshot::channel();
                let lease = lease.map(wire::to_duration);
                let extension = v1::Extension { lease_token: self.token.clone(), lease };
                hold.outbox().extend(Extend { extension, asked_at: retry::now(), reply });
                extended.await.map_err(|_| gone())??
            }
            None => settle::extend(&self.client, self.token.clone(), lease).await?,
        };
        self.lease_ends = sent_at + remaining;
        Ok(self.lease_left())
    }
}

/// A settlement; await it for its outcome. Of a consumer's delivery it is on its way already, and goes out even where this is
/// dropped; of another one, nothing happens until it is awaited.
#[must_use = "only awaiting it tells what became of the message"]
pub struct Settling(Way);

/// How a settlement goes out.
enum Way {
    Call(Calling<Settled>),
    Stream(oneshot::Receiver<Result<Settled, Error>>),
}

impl Future for Settling {
    type Output = Result<Settled, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Way::Call(calling) => calling.as_mut().poll(context),
            Way::Stream(settled) => Pin::new(settled).poll(context).map(|told| told.unwrap_or_else(|_| Err(gone()))),
        }
    }
}

impl std::fmt::Debug for Settling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settling").finish_non_exhaustive()
    }
}
