//! What a load does.

use std::ops::Range;
use std::time::Duration;

use crate::caller::Patience;

/// What a load does. The default is load L1 of the project's reliability research, scaled to two processors: a mix of
/// everything at a pace that leaves the cluster room.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The queue that producers fill. `<queue>.next` takes what workers enqueue as they ack, and both have their
    /// dead-letter queues.
    pub queue: String,
    /// Clients that enqueue, one call at a time each.
    pub producers: u32,
    /// Calls a second of all producers together; `None`: as fast as they are answered.
    pub rate: Option<f64>,
    /// Clients that receive and settle.
    pub workers: u32,
    /// Bytes of a body, at least 8.
    pub body: Range<usize>,
    /// Messages of a call where it has several.
    pub batch: Range<usize>,
    /// Delays, where a message has one.
    pub delay: Range<Duration>,
    /// Leases asked for.
    pub lease: Duration,
    /// How long a receive waits.
    pub wait: Duration,
    /// Deliveries a receive asks for, at most.
    pub max: u32,
    /// How long work takes.
    pub work: Range<Duration>,
    /// How often the queues' figures are looked at.
    pub look: Duration,
    /// Failures until a message is dead-lettered.
    pub max_attempts: u32,
    /// The base and the cap of the backoff.
    pub backoff: (Duration, Duration),
    /// What becomes of messages.
    pub mix: Mix,
    /// How long calls are tried.
    pub patience: Patience,
}

/// Shares in percent. What is left over is acked plainly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    /// Of the calls of producers: have several messages.
    pub batches: u8,
    /// Of the messages: delayed.
    pub delayed: u8,
    /// Of the deliveries: acked in a commit that enqueues a follower.
    pub commits: u8,
    /// Failed, worth another attempt.
    pub retries: u8,
    /// Failed for good.
    pub rejects: u8,
    /// Given back.
    pub releases: u8,
    /// Extended first.
    pub extends: u8,
    /// Never heard of again.
    pub silent: u8,
    /// Acked after the lease is over.
    pub overruns: u8,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            batches: 10,
            delayed: 10,
            commits: 10,
            retries: 6,
            rejects: 1,
            releases: 2,
            extends: 3,
            silent: 2,
            overruns: 1,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            queue: "orders".to_owned(),
            producers: 8,
            rate: Some(200.0),
            workers: 16,
            body: 8..1_024,
            batch: 2..8,
            delay: Duration::from_secs(1)..Duration::from_secs(5),
            lease: Duration::from_secs(5),
            wait: Duration::from_secs(2),
            max: 4,
            work: Duration::ZERO..Duration::from_millis(40),
            look: Duration::from_millis(500),
            max_attempts: 4,
            backoff: (Duration::from_millis(200), Duration::from_secs(2)),
            mix: Mix::default(),
            patience: Patience::default(),
        }
    }
}

impl Plan {
    /// The queue that takes followers.
    pub fn next(&self) -> String {
        format!("{}.next", self.queue)
    }

    /// All queues, the busiest first.
    pub fn queues(&self) -> Vec<String> {
        let (first, next) = (self.queue.clone(), self.next());
        let dead = [format!("{first}.dlq"), format!("{next}.dlq")];
        [first, next].into_iter().chain(dead).collect()
    }
}
