//! Commits: changes that stand or fall together.

use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_client::CommitServiceClient;

use crate::call::{Attempt, service};
use crate::position::Position;
use crate::{Client, Delivery, Error, NewMessage, Sent, Settlement, wire};

/// Settlements and enqueues that stand or fall together: after any crash all of it happened, or none.
///
/// Settlements come before enqueues, so that a commit may take the place on a full queue that it frees. All parts are in
/// the client's namespace.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Commit {
    client: Client,
    settle: Vec<v1::SettlePart>,
    enqueue: Vec<v1::EnqueuePart>,
}

impl Commit {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, settle: Vec::new(), enqueue: Vec::new() }
    }

    /// Acks a delivery: its message is done.
    pub fn ack(self, delivery: &Delivery) -> Self {
        self.settle(Settlement::ack(delivery))
    }

    /// Settles a delivery; at most 1,000 settlements and extensions.
    pub fn settle(mut self, settlement: Settlement) -> Self {
        self.settle.push(settlement.into_part());
        self
    }

    /// Gives the lease of a delivery more time: `lease` from now, 1 s to 12 h, or with `None` the queue's lease.
    pub fn extend(mut self, delivery: &Delivery, lease: Option<Duration>) -> Self {
        let extend = v1::ExtendLease { lease: lease.map(wire::to_duration) };
        self.settle.push(v1::SettlePart {
            lease_token: delivery.token.clone(),
            verdict: Some(v1::settle_part::Verdict::Extend(extend)),
        });
        self
    }

    /// Puts a message on a queue; at most 1,000, 4 MiB together. The queue is made by its first message unless the
    /// server forbids it.
    pub fn enqueue(mut self, queue: impl Into<String>, message: impl Into<NewMessage>) -> Self {
        self.enqueue.push(v1::EnqueuePart { queue: queue.into(), message: Some(message.into().into_wire()) });
        self
    }

    /// Makes the changes. The answer means: all of it happened, fsynced on a quorum.
    ///
    /// # Errors
    /// As every change: see [`Error`]. Where a part is refused, nothing happened, and
    /// [`Refusal::part`](crate::Refusal::part) names it beside its reason. A full queue is waited for as the policy
    /// says; the leases of the settlements run on meanwhile.
    pub async fn send(self) -> Result<Committed, Error> {
        let Self { client, settle, enqueue } = self;
        let make = |attempt: Attempt| v1::CommitRequest {
            request_id: Some(attempt.id),
            namespace: client.namespace().to_owned(),
            settle: settle.clone(),
            enqueue: enqueue.clone(),
        };
        let send = async |channel, request| service!(CommitServiceClient, channel).commit(request).await;
        let read = |response: v1::CommitResponse| {
            let (settled, enqueued) = (response.settled.len(), response.enqueued.len());
            if (settled, enqueued) != (settle.len(), enqueue.len()) {
                let found =
                    format!("{settled} and {enqueued} for {} settlements and {} enqueues", settle.len(), enqueue.len());
                return Err(Error::Protocol { expected: "a result for each part", found });
            }
            Committed::from_wire(response).map(Ok)
        };
        client.changing().change(Duration::ZERO, make, send, read).await
    }
}

/// A commit that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// What became of the deliveries: one for each settlement and extension, in order.
    pub settled: Vec<SettledPart>,
    /// The messages: one for each enqueue, in order.
    pub enqueued: Vec<Sent>,
    /// Where in the log all of it took effect.
    pub position: Position,
}

impl Committed {
    fn from_wire(response: v1::CommitResponse) -> Result<Self, Error> {
        let position = Position::from_wire(response.commit);
        let enqueued = response.enqueued.into_iter().map(|enqueued| Sent::from_wire(enqueued, position)).collect();
        let settled = response.settled.into_iter().map(SettledPart::from_wire).collect::<Result<_, _>>()?;
        Ok(Self { settled, enqueued, position })
    }
}

/// What became of one delivery in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledPart {
    /// Finished and deleted.
    Acked,
    /// In a dead-letter queue, under its old id.
    DeadLettered,
    /// Waiting for its next attempt.
    Delayed {
        /// When that is, on cluster time.
        due_at: SystemTime,
    },
    /// Ready again.
    Readied,
    /// The lease goes on.
    Extended {
        /// What was left of it when the commit took effect.
        lease_left: Duration,
    },
    /// The queue was purged while it was leased: the message is gone.
    Purged,
}

impl SettledPart {
    fn from_wire(part: v1::SettledPart) -> Result<Self, Error> {
        use v1::settled_part::Outcome;
        Ok(match part.outcome {
            Some(Outcome::Acked(v1::Acked {})) => SettledPart::Acked,
            Some(Outcome::DeadLettered(_)) => SettledPart::DeadLettered,
            Some(Outcome::Delayed(delayed)) => SettledPart::Delayed { due_at: wire::some_time(delayed.due_at) },
            Some(Outcome::Readied(v1::Readied {})) => SettledPart::Readied,
            Some(Outcome::Extended(extended)) => SettledPart::Extended {
                lease_left: extended.lease_remaining.and_then(wire::duration).unwrap_or_default(),
            },
            Some(Outcome::Purged(v1::Purged {})) => SettledPart::Purged,
            None => {
                let found = "none, or one of a newer server".to_owned();
                return Err(Error::Protocol { expected: "an outcome", found });
            }
        })
    }
}

/// Which part of a [`Commit`] was refused: its kind, and its number among those of its kind, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A settlement or an extension.
    Settle(usize),
    /// An enqueue.
    Enqueue(usize),
}

impl Part {
    /// The part that a refusal's data names.
    pub(crate) fn parse(kind: &str, index: &str) -> Option<Self> {
        let index = index.parse().ok()?;
        match kind {
            "settle" => Some(Part::Settle(index)),
            "enqueue" => Some(Part::Enqueue(index)),
            _ => None,
        }
    }
}
