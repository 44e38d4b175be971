//! A queue: its messages, the lanes of its priorities, the lines of its groups, its figures.

use super::rate::Rate;
use super::settings::Resolved;
use super::undo::{FastUndo, HashUndo, SortedUndo, Undo};
use crate::format::{DeadLetter, Hash, MessageId, QueueName, Stats, Token};

/// A group by its number in the model.
pub(crate) type Group = u32;

/// A message on a queue.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    pub(crate) v: u64,
    pub(crate) h: Hash,
    pub(crate) size: u64,
    /// Whether its place here is that of one that waited when it came.
    pub(crate) held: bool,
    pub(crate) state: State,
    pub(crate) receive_count: u32,
    pub(crate) failures: u32,
    /// When the window opened in which failures are counted.
    pub(crate) window_from: u64,
    /// Leases in a row that ran out.
    pub(crate) expiries: u32,
    pub(crate) dead: Option<Box<DeadLetter>>,
    pub(crate) more: Option<Box<Extra>>,
}

/// What a plain message does not have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub(crate) group: Option<Group>,
    /// Its number in its group's line; 0: it has not joined.
    pub(crate) line: u64,
    /// Until when it waits once it is the head; 0: not at all.
    pub(crate) waits: u64,
    pub(crate) dedup: Option<Box<str>>,
    /// When it expires; 0: never.
    pub(crate) expires: u64,
    pub(crate) tries: Option<u32>,
    pub(crate) base: Option<u64>,
    pub(crate) cap: Option<u64>,
    /// Its dead-letter queue; empty: its queue's.
    pub(crate) dead_letters: String,
    /// The line that waits until this dead letter is gone: queue and group.
    pub(crate) blocks: Option<(u64, Group)>,
}

impl Message {
    pub(crate) fn group(&self) -> Option<Group> {
        self.more.as_ref().and_then(|more| more.group)
    }

    pub(crate) fn line(&self) -> u64 {
        self.more.as_ref().map_or(0, |more| more.line)
    }

    pub(crate) fn expires(&self) -> u64 {
        self.more.as_ref().map_or(0, |more| more.expires)
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        let expires = self.expires();
        expires != 0 && now >= expires
    }

    /// Its place among the lanes of its queue, as it stands in the keys of timers.
    pub(crate) fn lane(&self) -> u8 {
        self.id.priority | if self.held { 0x10 } else { 0 }
    }
}

/// What a message is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Delayed {
        due: u64,
    },
    /// In the returned lane under a number, or in the fresh lane.
    Ready {
        returned: Option<u64>,
    },
    /// Behind the head of its group's line.
    Blocked,
    Leased {
        token: Option<Token>,
        granted: u64,
        granted_lease: u64,
        end: u64,
    },
}

/// Who may come next in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// The first is the head.
    Open,
    /// Nobody until this dead letter is gone.
    Blocked(MessageId),
    /// Nobody until all up to this number have followed a dead letter.
    Following(u64),
}

/// A dedup id that a queue remembers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dedup {
    pub(crate) id: MessageId,
    /// When its window is over.
    pub(crate) until: u64,
    /// Whether its message has finished here.
    pub(crate) finished: bool,
}

/// What came of a message.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) id: MessageId,
    pub(crate) at: u64,
    pub(crate) until: u64,
    pub(crate) rc: u32,
    pub(crate) h: Hash,
}

/// Figures of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) ready: u64,
    pub(crate) delayed: u64,
    pub(crate) blocked: u64,
    pub(crate) leased: u64,
    pub(crate) bytes: u64,
    pub(crate) leased_bytes: u64,
    pub(crate) enqueued: u64,
    pub(crate) moved_in: u64,
    pub(crate) acked: u64,
    pub(crate) moved_out: u64,
    pub(crate) expired_dropped: u64,
    pub(crate) cancelled: u64,
    pub(crate) purged: u64,
    pub(crate) dropped: u64,
    pub(crate) received: u64,
    pub(crate) redelivered: u64,
    pub(crate) failed: u64,
    pub(crate) lease_expired: u64,
    pub(crate) over_bound: u64,
    pub(crate) duplicates: u64,
    pub(crate) outcomes_dropped: u64,
    pub(crate) groups_blocked: u64,
}

impl Figures {
    /// Messages in all states.
    pub(crate) fn depth(&self) -> u64 {
        self.ready + self.delayed + self.blocked + self.leased
    }
}

/// What of a queue is one value, not a table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head {
    pub(crate) stats: Figures,
    pub(crate) last_sequence: u64,
    pub(crate) last_return: u64,
    pub(crate) last_line: u64,
    /// Messages below this that are still here were leased when the queue was purged.
    pub(crate) purged_below: u64,
    /// Deliveries made while both lanes of a priority held something.
    pub(crate) turns: [u64; 10],
    pub(crate) rate: Rate,
    /// Whether the rate is to be kept at the end of the request.
    pub(crate) changed: bool,
}

/// A queue.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) name: QueueName,
    pub(crate) settings: Resolved,
    /// Paused until when; 0: until it is resumed.
    pub(crate) paused: Option<u64>,
    pub(crate) closed: bool,
    pub(crate) head: Head,
    pub(crate) messages: FastUndo<u64, Message>,
    /// By 9 - priority, then number.
    pub(crate) returned: SortedUndo<(u8, u64), u64>,
    /// By 9 - priority, then sequence.
    pub(crate) fresh: SortedUndo<(u8, u64), ()>,
    /// Members of lines by group and number: their sequences.
    pub(crate) members: SortedUndo<(Group, u64), u64>,
    pub(crate) lines: FastUndo<Group, Line>,
    pub(crate) dedup: HashUndo<Box<str>, Dedup>,
    /// Dedup ids by the sequence of the message that brought them.
    pub(crate) dedup_of: FastUndo<u64, Box<str>>,
    /// Outcomes by the sequence under which they were acked.
    pub(crate) outcomes: SortedUndo<u64, Outcome>,
    /// How it was when a commit began that is all or nothing.
    before: Option<Box<Head>>,
}

/// 9 - priority, as lanes are sorted.
pub(crate) fn rank(priority: u8) -> u8 {
    9u8.saturating_sub(priority)
}

impl Queue {
    pub(crate) fn new(name: QueueName, settings: Resolved) -> Self {
        Self {
            name,
            settings,
            paused: None,
            closed: false,
            head: Head::default(),
            messages: Undo::default(),
            returned: Undo::default(),
            fresh: Undo::default(),
            members: Undo::default(),
            lines: Undo::default(),
            dedup: Undo::default(),
            dedup_of: Undo::default(),
            outcomes: Undo::default(),
            before: None,
        }
    }

    /// Whether it notes what is changed.
    pub(crate) fn notes(&self) -> bool {
        self.before.is_some()
    }

    pub(crate) fn begin(&mut self) {
        self.before = Some(Box::new(self.head));
        self.messages.begin();
        self.returned.begin();
        self.fresh.begin();
        self.members.begin();
        self.lines.begin();
        self.dedup.begin();
        self.dedup_of.begin();
        self.outcomes.begin();
    }

    pub(crate) fn keep(&mut self) {
        self.before = None;
        self.messages.keep();
        self.returned.keep();
        self.fresh.keep();
        self.members.keep();
        self.lines.keep();
        self.dedup.keep();
        self.dedup_of.keep();
        self.outcomes.keep();
    }

    pub(crate) fn back(&mut self) {
        if let Some(head) = self.before.take() {
            self.head = *head;
        }
        self.messages.back();
        self.returned.back();
        self.fresh.back();
        self.members.back();
        self.lines.back();
        self.dedup.back();
        self.dedup_of.back();
        self.outcomes.back();
    }

    /// Goes on to `now` with its rate.
    pub(crate) fn accrue(&mut self, now: u64) {
        let busy = self.head.stats.ready > 0 && self.paused.is_none();
        self.head.rate.accrue(now, busy);
    }

    /// Whether one more message of `size` bytes would pass a bound of depth or bytes: which, what is held, the limit.
    pub(crate) fn full(&self, size: u64) -> Option<(&'static str, u64, u64)> {
        let passes = |limit: u64, held: u64, more: u64| limit > 0 && held + more > limit;
        let (set, stats) = (&self.settings, &self.head.stats);
        if passes(set.max_depth, stats.depth(), 1) {
            return Some(("max_depth", stats.depth(), set.max_depth));
        }
        passes(set.max_bytes, stats.bytes, size).then_some(("max_bytes", stats.bytes, set.max_bytes))
    }

    /// As a look at the queue tells its figures.
    pub(crate) fn told(&self) -> Stats {
        let s = &self.head.stats;
        Stats {
            q: 0,
            ready: s.ready,
            delayed: s.delayed,
            blocked: s.blocked,
            leased: s.leased,
            bytes: s.bytes,
            enqueued: s.enqueued,
            moved_in: s.moved_in,
            acked: s.acked,
            moved_out: s.moved_out,
            expired_dropped: s.expired_dropped,
            cancelled: s.cancelled,
            purged: s.purged,
            dropped: s.dropped,
            received: s.received,
            redelivered: s.redelivered,
            failed: s.failed,
            lease_expired: s.lease_expired,
            over_bound: s.over_bound,
            duplicates: s.duplicates,
            outcomes_dropped: s.outcomes_dropped,
            dedup_ids: self.dedup.len() as u64,
            retained: self.outcomes.len() as u64,
            groups_blocked: s.groups_blocked,
        }
    }

    /// Makes a message ready that is counted in no state, behind all others that came back.
    pub(crate) fn give_back(&mut self, sequence: u64) {
        let number = self.head.last_return + 1;
        if let Some(message) = self.messages.get_mut(&sequence) {
            message.state = State::Ready { returned: Some(number) };
            self.head.last_return = number;
            self.head.stats.ready += 1;
            self.returned.insert((rank(message.id.priority), number), sequence);
        }
    }

    /// Takes a message out of the state in which it is counted; the caller puts it into another, or removes it.
    pub(crate) fn leave(&mut self, sequence: u64) {
        let Some(message) = self.messages.get(&sequence) else { return };
        let rank = rank(message.id.priority);
        match message.state {
            State::Delayed { .. } => self.head.stats.delayed -= 1,
            State::Blocked => self.head.stats.blocked -= 1,
            State::Leased { .. } => {
                self.head.stats.leased -= 1;
                self.head.stats.leased_bytes -= message.size;
            }
            State::Ready { returned: Some(number) } => {
                self.head.stats.ready -= 1;
                self.returned.remove(&(rank, number));
            }
            State::Ready { returned: None } => {
                self.head.stats.ready -= 1;
                self.fresh.remove(&(rank, sequence));
            }
        }
    }

    /// The message whose turn it is: its sequence, its priority, and whether both lanes of that hold something.
    pub(crate) fn turn(&self) -> Option<(u64, u8, bool)> {
        /// While both lanes hold something, each so many deliveries one comes from the fresh lane.
        const FRESH_TURN: u64 = 4;
        let returned = self.returned.first_key_value().map(|((rank, _), sequence)| (*rank, *sequence));
        let fresh = self.fresh.first_key_value().map(|((rank, sequence), ())| (*rank, *sequence));
        let (rank, sequence, both) = match (returned, fresh) {
            (None, None) => return None,
            (Some((rank, sequence)), None) | (None, Some((rank, sequence))) => (rank, sequence, false),
            (Some(back), Some(new)) if back.0 == new.0 => {
                let turn = self.head.turns.get(usize::from(9 - back.0)).copied().unwrap_or(0);
                let sequence = if turn % FRESH_TURN == FRESH_TURN - 1 { new.1 } else { back.1 };
                (back.0, sequence, true)
            }
            (Some(back), Some(new)) => {
                let first = back.min(new);
                (first.0, first.1, false)
            }
        };
        Some((sequence, 9 - rank, both))
    }

    /// Remembers a dedup id.
    pub(crate) fn remember(&mut self, dedup: &str, known: Dedup) {
        self.dedup_of.insert(known.id.sequence, dedup.into());
        self.dedup.insert(dedup.into(), known);
    }

    /// Forgets a dedup id.
    pub(crate) fn forget(&mut self, dedup: &str) {
        if let Some(known) = self.dedup.remove(&Box::from(dedup)) {
            self.dedup_of.remove(&known.id.sequence);
        }
    }

    /// The dead-letter queue of a message here.
    pub(crate) fn dead_letter_queue(&self, message: &Message) -> Option<QueueName> {
        match message.more.as_ref().map(|more| more.dead_letters.as_str()) {
            Some(own) if !own.is_empty() => Some(QueueName::new(self.name.namespace(), own)),
            Some(_) | None => self.settings.dead_letter_queue(&self.name),
        }
    }
}
