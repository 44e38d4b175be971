//! A commit of the model: what each part would come to by itself; and of an atomic one, all or nothing.

use ticketrail_core::LeaseToken;
use ticketrail_core::command::Commit;
use ticketrail_core::reply::{
    Answered, CancelOutcome, CancelResult, Committed, DelayedUntil, Empty, EnqueueOutcome, EnqueueResult, Part,
    PartRefused, Rejection, RejectionRecord, RescheduleOutcome, RescheduleResult, SettleOutcome,
};

use super::{ANY_FIELD, Answer, Model, invalid, refused};

/// In which namespace a cancel or a reschedule did something.
#[derive(Default)]
struct Touched {
    cancelled: Vec<Option<String>>,
    rescheduled: Vec<Option<String>>,
}

impl Model {
    pub(super) fn commit(&mut self, commit: &Commit, heard: Option<&Answered>) -> Result<Answer, String> {
        let heard = match heard {
            Some(Answered::Committed(committed)) => Some(committed),
            Some(_) | None => None,
        };
        if commit.enqueue.len() > 1_000 {
            return Ok(Err(invalid("enqueue")));
        }
        if commit.settle.len() > 1_000 {
            return Ok(Err(invalid("settle")));
        }
        if commit.cancel.len() > 1_000 {
            return Ok(Err(invalid("cancel")));
        }
        if commit.reschedule.len() > 1_000 {
            return Ok(Err(invalid("reschedule")));
        }
        // Tried on a copy, which is thrown away where an atomic commit falls.
        let mut tried = self.clone();
        let (mut committed, touched) = tried.parts(commit, heard)?;
        if commit.atomic {
            tried.refuse_strangers(commit, &mut committed, &touched);
        }
        if commit.atomic
            && let Some((part, why)) = first_refused(&committed)
        {
            return Ok(Err(Rejection::PartRefused(PartRefused { part: Some(part), why: Some(Box::new(why)) })));
        }
        *self = tried;
        Ok(Ok(Answered::Committed(committed)))
    }

    /// All parts that are done must be in the namespace of the first of them.
    fn refuse_strangers(&self, commit: &Commit, committed: &mut Committed, touched: &Touched) {
        let mut first: Option<String> = None;
        let mut is_stranger = |namespace: &str| first.get_or_insert_with(|| namespace.to_owned()) != namespace;
        for (settle, result) in commit.settle.iter().zip(&mut committed.settled) {
            if matches!(result.outcome, Some(SettleOutcome::Rejected(_)) | None) {
                continue;
            }
            let Ok(token) = LeaseToken::from_bytes(&settle.token) else { continue };
            let queue = self.queues.iter().find(|queue| queue.id == Some(token.queue.0));
            if queue.is_some_and(|queue| is_stranger(queue.name.namespace.as_str())) {
                result.outcome = Some(SettleOutcome::Rejected(refused(invalid("lease_token"))));
            }
        }
        for (namespace, result) in touched.cancelled.iter().zip(&mut committed.cancelled) {
            if namespace.as_deref().is_some_and(&mut is_stranger) {
                result.outcome = Some(CancelOutcome::Rejected(refused(invalid(ANY_FIELD))));
            }
        }
        for (namespace, result) in touched.rescheduled.iter().zip(&mut committed.rescheduled) {
            if namespace.as_deref().is_some_and(&mut is_stranger) {
                result.outcome = Some(RescheduleOutcome::Rejected(refused(invalid(ANY_FIELD))));
            }
        }
        for (enqueue, result) in commit.enqueue.iter().zip(&mut committed.enqueued) {
            let queue = commit.queues.get(enqueue.queue as usize);
            if matches!(result.outcome, Some(EnqueueOutcome::Enqueued(_)))
                && queue.is_some_and(|queue| is_stranger(queue.namespace.as_str()))
            {
                result.outcome = Some(EnqueueOutcome::Rejected(refused(invalid("namespace"))));
            }
        }
    }

    fn parts(&mut self, commit: &Commit, heard: Option<&Committed>) -> Result<(Committed, Touched), String> {
        // Of an atomic commit that falls nothing is heard.
        let ready = SettleOutcome::Readied(Empty {});
        let delayed = SettleOutcome::Delayed(DelayedUntil { due_ms: self.clock.cluster + 1 });
        let mut settled = Vec::new();
        for (part, settle) in commit.settle.iter().enumerate() {
            let heard = match heard {
                Some(heard) => heard.settled.get(part).and_then(|result| result.outcome.as_ref()),
                None if !commit.atomic => None,
                None if self.would_wait.checked_shr(part as u32).unwrap_or(0) & 1 == 1 => Some(&delayed),
                None => Some(&ready),
            };
            settled.push(self.settle(settle, heard)?);
        }
        let mut touched = Touched::default();
        let mut committed = Committed { settled, ..Committed::default() };
        for target in &commit.cancel {
            let (outcome, namespace) = self.cancel(target);
            committed.cancelled.push(CancelResult { outcome: Some(outcome) });
            touched.cancelled.push(namespace);
        }
        for reschedule in &commit.reschedule {
            let (outcome, namespace) = self.reschedule(reschedule);
            committed.rescheduled.push(RescheduleResult { outcome: Some(outcome) });
            touched.rescheduled.push(namespace);
        }
        for (part, enqueue) in commit.enqueue.iter().enumerate() {
            let heard = heard.and_then(|heard| heard.enqueued.get(part)).and_then(|result| result.outcome.as_ref());
            let heard = match heard {
                Some(EnqueueOutcome::Enqueued(enqueued)) => Some(enqueued.place.queue),
                Some(EnqueueOutcome::Rejected(_)) | None => None,
            };
            let outcome = match self.enqueue(commit, enqueue) {
                Ok((index, mut enqueued)) => {
                    if let Some(id) = heard {
                        self.bind_queue_id(index, id)?;
                        self.name_message(index, enqueued.place);
                        enqueued.place.queue = id;
                    }
                    EnqueueOutcome::Enqueued(enqueued)
                }
                Err(rejection) => EnqueueOutcome::Rejected(refused(rejection)),
            };
            committed.enqueued.push(EnqueueResult { outcome: Some(outcome) });
        }
        Ok((committed, touched))
    }
}

/// Settlements come first, then cancels, reschedules and enqueues.
fn first_refused(committed: &Committed) -> Option<(Part, RejectionRecord)> {
    for (number, result) in committed.settled.iter().enumerate() {
        if let Some(SettleOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Settle(number as u32), why.clone()));
        }
    }
    for (number, result) in committed.cancelled.iter().enumerate() {
        if let Some(CancelOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Cancel(number as u32), why.clone()));
        }
    }
    for (number, result) in committed.rescheduled.iter().enumerate() {
        if let Some(RescheduleOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Reschedule(number as u32), why.clone()));
        }
    }
    for (number, result) in committed.enqueued.iter().enumerate() {
        if let Some(EnqueueOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Enqueue(number as u32), why.clone()));
        }
    }
    None
}
