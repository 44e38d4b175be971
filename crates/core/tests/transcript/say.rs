//! How the clerk words what the machine answers.

use std::fmt::Write as _;
use std::vec::IntoIter;

use ticketrail_core::command::QueueRef;
use ticketrail_core::query::{DeadLetter, DeadReason, Delivery, FailureClass, MessageInfo, MessageState};
use ticketrail_core::reply::{
    Answered, Committed, EnqueueOutcome, Handle, Part, PartRefused, PlaceRecord, QueueNamed, RejectionRecord,
    SettleOutcome,
};
use ticketrail_core::{Answer, MessageId, Query, Rejection, Reply};

use super::{Clerk, Said, at, span};

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
                | Answered::QueuePurged(_),
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
            Some(Answered::Committed(Committed { enqueued, settled })) => {
                for part in settled {
                    said.push_str(&self.say_settled(part.outcome.as_ref()));
                }
                for part in enqueued {
                    match &part.outcome {
                        Some(EnqueueOutcome::Enqueued(done)) => {
                            let _ = writeln!(said, "{} ready at {}", self.place(&done.place), at(done.available_at_ms));
                        }
                        Some(EnqueueOutcome::Rejected(rejected)) => said.push_str(&self.say_refused(rejected)),
                        None => said.push_str("no outcome\n"),
                    }
                }
            }
            Some(Answered::Received(received)) if received.handles.is_empty() => said.push_str("nothing\n"),
            Some(Answered::Received(received)) => {
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
            None => said.push_str("no answer\n"),
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
        if let Some(due) = info.due {
            let _ = write!(said, ", due at {}", at(due.0));
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
        for (name, value) in [
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

    pub(super) fn clock(&self) -> Said {
        let Answer::Clock(clock) = self.machine.ask(&Query::Clock)? else { return Err("expected the clock".into()) };
        Ok(format!("cluster {} lease {} term {}", at(clock.cluster.0), span(clock.lease.0), clock.term))
    }

    pub(super) fn stats(&self, queue: &QueueRef) -> Said {
        let Answer::Queue(found) = self.machine.ask(&Query::Queue(queue.clone()))? else {
            return Err("expected a queue".into());
        };
        let Some(info) = found else { return Ok("no such queue".into()) };
        let stats = info.stats;
        crate::harness::conserved(&stats)?;
        let mut said =
            format!("ready {} delayed {} leased {} bytes {}", stats.ready, stats.delayed, stats.leased, stats.bytes);
        if let Some(oldest) = stats.oldest_ready_at {
            let _ = write!(said, " oldest ready since {}", at(oldest.0));
        }
        said.push('\n');
        // Only what ever happened.
        let counters = [
            ("enqueued", stats.enqueued),
            ("moved_in", stats.moved_in),
            ("acked", stats.acked),
            ("moved_out", stats.moved_out),
            ("purged", stats.purged),
            ("dropped", stats.dropped),
            ("received", stats.received),
            ("redelivered", stats.redelivered),
            ("failed", stats.failed),
            ("lease_expired", stats.lease_expired),
            ("over_bound", stats.over_bound),
        ];
        let counted: Vec<String> =
            counters.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(said, "ever: {}", if counted.is_empty() { "nothing".into() } else { counted.join(" ") });
        Ok(said)
    }

    pub(super) fn queues(&self) -> Said {
        let query = Query::Queues { namespace: "default".into(), after: String::new(), limit: 100 };
        let Answer::Queues(found) = self.machine.ask(&query)? else { return Err("expected queues".into()) };
        let mut said = String::new();
        for info in &found {
            let _ = writeln!(said, "{} depth {}", short(&info.name), info.stats.depth());
        }
        Ok(if said.is_empty() { "none".into() } else { said })
    }

    pub(super) fn queue_settings(&self, queue: &QueueRef) -> Said {
        let Answer::Queue(found) = self.machine.ask(&Query::Queue(queue.clone()))? else {
            return Err("expected a queue".into());
        };
        let Some(info) = found else { return Ok("no such queue".into()) };
        let settings = info.settings;
        let number = |value: Option<u64>| value.map_or("absent".into(), |value| value.to_string());
        let time = |value: Option<u64>| value.map_or("absent".into(), span);
        let mut said = format!("queue {} since {}\n", info.id.0, at(info.created_at.0));
        let _ = writeln!(
            said,
            "max_depth {} max_bytes {} lease {} max_attempts {} failure_window {}",
            number(settings.max_depth),
            number(settings.max_bytes),
            time(settings.lease_ms),
            number(settings.max_attempts.map(u64::from)),
            time(settings.failure_window_ms)
        );
        let _ = writeln!(
            said,
            "backoff from {} to {}, dead letters to {:?}",
            time(settings.backoff_base_ms),
            time(settings.backoff_cap_ms),
            settings.dead_letter_queue.unwrap_or_else(|| "absent".into())
        );
        if let Some(pause) = info.paused {
            let until = if pause.until_ms == 0 { "resumed".into() } else { at(pause.until_ms) };
            let _ = writeln!(said, "paused until {until} by {:?}: {:?}", pause.author, pause.reason);
        }
        if info.closed {
            said.push_str("closed\n");
        }
        Ok(said)
    }

    pub(super) fn say_leases(&self) -> Said {
        let Answer::Leases(leases) = self.machine.ask(&Query::Leases { after: None, limit: 100 })? else {
            return Err("expected leases".into());
        };
        let mut said = String::new();
        for lease in &leases {
            let left = lease.deadline.0.saturating_sub(self.machine.model.clock.lease);
            let _ = writeln!(
                said,
                "{} sequence {} with {:?} for {}",
                self.queue_name(lease.queue.0),
                lease.sequence,
                lease.worker,
                span(left)
            );
        }
        Ok(if said.is_empty() { "none".into() } else { said })
    }

    fn name(&self, id: MessageId) -> String {
        self.messages.iter().position(|known| *known == id).map_or_else(|| id.to_string(), |n| format!("m{}", n + 1))
    }

    fn place(&self, place: &PlaceRecord) -> String {
        place.message_id().map_or("nowhere".into(), |id| self.name(id))
    }

    fn queue_name(&self, id: u64) -> String {
        let known = self.machine.model.queues.iter().find(|queue| queue.id == Some(id));
        known.map_or_else(|| format!("queue {id}"), |queue| short(&queue.name))
    }
}

fn say_dead(dead: &DeadLetter) -> String {
    let reason = match dead.reason {
        DeadReason::Attempts => "attempts used up",
        DeadReason::Rejected => "rejected",
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

fn short(queue: &QueueRef) -> String {
    if queue.namespace == "default" { queue.name.clone() } else { format!("{}@{}", queue.namespace, queue.name) }
}

fn body(bytes: &[u8]) -> String {
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
