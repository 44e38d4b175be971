//! Sessions: a request that comes again has no second effect and gets its first outcome.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use super::{Model, State, Step, same, unexpected, wrong};
use crate::fast::FastMap;
use crate::format::{
    Applied, AuditLine, CancelOutcome, Command, EnqueueOutcome, Grant, Position, Refusal, Rid, SettleOutcome,
    TimeOutcome,
};

/// Idle time on the lease clock after which a session ends, in milliseconds.
const IDLE: u64 = 600_000;
/// Sessions at one time.
const SESSIONS: usize = 100_000;
/// Outcomes stored for a session.
const OUTCOMES: u64 = 1_024;
/// A bucket of requests without a session, in milliseconds of the lease clock.
const BUCKET: u64 = 300_000;
/// Buckets before the current one in which such a request is found.
const BUCKETS: u64 = 2;
/// Outcomes of such requests.
const FREE: u64 = 200_000;
/// Sessions that one tick ends.
const TICK: usize = 100;

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    live: FastMap<u64, Session>,
    /// When each may have idled too long, on the lease clock.
    timers: std::collections::BTreeSet<(u64, u64)>,
    /// The highest id ever given.
    last: u64,
    /// Outcomes of requests without a session, by bucket.
    free: BTreeMap<u64, FastMap<Rid, Outcome>>,
}

#[derive(Debug)]
struct Session {
    /// On the lease clock.
    active: u64,
    acked_below: u64,
    /// Outcomes stored. They are forgotten by entry: when all of an entry have been seen.
    stored: u64,
    entries: BTreeMap<u64, Stored>,
    outcomes: BTreeMap<u64, Outcome>,
}

/// The outcomes of one entry.
#[derive(Debug, Clone, Copy)]
struct Stored {
    highest: u64,
    count: u64,
}

#[derive(Debug, Clone)]
struct Outcome {
    at: Position,
    command: u64,
    applied: Applied,
}

/// What a request id says about a request.
pub(crate) enum Admission {
    New,
    Replay(Position, Applied),
    Refused(Refusal),
}

fn fingerprint(command: &Command) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(command)
}

impl Sessions {
    pub(crate) fn admit(&self, rid: Rid, ab: u64, command: &Command, index: u64, now: u64) -> Admission {
        let refused = |why: &str| Admission::Refused(Refusal::new(why));
        if rid.free {
            return self.admit_free(rid, command, now);
        }
        let Some(session) = self.live.get(&rid.session).filter(|s| now.saturating_sub(s.active) < IDLE) else {
            return refused("SESSION_EXPIRED");
        };
        if rid.seq == 0 {
            return refused("INVALID");
        }
        let below = session.acked_below.max(ab);
        if rid.seq < below {
            return refused("REQUEST_ID_OLD");
        }
        if let Some(outcome) = session.outcomes.get(&rid.seq) {
            if outcome.command != fingerprint(command) {
                return refused("REQUEST_ID_REUSED");
            }
            return Admission::Replay(outcome.at, outcome.applied.clone());
        }
        let seen = session.entries.range(..index).map(|(_, s)| *s).filter(|s| s.highest < below).map(|s| s.count);
        if session.stored - seen.sum::<u64>() >= OUTCOMES {
            return refused("SESSION_WINDOW");
        }
        Admission::New
    }

    fn admit_free(&self, rid: Rid, command: &Command, now: u64) -> Admission {
        let live = || self.free.range((now / BUCKET).saturating_sub(BUCKETS)..).map(|(_, outcomes)| outcomes);
        match live().find_map(|outcomes| outcomes.get(&rid)) {
            Some(outcome) if outcome.command != fingerprint(command) => {
                Admission::Refused(Refusal::new("REQUEST_ID_REUSED"))
            }
            Some(outcome) => Admission::Replay(outcome.at, outcome.applied.clone()),
            None if live().map(|outcomes| outcomes.len() as u64).sum::<u64>() >= FREE => {
                Admission::Refused(Refusal::new("REQUEST_IDS_FULL"))
            }
            None => Admission::New,
        }
    }

    /// Notes a request that was carried out.
    pub(crate) fn remember(&mut self, rid: Rid, line: &AuditLine, now: u64) {
        if rid.free {
            let bucket = now / BUCKET;
            self.free.retain(|at, _| *at + BUCKETS >= bucket);
            if has_effect(&line.r) {
                let outcome = Outcome { at: line.cp, command: fingerprint(&line.c), applied: line.r.clone() };
                self.free.entry(bucket).or_default().insert(rid, outcome);
            }
            return;
        }
        self.touch(rid.session, line.ab, line.cp.index, now);
        let Some(session) = self.live.get_mut(&rid.session).filter(|_| has_effect(&line.r)) else { return };
        session.stored += 1;
        let entry = session.entries.entry(line.cp.index).or_insert(Stored { highest: 0, count: 0 });
        entry.highest = entry.highest.max(rid.seq);
        entry.count += 1;
        let outcome = Outcome { at: line.cp, command: fingerprint(&line.c), applied: line.r.clone() };
        session.outcomes.insert(rid.seq, outcome);
    }

    pub(crate) fn touch(&mut self, id: u64, ab: u64, index: u64, now: u64) {
        let Some(session) = self.live.get_mut(&id) else { return };
        session.active = now;
        let below = session.acked_below.max(ab);
        let raised = below > session.acked_below;
        session.acked_below = below;
        let mut forgotten = 0;
        session.entries.retain(|at, stored| {
            let seen = *at < index && stored.highest < below;
            forgotten += if seen { stored.count } else { 0 };
            !seen
        });
        session.stored -= forgotten;
        if raised {
            session.outcomes = session.outcomes.split_off(&below);
        }
    }

    /// How many timers are due.
    pub(crate) fn due(&self, now: u64) -> u64 {
        self.timers.iter().take_while(|(due, _)| *due <= now).take(TICK).count() as u64
    }

    /// Ends sessions that idled too long; returns how many timers fired.
    pub(crate) fn fire(&mut self, now: u64) -> u64 {
        let due: Vec<(u64, u64)> = self.timers.iter().take_while(|(due, _)| *due <= now).take(TICK).copied().collect();
        for timer in &due {
            self.timers.remove(timer);
            let Some(session) = self.live.get(&timer.1) else { continue };
            let ends = session.active + IDLE;
            if ends > now {
                self.timers.insert((ends, timer.1));
            } else {
                self.live.remove(&timer.1);
            }
        }
        due.len() as u64
    }
}

/// Refusals without effect and empty receives are not stored.
pub(crate) fn has_effect(applied: &Applied) -> bool {
    match applied {
        Applied::Committed { s, c, t, e } => {
            s.iter().any(|outcome| !matches!(outcome, SettleOutcome::No(_)))
                || c.iter().any(|outcome| matches!(outcome, CancelOutcome::Cancelled { .. }))
                || t.iter().any(|outcome| matches!(outcome, TimeOutcome::Moved { .. }))
                || e.iter().any(|outcome| matches!(outcome, EnqueueOutcome::In { .. }))
        }
        Applied::Granted { g } => !g.is_empty(),
        Applied::Taken { d } => !d.is_empty(),
        Applied::Refused(_) | Applied::Nothing => false,
        Applied::Expired { .. }
        | Applied::Ticked { .. }
        | Applied::Initialized { .. }
        | Applied::Session { .. }
        | Applied::Changed { .. }
        | Applied::Removed { .. }
        | Applied::Namespace => true,
    }
}

impl Model {
    pub(super) fn open(&mut self, renew: u64, told: Option<&Applied>) -> Step<Applied> {
        let now = self.lease_now;
        if renew != 0 {
            if self.sessions.live.get(&renew).is_none_or(|s| now.saturating_sub(s.active) >= IDLE) {
                return Ok(Applied::Refused(Refusal::new("SESSION_EXPIRED")));
            }
            self.sessions.touch(renew, 0, self.at.index, now);
            return Ok(Applied::Session { s: renew });
        }
        if self.sessions.live.len() >= SESSIONS {
            return Ok(Applied::Refused(Refusal::new("SESSIONS_FULL")));
        }
        let s = match told {
            None => self.at.index * 1_024 + u64::from(self.at.ordinal),
            Some(Applied::Session { s }) => *s,
            Some(other) => return unexpected("a session", other),
        };
        if s <= self.sessions.last {
            let text = format!("expected an id above {}, but got {s}", self.sessions.last);
            return wrong("a session's id is used once", text);
        }
        self.sessions.last = s;
        let (entries, outcomes) = (BTreeMap::new(), BTreeMap::new());
        let session = Session { active: now, acked_below: 1, stored: 0, entries, outcomes };
        self.sessions.live.insert(s, session);
        self.sessions.timers.insert((now + IDLE, s));
        Ok(Applied::Session { s })
    }

    /// A repeat gets the first outcome; of a receive, the leases that are still live.
    pub(super) fn replay(&mut self, line: &AuditLine, first: Position, applied: Applied) -> Step {
        let rule = "a repeat gets the first outcome";
        same(rule, "the first position", Some(first), line.replay)?;
        let expected = self.live_part(first.index, applied);
        if without_tokens(&expected) != without_tokens(&line.r) {
            return wrong(rule, format!("expected {expected:?}, but it is {:?}", line.r));
        }
        if let Some(rid) = line.rid.filter(|rid| !rid.free) {
            self.sessions.touch(rid.session, line.ab, line.cp.index, self.lease_now);
        }
        Ok(())
    }

    /// Of leases that were granted at the index `at`, those that are still live; of messages that were taken none; any other
    /// outcome as it is.
    pub(super) fn live_part(&self, at: u64, applied: Applied) -> Applied {
        if let Applied::Taken { .. } = applied {
            return Applied::Taken { d: Vec::new() };
        }
        let Applied::Granted { g } = applied else { return applied };
        Applied::Granted { g: g.into_iter().filter_map(|grant| self.still(grant, at)).collect() }
    }

    /// A lease as it is now, if it is still live.
    fn still(&self, grant: Grant, at: u64) -> Option<Grant> {
        let message = self.queues.get(&grant.q)?.messages.get(&grant.seq)?;
        match message.state {
            State::Leased { granted, end, .. } if granted == at && end > self.lease_now => Some(Grant { end, ..grant }),
            State::Leased { .. } | State::Delayed { .. } | State::Ready { .. } | State::Blocked => None,
        }
    }
}

/// Tokens are told where they can still be read, so a repeat may lack them.
fn without_tokens(applied: &Applied) -> Applied {
    let Applied::Granted { g } = applied else { return applied.clone() };
    Applied::Granted { g: g.iter().map(|grant| Grant { tok: None, ..grant.clone() }).collect() }
}
