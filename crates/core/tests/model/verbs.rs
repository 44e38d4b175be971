//! What is done to queues: make, change, delete, purge, pause, close; enqueue and receive.

use ticketrail_core::command::{
    CloseQueue, Commit, CreateQueue, DeleteQueue, Enqueue, PauseQueue, PurgeQueue, QueueRef, QueueSettings, Receive,
    UpdateQueue,
};
use ticketrail_core::reply::{Answered, Enqueued, Handle, PlaceRecord, QueueChanged, Received, Rejection, Removed};
use ticketrail_core::{GroupId, MessageId, Namespace, Place, QueueId, QueueName, Space};

use super::queue::{Due, Lease, Message, PRIORITY, Queue, State, defaults, named};
use super::{Answer, Model, invalid};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

impl Model {
    pub(crate) fn queue(&self, name: &QueueRef) -> Option<usize> {
        self.queues.iter().position(|queue| queue.name == *name)
    }

    fn wanted(&self, name: &Option<QueueRef>) -> Result<usize, Rejection> {
        let name = name.as_ref().ok_or_else(|| invalid("queue"))?;
        name_is_legal(name)?;
        self.queue(name).ok_or_else(|| Rejection::QueueNotFound(named(name)))
    }

    fn changed(&self, index: usize) -> Answered {
        Answered::QueueChanged(QueueChanged { queue: self.queues[index].id.unwrap_or_default() })
    }

    pub(super) fn create(&mut self, create: &CreateQueue, heard: Option<&Answered>) -> Result<Answer, String> {
        match self.wanted(&create.queue) {
            Ok(index) => return Ok(Err(Rejection::QueueExists(self.queues[index].named()))),
            Err(Rejection::QueueNotFound(_)) => {}
            Err(other) => return Ok(Err(other)),
        }
        let name = create.queue.clone().unwrap_or_default();
        let settings = merged(&defaults(), &create.settings.clone().unwrap_or_default());
        if let Err(rejection) = check(&name, &settings) {
            return Ok(Err(rejection));
        }
        let index = self.found(name, settings);
        if let Some(Answered::QueueChanged(QueueChanged { queue })) = heard {
            self.bind_queue_id(index, *queue)?;
        }
        Ok(Ok(self.changed(index)))
    }

    /// A new queue; the machine names its id.
    pub(super) fn found(&mut self, name: QueueRef, settings: QueueSettings) -> usize {
        self.queues.push(Queue::new(name, settings, self.clock.cluster));
        self.queues.len() - 1
    }

    pub(super) fn update(&mut self, update: &UpdateQueue) -> Answer {
        let index = self.wanted(&update.queue)?;
        let settings = merged(&self.queues[index].settings, &update.settings.clone().unwrap_or_default());
        check(&self.queues[index].name, &settings)?;
        self.queues[index].settings = settings;
        Ok(self.changed(index))
    }

    pub(super) fn delete(&mut self, delete: &DeleteQueue) -> Answer {
        let index = self.wanted(&delete.queue)?;
        let gone = self.queues.remove(index);
        Ok(Answered::QueueDeleted(Removed { count: gone.depth() }))
    }

    /// What is not leased is gone at once; what is leased may finish.
    pub(super) fn purge(&mut self, purge: &PurgeQueue) -> Answer {
        let index = self.wanted(&purge.queue)?;
        let queue = &mut self.queues[index];
        let before = queue.depth();
        queue.messages.retain(|message| message.lease().is_some());
        let count = before - queue.depth();
        queue.counters.purged += count;
        for message in &mut queue.messages {
            if let Some(lease) = message.lease_mut() {
                lease.purged = true;
            }
        }
        Ok(Answered::QueuePurged(Removed { count }))
    }

    pub(super) fn pause(&mut self, pause: &PauseQueue) -> Answer {
        let index = self.wanted(&pause.queue)?;
        if let Some(pause) = &pause.pause {
            if pause.reason.len() > 512 {
                return Err(invalid("reason"));
            }
            if pause.author.len() > 512 {
                return Err(invalid("author"));
            }
            if pause.until_ms != 0 && pause.until_ms <= self.clock.cluster {
                return Err(invalid("until"));
            }
        }
        self.queues[index].paused = pause.pause.clone();
        Ok(self.changed(index))
    }

    pub(super) fn close(&mut self, close: &CloseQueue) -> Answer {
        let index = self.wanted(&close.queue)?;
        self.queues[index].closed = close.closed;
        Ok(self.changed(index))
    }

    pub(super) fn enqueue(&mut self, commit: &Commit, enqueue: &Enqueue) -> Result<(usize, Enqueued), Rejection> {
        let content = enqueue.message.clone().ok_or_else(|| invalid("message"))?;
        if content.body.len() > 4 << 20 {
            return Err(invalid("body"));
        }
        for (field, text) in [
            ("content_type", &content.content_type),
            ("type", &content.r#type),
            ("correlation_id", &content.correlation_id),
            ("reply_to", &content.reply_to),
        ] {
            if text.len() > 256 {
                return Err(invalid(field));
            }
        }
        if content.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 16 << 10 {
            return Err(invalid("headers"));
        }
        if content.tags.len() > 64 || content.tags.iter().any(|(tag, value)| tag.len() > 256 || value.len() > 256) {
            return Err(invalid("tags"));
        }
        let now = self.clock.cluster;
        let available_at = (now + enqueue.delay_ms).max(enqueue.deliver_at_ms);
        if enqueue.delay_ms > 366 * DAY {
            return Err(invalid("delay"));
        }
        if available_at > now + 366 * DAY {
            return Err(invalid("deliver_at"));
        }
        let name = commit.queues.get(enqueue.queue as usize).ok_or_else(|| invalid("queue"))?;
        name_is_legal(name)?;
        let index = match self.queue(name) {
            Some(index) => index,
            None if commit.auto_create => {
                check(name, &defaults())?;
                self.found(name.clone(), defaults())
            }
            None => return Err(Rejection::QueueNotFound(named(name))),
        };
        let queue = &mut self.queues[index];
        if queue.closed {
            return Err(Rejection::QueueClosed(queue.named()));
        }
        let space = if available_at > now { Space::Held } else { Space::Fresh };
        let sequence = queue.next_sequence;
        let place = Place { queue: QueueId(0), space, priority: PRIORITY, sequence };
        let id = MessageId { group: GroupId::QUEUES, origin: place };
        let mut message = Message::new(id, space, sequence, content, now);
        if available_at > now {
            message.state = State::Delayed(Due::At(available_at));
        }
        if let Some(full) = queue.bound_passed(message.size()) {
            return Err(Rejection::Full(full));
        }
        queue.next_sequence += 1;
        queue.counters.enqueued += 1;
        queue.messages.push(message);
        Ok((index, Enqueued { place: PlaceRecord::from(place), available_at_ms: available_at }))
    }

    /// Its id names its place, queue id included.
    pub(super) fn name_message(&mut self, index: usize, place: PlaceRecord) {
        let queue = &mut self.queues[index];
        let id = queue.id.unwrap_or_default();
        if let Some(message) = queue.message_mut(place.sequence) {
            message.id.origin.queue = QueueId(id);
        }
    }

    pub(super) fn receive(&mut self, receive: &Receive, heard: Option<&Answered>) -> Result<Answer, String> {
        if let [name] = receive.queues.as_slice() {
            self.hear_queue(&Some(name.clone()), heard)?;
        }
        Ok(self.deliver(receive))
    }

    fn deliver(&mut self, receive: &Receive) -> Answer {
        if receive.max == 0 || receive.max > 1_000 {
            return Err(invalid("max"));
        }
        let [name] = receive.queues.as_slice() else {
            return Err(invalid("queue"));
        };
        if receive.lease_ms != 0 && !(SECOND..=12 * HOUR).contains(&receive.lease_ms) {
            return Err(invalid("lease"));
        }
        if receive.worker.len() > 256 {
            return Err(invalid("worker"));
        }
        name_is_legal(name)?;
        let mut handles = Vec::new();
        let index = self.queue(name).ok_or_else(|| Rejection::QueueNotFound(named(name)))?;
        let (now, lease_now, granted_index) = (self.clock.cluster, self.clock.lease, self.clock.index);
        let queue = &mut self.queues[index];
        if queue.paused.is_some() {
            return Ok(Answered::Received(Received { handles }));
        }
        let lease_ms = if receive.lease_ms == 0 { queue.settings.lease_ms.unwrap_or(0) } else { receive.lease_ms };
        let max_bytes = if receive.max_bytes == 0 { 4 << 20 } else { receive.max_bytes };
        let deadline = lease_now + lease_ms;
        let mut bytes = 0;
        while handles.len() < receive.max as usize {
            let Some((sequence, contested)) = queue.next_delivery() else { break };
            let size = queue.message(sequence).map_or(0, Message::size);
            if !handles.is_empty() && bytes + size > max_bytes {
                break;
            }
            bytes += size;
            queue.contested += u64::from(contested);
            let id = queue.id.unwrap_or_default();
            let Some(message) = queue.message_mut(sequence) else { break };
            message.receive_count += 1;
            message.state = State::Leased(Lease {
                granted_index,
                granted_at: now,
                granted_lease: lease_now,
                deadline,
                worker: receive.worker.clone(),
                token: None,
                purged: false,
            });
            handles.push(Handle {
                place: message.place(id).into(),
                receive_count: message.receive_count,
                failures: message.failures,
                granted_index,
                deadline_ms: deadline,
            });
            let again = message.receive_count > 1;
            queue.counters.received += 1;
            queue.counters.redelivered += u64::from(again);
        }
        Ok(Answered::Received(Received { handles }))
    }
}

/// What `change` says, and where it says nothing, as it was.
fn merged(was: &QueueSettings, change: &QueueSettings) -> QueueSettings {
    QueueSettings {
        max_depth: change.max_depth.or(was.max_depth),
        max_bytes: change.max_bytes.or(was.max_bytes),
        lease_ms: change.lease_ms.or(was.lease_ms),
        max_attempts: change.max_attempts.or(was.max_attempts),
        failure_window_ms: change.failure_window_ms.or(was.failure_window_ms),
        backoff_base_ms: change.backoff_base_ms.or(was.backoff_base_ms),
        backoff_cap_ms: change.backoff_cap_ms.or(was.backoff_cap_ms),
        dead_letter_queue: change.dead_letter_queue.clone().or_else(|| was.dead_letter_queue.clone()),
    }
}

/// Every setting within its limits, and a dead-letter queue whose name fits and is another.
fn check(name: &QueueRef, settings: &QueueSettings) -> Result<(), Rejection> {
    let within = |value: Option<u64>, low, high| value.is_some_and(|value| (low..=high).contains(&value));
    if !within(settings.lease_ms, SECOND, 12 * HOUR) {
        return Err(invalid("lease_ms"));
    }
    if settings.max_attempts.is_some_and(|attempts| attempts > 100) {
        return Err(invalid("max_attempts"));
    }
    if !within(settings.failure_window_ms, SECOND, 366 * DAY) {
        return Err(invalid("failure_window_ms"));
    }
    if !within(settings.backoff_base_ms, 1, DAY) {
        return Err(invalid("backoff_base_ms"));
    }
    if !within(settings.backoff_cap_ms, settings.backoff_base_ms.unwrap_or(1), DAY) {
        return Err(invalid("backoff_cap_ms"));
    }
    let target = Queue::new(name.clone(), settings.clone(), 0).dead_letter_name();
    if QueueName::parse(target.name.clone()).is_err() || target == *name {
        let is_derived = settings.dead_letter_queue.as_ref().is_none_or(String::is_empty);
        return Err(invalid(if is_derived { "queue" } else { "dead_letter_queue" }));
    }
    Ok(())
}

fn name_is_legal(queue: &QueueRef) -> Result<(), Rejection> {
    if Namespace::parse(queue.namespace.clone()).is_err() {
        return Err(invalid("namespace"));
    }
    if QueueName::parse(queue.name.clone()).is_err() {
        return Err(invalid("queue"));
    }
    Ok(())
}
