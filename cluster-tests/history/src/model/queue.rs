//! A queue: its messages, its two lanes, its figures.

use std::collections::VecDeque;

use super::settings::Resolved;
use crate::fast::FastMap;
use crate::format::{DeadLetter, Hash, MessageId, QueueName, Stats, Token};

/// A message on a queue.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    pub(crate) v: u64,
    pub(crate) h: Hash,
    pub(crate) size: u64,
    /// Whether it was delayed when it came.
    pub(crate) held: bool,
    pub(crate) state: State,
    pub(crate) receive_count: u32,
    pub(crate) failures: u32,
    /// When the window opened in which failures are counted.
    pub(crate) window_from: u64,
    /// Leases in a row that ran out.
    pub(crate) expiries: u32,
    pub(crate) dead: Option<Box<DeadLetter>>,
}

/// What a message is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Delayed { due: u64 },
    Ready,
    Leased { token: Option<Token>, granted: u64, granted_lease: u64, end: u64 },
}

/// Figures of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) ready: u64,
    pub(crate) delayed: u64,
    pub(crate) leased: u64,
    pub(crate) bytes: u64,
    pub(crate) leased_bytes: u64,
    pub(crate) enqueued: u64,
    pub(crate) moved_in: u64,
    pub(crate) acked: u64,
    pub(crate) moved_out: u64,
    pub(crate) purged: u64,
    pub(crate) received: u64,
    pub(crate) redelivered: u64,
    pub(crate) failed: u64,
    pub(crate) lease_expired: u64,
    pub(crate) over_bound: u64,
}

impl Figures {
    /// Messages in all states.
    pub(crate) fn depth(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }

    /// As a look at the queue tells them.
    pub(crate) fn told(&self) -> Stats {
        Stats {
            ready: self.ready,
            delayed: self.delayed,
            leased: self.leased,
            bytes: self.bytes,
            enqueued: self.enqueued,
            moved_in: self.moved_in,
            acked: self.acked,
            moved_out: self.moved_out,
            purged: self.purged,
            received: self.received,
            redelivered: self.redelivered,
            failed: self.failed,
            lease_expired: self.lease_expired,
            over_bound: self.over_bound,
            ..Stats::default()
        }
    }
}

/// A queue.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) settings: Resolved,
    /// Paused until when; 0: until it is resumed.
    pub(crate) paused: Option<u64>,
    pub(crate) closed: bool,
    pub(crate) stats: Figures,
    pub(crate) last_sequence: u64,
    /// Messages below this that are still here were leased when the queue was purged.
    pub(crate) purged_below: u64,
    pub(crate) returned: VecDeque<u64>,
    pub(crate) fresh: VecDeque<u64>,
    /// Deliveries made while both lanes held something.
    pub(crate) turn: u64,
    pub(crate) messages: FastMap<u64, Message>,
}

impl Queue {
    pub(crate) fn new(name: QueueName) -> Self {
        Self {
            name,
            settings: Resolved::default(),
            paused: None,
            closed: false,
            stats: Figures::default(),
            last_sequence: 0,
            purged_below: 0,
            returned: VecDeque::new(),
            fresh: VecDeque::new(),
            turn: 0,
            messages: FastMap::default(),
        }
    }

    /// The bound that one more message of `size` bytes would pass.
    pub(crate) fn is_full(&self, more: u64, size: u64) -> bool {
        let passes = |limit: u64, held: u64, more: u64| limit > 0 && held + more > limit;
        passes(self.settings.max_depth, self.stats.depth(), more)
            || passes(self.settings.max_bytes, self.stats.bytes, size)
    }

    /// Takes in a message under the next sequence; returns that.
    pub(crate) fn add(&mut self, message: Message) -> u64 {
        self.last_sequence += 1;
        self.stats.bytes += message.size;
        match message.state {
            State::Delayed { .. } => self.stats.delayed += 1,
            State::Ready | State::Leased { .. } => {
                self.stats.ready += 1;
                self.fresh.push_back(self.last_sequence);
            }
        }
        self.messages.insert(self.last_sequence, message);
        self.last_sequence
    }

    /// Makes a message ready again, behind all others that came back.
    pub(crate) fn give_back(&mut self, sequence: u64) {
        if let Some(message) = self.messages.get_mut(&sequence) {
            message.state = State::Ready;
            self.stats.ready += 1;
            self.returned.push_back(sequence);
        }
    }

    /// Ends a lease; the message is in no state until the caller puts it into one.
    pub(crate) fn end_lease(&mut self, size: u64) {
        self.stats.leased -= 1;
        self.stats.leased_bytes -= size;
    }

    /// Removes a message whose lease has just been ended.
    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Message> {
        let message = self.messages.remove(&sequence)?;
        self.stats.bytes -= message.size;
        Some(message)
    }

    /// Removes all that is not leased; returns how many, and due time, lane and sequence of those delayed.
    pub(crate) fn purge(&mut self) -> (u64, Vec<(u64, bool, u64)>) {
        let removed = self.stats.ready + self.stats.delayed;
        let mut due_at = Vec::new();
        self.messages.retain(|sequence, message| match message.state {
            State::Leased { .. } => true,
            State::Delayed { due } => {
                due_at.push((due, message.held, *sequence));
                false
            }
            State::Ready => false,
        });
        self.stats.purged += removed;
        self.stats.ready = 0;
        self.stats.delayed = 0;
        self.stats.bytes = self.stats.leased_bytes;
        self.returned.clear();
        self.fresh.clear();
        self.purged_below = self.last_sequence + 1;
        (removed, due_at)
    }
}
