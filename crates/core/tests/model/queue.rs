//! A queue of the model: a vector of messages, and what was counted.

use bytes::Bytes;
use ticketrail_core::command::{Content, Pause, QueueRef, QueueSettings, RetryPolicy, Shed};
use ticketrail_core::query::{DeadLetter, DoneInfo, FailureInfo, Stats};
use ticketrail_core::reply::QueueNamed;
use ticketrail_core::{GroupId, MessageId, Place, QueueId, Space};

use super::rate::Drain;

/// The priority of a message that names none.
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
    /// Behind its group; once it is the head, it waits for this time, where it was rescheduled meanwhile.
    Blocked {
        until: u64,
    },
    Leased(Lease),
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    pub(crate) sequence: u64,
    pub(crate) space: Space,
    pub(crate) priority: u8,
    pub(crate) content: Content,
    pub(crate) group: String,
    /// Its number in the line of its group; 0: it has not joined.
    pub(crate) line: u64,
    /// Since when it parks its group, where it is a delayed head.
    pub(crate) parked_at: u64,
    pub(crate) dedup_id: String,
    pub(crate) expires_at: Option<u64>,
    pub(crate) retry: Option<RetryPolicy>,
    /// Its own; empty: its queue's.
    pub(crate) dead_letter_queue: String,
    /// The queue and the group whose line waits until this dead letter is gone.
    pub(crate) holds_up: Option<(u64, String)>,
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

/// A dedup id that a queue remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) dedup_id: String,
    /// Where the first message was born, here.
    pub(crate) space: Space,
    pub(crate) priority: u8,
    pub(crate) sequence: u64,
    /// The end of its window.
    pub(crate) until: u64,
    /// Whether its message is finished here.
    pub(crate) finished: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Queue {
    /// Tells queues apart, also those that are gone.
    pub(crate) number: u64,
    /// Not known until the machine names it.
    pub(crate) id: Option<u64>,
    pub(crate) name: QueueRef,
    pub(crate) created_at: u64,
    pub(crate) settings: QueueSettings,
    pub(crate) paused: Option<Pause>,
    pub(crate) closed: bool,
    /// Requests that set something of it, be it to what it was.
    pub(crate) set: u64,
    pub(crate) next_sequence: u64,
    pub(crate) next_line: u64,
    /// By priority: deliveries made while both lanes held something.
    pub(crate) contested: [u64; 10],
    /// Groups whose line waits for a dead letter to be gone.
    pub(crate) blocked_groups: Vec<String>,
    /// Groups whose line up to a number follows a dead letter, each with when it began to: as the how manieth of all.
    pub(crate) doomed_groups: Vec<(String, u64, u64)>,
    pub(crate) dedup: Vec<Remembered>,
    /// Dedup ids that a purge has freed, and no tick swept yet.
    pub(crate) stale: Vec<String>,
    pub(crate) outcomes: Vec<DoneInfo>,
    pub(crate) drain: Drain,
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
        max_wait_ms: Some(0),
        expected_rate_milli: Some(0),
        on_group_failure: Some(0),
        shed: Some(Shed { rules: Vec::new() }),
        ttl_ms: Some(0),
        retain_done_ms: Some(0),
        owner: Some(String::new()),
        runbook_url: Some(String::new()),
        age_slo_ms: Some(0),
        dedup_window_ms: Some(3_600_000),
        on_expired: Some(0),
        on_exhausted: Some(0),
    }
}

/// What `change` says, and where it says nothing, as it was.
pub(crate) fn merged(was: &QueueSettings, change: &QueueSettings) -> QueueSettings {
    let (was, change) = (was.clone(), change.clone());
    QueueSettings {
        max_depth: change.max_depth.or(was.max_depth),
        max_bytes: change.max_bytes.or(was.max_bytes),
        lease_ms: change.lease_ms.or(was.lease_ms),
        max_attempts: change.max_attempts.or(was.max_attempts),
        failure_window_ms: change.failure_window_ms.or(was.failure_window_ms),
        backoff_base_ms: change.backoff_base_ms.or(was.backoff_base_ms),
        backoff_cap_ms: change.backoff_cap_ms.or(was.backoff_cap_ms),
        dead_letter_queue: change.dead_letter_queue.or(was.dead_letter_queue),
        max_wait_ms: change.max_wait_ms.or(was.max_wait_ms),
        expected_rate_milli: change.expected_rate_milli.or(was.expected_rate_milli),
        on_group_failure: change.on_group_failure.or(was.on_group_failure),
        shed: change.shed.or(was.shed),
        ttl_ms: change.ttl_ms.or(was.ttl_ms),
        retain_done_ms: change.retain_done_ms.or(was.retain_done_ms),
        owner: change.owner.or(was.owner),
        runbook_url: change.runbook_url.or(was.runbook_url),
        age_slo_ms: change.age_slo_ms.or(was.age_slo_ms),
        dedup_window_ms: change.dedup_window_ms.or(was.dedup_window_ms),
        on_expired: change.on_expired.or(was.on_expired),
        on_exhausted: change.on_exhausted.or(was.on_exhausted),
    }
}

impl Queue {
    pub(crate) fn new(number: u64, name: QueueRef, settings: QueueSettings, created_at: u64) -> Self {
        Self {
            number,
            id: None,
            name,
            created_at,
            settings,
            paused: None,
            closed: false,
            set: 0,
            next_sequence: 1,
            next_line: 1,
            contested: [0; 10],
            blocked_groups: Vec::new(),
            doomed_groups: Vec::new(),
            dedup: Vec::new(),
            stale: Vec::new(),
            outcomes: Vec::new(),
            drain: Drain::begin(created_at),
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

    pub(crate) fn count(&self, which: impl Fn(&State) -> bool) -> u64 {
        self.messages.iter().filter(|message| which(&message.state)).count() as u64
    }

    /// Whether a worker would find something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.paused.is_none() && self.count(|state| matches!(state, State::Ready(_))) > 0
    }

    /// The place of birth of a message that was enqueued here.
    pub(crate) fn birth(&self, remembered: &Remembered) -> MessageId {
        let Remembered { space, priority, sequence, .. } = *remembered;
        let queue = QueueId(self.id.unwrap_or_default());
        MessageId { group: GroupId::QUEUES, origin: Place { queue, space, priority, sequence } }
    }

    /// A dedup id, if it is remembered: until its window is over and its message is finished.
    pub(crate) fn remembers(&self, dedup_id: &str, now: u64) -> Option<&Remembered> {
        self.dedup.iter().find(|known| known.dedup_id == dedup_id && !(known.finished && known.until <= now))
    }

    /// The name of the queue that takes its dead letters; it may be too long to be one.
    pub(crate) fn dead_letter_name(&self) -> QueueRef {
        let named = self.settings.dead_letter_queue.clone().unwrap_or_default();
        let name = if named.is_empty() { format!("{}.dlq", self.name.name) } else { named };
        QueueRef { namespace: self.name.namespace.clone(), name }
    }

    /// The message that comes next, and whether both lanes of its priority held something: of the highest priority that
    /// has something ready, the returned lane in order of return before the fresh lane by sequence, but every fourth
    /// delivery made while both hold something comes from the fresh lane.
    pub(crate) fn next_delivery(&self) -> Option<(u64, bool)> {
        for priority in (0..10).rev() {
            let mut returned: Option<(u64, u64)> = None;
            let mut fresh: Option<u64> = None;
            for message in self.messages.iter().filter(|message| message.priority == priority) {
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
            let turn = self.contested[usize::from(priority)] + 1;
            match (returned, fresh) {
                (Some(_), Some(fresh)) if turn.is_multiple_of(4) => return Some((fresh, true)),
                (Some((_, returned)), Some(_)) => return Some((returned, true)),
                (Some((_, returned)), None) => return Some((returned, false)),
                (None, Some(fresh)) => return Some((fresh, false)),
                (None, None) => {}
            }
        }
        None
    }
}

impl Message {
    pub(crate) fn new(id: MessageId, space: Space, sequence: u64, content: Content, now: u64) -> Self {
        Self {
            id,
            sequence,
            space,
            priority: id.origin.priority,
            content,
            group: String::new(),
            line: 0,
            parked_at: 0,
            dedup_id: String::new(),
            expires_at: None,
            retry: None,
            dead_letter_queue: String::new(),
            holds_up: None,
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
        Place { queue: QueueId(queue), space: self.space, priority: self.priority, sequence: self.sequence }
    }

    /// Whether its time to live is over.
    pub(crate) fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) => Some(lease),
            State::Delayed(_) | State::Ready(_) | State::Blocked { .. } => None,
        }
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            State::Leased(lease) => Some(lease),
            State::Delayed(_) | State::Ready(_) | State::Blocked { .. } => None,
        }
    }
}

pub(crate) fn named(queue: &QueueRef) -> QueueNamed {
    QueueNamed { namespace: queue.namespace.clone(), name: queue.name.clone() }
}
