//! What a load does.

use std::ops::Range;
use std::time::Duration;

use crate::caller::Patience;

/// What a load does. The default is load L1 of the project's reliability research, scaled to two processors: a mix of
/// everything at a pace that leaves the cluster room.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The queue that producers fill. `<queue>.next` takes what workers enqueue as they ack, and both have their
    /// dead-letter queues; what is in `<queue>.once` is taken at most once.
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
    /// Groups with many members, and with few.
    pub groups: (u32, u32),
    /// Dedup ids that all producers share.
    pub dedup_ids: u32,
    /// For how long the queues remember dedup ids, at least 1 s.
    pub dedup_window: Duration,
    /// Times to live, where a message has one.
    pub ttl: Range<Duration>,
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
    /// Of the messages: in a group, one in two in one with many members.
    pub grouped: u8,
    /// Of the messages: with a priority of their own.
    pub prioritized: u8,
    /// Of the messages: with a dedup id that others have too.
    pub deduplicated: u8,
    /// Of the messages: with a time to live.
    pub expiring: u8,
    /// Of the messages: with a retry policy of their own.
    pub policies: u8,
    /// Of the calls of producers: to the queue whose messages are taken at most once.
    pub once: u8,
    /// Of the calls of producers: followed by the cancel of a delayed message of their own.
    pub cancels: u8,
    /// Of the calls of producers: followed by a new time for a delayed message of their own.
    pub reschedules: u8,
    /// Of the receives: from two queues.
    pub pairs: u8,
    /// Of the acks: with an output.
    pub outputs: u8,
    /// Of the changes: with an id of their own instead of a session's number.
    pub free: u8,
    /// Of the deliveries: acked in a commit that enqueues a follower, and cancels or reschedules an earlier one.
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
            grouped: 20,
            prioritized: 20,
            deduplicated: 5,
            expiring: 5,
            policies: 3,
            once: 5,
            cancels: 4,
            reschedules: 4,
            pairs: 15,
            outputs: 20,
            free: 5,
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
            groups: (4, 200),
            dedup_ids: 100,
            dedup_window: Duration::from_secs(5),
            ttl: Duration::from_millis(300)..Duration::from_secs(4),
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

    /// The queue whose messages are taken at most once.
    pub fn once(&self) -> String {
        format!("{}.once", self.queue)
    }

    /// All queues, the busiest first.
    pub fn queues(&self) -> Vec<String> {
        let (first, next) = (self.queue.clone(), self.next());
        let rest = [format!("{first}.dlq"), format!("{next}.dlq"), self.once()];
        [first, next].into_iter().chain(rest).collect()
    }
}
