//! What is done to queues and namespaces: make, change, delete, purge, pause, close.

use ticketrail_core::command::{
    CloseQueue, CreateQueue, DeleteNamespace, DeleteQueue, PauseQueue, PurgeQueue, QueueRef, QueueSettings,
    SetNamespace, ShedRule, UpdateQueue,
};
use ticketrail_core::query::NamespaceInfo;
use ticketrail_core::reply::{Answered, Empty, QueueChanged, QueueNamed, Rejection, Removed};
use ticketrail_core::{Namespace, QueueName};

use super::queue::{Message, Queue, Remembered, defaults, merged, named};
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
        let given = create.settings.clone().unwrap_or_default();
        let settings = merged(&self.defaults_of(&name.namespace), &given);
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
        self.founded += 1;
        self.queues.push(Queue::new(self.founded, name, settings, self.clock.cluster));
        self.queues.len() - 1
    }

    pub(super) fn update(&mut self, update: &UpdateQueue) -> Answer {
        let index = self.wanted(&update.queue)?;
        let settings = merged(&self.queues[index].settings, &update.settings.clone().unwrap_or_default());
        check(&self.queues[index].name, &settings)?;
        self.queues[index].settings = settings;
        self.queues[index].set += 1;
        Ok(self.changed(index))
    }

    pub(super) fn delete(&mut self, delete: &DeleteQueue) -> Answer {
        let index = self.wanted(&delete.queue)?;
        let gone = self.queues.remove(index);
        // Ticks sweep it; a line elsewhere that waits for one of its dead letters goes on then.
        self.freed.extend(gone.messages.iter().filter_map(|message| message.holds_up.clone()));
        Ok(Answered::QueueDeleted(Removed { count: gone.depth() }))
    }

    /// What is not leased is gone at once; what is leased may finish.
    pub(super) fn purge(&mut self, purge: &PurgeQueue) -> Answer {
        let index = self.wanted(&purge.queue)?;
        let queue = &mut self.queues[index];
        queue.set += 1;
        let before = queue.depth();
        let (left, taken) = queue.messages.drain(..).partition(|message| message.lease().is_some());
        queue.messages = left;
        self.freed.extend(taken.iter().filter_map(|message: &Message| message.holds_up.clone()));
        let is_free = |known: &Remembered| !known.finished && taken.iter().any(|gone| gone.sequence == known.sequence);
        queue.stale.extend(queue.dedup.iter().filter(|known| is_free(known)).map(|known| known.dedup_id.clone()));
        queue.dedup.retain(|known| !is_free(known));
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
        self.queues[index].set += 1;
        Ok(self.changed(index))
    }

    pub(super) fn close(&mut self, close: &CloseQueue) -> Answer {
        let index = self.wanted(&close.queue)?;
        self.queues[index].closed = close.closed;
        self.queues[index].set += 1;
        Ok(self.changed(index))
    }

    /// What queues of a namespace get that are made now.
    pub(super) fn defaults_of(&self, namespace: &str) -> QueueSettings {
        let own = self.namespaces.iter().find(|known| known.name == namespace);
        merged(&defaults(), &own.map(|own| own.defaults.clone()).unwrap_or_default())
    }

    pub(super) fn set_namespace(&mut self, set: &SetNamespace) -> Answer {
        if Namespace::parse(set.namespace.clone()).is_err() {
            return Err(invalid("namespace"));
        }
        let own = set.defaults.clone().unwrap_or_default();
        limits_are_kept(&merged(&defaults(), &own))?;
        // One queue cannot be the dead-letter queue of all.
        if own.dead_letter_queue.as_ref().is_some_and(|name| !name.is_empty()) {
            return Err(invalid("dead_letter_queue"));
        }
        self.namespaces.retain(|known| known.name != set.namespace);
        self.namespaces.push(NamespaceInfo {
            name: set.namespace.clone(),
            defaults: own,
            auto_create: set.auto_create.unwrap_or(true),
        });
        Ok(Answered::NamespaceChanged(Empty {}))
    }

    pub(super) fn delete_namespace(&mut self, delete: &DeleteNamespace) -> Answer {
        if Namespace::parse(delete.namespace.clone()).is_err() {
            return Err(invalid("namespace"));
        }
        let before = self.namespaces.len();
        self.namespaces.retain(|known| known.name != delete.namespace);
        if self.namespaces.len() == before {
            let name = QueueNamed { namespace: delete.namespace.clone(), name: String::new() };
            return Err(Rejection::NamespaceNotFound(name));
        }
        Ok(Answered::NamespaceChanged(Empty {}))
    }
}

/// Every setting within its limits, and a dead-letter queue whose name fits and is another.
pub(super) fn check(name: &QueueRef, settings: &QueueSettings) -> Result<(), Rejection> {
    limits_are_kept(settings)?;
    let target = Queue::new(0, name.clone(), settings.clone(), 0).dead_letter_name();
    if QueueName::parse(target.name.clone()).is_err() || target == *name {
        let is_derived = settings.dead_letter_queue.as_ref().is_none_or(String::is_empty);
        return Err(invalid(if is_derived { "queue" } else { "dead_letter_queue" }));
    }
    Ok(())
}

fn limits_are_kept(settings: &QueueSettings) -> Result<(), Rejection> {
    let within = |value: Option<u64>, low, high| value.is_some_and(|value| (low..=high).contains(&value));
    let base = settings.backoff_base_ms.unwrap_or(1);
    for (field, value, low, high) in [
        ("lease_ms", settings.lease_ms, SECOND, 12 * HOUR),
        ("max_attempts", settings.max_attempts.map(u64::from), 0, 100),
        ("failure_window_ms", settings.failure_window_ms, SECOND, 366 * DAY),
        ("backoff_base_ms", settings.backoff_base_ms, 1, DAY),
        ("backoff_cap_ms", settings.backoff_cap_ms, base, DAY),
        ("max_wait_ms", settings.max_wait_ms, 0, 366 * DAY),
        ("expected_rate_milli", settings.expected_rate_milli, 0, 1_000_000_000),
        ("ttl_ms", settings.ttl_ms, 0, 366 * DAY),
        ("retain_done_ms", settings.retain_done_ms, 0, 7 * DAY),
        ("age_slo_ms", settings.age_slo_ms, 0, 366 * DAY),
        ("dedup_window_ms", settings.dedup_window_ms, SECOND, 30 * DAY),
    ] {
        if !within(value, low, high) {
            return Err(invalid(field));
        }
    }
    for (field, value, last) in [
        ("on_group_failure", settings.on_group_failure, 2),
        ("on_expired", settings.on_expired, 1),
        ("on_exhausted", settings.on_exhausted, 1),
    ] {
        if !value.is_some_and(|value| (0..=last).contains(&value)) {
            return Err(invalid(field));
        }
    }
    let rules = settings.shed.clone().unwrap_or_default().rules;
    if rules.len() > 10 {
        return Err(invalid("shed"));
    }
    for ShedRule { above_percent, below_priority } in rules {
        if above_percent > 99 {
            return Err(invalid("shed.above_percent"));
        }
        if !(1..=9).contains(&below_priority) {
            return Err(invalid("shed.below_priority"));
        }
    }
    for (field, text) in [("owner", &settings.owner), ("runbook_url", &settings.runbook_url)] {
        if text.as_ref().is_some_and(|text| text.len() > 512) {
            return Err(invalid(field));
        }
    }
    Ok(())
}

pub(super) fn name_is_legal(queue: &QueueRef) -> Result<(), Rejection> {
    if Namespace::parse(queue.namespace.clone()).is_err() {
        return Err(invalid("namespace"));
    }
    if QueueName::parse(queue.name.clone()).is_err() {
        return Err(invalid("queue"));
    }
    Ok(())
}
