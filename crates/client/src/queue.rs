//! One queue: send, receive, look.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;

use crate::call::service;
use crate::cancel::Target;
use crate::message::{Found, MessageInfo, MessageState, NewMessage};
use crate::receive::ReceiveCall;
use crate::send::{self, SendCall, Sent};
use crate::{Batch, Client, Consumer, Error, Producer, Worker};

/// A future that a call becomes when it is awaited.
pub(crate) type Calling<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// One queue of one namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Queue {
    client: Client,
    name: String,
}

impl Queue {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends one message. Set what goes with it, then await.
    ///
    /// The answer means: fsynced on a quorum. The queue is made by its first message unless the server forbids it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let sent = client
    ///     .queue("orders")
    ///     .send(r#"{"table": 7}"#)
    ///     .content_type("application/json")
    ///     .tag("customer", "alice")
    ///     .delay(Duration::from_secs(600))
    ///     .await?;
    /// println!("{} is ready at {:?}", sent.message_id, sent.available_at);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, message: impl Into<NewMessage>) -> SendCall {
        SendCall::new(self.clone(), message.into())
    }

    /// Sends up to 1,000 messages, 4 MiB together, in one call. They become visible in one step; each has its own
    /// result.
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let batch = client.queue("orders").send_batch(["first", "second"]).await?;
    /// for result in batch.results {
    ///     println!("{}", result?.message_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As every change: see [`Error`]. A full queue is an item's refusal, not the call's, and is not waited for.
    pub async fn send_batch<M: Into<NewMessage>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Batch<Sent>, Error> {
        send::send_batch(self, messages.into_iter().map(Into::into).collect()).await
    }

    /// As [`Queue::send_batch`], but one message's refusal refuses all: then nothing happened, and
    /// [`Refusal::part`](crate::Refusal::part) names the message.
    ///
    /// # Errors
    /// As every change: see [`Error`]. A full queue is waited for as the policy says.
    pub async fn send_all_or_nothing<M: Into<NewMessage>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Sent>, Error> {
        send::send_all(self, messages.into_iter().map(Into::into).collect()).await
    }

    /// The message that this queue remembers under a dedup id, for [`Client::get`], [`Client::cancel`] and
    /// [`Client::reschedule`].
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let orders = client.queue("orders");
    /// orders.send("one table for two").dedup("order-17").await?;
    /// client.cancel(orders.dedup("order-17")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dedup(&self, dedup_id: impl Into<String>) -> Target {
        Target::Dedup { queue: self.name.clone(), dedup_id: dedup_id.into() }
    }

    /// Sends many messages over a stream, up to 256 on their way at one time. [`Producer::builder`] has more to set. Must
    /// be called within a Tokio runtime.
    pub fn producer(&self) -> Producer {
        Producer::builder(self).start()
    }

    /// Leases messages: at most one unless told otherwise, waiting for it up to 10 s. Set what differs, then await.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let received = client.queue("orders").receive().max(16).lease(Duration::from_secs(30)).worker("w1").await?;
    /// for delivery in received.deliveries {
    ///     match std::str::from_utf8(&delivery.message.body) {
    ///         Ok(_order) => delivery.ack().await?,
    ///         Err(_) => delivery.reject("NOT_TEXT", "expected UTF-8").await?,
    ///     };
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn receive(&self) -> ReceiveCall {
        ReceiveCall::new(self.clone())
    }

    /// Receives over a stream: deliveries come by themselves, up to 32 at a time. [`Consumer::builder`] has more to set. Must
    /// be called within a Tokio runtime.
    pub fn consumer(&self) -> Consumer {
        Consumer::builder(self).start()
    }

    /// Works on the queue: a handler for each message, 8 at a time unless told otherwise. [`Worker::run`] starts it.
    pub fn worker(&self) -> Worker {
        Worker::builder(self)
    }

    /// Shows messages in one state without consuming them: ready ones unless told otherwise, a page of up to 100.
    ///
    /// ```no_run
    /// # use ticketrail_client::MessageState;
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let page = client.queue("orders").peek().state(MessageState::Delayed).await?;
    /// for info in page.messages {
    ///     println!("{} is due at {:?}", info.message.id, info.due_at);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek(&self) -> Peek {
        let request = v1::PeekRequest {
            namespace: self.client.namespace().to_owned(),
            queue: self.name.clone(),
            state: v1::MessageState::Ready.into(),
            ..Default::default()
        };
        Peek { client: self.client.clone(), request }
    }
}

/// A look at a queue; await it.
#[derive(Debug, Clone)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Peek {
    client: Client,
    request: v1::PeekRequest,
}

impl Peek {
    /// Messages in this state. Default: ready.
    pub fn state(mut self, state: MessageState) -> Self {
        self.request.state = state.to_wire().into();
        self
    }

    /// Messages of a page at most, 1 to 1,000. Default 100. A page ends earlier when it passes 4 MiB.
    pub fn page_size(mut self, size: u32) -> Self {
        self.request.page_size = size;
        self
    }

    /// The page after the one that gave this token.
    pub fn after(mut self, token: impl Into<String>) -> Self {
        self.request.page_token = token.into();
        self
    }

    /// Leaves bodies out.
    pub fn omit_bodies(mut self) -> Self {
        self.request.omit_bodies = true;
        self
    }

    /// An answer from what the node has applied, without asking the leader.
    pub fn stale_ok(mut self) -> Self {
        self.request.stale_ok = true;
        self
    }

    fn filter(&mut self) -> &mut v1::PeekFilter {
        self.request.filter.get_or_insert_default()
    }

    /// Only messages of this group. All filters that are given must hold; with one, a page may be empty though more follow.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.filter().group = group.into();
        self
    }

    /// Only messages of this type.
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.filter().r#type = message_type.into();
        self
    }

    /// Only messages with this tag.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.filter().tags.insert(key.into(), value.into());
        self
    }

    /// Only messages of this priority, 0 to 9.
    pub fn priority(mut self, priority: u8) -> Self {
        self.filter().priority = Some(priority.into());
        self
    }

    /// Only messages that came to the queue at or before this time.
    pub fn enqueued_until(mut self, at: SystemTime) -> Self {
        self.filter().enqueued_until = Some(at.into());
        self
    }

    /// Only messages with at least so many failures.
    pub fn min_failures(mut self, failures: u32) -> Self {
        self.filter().min_failures = failures;
        self
    }
}

impl IntoFuture for Peek {
    type Output = Result<PeekPage, Error>;
    type IntoFuture = Calling<PeekPage>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let make = || self.request.clone();
            let send = async |channel, request| service!(QueueServiceClient, channel).peek(request).await;
            let page = self.client.reading().read(make, send).await?;
            let messages = page.messages.into_iter().map(MessageInfo::from_wire).collect();
            Ok(PeekPage { messages, next: (!page.next_page_token.is_empty()).then_some(page.next_page_token) })
        })
    }
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq)]
pub struct PeekPage {
    /// The messages.
    pub messages: Vec<MessageInfo>,
    /// Where the next page starts; `None`: this was the last.
    pub next: Option<String>,
}

pub(crate) async fn get(client: &Client, target: Target) -> Result<Found, Error> {
    let make = || {
        let namespace = client.namespace().to_owned();
        match target.clone() {
            Target::Id(message_id) => v1::GetRequest { message_id, namespace, ..Default::default() },
            Target::Dedup { queue, dedup_id } => v1::GetRequest { queue, dedup_id, namespace, ..Default::default() },
        }
    };
    let send = async |channel, request| service!(QueueServiceClient, channel).get(request).await;
    let answer = client.reading().read(make, send).await?;
    let none = || Error::Protocol { expected: "a message or its outcome", found: "neither".to_owned() };
    Found::from_wire(answer).ok_or_else(none)
}

/// The longest that a receive may wait; the server refuses more.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_secs(10);
