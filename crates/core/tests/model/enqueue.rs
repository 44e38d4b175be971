//! A message comes to a queue, or is known there already.

use ticketrail_core::command::{Commit, Content, Enqueue, QueueRef, RetryPolicy};
use ticketrail_core::reply::{Enqueued, PlaceRecord, Rejection};
use ticketrail_core::{GroupId, MessageId, Place, QueueId, QueueName, Space};

use super::queue::{Due, Message, PRIORITY, Remembered, State, merged, named};
use super::verbs::{check, name_is_legal};
use super::{Model, invalid};

const DAY: u64 = 24 * 3_600_000;
const FAR: u64 = 366 * DAY;

impl Model {
    /// The queue, and what came of it.
    pub(super) fn enqueue(&mut self, commit: &Commit, enqueue: &Enqueue) -> Result<(usize, Enqueued), Rejection> {
        let now = self.clock.cluster;
        let content = enqueue.message.clone().ok_or_else(|| invalid("message"))?;
        content_is_legal(&content)?;
        let available_at = when(now, enqueue.delay_ms, enqueue.deliver_at_ms)?;
        let priority = enqueue.priority.unwrap_or(PRIORITY.into());
        if enqueue.group.len() > 256 {
            return Err(invalid("group"));
        }
        if priority > 9 {
            return Err(invalid("priority"));
        }
        if enqueue.dedup_id.len() > 256 {
            return Err(invalid("dedup_id"));
        }
        if enqueue.ttl_ms > FAR {
            return Err(invalid("ttl"));
        }
        if enqueue.expires_at_ms != 0 && enqueue.expires_at_ms <= available_at {
            return Err(invalid("expires_at"));
        }
        if let Some(retry) = &enqueue.retry {
            retry_is_legal(retry)?;
        }
        let own_grave = &enqueue.dead_letter_queue;
        if !own_grave.is_empty() && QueueName::parse(own_grave.clone()).is_err() {
            return Err(invalid("dead_letter_queue"));
        }
        let name = commit.queues.get(enqueue.queue as usize).ok_or_else(|| invalid("queue"))?;
        name_is_legal(name)?;
        if *own_grave == name.name {
            return Err(invalid("dead_letter_queue"));
        }
        let known = self.queues.len();
        let index = self.queue_to_fill(name, commit.auto_create)?;
        let result = self.admit(index, enqueue, content, available_at);
        if result.is_err() {
            // Nothing happened: no queue was made.
            self.queues.truncate(known);
        }
        result.map(|enqueued| (index, enqueued))
    }

    /// The message comes to its queue: a duplicate before all, then what a queue may say against it.
    fn admit(
        &mut self,
        index: usize,
        enqueue: &Enqueue,
        content: Content,
        available_at: u64,
    ) -> Result<Enqueued, Rejection> {
        let now = self.clock.cluster;
        let priority = enqueue.priority.unwrap_or(PRIORITY.into());
        let own_grave = &enqueue.dead_letter_queue;
        let queue = &self.queues[index];
        if let Some(known) = queue.remembers(&enqueue.dedup_id, now) {
            // When it is ready, wherever it is now.
            let id = queue.birth(known);
            let due = self.get(id).and_then(|message| message.due).map_or(now, |due| due.0);
            self.queues[index].counters.duplicates += 1;
            return Ok(Enqueued { place: PlaceRecord::from(id.origin), available_at_ms: due, duplicate: true });
        }
        let queue = &mut self.queues[index];
        if queue.closed {
            return Err(Rejection::QueueClosed(queue.named()));
        }
        let sequence = queue.next_sequence;
        let place = |space| Place { queue: QueueId(0), space, priority: priority as u8, sequence };
        let id = |space| MessageId { group: GroupId::QUEUES, origin: place(space) };
        let mut message = Message::new(id(Space::Fresh), Space::Fresh, sequence, content, now);
        let is_delayed = available_at > now;
        if let Some(full) = queue.bound_passed(message.size(), priority as u8, is_delayed, now) {
            return Err(Rejection::Full(full));
        }
        let ttl = [enqueue.ttl_ms, queue.settings.ttl_ms.unwrap_or(0)];
        let ttl = if enqueue.ttl_ms == 0 && enqueue.expires_at_ms == 0 { ttl[1] } else { ttl[0] };
        let by_ttl = (ttl > 0).then_some(available_at + ttl);
        let by_time = (enqueue.expires_at_ms > 0).then_some(enqueue.expires_at_ms);
        message.expires_at = by_ttl.into_iter().chain(by_time).min();
        message.group = enqueue.group.clone();
        message.dedup_id = enqueue.dedup_id.clone();
        message.retry = enqueue.retry;
        message.dead_letter_queue = own_grave.clone();
        if is_delayed {
            message.state = State::Delayed(Due::At(available_at));
        }
        queue.next_sequence += 1;
        queue.counters.enqueued += 1;
        queue.messages.push(message);
        if !is_delayed && !self.join(index, sequence) {
            self.put(index, sequence, State::Blocked { until: 0 });
        }
        let queue = &mut self.queues[index];
        let until = now + queue.settings.dedup_window_ms.unwrap_or(0);
        let Some(message) = queue.message_mut(sequence) else { return Err(invalid("message")) };
        // Only what is ready at once is born in the fresh lane.
        if !matches!(message.state, State::Ready(_)) {
            message.space = Space::Held;
            message.id = id(Space::Held);
        }
        let space = message.space;
        if !enqueue.dedup_id.is_empty() {
            let dedup_id = enqueue.dedup_id.clone();
            queue.dedup.retain(|known| known.dedup_id != dedup_id);
            queue.stale.retain(|stale| *stale != dedup_id);
            let priority = priority as u8;
            queue.dedup.push(Remembered { dedup_id, space, priority, sequence, until, finished: false });
        }
        Ok(Enqueued { place: PlaceRecord::from(place(space)), available_at_ms: available_at, duplicate: false })
    }

    fn put(&mut self, index: usize, sequence: u64, state: State) {
        if let Some(message) = self.queues[index].message_mut(sequence) {
            message.state = state;
        }
    }

    /// The queue of this name, made where commit and namespace allow it.
    fn queue_to_fill(&mut self, name: &QueueRef, auto_create: bool) -> Result<usize, Rejection> {
        if let Some(index) = self.queue(name) {
            return Ok(index);
        }
        let namespace = self.namespaces.iter().find(|namespace| namespace.name == name.namespace);
        if !auto_create || namespace.is_some_and(|namespace| !namespace.auto_create) {
            return Err(Rejection::QueueNotFound(named(name)));
        }
        let settings = merged(&self.defaults_of(&name.namespace), &Default::default());
        check(name, &settings)?;
        Ok(self.found(name.clone(), settings))
    }

    /// Its id names its place, queue id included.
    pub(super) fn name_message(&mut self, index: usize, place: PlaceRecord) {
        let queue = &mut self.queues[index];
        let id = queue.id.unwrap_or_default();
        if let Some(message) = queue.message_mut(place.sequence) {
            message.id.origin.queue = QueueId(id);
        }
    }
}

/// When a message is ready: of a delay and a time the later, neither of them far off.
pub(super) fn when(now: u64, delay_ms: u64, deliver_at_ms: u64) -> Result<u64, Rejection> {
    if delay_ms > FAR {
        return Err(invalid("delay"));
    }
    let at = (now + delay_ms).max(deliver_at_ms);
    if at > now + FAR { Err(invalid("deliver_at")) } else { Ok(at) }
}

fn retry_is_legal(retry: &RetryPolicy) -> Result<(), Rejection> {
    if retry.max_attempts.is_some_and(|attempts| attempts > 100) {
        return Err(invalid("max_attempts"));
    }
    if retry.backoff_base_ms.is_some_and(|base| !(1..=DAY).contains(&base)) {
        return Err(invalid("backoff_base_ms"));
    }
    let base = retry.backoff_base_ms.unwrap_or(1);
    if retry.backoff_cap_ms.is_some_and(|cap| !(base..=DAY).contains(&cap)) {
        return Err(invalid("backoff_cap_ms"));
    }
    Ok(())
}

fn content_is_legal(content: &Content) -> Result<(), Rejection> {
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
    Ok(())
}
