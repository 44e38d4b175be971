//! Cancel and reschedule: by id, or by the dedup id that a queue remembers.

use ticketrail_core::Space;
use ticketrail_core::command::{Reschedule, Target};
use ticketrail_core::reply::{CancelOutcome, Empty, Enqueued, LeaseLost, Rejection, RescheduleOutcome};

use super::enqueue::when;
use super::line::Leaving;
use super::queue::{Due, State};
use super::verbs::name_is_legal;
use super::{ANY_FIELD, Model, invalid, refused};

/// What a target means.
enum Found {
    Here(usize, u64),
    /// Its dedup id is remembered, the message is finished.
    Finished,
    Nowhere,
}

impl Model {
    fn find(&self, target: &Target) -> Result<Found, Rejection> {
        if let Some(place) = &target.id {
            let id = place.message_id().ok_or_else(|| invalid(ANY_FIELD))?;
            for (index, queue) in self.queues.iter().enumerate() {
                if let Some(message) = queue.messages.iter().find(|message| message.id == id) {
                    return Ok(Found::Here(index, message.sequence));
                }
            }
            return Ok(Found::Nowhere);
        }
        let name = target.queue.as_ref().ok_or_else(|| invalid(ANY_FIELD))?;
        name_is_legal(name)?;
        if target.dedup_id.is_empty() || target.dedup_id.len() > 256 {
            return Err(invalid("dedup_id"));
        }
        let Some(index) = self.queue(name) else { return Ok(Found::Nowhere) };
        let known = self.queues[index].remembers(&target.dedup_id, self.clock.cluster);
        Ok(match known {
            None => Found::Nowhere,
            Some(known) if known.finished => Found::Finished,
            Some(known) => Found::Here(index, known.sequence),
        })
    }

    /// Gives the namespace too, where something happened.
    pub(super) fn cancel(&mut self, target: &Target) -> (CancelOutcome, Option<String>) {
        let rejected = |why| (CancelOutcome::Rejected(refused(why)), None);
        let (index, sequence) = match self.find(target) {
            Err(rejection) => return rejected(rejection),
            Ok(Found::Nowhere) => return (CancelOutcome::Gone(Empty {}), None),
            Ok(Found::Finished) => return rejected(Rejection::TooLate(LeaseLost { receive_count: None })),
            Ok(Found::Here(index, sequence)) => (index, sequence),
        };
        let namespace = self.queues[index].name.namespace.clone();
        let Some(message) = self.queues[index].message(sequence) else {
            return (CancelOutcome::Gone(Empty {}), None);
        };
        if message.lease().is_some() {
            return rejected(Rejection::TooLate(LeaseLost { receive_count: Some(message.receive_count) }));
        }
        let (id, group) = (message.id, message.group.clone());
        self.leave(index, sequence, Leaving::Cancelled);
        self.promote(index, &group);
        (CancelOutcome::Cancelled(id.origin.into()), Some(namespace))
    }

    /// Gives the namespace too, where it has a new time.
    pub(super) fn reschedule(&mut self, reschedule: &Reschedule) -> (RescheduleOutcome, Option<String>) {
        match self.rescheduled(reschedule) {
            Ok((enqueued, namespace)) => (RescheduleOutcome::Rescheduled(enqueued), Some(namespace)),
            Err(why) => (RescheduleOutcome::Rejected(refused(why)), None),
        }
    }

    fn rescheduled(&mut self, reschedule: &Reschedule) -> Result<(Enqueued, String), Rejection> {
        let now = self.clock.cluster;
        let target = reschedule.target.as_ref().ok_or_else(|| invalid(ANY_FIELD))?;
        let at = when(now, reschedule.delay_ms, reschedule.deliver_at_ms)?;
        let (index, sequence) = match self.find(target)? {
            Found::Nowhere => return Err(Rejection::MessageNotFound(Empty {})),
            Found::Finished => return Err(Rejection::TooLate(LeaseLost { receive_count: None })),
            Found::Here(index, sequence) => (index, sequence),
        };
        let queue = &mut self.queues[index];
        let namespace = queue.name.namespace.clone();
        let Some(message) = queue.message_mut(sequence) else {
            return Err(Rejection::MessageNotFound(Empty {}));
        };
        if message.lease().is_some() {
            return Err(Rejection::TooLate(LeaseLost { receive_count: Some(message.receive_count) }));
        }
        if message.has_expired(at) {
            return Err(invalid(ANY_FIELD));
        }
        let enqueued = Enqueued { place: message.id.origin.into(), available_at_ms: at, duplicate: false };
        match message.state {
            State::Blocked { .. } => message.state = State::Blocked { until: if at > now { at } else { 0 } },
            State::Ready(ready) if at > now => {
                // It cannot wait in the fresh lane.
                if ready.returned.is_none() {
                    message.space = Space::Held;
                }
                self.delay(index, sequence, Due::At(at));
            }
            State::Ready(_) => {}
            State::Delayed(_) if at > now => self.delay(index, sequence, Due::At(at)),
            State::Delayed(_) => self.ready(index, sequence),
            State::Leased(_) => {}
        }
        Ok((enqueued, namespace))
    }
}
