//! The model run forward: what comes of a command, where no log tells it. So legal histories are made for tests of the
//! checker itself.

use super::{Admission, Model, Pick, Step};
use crate::format::{Applied, AuditLine, Command, DeadLetter, Hash, MessageId, Position, Rid};

/// A request whose outcome is to be made.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Where it stands: it follows the last one.
    pub cp: Position,
    /// The entry's term.
    pub term: u64,
    /// The leader's stamp on the entry.
    pub stamp: u64,
    /// The request's id.
    pub rid: Option<Rid>,
    /// `acked_below` of its id.
    pub acked_below: u64,
    /// What it asks for.
    pub command: Command,
}

/// A message as a delivery shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The value that its body begins with.
    pub v: u64,
    /// The hash of its body.
    pub h: Hash,
    /// What it is dead for.
    pub dead: Option<DeadLetter>,
    /// Its group.
    pub group: Option<Box<str>>,
}

impl Model {
    /// Carries out a request, and says what came of it. `pick(n)` chooses a number from 0 to `n`: the jitter, and what tokens
    /// are made of.
    pub fn make(&mut self, asked: Asked, pick: Pick<'_>) -> Step<AuditLine> {
        let Asked { cp, term, stamp, rid, acked_below, command } = asked;
        self.enter_at(cp, term, stamp)?;
        let ab = if rid.is_some_and(|rid| !rid.free) { acked_below } else { 0 };
        let line = |model: &Model, r: Applied, replay: Option<Position>| AuditLine {
            cp,
            term,
            st: stamp,
            ts: model.now,
            lc: model.lease_now,
            rid,
            ab,
            c: command.clone(),
            r,
            replay,
        };
        if let Some(rid) = rid {
            match self.sessions.admit(rid, ab, &command, cp.index, self.lease_now) {
                Admission::New => {}
                Admission::Refused(refusal) => return Ok(line(self, Applied::Refused(refusal), None)),
                Admission::Replay(first, applied) => {
                    let live = self.live_part(first.index, applied.clone());
                    let line = line(self, live, Some(first));
                    self.replay(&line, first, applied)?;
                    return Ok(line);
                }
            }
        }
        let outcome = self.run(&command, None, pick)?;
        let line = line(self, outcome, None);
        self.end_request(&line);
        Ok(line)
    }

    /// Whether a tick would find something to do.
    pub fn is_due(&self) -> bool {
        self.sessions.due(self.lease_now) + self.timers.due(self.now) > 0
            || !self.following.is_empty()
            || !self.lifted.is_empty()
    }

    /// What the last receive took at most once, as its answer shows it.
    pub fn taken(&self) -> &[Shown] {
        &self.taken
    }

    /// A message as a delivery shows it.
    pub fn shown(&self, id: MessageId) -> Option<Shown> {
        let (_, _, message) = self.by_id(id)?;
        let group = message.group().and_then(|group| self.group_names.get(group as usize).cloned());
        Some(Shown { v: message.v, h: message.h, dead: message.dead.as_deref().cloned(), group })
    }
}
