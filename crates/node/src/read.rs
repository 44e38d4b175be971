//! Reads: of the state as it is, or of one that reflects every change acknowledged before the read began.

use std::sync::Arc;
use std::time::Duration;

use ticketrail_core::planted::{Bug, is_planted};
use ticketrail_core::{Answer, Query};
use tokio::time::{sleep, timeout_at};

use crate::attempt::{Attempt, Place, Route};
use crate::call::{CallError, Freshness, Origin, Unavailable};
use crate::clock::Instant;
use crate::consensus::ReadRefused;
use crate::forward::client::Bound;
use crate::shared::Shared;

/// How long a linearizable read waits for a leader, and for this node to have applied what the leader had.
const WAIT: Duration = Duration::from_secs(5);
/// How long a leader that is not confirmed waits before it asks once more.
const AGAIN: Duration = Duration::from_millis(20);
/// Messages read without leaving the caller's thread: some 10 µs each.
pub(crate) const FEW: usize = 32;

/// Where a read is safe: at a state that has applied the log up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadPoint {
    /// The index of the entry; `None`: the log is empty.
    pub(crate) index: Option<u64>,
    /// The leader that a quorum confirmed.
    pub(crate) origin: Origin,
}

fn is_small(query: &Query) -> bool {
    match query {
        Query::Clock
        | Query::Queue(_)
        | Query::QueueById(_)
        | Query::Get(_)
        | Query::GetByDedupId { .. }
        | Query::Outcome(_)
        | Query::OutcomeByDedupId { .. }
        | Query::DedupIdSeen { .. }
        | Query::Namespace(_)
        | Query::RequestSeen { .. }
        | Query::TokenSeen { .. } => true,
        Query::Deliver(handles) => handles.len() <= FEW,
        Query::Queues { limit, .. }
        | Query::AllQueues { limit, .. }
        | Query::Namespaces { limit, .. }
        | Query::Peek { limit, .. }
        | Query::Leases { limit, .. } => *limit <= FEW,
    }
}

impl Shared {
    /// Answers a question.
    pub(crate) async fn query(
        self: &Arc<Self>,
        query: Query,
        freshness: Freshness,
    ) -> Result<(Answer, Origin), CallError> {
        if let Some(reason) = self.broken.reason() {
            return Err(CallError::Broken(reason));
        }
        match freshness {
            Freshness::Linearizable => {
                self.in_reach(self.read_index()).await.unwrap_or_else(|| Err(self.no_leader(false)))?;
            }
            Freshness::StaleOk => {}
        }
        let progress = self.signals.progress();
        let mut answer = self.read(query).await?;
        if let Answer::Clock(clock) = &mut answer {
            // The state's clock stands still between entries; whoever reckons an age wants the time it is.
            let now = match &*self.lead.borrow() {
                Some(lead) => lead.clock.now(),
                // About as long as it took to get here behind the leader's.
                None => {
                    let since = self.config.clock.now().saturating_duration_since(*progress.borrow());
                    let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                    ticketrail_core::Timestamp(clock.cluster.0.saturating_add(since_ms))
                }
            };
            clock.cluster = clock.cluster.max(now);
        }
        Ok((answer, self.origin()))
    }

    /// Answers from the state as it is: a small question here, a large one where it may take its time.
    pub(crate) async fn read(&self, query: Query) -> Result<Answer, CallError> {
        if is_small(&query) {
            return self.state.answer(&query).map_err(|fault| self.fault(&fault));
        }
        let state = self.state.clone();
        let answer = self.config.work.run(move || state.answer(&query)).await;
        answer.map_err(|fault| self.fault(&fault))
    }

    /// Waits until this node has applied all that was committed before the call, as the leader has it.
    async fn read_index(self: &Arc<Self>) -> Result<(), CallError> {
        let deadline = self.config.clock.now() + WAIT;
        let mut route = Route::new(self);
        loop {
            self.admit()?;
            let attempt = match route.place() {
                Place::Here => self.read_point_here(deadline).await,
                Place::At(leader) => {
                    let bound = Bound { leader, seen: route.seen(), line_by: deadline, answer_by: deadline };
                    self.read_point_at(bound).await
                }
                Place::Stopped => return Err(self.unknown()),
            };
            match attempt {
                Attempt::Done(point) => return self.applied(point.index, deadline).await,
                Attempt::Rejected(rejection) => return Err(CallError::Rejected(rejection)),
                Attempt::Elsewhere(hint) => route.elsewhere(hint, deadline).await,
                // A read changes nothing.
                Attempt::InDoubt => route.wait(deadline).await,
                Attempt::Over(CallError::Unknown) => return Err(self.no_leader(false)),
                Attempt::Over(error) => return Err(error),
            }
            if self.config.clock.now() >= deadline {
                return Err(self.no_leader(false));
            }
        }
    }

    /// Where a read is safe, as this node leads.
    pub(crate) async fn read_point_here(&self, deadline: Instant) -> Attempt<ReadPoint> {
        let (mut lead, mut standing) = (self.lead.clone(), self.standing.clone());
        loop {
            // A lead has the clocks of the state in order; before it there may be a term without a secret.
            let led = lead.borrow_and_update().is_some();
            standing.mark_unchanged();
            match self.place() {
                Place::Here => {}
                Place::At(leader) => return Attempt::Elsewhere(Some(leader)),
                Place::Stopped => return Attempt::Over(self.unknown()),
            }
            if led && is_planted(Bug::ReadWithoutIndex) {
                let index = self.state.applied().map(|id| id.index);
                return Attempt::Done(ReadPoint { index, origin: self.origin() });
            }
            if led {
                match timeout_at(deadline, self.consensus.read_index()).await {
                    Ok(Ok(())) => {
                        let index = self.state.applied().map(|id| id.index);
                        return Attempt::Done(ReadPoint { index, origin: self.origin() });
                    }
                    Ok(Err(ReadRefused::NotLeader { leader })) if leader != Some(self.config.node_id) => {
                        if leader.is_some() {
                            return Attempt::Elsewhere(leader);
                        }
                    }
                    Ok(Err(ReadRefused::Stopped)) => return Attempt::Over(self.unknown()),
                    Ok(Err(ReadRefused::NotLeader { .. } | ReadRefused::NoQuorum)) | Err(_) => {}
                }
            }
            if self.config.clock.now() >= deadline {
                return Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum));
            }
            let changed = async {
                tokio::select! {
                    changed = lead.changed() => changed.is_ok(),
                    changed = standing.changed() => changed.is_ok(),
                    () = sleep(AGAIN), if led => true,
                }
            };
            match timeout_at(deadline, changed).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum)),
            }
        }
    }

    /// Waits until this node has applied the log up to `index`.
    async fn applied(&self, index: Option<u64>, deadline: Instant) -> Result<(), CallError> {
        let mut progress = self.signals.progress();
        loop {
            progress.mark_unchanged();
            if self.state.applied().map(|id| id.index) >= index {
                return Ok(());
            }
            match timeout_at(deadline, progress.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(self.no_leader(false)),
            }
            if let Some(reason) = self.broken.reason() {
                return Err(CallError::Broken(reason));
            }
        }
    }
}
