//! A commit: its parts one after the other, kind by kind: settlements, cancels, reschedules, enqueues.

use crate::command::{Commit, Enqueue, Settle};
use crate::ids::{LeaseToken, QueueId};
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::queue::{cancel, enqueue, invalid, settle};
use crate::reply::{
    Answered, CancelOutcome, CancelResult, Committed, EnqueueOutcome, EnqueueResult, Fault, Part, Rejection,
    RejectionRecord, RescheduleOutcome, RescheduleResult, SettleOutcome, SettleResult,
};
use crate::txn::Txn;

/// Carries out a commit. Where it is atomic, the first part's refusal is the whole's: the caller undoes what the parts
/// before it did, as for every request that is refused.
pub(crate) fn run(txn: &mut Txn<'_>, commit: &Commit) -> Result<Result<Answered, Rejection>, Fault> {
    for (field, len) in [
        ("enqueue", commit.enqueue.len()),
        ("settle", commit.settle.len()),
        ("cancel", commit.cancel.len()),
        ("reschedule", commit.reschedule.len()),
    ] {
        if len > limits::BATCH {
            return Ok(Err(invalid(field, format!("expected at most {} parts, but got {len}", limits::BATCH))));
        }
    }
    let mut committed = Committed::default();
    let mut namespace = Whole::new(commit);
    for (number, part) in (0u32..).zip(&commit.settle) {
        let outcome = match settle::run(txn, part)? {
            Ok(outcome) => match namespace.admit_settle(txn, part)? {
                Ok(()) => outcome,
                Err(why) => return Ok(Err(Rejection::of_part(Part::Settle(number), why))),
            },
            Err(why) if commit.atomic => return Ok(Err(Rejection::of_part(Part::Settle(number), why))),
            Err(why) => SettleOutcome::Rejected(RejectionRecord { rejection: Some(why) }),
        };
        committed.settled.push(SettleResult { outcome: Some(outcome) });
    }
    for (number, part) in (0u32..).zip(&commit.cancel) {
        let outcome = match cancel::run(txn, part)? {
            Ok((outcome, queue)) => match namespace.admit_queue(txn, "target", queue)? {
                Ok(()) => outcome,
                Err(why) => return Ok(Err(Rejection::of_part(Part::Cancel(number), why))),
            },
            Err(why) if commit.atomic => return Ok(Err(Rejection::of_part(Part::Cancel(number), why))),
            Err(why) => CancelOutcome::Rejected(RejectionRecord { rejection: Some(why) }),
        };
        committed.cancelled.push(CancelResult { outcome: Some(outcome) });
    }
    for (number, part) in (0u32..).zip(&commit.reschedule) {
        let outcome = match cancel::reschedule(txn, part)? {
            Ok((outcome, queue)) => match namespace.admit_queue(txn, "target", Some(queue))? {
                Ok(()) => RescheduleOutcome::Rescheduled(outcome),
                Err(why) => return Ok(Err(Rejection::of_part(Part::Reschedule(number), why))),
            },
            Err(why) if commit.atomic => return Ok(Err(Rejection::of_part(Part::Reschedule(number), why))),
            Err(why) => RescheduleOutcome::Rejected(RejectionRecord { rejection: Some(why) }),
        };
        committed.rescheduled.push(RescheduleResult { outcome: Some(outcome) });
    }
    for (number, part) in (0u32..).zip(&commit.enqueue) {
        let lost = is_planted(Bug::ChildLost) && commit.atomic && txn.at.index.is_multiple_of(8);
        let later = lost.then(|| Enqueue { delay_ms: limits::DELAY_MAX_MS, ..part.clone() });
        let part = later.as_ref().unwrap_or(part);
        let outcome = match enqueue::run(txn, &commit.queues, commit.auto_create, part)? {
            Ok(enqueued) => match namespace.admit_enqueue(commit, part) {
                Ok(()) => EnqueueOutcome::Enqueued(enqueued),
                Err(why) => return Ok(Err(Rejection::of_part(Part::Enqueue(number), why))),
            },
            Err(why) if commit.atomic => return Ok(Err(Rejection::of_part(Part::Enqueue(number), why))),
            Err(why) => EnqueueOutcome::Rejected(RejectionRecord { rejection: Some(why) }),
        };
        committed.enqueued.push(EnqueueResult { outcome: Some(outcome) });
    }
    Ok(Ok(Answered::Committed(committed)))
}

/// The one namespace of an atomic commit: that of its first part. One group will serve a namespace, but not all of them.
struct Whole {
    atomic: bool,
    namespace: Option<String>,
}

impl Whole {
    fn new(commit: &Commit) -> Self {
        Self { atomic: commit.atomic, namespace: None }
    }

    /// Checks a part that was carried out: whoever refuses it undoes it.
    fn admit_settle(&mut self, txn: &mut Txn<'_>, part: &Settle) -> Result<Result<(), Rejection>, Fault> {
        if !self.atomic {
            return Ok(Ok(()));
        }
        // It was proven a moment ago.
        let Ok(token) = LeaseToken::from_bytes(&part.token) else { return Ok(Ok(())) };
        self.admit_queue(txn, "lease_token", Some(token.queue))
    }

    fn admit_queue(
        &mut self,
        txn: &mut Txn<'_>,
        field: &str,
        queue: Option<QueueId>,
    ) -> Result<Result<(), Rejection>, Fault> {
        let Some(queue) = queue.filter(|_| self.atomic) else { return Ok(Ok(())) };
        let Some(queue) = txn.queue(queue)? else { return Ok(Ok(())) };
        let namespace = queue.config.name.namespace.clone();
        Ok(self.admit(field, &namespace))
    }

    fn admit_enqueue(&mut self, commit: &Commit, part: &Enqueue) -> Result<(), Rejection> {
        let queue = usize::try_from(part.queue).ok().and_then(|index| commit.queues.get(index));
        match queue {
            Some(queue) if self.atomic => self.admit("namespace", &queue.namespace),
            Some(_) | None => Ok(()),
        }
    }

    fn admit(&mut self, field: &str, namespace: &str) -> Result<(), Rejection> {
        match &self.namespace {
            Some(first) if first != namespace => {
                let reason = format!(
                    "expected all parts in one namespace, but the first is in {first:?} and this one in {namespace:?}"
                );
                Err(invalid(field, reason))
            }
            Some(_) => Ok(()),
            None => {
                self.namespace = Some(namespace.to_owned());
                Ok(())
            }
        }
    }
}
