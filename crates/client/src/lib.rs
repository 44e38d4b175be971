//! The Rust SDK of Ticketrail: a durable, replicated work queue.
//!
//! A map of the house:
//!
//! - [`Client`], [`ClientBuilder`]: a connection that comes back by itself, and its sessions;
//! - [`Queue`]: what to do with one queue: [`send`](Queue::send), [`receive`](Queue::receive), [`peek`](Queue::peek);
//! - [`Producer`], [`Consumer`]: many messages at a time, over streams;
//! - [`Worker`]: a handler for each message;
//! - [`Delivery`], [`Settlement`]: a leased message, and what became of it;
//! - [`Commit`]: settlements, cancels, reschedules and enqueues that stand or fall together;
//! - [`Target`]: a message by its id or its dedup id, to [`get`](Client::get), [`cancel`](Client::cancel) or
//!   [`reschedule`](Client::reschedule);
//! - [`Admin`]: queues made, changed, paused, purged; defaults of namespaces; the node's status;
//! - [`Error`]: what a failed call did, so that a caller knows whether to send it again;
//! - [`RetryPolicy`]: how long, and for what, a call is tried again.
//!
//! Every change carries a request id (session, number), so a call is repeated after a lost connection without a
//! second effect. Until its deadline the SDK does that by itself, each failure in its own way: see [`RetryPolicy`].
//!
//! ```no_run
//! use std::time::Duration;
//! use ticketrail_client::Client;
//!
//! # async fn example() -> Result<(), ticketrail_client::Error> {
//! let client = Client::builder().address("http://127.0.0.1:50000").connect()?;
//! let orders = client.queue("orders");
//! let sent = orders.send("one table for two").tag("customer", "alice").await?;
//! println!("sent {}", sent.message_id);
//!
//! let received = orders.receive().max(16).wait(Duration::from_secs(20)).lease(Duration::from_secs(30)).await?;
//! for delivery in received.deliveries {
//!     println!("working on {:?}", delivery.message.body);
//!     delivery.ack().await?;
//! }
//! # Ok(())
//! # }
//! ```

mod admin;
mod call;
mod cancel;
mod client;
mod cluster;
mod commit;
mod consumer;
mod error;
mod message;
mod namespace;
mod position;
mod producer;
mod queue;
mod receive;
mod retry;
mod routes;
mod send;
mod session;
mod settings;
mod settle;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;
mod worker;

pub use admin::{Admin, DiskStatus, NodeStatus, Pause, QueueInfo, QueueStats, Role};
pub use cancel::{Cancelled, Rescheduled, Target, When};
pub use client::{Client, ClientBuilder};
pub use cluster::{ClusterInfo, ClusterMember};
pub use commit::{Commit, Committed, CommittedEach, Part, SettledPart};
pub use consumer::{Consumer, ConsumerBuilder};
pub use error::{Effect, Error, Reason, Refusal};
pub use message::{
    DeadLetter, DeadReason, FailureClass, FailureRecord, Found, LeaseRecord, Message, MessageInfo, MessageRetry,
    MessageState, NewMessage, Outcome,
};
pub use namespace::NamespaceInfo;
pub use position::{Batch, Position};
pub use producer::{Confirm, Producer, ProducerBuilder};
pub use queue::{Peek, PeekPage, Queue};
pub use receive::{Delivery, ReceiveCall, Received, Settling, TakeCall, Taken, TakenMessage};
pub use retry::RetryPolicy;
pub use send::{SendCall, Sent};
pub use settings::{OnExhausted, OnExpired, OnGroupFailure, QueueSettings, ShedRule};
pub use settle::{Settled, Settlement};
/// The status code in a [`Refusal`].
pub use tonic::Code;
pub use worker::{Output, Task, TaskError, Worked, Worker, stop_signal};

/// What [`ClientBuilder::channel`] takes, for a transport of your own: `Endpoint::connect_with_connector_lazy`.
pub mod transport {
    pub use tonic::transport::{Channel, Endpoint, Uri};
}
