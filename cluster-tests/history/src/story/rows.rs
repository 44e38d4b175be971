//! The rows of a history in memory, as small as they can be.

use crate::format::{
    Done, Info, Kind, MessageId, NewMessage, NewTime, Output, Position, Rid, Stats, Target, Token, Verdict,
};
#[cfg(doc)]
use crate::story::Story;

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It was told that it happened.
    Ok,
    /// It was told that nothing happened.
    Fail,
    /// It does not know, or was not told when the history ended.
    Info,
}

/// Part of a list that belongs to an operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    pub(super) from: u32,
    pub(super) len: u32,
}

impl Span {
    /// The numbers of the elements.
    pub fn range(self) -> std::ops::Range<usize> {
        self.from as usize..self.from as usize + self.len as usize
    }
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub struct OpRow {
    /// Its number.
    pub op: u64,
    /// When it began, in nanoseconds.
    pub t0: u64,
    /// When it ended; `u64::MAX` where it did not.
    pub t1: u64,
    pub(super) session: u64,
    pub(super) seq: u64,
    pub(super) has_rid: bool,
    pub(super) is_free: bool,
    pub(super) cp_index: u64,
    pub(super) cp_ordinal: u32,
    pub(super) floor_ordinal: u32,
    pub(super) floor_index: u64,
    /// Cluster time that it was told.
    pub ts: u64,
    /// What it was told beside lists: a session, a queue's id, messages removed.
    pub number: u64,
    /// A receive's lease in milliseconds, 0 for the queue's; the session that is renewed; a pause's end.
    pub argument: u64,
    /// The node that answered; 0: unknown.
    pub node: u32,
    /// Its term; 0: unknown.
    pub term: u32,
    /// The client.
    pub p: u32,
    /// The queue, where it names one.
    pub queue: u32,
    /// Why it failed, or is unknown.
    pub refusal: u32,
    /// The messages it enqueues.
    pub sent: Span,
    /// The leases it settles.
    pub settles: Span,
    /// The messages it got.
    pub got: Span,
    /// A receive's most messages.
    pub max: u32,
    /// Its place in [`Story::extras`], where it has more to it.
    pub extra: u32,
    /// What it asks.
    pub kind: Kind,
    /// How it ended.
    pub end: End,
    /// Whether it was told of an earlier outcome.
    pub replayed: bool,
}

/// No queue, no refusal.
pub const NONE: u32 = u32::MAX;

impl OpRow {
    /// Its request id.
    pub fn rid(&self) -> Option<Rid> {
        self.has_rid.then_some(Rid { session: self.session, seq: self.seq, free: self.is_free })
    }

    /// Where it stands in the log, as it was told.
    pub fn cp(&self) -> Option<Position> {
        (self.cp_index != 0).then_some(Position { index: self.cp_index, ordinal: self.cp_ordinal })
    }

    /// The highest position that any operation was told of before this one began.
    pub fn floor(&self) -> Position {
        Position { index: self.floor_index, ordinal: self.floor_ordinal }
    }

    /// Whether it was told that it happened.
    pub fn is_ok(&self) -> bool {
        self.end == End::Ok
    }
}

/// What few operations have.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    /// The messages it cancels.
    pub cancels: Span,
    /// The messages it reschedules.
    pub times: Span,
    /// A receive's further queues.
    pub then: Vec<u32>,
    /// Whether a receive takes its messages at most once.
    pub auto: bool,
    /// Of an enqueue, whether all or nothing; of a commit, whether each part stands alone.
    pub turned: bool,
}

/// A message to cancel, and what became of it.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The message.
    pub target: Target,
    /// What was told.
    pub told: CancelTold,
}

/// What a client was told of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelTold {
    /// Nothing of it alone.
    Nothing,
    /// The message with this id is gone.
    Cancelled(MessageId),
    /// There was none.
    Gone,
    /// It was refused.
    No(u32),
}

/// A message to reschedule, and what became of it.
#[derive(Debug, Clone)]
pub struct Timed {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The message and its time.
    pub time: NewTime,
    /// What was told.
    pub told: TimedTold,
}

/// What a client was told of a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedTold {
    /// Nothing of it alone.
    Nothing,
    /// It has its new time.
    Moved {
        /// The message's id.
        id: MessageId,
        /// When it is ready.
        at: u64,
    },
    /// It was refused.
    No(u32),
}

/// A message to enqueue, and what became of it.
#[derive(Debug, Clone)]
pub struct Sent {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The queue.
    pub queue: u32,
    /// The message.
    pub m: NewMessage,
    /// What it was told.
    pub told: SentTold,
}

/// What a client was told of a message to enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentTold {
    /// Nothing of it alone.
    Nothing,
    /// It is in.
    In {
        /// Its id.
        id: MessageId,
        /// Its sequence.
        seq: u64,
        /// When it is ready.
        at: u64,
        /// Whether it was there before, under its dedup id.
        dup: bool,
    },
    /// It was refused.
    No(u32),
}

impl SentTold {
    /// The id of the message that was added.
    pub fn added(self) -> Option<MessageId> {
        match self {
            SentTold::In { id, dup: false, .. } => Some(id),
            SentTold::In { .. } | SentTold::Nothing | SentTold::No(_) => None,
        }
    }
}

/// A lease to settle, and what became of it.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// The token.
    pub tok: Token,
    /// What was asked.
    pub how: Verdict,
    /// What came of it, of an ack.
    pub out: Option<Output>,
    /// What was told.
    pub told: SettledTold,
}

/// What a client was told of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SettledTold {
    /// Nothing of it alone.
    Nothing,
    Acked,
    Dead {
        seq: u64,
        q: u64,
    },
    Delayed {
        due: u64,
    },
    Readied,
    Extended {
        left: u64,
    },
    Purged,
    Expired,
    Dropped,
    /// The message is gone, and nobody said why.
    Gone,
    /// It was refused.
    No(u32),
}

impl SettledTold {
    /// Whether it took effect, as it was told.
    pub fn took_effect(self) -> bool {
        !matches!(self, SettledTold::Nothing | SettledTold::No(_))
    }
}

/// A delivery.
#[derive(Debug, Clone)]
pub struct Got {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// Its place in [`Story::dead`], if it is a dead letter.
    pub dead: u32,
    /// Leases granted.
    pub rc: u32,
    /// Failures.
    pub f: u32,
    /// The message's id.
    pub id: MessageId,
    /// The value of its body.
    pub v: u64,
    /// The hash of its body.
    pub h: crate::format::Hash,
    /// The lease's token.
    pub tok: Token,
    /// What was left of the lease, in milliseconds.
    pub left: u64,
    /// The queue it came from.
    pub queue: u32,
    /// Whether it was acked as it was received: there was no lease.
    pub taken: bool,
    /// Its group.
    pub group: Option<Box<str>>,
}

/// A look at a message or a queue.
#[derive(Debug, Clone)]
pub struct Look {
    /// The operation's place in [`Story::ops`].
    pub op: u32,
    /// What was seen.
    pub saw: Saw,
}

/// What a look saw.
#[derive(Debug, Clone)]
pub enum Saw {
    /// A queue.
    Stats(Option<Stats>),
    /// A message.
    Message(Target, Seen),
}

/// What a look at a message saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// No such message.
    Nothing,
    /// The message.
    Here(Info),
    /// What came of it.
    Done(Done),
}
