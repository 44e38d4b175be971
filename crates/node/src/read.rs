//! Reads: of the state as it is, or of one that reflects every change acknowledged before the read began.

use std::time::Duration;

use ticketrail_core::{Answer, Query};
use tokio::time::timeout_at;

use crate::call::{CallError, Freshness, Origin, Unavailable};
use crate::consensus::ReadRefused;
use crate::shared::Shared;

/// How long a linearizable read waits for a leader.
const WAIT: Duration = Duration::from_secs(5);
/// Messages read without leaving the caller's thread: some 10 µs each.
pub(crate) const FEW: usize = 32;

fn is_small(query: &Query) -> bool {
    match query {
        Query::Clock | Query::Queue(_) | Query::QueueById(_) | Query::Get(_) | Query::RequestSeen { .. } => true,
        Query::Deliver(handles) => handles.len() <= FEW,
        Query::Queues { limit, .. }
        | Query::AllQueues { limit, .. }
        | Query::Peek { limit, .. }
        | Query::Leases { limit, .. } => *limit <= FEW,
    }
}

impl Shared {
    /// Answers a question.
    pub(crate) async fn query(&self, query: Query, freshness: Freshness) -> Result<(Answer, Origin), CallError> {
        if let Some(reason) = self.broken.reason() {
            return Err(CallError::Broken(reason));
        }
        match freshness {
            Freshness::Linearizable => self.read_index().await?,
            Freshness::StaleOk => {}
        }
        let mut answer = self.read(query).await?;
        // The state's clock stands still between entries; whoever reckons an age wants the time it is.
        if let (Answer::Clock(clock), Some(lead)) = (&mut answer, &*self.lead.borrow()) {
            clock.cluster = clock.cluster.max(lead.clock.now());
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

    async fn read_index(&self) -> Result<(), CallError> {
        let deadline = self.config.clock.now() + WAIT;
        let mut lead = self.lead.clone();
        loop {
            self.admit()?;
            // A lead has the clocks of the state in order; before it there may be a term without a secret.
            let led = lead.borrow_and_update().is_some();
            if led {
                match self.consensus.read_index().await {
                    Ok(()) => return Ok(()),
                    Err(ReadRefused::NotLeader { leader: leader @ Some(_) }) if leader != Some(self.config.node_id) => {
                        return Err(CallError::Unavailable(Unavailable::NotLeader { leader }));
                    }
                    Err(ReadRefused::Stopped) => return Err(self.unknown()),
                    Err(ReadRefused::NotLeader { .. } | ReadRefused::NoQuorum) => {}
                }
            }
            match timeout_at(deadline, lead.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(CallError::Unavailable(Unavailable::NoQuorum)),
            }
        }
    }
}
