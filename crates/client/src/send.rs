//! Sending: one message, or a batch.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;

use crate::call::{Attempt, service};
use crate::message::NewMessage;
use crate::position::{Batch, Position};
use crate::queue::Calling;
use crate::{Error, Queue, Refusal, wire};

/// A message on a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The message's id for ever.
    pub message_id: String,
    /// Its sequence within the queue, from 1.
    pub sequence: u64,
    /// When it is ready, on cluster time.
    pub available_at: SystemTime,
    /// Whether it was on the queue before, under its dedup id, so that nothing was added: then all of this is about that
    /// first message, which may have finished meanwhile.
    pub duplicate: bool,
    /// Where in the log it was enqueued, or found to be a duplicate.
    pub position: Position,
}

impl Sent {
    pub(crate) fn from_wire(enqueued: v1::Enqueued, position: Position) -> Self {
        Self {
            message_id: enqueued.message_id,
            sequence: enqueued.sequence,
            available_at: wire::some_time(enqueued.available_at),
            duplicate: enqueued.duplicate,
            position,
        }
    }
}

/// A message about to be sent; await it.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct SendCall {
    queue: Queue,
    message: NewMessage,
}

impl SendCall {
    pub(crate) fn new(queue: Queue, message: NewMessage) -> Self {
        Self { queue, message }
    }

    fn with(mut self, change: impl FnOnce(NewMessage) -> NewMessage) -> Self {
        self.message = change(self.message);
        self
    }

    /// As [`NewMessage::content_type`].
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        self.with(|message| message.content_type(content_type))
    }

    /// As [`NewMessage::message_type`].
    pub fn message_type(self, message_type: impl Into<String>) -> Self {
        self.with(|message| message.message_type(message_type))
    }

    /// As [`NewMessage::tag`].
    pub fn tag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|message| message.tag(key, value))
    }

    /// As [`NewMessage::header`].
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|message| message.header(name, value))
    }

    /// As [`NewMessage::correlation_id`].
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        self.with(|message| message.correlation_id(id))
    }

    /// As [`NewMessage::reply_to`].
    pub fn reply_to(self, queue: impl Into<String>) -> Self {
        self.with(|message| message.reply_to(queue))
    }

    /// As [`NewMessage::delay`].
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|message| message.delay(delay))
    }

    /// As [`NewMessage::deliver_at`].
    pub fn deliver_at(self, at: SystemTime) -> Self {
        self.with(|message| message.deliver_at(at))
    }

    /// As [`NewMessage::group`].
    pub fn group(self, group: impl Into<String>) -> Self {
        self.with(|message| message.group(group))
    }

    /// As [`NewMessage::priority`].
    pub fn priority(self, priority: u8) -> Self {
        self.with(|message| message.priority(priority))
    }

    /// As [`NewMessage::dedup`].
    pub fn dedup(self, dedup_id: impl Into<String>) -> Self {
        self.with(|message| message.dedup(dedup_id))
    }

    /// As [`NewMessage::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|message| message.ttl(ttl))
    }

    /// As [`NewMessage::expires_at`].
    pub fn expires_at(self, at: SystemTime) -> Self {
        self.with(|message| message.expires_at(at))
    }

    /// As [`NewMessage::max_attempts`].
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|message| message.max_attempts(attempts))
    }

    /// As [`NewMessage::backoff`].
    pub fn backoff(self, base: Duration, cap: Duration) -> Self {
        self.with(|message| message.backoff(base, cap))
    }

    /// As [`NewMessage::dead_letter_queue`].
    pub fn dead_letter_queue(self, queue: impl Into<String>) -> Self {
        self.with(|message| message.dead_letter_queue(queue))
    }
}

impl IntoFuture for SendCall {
    type Output = Result<Sent, Error>;
    type IntoFuture = Calling<Sent>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let messages = vec![self.message.into_wire()];
            enqueue(&self.queue, messages, false, |response| {
                let position = Position::from_wire(response.commit);
                let mut results = response.results.into_iter();
                match (results.next(), results.next()) {
                    (Some(result), None) => item(result, position),
                    (first, _) => Err(Error::Protocol {
                        expected: "one result",
                        found: if first.is_none() { "none" } else { "more" }.to_owned(),
                    }),
                }
            })
            .await
        })
    }
}

pub(crate) async fn send_batch(queue: &Queue, messages: Vec<NewMessage>) -> Result<Batch<Sent>, Error> {
    let count = messages.len();
    let messages = messages.into_iter().map(NewMessage::into_wire).collect();
    enqueue(queue, messages, false, |response| Ok(Ok(batch(count, response)?))).await
}

pub(crate) async fn send_all(queue: &Queue, messages: Vec<NewMessage>) -> Result<Vec<Sent>, Error> {
    let count = messages.len();
    let messages = messages.into_iter().map(NewMessage::into_wire).collect();
    enqueue(queue, messages, true, |response| Ok(batch(count, response)?.results.into_iter().collect())).await
}

fn batch(count: usize, response: v1::EnqueueResponse) -> Result<Batch<Sent>, Error> {
    let position = Position::from_wire(response.commit);
    if response.results.len() != count {
        let found = format!("{} for {count} messages", response.results.len());
        return Err(Error::Protocol { expected: "a result for each message", found });
    }
    let results = response.results.into_iter().map(|result| item(result, position)).collect::<Result<_, _>>()?;
    Ok(Batch { results, position })
}

async fn enqueue<T>(
    queue: &Queue,
    messages: Vec<v1::NewMessage>,
    all_or_nothing: bool,
    read: impl Fn(v1::EnqueueResponse) -> Result<Result<T, Refusal>, Error>,
) -> Result<T, Error> {
    let make = |attempt: Attempt| v1::EnqueueRequest {
        request_id: Some(attempt.id),
        namespace: queue.client().namespace().to_owned(),
        queue: queue.name().to_owned(),
        messages: messages.clone(),
        all_or_nothing,
    };
    let send = async |channel, request| service!(QueueServiceClient, channel).enqueue(request).await;
    queue.client().changing().change(Duration::ZERO, make, send, read).await
}

pub(crate) fn item(result: v1::EnqueueResult, position: Position) -> Result<Result<Sent, Refusal>, Error> {
    use v1::enqueue_result::Outcome;
    match result.outcome {
        Some(Outcome::Enqueued(enqueued)) => Ok(Ok(Sent::from_wire(enqueued, position))),
        Some(Outcome::Error(error)) => Ok(Err(Refusal::from_item(error))),
        None => Err(Error::Protocol { expected: "an outcome", found: "none, or one of a newer server".to_owned() }),
    }
}
