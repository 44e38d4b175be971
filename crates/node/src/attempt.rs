//! One attempt at a call, here or at the leader, what it says of the call as a whole, and where to go next.

use std::time::Duration;

use ticketrail_core::Rejection;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout_at};

use crate::call::{CallError, Unavailable};
use crate::clock::Instant;
use crate::consensus::{Role, Standing};
use crate::queue::Resolution;
use crate::shared::Shared;

/// The first pause before another attempt; each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Waits until what is watched is so; for ever where the node ends, and with it whatever waits here.
pub(crate) async fn until<T>(watched: &mut watch::Receiver<T>, is_so: impl FnMut(&T) -> bool) {
    if watched.wait_for(is_so).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What became of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// It has its answer.
    Done(T),
    /// A lawful no. Nothing happened.
    Rejected(Rejection),
    /// Nothing happened: whoever was asked does not lead. By id who does, where it knows.
    Elsewhere(Option<u64>),
    /// It may have happened, or may yet: worth another attempt, as a repeat.
    InDoubt,
    /// This attempt is over, and another one would not help. What it says is meant of this attempt alone.
    Over(CallError),
}

impl<T> Attempt<T> {
    /// What an attempt that did not take effect says.
    pub(crate) fn of(resolution: Resolution, done: impl FnOnce(ticketrail_core::Reply, u64) -> T) -> Self {
        match resolution {
            Resolution::Replied { reply, term } => Self::Done(done(reply, term)),
            Resolution::Rejected(rejection) => Self::Rejected(rejection),
            Resolution::Unavailable(Unavailable::NotLeader { leader }) => Self::Elsewhere(leader),
            Resolution::Unavailable(Unavailable::NoQuorum) => Self::Elsewhere(None),
            Resolution::Unavailable(why @ Unavailable::Draining) => Self::Over(CallError::Unavailable(why)),
            Resolution::Unknown => Self::InDoubt,
        }
    }

    pub(crate) fn map<U>(self, done: impl FnOnce(T) -> Attempt<U>) -> Attempt<U> {
        match self {
            Self::Done(answer) => done(answer),
            Self::Rejected(rejection) => Attempt::Rejected(rejection),
            Self::Elsewhere(leader) => Attempt::Elsewhere(leader),
            Self::InDoubt => Attempt::InDoubt,
            Self::Over(error) => Attempt::Over(error),
        }
    }
}

/// Where an attempt is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here: this node leads, or nobody is known to, and it waits here until somebody does.
    Here,
    /// At another node, which leads.
    At(u64),
    /// Nowhere any more: this node has stopped.
    Stopped,
}

impl Shared {
    /// Where an attempt is to be made now.
    pub(crate) fn place(&self) -> Place {
        self.place_of(*self.standing.borrow())
    }

    fn place_of(&self, standing: Standing) -> Place {
        match (standing.role, standing.leader) {
            (Role::Stopped, _) => Place::Stopped,
            (Role::Follower | Role::Learner, Some(leader)) if leader != self.config.node_id => Place::At(leader),
            (Role::Follower | Role::Learner | Role::Candidate | Role::Leader, _) => Place::Here,
        }
    }

    /// Waits until another node than `leader` is known to lead, other than it was `seen`.
    pub(crate) async fn superseded(&self, leader: u64, seen: Standing) {
        let mut standing = self.standing.clone();
        let newer = |now: &Standing| {
            let known = now.leader.is_some_and(|now| now != leader) || now.role == Role::Stopped;
            known && (now.leader, now.term) != (seen.leader, seen.term)
        };
        until(&mut standing, newer).await;
    }

    /// What an error of one attempt means for the call, where an earlier attempt may have had an effect.
    pub(crate) fn over(&self, error: CallError, repeat: bool) -> CallError {
        match error {
            CallError::Unavailable(_) | CallError::DiskLow | CallError::Overloaded { .. } if repeat => self.unknown(),
            CallError::Unavailable(_)
            | CallError::DiskLow
            | CallError::Overloaded { .. }
            | CallError::Rejected(_)
            | CallError::Unknown
            | CallError::Broken(_) => error,
        }
    }

    /// The time is over, and there was no leader to have an answer from.
    pub(crate) fn no_leader(&self, repeat: bool) -> CallError {
        self.over(CallError::Unavailable(Unavailable::NoQuorum), repeat)
    }
}

/// A call's way to the leader over several attempts.
pub(crate) struct Route<'s> {
    shared: &'s Shared,
    /// Who leads, as the last node asked says.
    hint: Option<u64>,
    /// Whether the last attempt followed a hint: another one is not followed at once.
    followed: bool,
    pause: Duration,
    /// What this node knew when the last attempt began.
    seen: Standing,
}

impl<'s> Route<'s> {
    pub(crate) fn new(shared: &'s Shared) -> Self {
        let seen = *shared.standing.borrow();
        Self { shared, hint: None, followed: false, pause: FIRST_PAUSE, seen }
    }

    /// Where to make the next attempt.
    pub(crate) fn place(&mut self) -> Place {
        self.seen = *self.shared.standing.borrow();
        let hint = self.hint.take();
        match (hint, self.shared.place_of(self.seen)) {
            (Some(leader), Place::Here | Place::At(_)) if self.seen.role != Role::Leader => Place::At(leader),
            (_, place) => place,
        }
    }

    /// What this node knew of the leader when the attempt began.
    pub(crate) fn seen(&self) -> Standing {
        self.seen
    }

    /// After an attempt at a node that does not lead: follows its hint, or waits a little, at most until `deadline`.
    pub(crate) async fn elsewhere(&mut self, hint: Option<u64>, deadline: Instant) {
        let hint = hint.filter(|leader| *leader != self.shared.config.node_id);
        if !self.followed && hint.is_some() {
            self.hint = hint;
            self.followed = true;
            return;
        }
        self.wait(deadline).await;
    }

    /// Waits until more is known of the leader than before the last attempt, for a while, at most until `deadline`.
    pub(crate) async fn wait(&mut self, deadline: Instant) {
        self.followed = false;
        let until = (self.shared.config.clock.now() + self.pause).min(deadline);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let mut standing = self.shared.standing.clone();
        let seen = self.seen;
        let ended = timeout_at(until, standing.wait_for(|now| *now != seen)).await.is_ok_and(|told| told.is_err());
        if ended {
            // Nothing changes any more.
            sleep_until(until).await;
        }
    }
}
