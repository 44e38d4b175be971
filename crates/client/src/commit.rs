//! Commits: changes that stand or fall together.

use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::commit_service_client::CommitServiceClient;

use crate::call::{Attempt, service};
use crate::cancel::{self, Cancelled, Rescheduled, Target, When};
use crate::position::Position;
use crate::settle::no_outcome;
use crate::{Client, Delivery, Error, NewMessage, Refusal, Sent, Settlement, send, wire};

/// Settlements, cancels, reschedules and enqueues that stand or fall together: after any crash all of it happened, or none.
///
/// They are carried out in that order, so that a commit may take the place on a full queue that it frees, and the dedup id
/// of what it cancels. All parts are in the client's namespace.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until it is sent"]
pub struct Commit {
    client: Client,
    settle: Vec<v1::SettlePart>,
    cancel: Vec<v1::Target>,
    reschedule: Vec<v1::NewTime>,
    enqueue: Vec<v1::EnqueuePart>,
}

impl Commit {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, settle: Vec::new(), cancel: Vec::new(), reschedule: Vec::new(), enqueue: Vec::new() }
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

    /// Takes a message away before anybody receives it; at most 1,000.
    pub fn cancel(mut self, target: impl Into<Target>) -> Self {
        self.cancel.push(target.into().into_wire());
        self
    }

    /// Makes a message ready at another time; at most 1,000.
    pub fn reschedule(mut self, target: impl Into<Target>, when: When) -> Self {
        self.reschedule.push(cancel::new_time(target.into(), when));
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
        self.make(false, Committed::from_wire).await
    }

    /// Makes the changes in one step, but each part stands alone: its refusal is its result, and the others stand.
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let mail = client.queue("mail");
    /// let done = client.commit().cancel(mail.dedup("reminder-17")).enqueue("mail", "thanks").send_each().await?;
    /// if done.cancelled[0].is_err() {
    ///     println!("the reminder is out already");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As every change: see [`Error`].
    pub async fn send_each(self) -> Result<CommittedEach, Error> {
        self.make(true, CommittedEach::from_wire).await
    }

    async fn make<T>(
        self,
        independent: bool,
        read: impl Fn(v1::CommitResponse) -> Result<Result<T, Refusal>, Error>,
    ) -> Result<T, Error> {
        let Self { client, settle, cancel, reschedule, enqueue } = self;
        let make = |attempt: Attempt| v1::CommitRequest {
            request_id: Some(attempt.id),
            namespace: client.namespace().to_owned(),
            settle: settle.clone(),
            cancel: cancel.clone(),
            reschedule: reschedule.clone(),
            enqueue: enqueue.clone(),
            independent,
        };
        let send = async |channel, request| service!(CommitServiceClient, channel).commit(request).await;
        let read = |response: v1::CommitResponse| {
            let asked = [settle.len(), cancel.len(), reschedule.len(), enqueue.len()];
            let enqueued = if independent { response.enqueue_results.len() } else { response.enqueued.len() };
            let got = [response.settled.len(), response.cancelled.len(), response.rescheduled.len(), enqueued];
            if asked != got {
                let found = format!("{got:?} for {asked:?} settlements, cancels, reschedules and enqueues");
                return Err(Error::Protocol { expected: "a result for each part", found });
            }
            read(response)
        };
        client.changing().change(Duration::ZERO, make, send, read).await
    }
}

/// A commit that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// What became of the deliveries: one for each settlement and extension, in order.
    pub settled: Vec<SettledPart>,
    /// What became of the cancels, in order.
    pub cancelled: Vec<Cancelled>,
    /// The messages with a new time, in order.
    pub rescheduled: Vec<Rescheduled>,
    /// The messages: one for each enqueue, in order.
    pub enqueued: Vec<Sent>,
    /// Where in the log all of it took effect.
    pub position: Position,
}

impl Committed {
    fn from_wire(response: v1::CommitResponse) -> Result<Result<Self, Refusal>, Error> {
        let v1::CommitResponse { commit, settled, enqueued, cancelled, rescheduled, enqueue_results: _ } = response;
        let position = Position::from_wire(commit);
        // A part that is refused refuses the whole, so none of these is there.
        let settled = match all(settled, SettledPart::from_wire)? {
            Ok(settled) => settled,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let cancelled = match all(cancelled, Cancelled::from_wire)? {
            Ok(cancelled) => cancelled,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rescheduled = match all(rescheduled, Rescheduled::from_wire)? {
            Ok(rescheduled) => rescheduled,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let enqueued = enqueued.into_iter().map(|enqueued| Sent::from_wire(enqueued, position)).collect();
        Ok(Ok(Self { settled, cancelled, rescheduled, enqueued, position }))
    }
}

/// A result for each part.
type Results<T> = Vec<Result<T, Refusal>>;

fn each<R, T>(results: Vec<R>, read: impl Fn(R) -> Result<Result<T, Refusal>, Error>) -> Result<Results<T>, Error> {
    results.into_iter().map(read).collect()
}

fn all<R, T>(
    results: Vec<R>,
    read: impl Fn(R) -> Result<Result<T, Refusal>, Error>,
) -> Result<Result<Vec<T>, Refusal>, Error> {
    Ok(each(results, read)?.into_iter().collect())
}

/// What became of a commit whose parts stood alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedEach {
    /// What became of the deliveries: one for each settlement and extension, in order.
    pub settled: Vec<Result<SettledPart, Refusal>>,
    /// What became of the cancels, in order.
    pub cancelled: Vec<Result<Cancelled, Refusal>>,
    /// The messages with a new time, in order.
    pub rescheduled: Vec<Result<Rescheduled, Refusal>>,
    /// The messages: one for each enqueue, in order.
    pub enqueued: Vec<Result<Sent, Refusal>>,
    /// Where in the log what happened took effect.
    pub position: Position,
}

impl CommittedEach {
    /// How many parts were refused.
    pub fn refused(&self) -> usize {
        self.settled.iter().filter(|part| part.is_err()).count()
            + self.cancelled.iter().filter(|part| part.is_err()).count()
            + self.rescheduled.iter().filter(|part| part.is_err()).count()
            + self.enqueued.iter().filter(|part| part.is_err()).count()
    }

    fn from_wire(response: v1::CommitResponse) -> Result<Result<Self, Refusal>, Error> {
        let v1::CommitResponse { commit, settled, enqueued: _, cancelled, rescheduled, enqueue_results } = response;
        let position = Position::from_wire(commit);
        Ok(Ok(Self {
            settled: each(settled, SettledPart::from_wire)?,
            cancelled: each(cancelled, Cancelled::from_wire)?,
            rescheduled: each(rescheduled, Rescheduled::from_wire)?,
            enqueued: each(enqueue_results, |result| send::item(result, position))?,
            position,
        }))
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
    /// Its time to live was over: the message is gone, or dead-lettered where its queue says so. An ack is never this.
    Expired,
    /// Its attempts were used up, and its queue drops such messages: it is gone.
    Dropped,
}

impl SettledPart {
    fn from_wire(part: v1::SettledPart) -> Result<Result<Self, Refusal>, Error> {
        use v1::settled_part::Outcome;
        Ok(Ok(match part.outcome {
            Some(Outcome::Acked(v1::Acked {})) => SettledPart::Acked,
            Some(Outcome::DeadLettered(_)) => SettledPart::DeadLettered,
            Some(Outcome::Delayed(delayed)) => SettledPart::Delayed { due_at: wire::some_time(delayed.due_at) },
            Some(Outcome::Readied(v1::Readied {})) => SettledPart::Readied,
            Some(Outcome::Extended(extended)) => SettledPart::Extended {
                lease_left: extended.lease_remaining.and_then(wire::duration).unwrap_or_default(),
            },
            Some(Outcome::Purged(v1::Purged {})) => SettledPart::Purged,
            Some(Outcome::Expired(v1::Expired {})) => SettledPart::Expired,
            Some(Outcome::Dropped(v1::Dropped {})) => SettledPart::Dropped,
            Some(Outcome::Error(error)) => return Ok(Err(Refusal::from_item(error))),
            None => return Err(no_outcome()),
        }))
    }
}

/// Which part of a [`Commit`] was refused: its kind, and its number among those of its kind, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A settlement or an extension.
    Settle(usize),
    /// A cancel.
    Cancel(usize),
    /// A reschedule.
    Reschedule(usize),
    /// An enqueue.
    Enqueue(usize),
}

impl Part {
    /// The part that a refusal's data names.
    pub(crate) fn parse(kind: &str, index: &str) -> Option<Self> {
        let index = index.parse().ok()?;
        match kind {
            "settle" => Some(Part::Settle(index)),
            "cancel" => Some(Part::Cancel(index)),
            "reschedule" => Some(Part::Reschedule(index)),
            "enqueue" => Some(Part::Enqueue(index)),
            _ => None,
        }
    }
}
