//! The Raft log of all groups: the interface.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;
use ticketrail_core::GroupId;

/// Who leads: a term and the node that won it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaderId {
    /// The term, from 1 (0: before any election).
    pub term: u64,
    /// The node's Raft id.
    pub node: u64,
}

/// The identity of one log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogId {
    /// The leader that proposed it.
    pub leader: LeaderId,
    /// Its index, from 0.
    pub index: u64,
}

/// What a node has promised in elections. The greater of two votes of one node is the later: in one term it votes for one
/// candidate, and then follows whoever won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Vote {
    /// The leader voted for.
    pub leader: LeaderId,
    /// Whether a quorum granted it.
    pub committed: bool,
}

impl Ord for Vote {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |vote: &Self| (vote.leader.term, vote.committed, vote.leader.node);
        rank(self).cmp(&rank(other))
    }
}

impl PartialOrd for Vote {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What an entry carries. The bytes are the caller's; the log does not look inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the first entry of a term.
    Blank,
    /// An encoded `ticketrail_core::Entry`.
    Normal(Bytes),
    /// An encoded membership.
    Membership(Bytes),
}

impl Payload {
    /// The bytes it carries.
    pub fn len(&self) -> usize {
        match self {
            Payload::Blank => 0,
            Payload::Normal(bytes) | Payload::Membership(bytes) => bytes.len(),
        }
    }

    /// Whether it carries none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Its identity.
    pub id: LogId,
    /// What it carries.
    pub payload: Payload,
}

/// What a log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// The last entry purged from the front.
    pub purged: Option<LogId>,
    /// The last entry: the newest one held, or else `purged`.
    pub last: Option<LogId>,
    /// The vote saved last.
    pub vote: Option<Vote>,
    /// The committed position saved last; may lag.
    pub committed: Option<LogId>,
}

/// Called once, when an operation and all before it are durable, or have failed for good.
pub type Done = Box<dyn FnOnce(Result<(), LogError>) + Send + 'static>;

/// What went wrong in a log. After a failed write or fsync the log is poisoned: each later call fails alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A write or an fsync failed; what is on the disk is unknown. The process must end.
    #[error("expected to write the raft log, but {0}")]
    Poisoned(String),
    /// A read failed, or what was read makes no sense.
    #[error("expected to read the raft log, but {0}")]
    Read(String),
}

/// The Raft log of all groups on one disk: one stream of fsyncs.
///
/// All operations take effect in the order of their calls, for reads at once; `Done` tells of durability, in the same
/// order.
pub trait RaftLog: Send + Sync + 'static {
    /// What the log of `group` holds now.
    fn state(&self, group: GroupId) -> LogState;

    /// Entries with `range.start <= index < range.end`, from the first on, as many as carry no more than `max_bytes`
    /// together; at least one if there is one. Entries outside of what the log holds are left out.
    fn read(&self, group: GroupId, range: Range<u64>, max_bytes: usize) -> Result<Vec<LogRecord>, LogError>;

    /// Appends consecutive entries behind the last one (anywhere in a log that holds nothing and was never purged). They
    /// are readable at once; `done` is called when they are durable. A gap poisons the log. May wait while too much is
    /// not yet durable.
    fn append(&self, group: GroupId, records: Vec<LogRecord>, done: Done);

    /// Saves a vote; `done` is called when it is durable.
    fn save_vote(&self, group: GroupId, vote: Vote, done: Done);

    /// Notes the committed position, behind the entries it speaks of, without an fsync of its own.
    fn save_committed(&self, group: GroupId, committed: Option<LogId>);

    /// Removes all entries after `last` (`None`: all). Lowers the durable watermark first.
    fn truncate_after(&self, group: GroupId, last: Option<LogId>) -> Result<(), LogError>;

    /// Removes all entries up to and with `upto`. May lie beyond the last entry: then the log is empty and starts
    /// behind it.
    fn purge(&self, group: GroupId, upto: LogId) -> Result<(), LogError>;

    /// The payload bytes of the entries held, for retention.
    fn held_bytes(&self, group: GroupId) -> u64;
}

/// Refuses `records` that leave a gap behind `last` or between each other.
pub(crate) fn check_consecutive(last: Option<LogId>, records: &[LogRecord]) -> Result<(), String> {
    let mut next = last.map(|last| last.index.saturating_add(1));
    for record in records {
        let index = record.id.index;
        if let Some(expected) = next.filter(|next| *next != index) {
            return Err(format!("entry {index} was appended where entry {expected} is next"));
        }
        next = Some(index.saturating_add(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_vote_of_a_node_is_the_greater() {
        let vote = |term, node, committed| Vote { leader: LeaderId { term, node }, committed };
        // It votes for node 3, and node 1 wins; then for the next term.
        let story = [vote(1, 2, true), vote(2, 3, false), vote(2, 1, true), vote(3, 1, false), vote(3, 1, true)];
        assert!(story.is_sorted_by(|earlier, later| earlier < later), "a disk of a later vote would look rolled back");
        assert!(None < Some(story[0]));
    }
}
