//! Consuming: deliveries that come by themselves, settled over the stream that brought them.

mod driver;
pub(crate) mod outbox;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::driver::Driver;
use self::outbox::Outbox;
use crate::receive::Delivery;
use crate::{Error, Queue, wire};

/// The most deliveries that one consumer holds: the server takes no more credits.
const PREFETCH_MAX: usize = 10_000;

/// Sets a [`Consumer`] up.
#[derive(Debug, Clone)]
#[must_use = "nothing is received before it is started"]
pub struct ConsumerBuilder {
    queue: Queue,
    prefetch: usize,
    batch: u32,
    lease: Option<Duration>,
    worker: String,
    also: Vec<String>,
}

impl ConsumerBuilder {
    /// Deliveries held at one time, 1 to 10,000: on their way, waiting here, or in your hands. One that you settle makes room
    /// at once; while the answers of as many settlements are outstanding, nothing more comes. Default 32.
    pub fn prefetch(mut self, deliveries: usize) -> Self {
        self.prefetch = deliveries.clamp(1, PREFETCH_MAX);
        self
    }

    /// Deliveries that come together at most, 1 to 1,000. Default 1,000.
    pub fn max_batch(mut self, deliveries: u32) -> Self {
        self.batch = deliveries;
        self
    }

    /// How long the messages are this consumer's, 1 s to 12 h. Default: the queue's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Who receives, for the history; at most 256 bytes.
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = worker.into();
        self
    }

    /// Another queue of the namespace to receive from, behind those before it: what those have to give comes first. At most
    /// 15.
    pub fn also(mut self, queue: impl Into<String>) -> Self {
        self.also.push(queue.into());
        self
    }

    /// Starts it. Must be called within a Tokio runtime.
    pub fn start(self) -> Consumer {
        let Self { queue, prefetch, batch, lease, worker, also } = self;
        let start = ticketrail_proto::v1::ConsumeStart {
            namespace: queue.client().namespace().to_owned(),
            queue: queue.name().to_owned(),
            lease: lease.map(wire::to_duration),
            worker,
            max_batch: batch,
            more_queues: also,
            auto_ack: false,
        };
        let outbox = Arc::new(Outbox::default());
        // Room for each that is held, and for the error that ends it.
        let (deliver, deliveries) = mpsc::channel(prefetch + 1);
        let driver = Driver::new(queue.client().clone(), start, prefetch, Arc::clone(&outbox), deliver);
        Consumer { deliveries, outbox, driver: Some(tokio::spawn(driver.run())) }
    }
}

/// Receives from one queue, or several, over a stream of its own: deliveries come by themselves, so many at a time as the
/// prefetch says, and settlements and extensions ride back on the stream, what is at hand in one request.
///
/// A lost connection is opened anew, to the node that leads; settlements that are not answered go out again under their old
/// request id. Deliveries that are held stay good over that, as long as their leases last.
///
/// [`Consumer::close`] releases what nobody has taken yet, and waits for what is still in your hands. Dropped, it does the
/// same in the background.
///
/// ```no_run
/// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
/// let mut consumer = client.queue("orders").consumer();
/// while let Some(delivery) = consumer.next().await? {
///     println!("working on {:?}", delivery.message.body);
///     delivery.ack().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Consumer {
    deliveries: mpsc::Receiver<Result<Delivery, Error>>,
    outbox: Arc<Outbox>,
    driver: Option<JoinHandle<()>>,
}

impl Consumer {
    /// Sets a consumer of `queue` up.
    pub fn builder(queue: &Queue) -> ConsumerBuilder {
        ConsumerBuilder {
            queue: queue.clone(),
            prefetch: 32,
            batch: 0,
            lease: None,
            worker: String::new(),
            also: Vec::new(),
        }
    }

    /// The next delivery, as soon as there is one. `None`: it was stopped. Dropping the future loses nothing. One whose lease
    /// has ended while nobody took it is left out: it comes again, or is somebody else's.
    ///
    /// # Errors
    /// Where the server refuses to deliver for good: see [`Error::Refused`]. It comes once; then there is nothing more.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        loop {
            match self.deliveries.recv().await.transpose()? {
                Some(delivery) if delivery.lease_left().is_zero() => drop(delivery),
                delivery => return Ok(delivery),
            }
        }
    }

    /// The next deliveries, at most `max`, as soon as there is one. None at all: it was stopped.
    ///
    /// # Errors
    /// As [`Consumer::next`].
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            let mut came = Vec::new();
            let stopped = self.deliveries.recv_many(&mut came, max.max(1)).await == 0;
            let mut batch = Vec::with_capacity(came.len());
            for delivery in came {
                // Whatever came before an error is given up; its lease runs out.
                batch.push(delivery?);
            }
            batch.retain(|delivery| !delivery.lease_left().is_zero());
            if stopped || !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Stops receiving, and releases what nobody has taken yet: ready again, nothing counted. What is in your hands can be
    /// settled as before.
    pub fn stop(&mut self) {
        self.outbox.stop();
        self.deliveries.close();
        while let Ok(delivery) = self.deliveries.try_recv() {
            if let Ok(delivery) = delivery {
                // Its answer changes nothing: an expired lease is as good as a release.
                drop(delivery.release());
            }
        }
    }

    /// Stops, then waits until all that was delivered is settled or dropped, and each settlement is answered.
    ///
    /// # Errors
    /// Where its task has ended with its runtime.
    pub async fn close(mut self) -> Result<(), Error> {
        self.stop();
        match self.driver.take() {
            Some(driver) => driver.await.map_err(|_| gone()),
            None => Ok(()),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The task has ended while somebody waited: its runtime was shut down, or the server refused the stream for good.
pub(crate) fn gone() -> Error {
    Error::Unknown { last: "the consumer's task has ended".to_owned(), waited: Duration::ZERO }
}
