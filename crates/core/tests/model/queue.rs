//! A queue of the model: a vector of messages, and what was counted.

use bytes::Bytes;
use ticketrail_core::command::{Content, Pause, QueueRef, QueueSettings};
use ticketrail_core::query::{DeadLetter, FailureInfo, Stats};
use ticketrail_core::reply::{Full, QueueNamed};
use ticketrail_core::{MessageId, Place, QueueId, Space};

/// The priority of all messages for now.
pub(crate) const PRIORITY: u8 = 4;

/// When a delayed message is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    At(u64),
    /// Backed off by an expiry: the jitter is not heard yet. `order` is its turn in the returned lane, should the jitter
    /// be nothing.
    Between {
        low: u64,
        high: u64,
        order: u64,
    },
}

/// A message that waits for a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Its turn in the returned lane; `None`: the fresh lane.
    pub(crate) returned: Option<u64>,
    /// Since when, on cluster time.
    pub(crate) since: u64,
}

/// A message with a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) granted_index: u64,
    /// On cluster time.
    pub(crate) granted_at: u64,
    /// On the lease clock.
    pub(crate) granted_lease: u64,
    /// On the lease clock.
    pub(crate) deadline: u64,
    pub(crate) worker: String,
    /// As the delivery carried it, once it was heard.
    pub(crate) token: Option<Bytes>,
    /// Its queue was purged while it was leased.
    pub(crate) purged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Delayed(Due),
    Ready(Ready),
    Leased(Lease),
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    pub(crate) sequence: u64,
    pub(crate) space: Space,
    pub(crate) content: Content,
    pub(crate) enqueued_at: u64,
    pub(crate) state: State,
    pub(crate) receive_count: u32,
    pub(crate) failures: u32,
    /// When the first counted failure was.
    pub(crate) window_opened: Option<u64>,
    /// Expiries since the last other outcome.
    pub(crate) expiries: u32,
    pub(crate) dead_letter: Option<DeadLetter>,
    pub(crate) history: Vec<FailureInfo>,
}

#[derive(Debug, Clone)]
pub(crate) struct Queue {
    /// Not known until the machine names it.
    pub(crate) id: Option<u64>,
    pub(crate) name: QueueRef,
    pub(crate) created_at: u64,
    pub(crate) settings: QueueSettings,
    pub(crate) paused: Option<Pause>,
    pub(crate) closed: bool,
    pub(crate) next_sequence: u64,
    /// Deliveries made while both lanes held something.
    pub(crate) contested: u64,
    /// What was counted; the gauges among them stay zero here.
    pub(crate) counters: Stats,
    /// In order of their sequences.
    pub(crate) messages: Vec<Message>,
}

/// A queue's settings where nobody said otherwise.
pub(crate) fn defaults() -> QueueSettings {
    QueueSettings {
        max_depth: Some(1_000_000),
        max_bytes: Some(0),
        lease_ms: Some(60_000),
        max_attempts: Some(5),
        failure_window_ms: Some(24 * 3_600_000),
        backoff_base_ms: Some(1_000),
        backoff_cap_ms: Some(60_000),
        dead_letter_queue: Some(String::new()),
    }
}

impl Queue {
    pub(crate) fn new(name: QueueRef, settings: QueueSettings, created_at: u64) -> Self {
        Self {
            id: None,
            name,
            created_at,
            settings,
            paused: None,
            closed: false,
            next_sequence: 1,
            contested: 0,
            counters: Stats::default(),
            messages: Vec::new(),
        }
    }

    pub(crate) fn named(&self) -> QueueNamed {
        named(&self.name)
    }

    pub(crate) fn message_mut(&mut self, sequence: u64) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.sequence == sequence)
    }

    pub(crate) fn message(&self, sequence: u64) -> Option<&Message> {
        self.messages.iter().find(|message| message.sequence == sequence)
    }

    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Message> {
        let index = self.messages.iter().position(|message| message.sequence == sequence)?;
        Some(self.messages.remove(index))
    }

    pub(crate) fn depth(&self) -> u64 {
        self.messages.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.messages.iter().map(Message::size).sum()
    }

    /// The bound that one more message of `size` bytes would pass.
    pub(crate) fn bound_passed(&self, size: u64) -> Option<Full> {
        let full = |bound: &str, limit, held| Full {
            queue: self.named(),
            bound: bound.into(),
            limit,
            held,
            retry_after_ms: 1_000,
        };
        let (depth, max_depth) = (self.depth(), self.settings.max_depth.unwrap_or(0));
        if max_depth > 0 && depth + 1 > max_depth {
            return Some(full("max_depth", max_depth, depth));
        }
        let (bytes, max_bytes) = (self.bytes(), self.settings.max_bytes.unwrap_or(0));
        if max_bytes > 0 && bytes + size > max_bytes {
            return Some(full("max_bytes", max_bytes, bytes));
        }
        None
    }

    /// The name of the queue that takes its dead letters; it may be too long to be one.
    pub(crate) fn dead_letter_name(&self) -> QueueRef {
        let named = self.settings.dead_letter_queue.clone().unwrap_or_default();
        let name = if named.is_empty() { format!("{}.dlq", self.name.name) } else { named };
        QueueRef { namespace: self.name.namespace.clone(), name }
    }

    /// The message that comes next: the returned lane in order of return before the fresh lane by sequence, but every
    /// fourth delivery made while both hold something comes from the fresh lane.
    pub(crate) fn next_delivery(&self) -> Option<(u64, bool)> {
        let mut returned: Option<(u64, u64)> = None;
        let mut fresh: Option<u64> = None;
        for message in &self.messages {
            if let State::Ready(ready) = message.state {
                match ready.returned {
                    Some(order) if returned.is_none_or(|(first, _)| order < first) => {
                        returned = Some((order, message.sequence));
                    }
                    None if fresh.is_none() => fresh = Some(message.sequence),
                    Some(_) | None => {}
                }
            }
        }
        match (returned, fresh) {
            (Some(_), Some(fresh)) if (self.contested + 1).is_multiple_of(4) => Some((fresh, true)),
            (Some((_, returned)), Some(_)) => Some((returned, true)),
            (Some((_, returned)), None) => Some((returned, false)),
            (None, Some(fresh)) => Some((fresh, false)),
            (None, None) => None,
        }
    }
}

impl Message {
    pub(crate) fn new(id: MessageId, space: Space, sequence: u64, content: Content, now: u64) -> Self {
        Self {
            id,
            sequence,
            space,
            content,
            enqueued_at: now,
            state: State::Ready(Ready { returned: None, since: now }),
            receive_count: 0,
            failures: 0,
            window_opened: None,
            expiries: 0,
            dead_letter: None,
            history: Vec::new(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        let content = &self.content;
        let mut size = content.body.len();
        for text in [&content.content_type, &content.r#type, &content.correlation_id, &content.reply_to] {
            size += text.len();
        }
        for (name, value) in content.tags.iter().chain(&content.headers) {
            size += name.len() + value.len();
        }
        size as u64
    }

    pub(crate) fn place(&self, queue: u64) -> Place {
        Place { queue: QueueId(queue), space: self.space, priority: PRIORITY, sequence: self.sequence }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) => Some(lease),
            State::Delayed(_) | State::Ready(_) => None,
        }
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            State::Leased(lease) => Some(lease),
            State::Delayed(_) | State::Ready(_) => None,
        }
    }
}

pub(crate) fn named(queue: &QueueRef) -> QueueNamed {
    QueueNamed { namespace: queue.namespace.clone(), name: queue.name.clone() }
}
