//! The leases of an audit, followed by what the log itself says: a witness apart from the reference model.

use crate::fast::{FastMap, FastSet};
use crate::format::{Applied, AuditLine, Command, Grant, QueueName, SettleOutcome, Token, Verdict};

/// A lease.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// Its token, where it was told.
    pub token: Option<Token>,
    /// The receive count it was granted with.
    pub rc: u32,
    /// Its end on the lease clock.
    pub end: u64,
    /// Whether it goes on, and if not, how the message went on.
    pub state: LeaseState,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// It goes on.
    Live,
    /// The message is in its queue without it.
    Back,
    /// The message was acked.
    Acked,
    /// The message is gone from its queue otherwise.
    Gone,
}

/// The newest lease of each message that ever had one.
#[derive(Debug, Default)]
pub struct Leases {
    by_place: FastMap<(u64, u64), Lease>,
    places: FastMap<Token, (u64, u64)>,
    ids: std::collections::HashMap<QueueName, u64>,
    deleted: FastSet<u64>,
}

impl Leases {
    /// The newest lease of a message.
    pub fn newest(&self, queue: u64, sequence: u64) -> Option<&Lease> {
        self.by_place.get(&(queue, sequence))
    }

    /// The message that a token was given for.
    pub fn place(&self, token: Token) -> Option<(u64, u64)> {
        self.places.get(&token).copied()
    }

    /// Whether a token is that of a live lease at this time of the lease clock.
    pub fn is_live(&self, token: Token, now: u64) -> bool {
        let Some(place) = self.place(token) else { return false };
        let Some(lease) = self.by_place.get(&place) else { return false };
        lease.token == Some(token)
            && lease.state == LeaseState::Live
            && lease.end > now
            && !self.deleted.contains(&place.0)
    }

    /// Goes on with an applied request.
    pub fn apply(&mut self, line: &AuditLine) {
        if line.replay.is_some() {
            return;
        }
        match (&line.c, &line.r) {
            (Command::Receive { q, then, .. }, Applied::Granted { g }) => {
                for grant in g {
                    if then.is_empty() {
                        self.ids.insert(q.clone(), grant.q);
                    }
                    self.grant(grant);
                }
            }
            (Command::Receive { q, then, .. }, Applied::Taken { d }) => {
                for taken in d {
                    if then.is_empty() {
                        self.ids.insert(q.clone(), taken.q);
                    }
                    let lease = Lease { token: None, rc: taken.rc, end: 0, state: LeaseState::Acked };
                    self.by_place.insert((taken.q, taken.seq), lease);
                }
            }
            (Command::Commit { s, .. }, Applied::Committed { s: outcomes, .. }) => {
                for (part, outcome) in s.iter().zip(outcomes) {
                    self.settle(part.tok, part.how, outcome, line.lc);
                }
            }
            (Command::Expire { l }, Applied::Expired { l: ended }) => {
                for (number, outcome) in ended {
                    let Some(named) = l.get(*number as usize) else { continue };
                    if let Some(lease) = self.by_place.get_mut(&(named.queue, named.sequence)) {
                        lease.state = after(outcome);
                    }
                }
            }
            (Command::Create { q, .. }, Applied::Changed { q: id }) => {
                self.ids.insert(q.clone(), *id);
            }
            (Command::Delete { q }, Applied::Removed { .. }) => {
                self.deleted.extend(self.ids.get(q));
            }
            _ => {}
        }
    }

    fn grant(&mut self, grant: &Grant) {
        let token = grant.tok.map(|(_, token)| token);
        let lease = Lease { token, rc: grant.rc, end: grant.end, state: LeaseState::Live };
        self.by_place.insert((grant.q, grant.seq), lease);
        if let Some(token) = token {
            self.places.insert(token, (grant.q, grant.seq));
        }
    }

    fn settle(&mut self, token: Token, how: Verdict, outcome: &SettleOutcome, now: u64) {
        let Some(place) = self.places.get(&token) else { return };
        let Some(lease) = self.by_place.get_mut(place).filter(|lease| lease.token == Some(token)) else { return };
        match (how, outcome) {
            (_, SettleOutcome::No(_)) => {}
            (Verdict::Extend { .. }, SettleOutcome::Extended { left }) => lease.end = now + left,
            (_, outcome) => lease.state = after(outcome),
        }
    }
}

fn after(outcome: &SettleOutcome) -> LeaseState {
    match outcome {
        SettleOutcome::Acked => LeaseState::Acked,
        SettleOutcome::Dead { .. }
        | SettleOutcome::Purged
        | SettleOutcome::Expired
        | SettleOutcome::Dropped
        | SettleOutcome::Gone => LeaseState::Gone,
        SettleOutcome::Delayed { .. } | SettleOutcome::Readied | SettleOutcome::Unseen => LeaseState::Back,
        SettleOutcome::Extended { .. } | SettleOutcome::No(_) => LeaseState::Live,
    }
}
