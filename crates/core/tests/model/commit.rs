//! A commit of the model: what each part would come to by itself; and of an atomic one, all or nothing.

use ticketrail_core::LeaseToken;
use ticketrail_core::command::Commit;
use ticketrail_core::reply::{
    Answered, Committed, Empty, EnqueueOutcome, EnqueueResult, Part, PartRefused, Rejection, RejectionRecord,
    SettleOutcome,
};

use super::{Answer, Model, invalid, refused};

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
        // Tried on a copy, which is thrown away where an atomic commit falls.
        let mut tried = self.clone();
        let mut committed = tried.parts(commit, heard)?;
        if commit.atomic {
            tried.refuse_strangers(commit, &mut committed);
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
    fn refuse_strangers(&self, commit: &Commit, committed: &mut Committed) {
        let mut first: Option<&str> = None;
        let mut is_stranger = |namespace| *first.get_or_insert(namespace) != namespace;
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
        for (enqueue, result) in commit.enqueue.iter().zip(&mut committed.enqueued) {
            let queue = commit.queues.get(enqueue.queue as usize);
            if matches!(result.outcome, Some(EnqueueOutcome::Enqueued(_)))
                && queue.is_some_and(|queue| is_stranger(queue.namespace.as_str()))
            {
                result.outcome = Some(EnqueueOutcome::Rejected(refused(invalid("namespace"))));
            }
        }
    }

    fn parts(&mut self, commit: &Commit, heard: Option<&Committed>) -> Result<Committed, String> {
        // Of an atomic commit that falls nothing is heard. What jitter would have been does not matter then.
        let unheard = SettleOutcome::Readied(Empty {});
        let mut settled = Vec::new();
        for (part, settle) in commit.settle.iter().enumerate() {
            let heard = match heard {
                Some(heard) => heard.settled.get(part).and_then(|result| result.outcome.as_ref()),
                None => commit.atomic.then_some(&unheard),
            };
            settled.push(self.settle(settle, heard)?);
        }
        let mut enqueued = Vec::new();
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
            enqueued.push(EnqueueResult { outcome: Some(outcome) });
        }
        Ok(Committed { enqueued, settled })
    }
}

/// Settlements come before enqueues.
fn first_refused(committed: &Committed) -> Option<(Part, RejectionRecord)> {
    for (number, result) in committed.settled.iter().enumerate() {
        if let Some(SettleOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Settle(number as u32), why.clone()));
        }
    }
    for (number, result) in committed.enqueued.iter().enumerate() {
        if let Some(EnqueueOutcome::Rejected(why)) = &result.outcome {
            return Some((Part::Enqueue(number as u32), why.clone()));
        }
    }
    None
}
