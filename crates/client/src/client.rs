//! The client: a channel that reconnects, sessions, a policy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::cancel::Target;
use crate::message::Found;
use crate::routes::Routes;
use crate::session::{RENEW_AFTER, Sessions};
use crate::settle::{self, Settled, Settlement};
use crate::{Admin, Batch, Commit, Error, Queue, RetryPolicy, queue};

/// The port of a server that was not told otherwise.
const DEFAULT_ADDRESS: &str = "http://127.0.0.1:50000";

/// A client of one server or cluster. Cheap to clone; clones share connection and sessions.
///
/// It connects when first needed, and anew whenever the connection is lost: a server that is killed and started again
/// interrupts calls, but ends none before its deadline.
///
/// ```no_run
/// # async fn example() -> Result<(), ticketrail_client::Error> {
/// let client = ticketrail_client::Client::builder().address("http://127.0.0.1:50000").namespace("shop").connect()?;
/// client.queue("orders").send("one table for two").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
    namespace: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    routes: Arc<Routes>,
    sessions: Sessions,
    policy: RetryPolicy,
    /// Renews idle sessions; started with the first change.
    renewer: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    pub(crate) fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn policy(&self) -> &RetryPolicy {
        &self.policy
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let renewer = self.renewer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(renewer) = renewer.take() {
            renewer.abort();
        }
    }
}

impl Client {
    /// A builder of clients.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A queue of the client's namespace, 1-200 bytes of `A-Z a-z 0-9 . _ - / :`. Nothing is sent yet.
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue::new(self.clone(), name.into())
    }

    /// What operators call.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// The same client in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Client {
        Client { inner: Arc::clone(&self.inner), namespace: namespace.into() }
    }

    /// The client's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Settles up to 1,000 deliveries, of any queues, in one call. Each has its own result.
    ///
    /// ```no_run
    /// # use ticketrail_client::{Client, Settlement};
    /// # async fn example(client: Client) -> Result<(), ticketrail_client::Error> {
    /// let received = client.queue("orders").receive().max(100).await?;
    /// let done = client.settle(received.deliveries.iter().map(Settlement::ack)).await?;
    /// println!("{} of {} are done", done.results.len() - done.refused(), done.results.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As every change: see [`Error`]. A lost lease is an item's refusal, not the call's.
    pub async fn settle(&self, settlements: impl IntoIterator<Item = Settlement>) -> Result<Batch<Settled>, Error> {
        settle::settle(self, settlements.into_iter().collect()).await
    }

    /// Settles deliveries and puts messages on queues in one step: all of it happens, or none.
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let received = client.queue("orders").receive().await?;
    /// for delivery in &received.deliveries {
    ///     let order = delivery.message.body.clone();
    ///     let done = client.commit().ack(delivery).enqueue("payment", order.clone()).enqueue("mail", order).send().await?;
    ///     println!("{} follows", done.enqueued[0].message_id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit(&self) -> Commit {
        Commit::new(self.clone())
    }

    /// One message by its id or its dedup id, wherever it is now, with its history; or what came of it, where it has been
    /// acked and its queue retains outcomes.
    ///
    /// ```no_run
    /// # use ticketrail_client::Found;
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// match client.get(client.queue("orders").dedup("order-17")).await? {
    ///     Found::Message(info) => println!("it is {:?}", info.state),
    ///     Found::Done(outcome) => println!("done at {:?}: {:?}", outcome.finished_at, outcome.output),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] with [`Reason::MessageNotFound`](crate::Reason::MessageNotFound) once neither is there.
    pub async fn get(&self, target: impl Into<Target>) -> Result<Found, Error> {
        queue::get(self, target.into()).await
    }

    /// Connects and opens a session now, where the first change would do that by itself and take longer for it.
    ///
    /// # Errors
    /// As every read.
    pub async fn warm_up(&self) -> Result<(), Error> {
        self.changing().ensure_session().await
    }

    /// The parts for a change; the first one starts the renewal of sessions.
    pub(crate) fn changing(&self) -> &Inner {
        let mut renewer = self.inner.renewer.lock().unwrap_or_else(PoisonError::into_inner);
        if renewer.is_none() {
            let inner = Arc::downgrade(&self.inner);
            *renewer = Some(tokio::spawn(async move {
                // A third of the time after which a session is renewed: none idles for longer than 4 minutes.
                let mut rounds = tokio::time::interval(RENEW_AFTER / 3);
                rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    rounds.tick().await;
                    let Some(inner) = inner.upgrade() else { return };
                    inner.renew_idle_sessions().await;
                }
            }));
        }
        &self.inner
    }

    /// The parts for a read.
    pub(crate) fn reading(&self) -> &Inner {
        &self.inner
    }
}

/// Builds a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    addresses: Vec<String>,
    namespace: String,
    policy: RetryPolicy,
    channel: Option<Channel>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            addresses: vec![DEFAULT_ADDRESS.to_owned()],
            namespace: "default".to_owned(),
            policy: RetryPolicy::default(),
            channel: None,
        }
    }
}

impl ClientBuilder {
    /// The server's address, `http://host:port` or `host:port`. Default `http://127.0.0.1:50000`.
    pub fn address(self, address: impl Into<String>) -> Self {
        self.addresses([address])
    }

    /// The addresses of a cluster's servers, at least one. Calls go to the node that leads, as the servers tell; where it
    /// cannot be reached, or nobody is known to lead, to these in turn.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), ticketrail_client::Error> {
    /// let client = ticketrail_client::Client::builder().addresses(["rail-0:50000", "rail-1:50000", "rail-2:50000"]).connect()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn addresses<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Self {
        self.addresses = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// The namespace of the client's queues. Default `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How long, and for what, calls are tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// A call's deadline over all its attempts. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = timeout;
        self
    }

    /// A channel made elsewhere, in place of those to the addresses: for a transport of your own.
    pub fn channel(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The client. The connection is made when it is first needed; must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Config`] where the address is none.
    pub fn connect(self) -> Result<Client, Error> {
        let routes = match self.channel {
            Some(channel) => Routes::over(channel),
            None => Routes::to(&self.addresses)?,
        };
        let routes = Arc::new(routes);
        let inner = Inner { routes, sessions: Sessions::default(), policy: self.policy, renewer: Mutex::new(None) };
        Ok(Client { inner: Arc::new(inner), namespace: self.namespace.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_checked_before_anything_is_sent() {
        for good in ["http://127.0.0.1:50000", "127.0.0.1:50000", "localhost:1", "http://[::1]:50000"] {
            assert!(Client::builder().address(good).connect().is_ok(), "{good}");
        }
        for bad in ["", "http://", "https://127.0.0.1:1", "ftp://x", "a b"] {
            let error = Client::builder().address(bad).connect().map(|_| ()).expect_err(bad);
            assert!(matches!(error, Error::Config { .. }), "{bad}: {error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_unavailable_and_nothing_happened() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let client = Client::builder()
            .address(format!("127.0.0.1:{port}"))
            .timeout(Duration::from_millis(200))
            .connect()
            .expect("an address");
        let error = client.queue("orders").send("x").await.expect_err("nobody there");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert_eq!(error.effect(), crate::Effect::Nothing);
    }
}
