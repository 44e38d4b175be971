//! How the clerk words what the machine answers.

use std::fmt::Write as _;
use std::vec::IntoIter;

use prost::Message as _;
use ticketrail_core::command::{Content, QueueRef};
use ticketrail_core::query::{DeadLetter, DeadReason, Delivery, FailureClass, MessageInfo, MessageState};
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Handle, Part, PartRefused, PlaceRecord, QueueNamed,
    RejectionRecord, RescheduleOutcome, SettleOutcome, Taken,
};
use ticketrail_core::{MessageId, Rejection, Reply};

use super::{Clerk, at, span};

impl Clerk {
    /// Messages are named in order of their enqueue.
    pub(super) fn name_newcomers(&mut self, reply: &Reply) {
        match &reply.answered {
            Some(Answered::Committed(Committed { enqueued, .. })) => {
                for part in enqueued {
                    if let Some(EnqueueOutcome::Enqueued(enqueued)) = &part.outcome
                        && let Some(id) = enqueued.place.message_id()
                        && !self.messages.contains(&id)
                    {
                        self.messages.push(id);
                    }
                }
            }
            Some(Answered::SessionOpened(opened)) => {
                if !self.sessions.contains(&opened.session) {
                    self.sessions.push(opened.session);
                }
            }
            Some(
                Answered::Received(_)
                | Answered::Expired(_)
                | Answered::Ticked(_)
                | Answered::Initialized(_)
                | Answered::QueueChanged(_)
                | Answered::QueueDeleted(_)
                | Answered::QueuePurged(_)
                | Answered::NamespaceChanged(_),
            )
            | None => {}
        }
    }

    pub(super) fn say_reply(&self, reply: &Result<Reply, Rejection>, deliveries: &mut IntoIter<Delivery>) -> String {
        let reply = match reply {
            Ok(reply) => reply,
            Err(rejection) => return format!("refused: {}\n", self.say_rejection(rejection)),
        };
        let mut said = String::new();
        if reply.replayed {
            said.push_str("replayed: ");
        }
        match &reply.answered {
            Some(Answered::Committed(Committed { enqueued, settled, cancelled, rescheduled })) => {
                for part in settled {
                    said.push_str(&self.say_settled(part.outcome.as_ref()));
                }
                for part in cancelled {
                    said.push_str(&self.say_cancelled(part.outcome.as_ref()));
                }
                for part in rescheduled {
                    match &part.outcome {
                        Some(RescheduleOutcome::Rescheduled(done)) => {
                            let _ = writeln!(
                                said,
                                "{} rescheduled to {}",
                                self.place(&done.place),
                                at(done.available_at_ms)
                            );
                        }
                        Some(RescheduleOutcome::Rejected(rejected)) => said.push_str(&self.say_refused(rejected)),
                        None => said.push_str("no outcome\n"),
                    }
                }
                for part in enqueued {
                    match &part.outcome {
                        Some(EnqueueOutcome::Enqueued(done)) if done.duplicate => {
                            let _ = writeln!(said, "{} was there already", self.place(&done.place));
                        }
                        Some(EnqueueOutcome::Enqueued(done)) => {
                            let _ = writeln!(said, "{} ready at {}", self.place(&done.place), at(done.available_at_ms));
                        }
                        Some(EnqueueOutcome::Rejected(rejected)) => said.push_str(&self.say_refused(rejected)),
                        None => said.push_str("no outcome\n"),
                    }
                }
            }
            Some(Answered::Received(received)) if received.handles.is_empty() && received.taken.is_empty() => {
                said.push_str("nothing\n");
            }
            Some(Answered::Received(received)) => {
                for taken in &received.taken {
                    let _ = writeln!(said, "{}", self.say_taken(taken));
                }
                for (handle, delivery) in received.handles.iter().zip(deliveries) {
                    let _ = writeln!(said, "{}", self.say_delivery(handle, &delivery));
                }
            }
            Some(Answered::Expired(expired)) => {
                let _ = writeln!(said, "{} expired", expired.count);
            }
            Some(Answered::Ticked(ticked)) => {
                let _ = writeln!(said, "{} fired", ticked.fired);
            }
            Some(Answered::Initialized(initialized)) => {
                said.push_str(if initialized.first { "initialized\n" } else { "initialized before\n" });
            }
            Some(Answered::SessionOpened(opened)) => {
                let number = self.sessions.iter().position(|known| *known == opened.session).map_or(0, |n| n + 1);
                let _ = writeln!(said, "s{number}");
            }
            Some(Answered::QueueChanged(changed)) => {
                let _ = writeln!(said, "queue {}", changed.queue);
            }
            Some(Answered::QueueDeleted(removed)) => {
                let _ = writeln!(said, "deleted with {} messages", removed.count);
            }
            Some(Answered::QueuePurged(removed)) => {
                let _ = writeln!(said, "purged {} messages", removed.count);
            }
            Some(Answered::NamespaceChanged(_)) => said.push_str("namespace changed\n"),
            None => said.push_str("no answer\n"),
        }
        said
    }

    fn say_cancelled(&self, outcome: Option<&CancelOutcome>) -> String {
        match outcome {
            Some(CancelOutcome::Cancelled(place)) => format!("{} cancelled\n", self.place(place)),
            Some(CancelOutcome::Gone(_)) => "gone\n".into(),
            Some(CancelOutcome::Rejected(rejected)) => self.say_refused(rejected),
            None => "no outcome\n".into(),
        }
    }

    fn say_taken(&self, taken: &Taken) -> String {
        let content = Content::decode(taken.content.clone()).unwrap_or_default();
        let mut said = format!("{} {}", self.place(&taken.id), body(&content.body));
        let _ = write!(said, " taken for good, received {} times", taken.handle.receive_count);
        if !taken.group.is_empty() {
            let _ = write!(said, ", group {}", taken.group);
        }
        said
    }

    fn say_settled(&self, outcome: Option<&SettleOutcome>) -> String {
        match outcome {
            Some(SettleOutcome::Acked(_)) => "acked\n".into(),
            Some(SettleOutcome::DeadLettered(dead)) => {
                format!("dead-lettered to {}, sequence {}\n", self.queue_name(dead.place.queue), dead.place.sequence)
            }
            Some(SettleOutcome::Delayed(delayed)) => {
                let left = delayed.due_ms.saturating_sub(self.machine.model.clock.cluster);
                format!("delayed until {}, in {}\n", at(delayed.due_ms), span(left))
            }
            Some(SettleOutcome::Readied(_)) => "ready\n".into(),
            Some(SettleOutcome::Extended(extended)) => format!("extended, {} left\n", span(extended.remaining_ms)),
            Some(SettleOutcome::Purged(_)) => "purged\n".into(),
            Some(SettleOutcome::Expired(_)) => "expired\n".into(),
            Some(SettleOutcome::Dropped(_)) => "dropped\n".into(),
            Some(SettleOutcome::Rejected(rejected)) => self.say_refused(rejected),
            None => "no outcome\n".into(),
        }
    }

    fn say_refused(&self, rejected: &RejectionRecord) -> String {
        let said =
            rejected.rejection.as_ref().map_or("for no reason".into(), |rejection| self.say_rejection(rejection));
        format!("refused: {said}\n")
    }

    fn say_rejection(&self, rejection: &Rejection) -> String {
        match rejection {
            Rejection::NotInitialized(_) => "the cluster has no secret yet".into(),
            Rejection::Invalid(invalid) => format!("invalid {}: {}", invalid.field, shortened(&invalid.reason)),
            Rejection::QueueNotFound(queue) => format!("no queue {}", named(queue)),
            Rejection::QueueExists(queue) => format!("queue {} exists", named(queue)),
            Rejection::QueueClosed(queue) => format!("queue {} is closed", named(queue)),
            Rejection::Full(full) => format!(
                "queue {} is full: {} is {}, it holds {}; again in {}",
                named(&full.queue),
                full.bound,
                full.limit,
                full.held,
                span(full.retry_after_ms)
            ),
            Rejection::LeaseLost(lost) => match lost.receive_count {
                Some(count) => format!("the lease is lost, the message was received {count} times"),
                None => "the lease is lost, and the message gone".into(),
            },
            Rejection::TooLate(late) => match late.receive_count {
                Some(count) => format!("too late, the message was received {count} times"),
                None => "too late, the message is finished".into(),
            },
            Rejection::MessageNotFound(_) => "no such message".into(),
            Rejection::RequestIdsFull(full) => format!("{} outcomes of such requests are kept, no more", full.limit),
            Rejection::NamespacesFull(full) => format!("there are {} namespaces, no more", full.limit),
            Rejection::NamespaceNotFound(named) => format!("namespace {} has no defaults of its own", named.namespace),
            Rejection::RequestIdOld(old) => format!("the outcomes of requests below {} are forgotten", old.acked_below),
            Rejection::SessionWindow(window) => format!("{} outcomes are stored, no more", window.limit),
            Rejection::RequestIdReused(_) => "another request had this id".into(),
            Rejection::SessionExpired(_) => "no such session".into(),
            Rejection::SessionsFull(full) => format!("there are {} sessions, no more", full.limit),
            Rejection::QueuesFull(full) => format!("there are {} queues, no more", full.limit),
            Rejection::EntryFull(_) => "the entry is full".into(),
            Rejection::PartRefused(PartRefused { part, why }) => {
                let part = match part {
                    Some(Part::Settle(number)) => format!("settlement {number}"),
                    Some(Part::Enqueue(number)) => format!("enqueue {number}"),
                    Some(Part::Cancel(number)) => format!("cancel {number}"),
                    Some(Part::Reschedule(number)) => format!("reschedule {number}"),
                    None => "no part".into(),
                };
                let why = why.as_ref().and_then(|why| why.rejection.as_ref());
                format!("all, for {part}: {}", why.map_or("for no reason".into(), |why| self.say_rejection(why)))
            }
        }
    }

    fn say_delivery(&self, handle: &Handle, delivery: &Delivery) -> String {
        let mut said = format!("{} {}", self.name(delivery.id), body(&delivery.content.body));
        let _ = write!(
            said,
            " received {} times, {} failures, lease {}",
            handle.receive_count,
            handle.failures,
            span(delivery.remaining_ms)
        );
        if !delivery.group.is_empty() {
            let _ = write!(said, ", group {}", delivery.group);
        }
        if let Some(dead) = &delivery.dead_letter {
            let _ = write!(said, ", {}", say_dead(dead));
        }
        said
    }

    /// A line of a peek.
    pub(super) fn say_peeked(&self, info: &MessageInfo) -> String {
        let mut said = format!("{} {}", self.name(info.id), body(&info.content.body));
        if info.receive_count > 0 {
            let _ = write!(said, ", received {} times, {} failures", info.receive_count, info.failures);
        }
        if !info.group.is_empty() {
            let line = if info.line == 0 { "not in line yet".into() } else { format!("line {}", info.line) };
            let _ = write!(said, ", group {} {line}", info.group);
        }
        if let Some(due) = info.due {
            let _ = write!(said, ", due at {}", at(due.0));
        }
        if let Some(expires_at) = info.expires_at {
            let _ = write!(said, ", expires at {}", at(expires_at.0));
        }
        if let Some(lease) = &info.lease {
            let left = lease.deadline.0.saturating_sub(self.machine.model.clock.lease);
            let _ = write!(said, ", with {:?} for {}", lease.worker, span(left));
        }
        if let Some(dead) = &info.dead_letter {
            let _ = write!(said, ", {}", say_dead(dead));
        }
        said
    }

    /// All there is to know of a message.
    pub(super) fn say_message(&self, info: &MessageInfo) -> String {
        let state = match info.state {
            MessageState::Delayed => "delayed",
            MessageState::Ready => "ready",
            MessageState::Blocked => "blocked",
            MessageState::Leased => "leased",
        };
        let mut said = format!("id {}, ", info.id);
        let _ = writeln!(
            said,
            "{state} in {}, sequence {}, there since {}",
            short(&info.queue),
            info.place.sequence,
            at(info.enqueued_at.0)
        );
        let _ = writeln!(said, "{}", self.say_peeked(info));
        if info.place.priority != 4 {
            let _ = writeln!(said, "priority {}", info.place.priority);
        }
        if let Some(retry) = &info.retry {
            let words = [
                retry.max_attempts.map(|attempts| format!("{attempts} attempts")),
                retry.backoff_base_ms.map(|base| format!("backoff from {}", span(base))),
                retry.backoff_cap_ms.map(|cap| format!("up to {}", span(cap))),
            ];
            let _ = writeln!(
                said,
                "retry policy of its own: {}",
                words.into_iter().flatten().collect::<Vec<_>>().join(", ")
            );
        }
        for (name, value) in [
            ("dedup id", &info.dedup_id),
            ("dead letter to", &info.dead_letter_queue),
            ("content type", &info.content.content_type),
            ("type", &info.content.r#type),
            ("correlation id", &info.content.correlation_id),
            ("reply to", &info.content.reply_to),
        ] {
            if !value.is_empty() {
                let _ = writeln!(said, "{name}: {value}");
            }
        }
        for (name, value) in &info.content.tags {
            let _ = writeln!(said, "tag {name}={}", shortened(value));
        }
        for failure in &info.history {
            let class = match failure.class {
                FailureClass::Transient => "transient",
                FailureClass::Permanent => "permanent",
                FailureClass::LeaseExpired => "lease expired",
            };
            let _ = writeln!(
                said,
                "failed at {} after {}, {class}, worker {:?}, code {:?}, text {:?}",
                at(failure.failed_at.0),
                span(failure.failed_at.since(failure.started_at)),
                failure.worker,
                failure.code,
                shortened(&failure.text)
            );
        }
        said
    }

    pub(super) fn name(&self, id: MessageId) -> String {
        self.messages.iter().position(|known| *known == id).map_or_else(|| id.to_string(), |n| format!("m{}", n + 1))
    }

    fn place(&self, place: &PlaceRecord) -> String {
        place.message_id().map_or("nowhere".into(), |id| self.name(id))
    }

    pub(super) fn queue_name(&self, id: u64) -> String {
        let known = self.machine.model.queues.iter().find(|queue| queue.id == Some(id));
        known.map_or_else(|| format!("queue {id}"), |queue| short(&queue.name))
    }
}

fn say_dead(dead: &DeadLetter) -> String {
    let reason = match dead.reason {
        DeadReason::Attempts => "attempts used up",
        DeadReason::Rejected => "rejected",
        DeadReason::Expired => "expired",
        DeadReason::Group => "its group",
    };
    format!(
        "dead since {} from {} ({reason}; received {} times, {} failures)",
        at(dead.at.0),
        short(&dead.source),
        dead.receive_count,
        dead.failures
    )
}

fn named(queue: &QueueNamed) -> String {
    short(&QueueRef { namespace: queue.namespace.clone(), name: shortened(&queue.name) })
}

pub(super) fn short(queue: &QueueRef) -> String {
    if queue.namespace == "default" { queue.name.clone() } else { format!("{}@{}", queue.namespace, queue.name) }
}

pub(super) fn body(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= 40 { format!("{text:?}") } else { format!("{:?}", cut(&text)) }
}

/// Long texts by their beginning and length.
fn shortened(text: &str) -> String {
    if text.len() <= 160 { text.to_owned() } else { cut(text) }
}

fn cut(text: &str) -> String {
    let beginning: String = text.chars().take(20).collect();
    format!("{beginning}... ({} bytes)", text.len())
}
