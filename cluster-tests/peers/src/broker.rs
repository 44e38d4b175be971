//! What a queue must do to be measured.

use std::path::Path;

use bytes::Bytes;

/// A cluster of three nodes with one replicated queue, freshly started; its processes end when it is dropped.
pub(crate) trait Broker: Sized {
    /// Its name, for messages.
    const NAME: &'static str;
    /// A connection that sends.
    type Producer: Producer;
    /// A connection that receives.
    type Consumer: Consumer;

    /// Starts three processes of `program` that keep their data in `dir`, and makes the queue.
    async fn start(dir: &Path, program: &Path) -> anyhow::Result<Self>;

    /// A connection of its own; `number` spreads connections over the nodes.
    async fn producer(&self, number: usize) -> anyhow::Result<Self::Producer>;

    /// A connection of its own that has at most `prefetch` messages in hand.
    async fn consumer(&self, number: usize, prefetch: usize) -> anyhow::Result<Self::Consumer>;
}

/// Sends messages; any number may be unconfirmed at one time.
pub(crate) trait Producer: Send + 'static {
    /// Hands a message over. The future that comes back ends when it is confirmed: replicated and synced.
    fn send(
        &mut self,
        body: Bytes,
    ) -> impl Future<Output = anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static>> + Send;
}

/// Receives messages and acks them.
pub(crate) trait Consumer: Send + 'static {
    /// What an ack needs.
    type Ack: Send;

    /// The next message. A call that is dropped is the last one.
    fn receive(&mut self) -> impl Future<Output = anyhow::Result<(Bytes, Self::Ack)>> + Send;

    /// Acks a message: the broker may forget it.
    fn ack(&mut self, ack: Self::Ack) -> impl Future<Output = anyhow::Result<()>> + Send;
}
