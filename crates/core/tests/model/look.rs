//! What the model shows of itself, in the machine's words.

use ticketrail_core::command::QueueRef;
use ticketrail_core::query::{Filter, LeaseInfo, MessageInfo, MessageState, QueueInfo, Stats};
use ticketrail_core::{LeaseTime, MessageId, QueueId, Timestamp};

use super::Model;
use super::queue::{Due, Message, Queue, State};

impl Queue {
    pub(crate) fn info(&self) -> QueueInfo {
        QueueInfo {
            id: QueueId(self.id.unwrap_or_default()),
            name: self.name.clone(),
            created_at: Timestamp(self.created_at),
            settings: self.settings.clone(),
            paused: self.paused.clone(),
            closed: self.closed,
            stats: self.stats(),
        }
    }

    /// Figures, as the queue's record would tell them: those that tell of now and of the last touch may differ, see
    /// [`Model::expected_info`].
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats { bytes: self.bytes(), ..self.counters };
        let earlier = |oldest: Option<Timestamp>, since: u64| {
            Some(oldest.map_or(Timestamp(since), |at| at.min(Timestamp(since))))
        };
        for message in &self.messages {
            match &message.state {
                State::Delayed(_) => {
                    stats.delayed += 1;
                    if message.line > 0 {
                        stats.oldest_parked_at = earlier(stats.oldest_parked_at, message.parked_at);
                    }
                }
                State::Leased(_) => stats.leased += 1,
                State::Blocked { .. } => stats.blocked += 1,
                State::Ready(ready) => {
                    stats.ready += 1;
                    stats.oldest_ready_at = earlier(stats.oldest_ready_at, ready.since);
                }
            }
        }
        stats.dedup_ids = self.dedup.len() as u64;
        stats.retained = self.outcomes.len() as u64;
        stats.groups_blocked = self.blocked_groups.len() as u64;
        stats.rate_milli = self.drain.kept().or_else(|| self.expected_rate()).map(|rate| rate.milli());
        stats
    }

    /// What changes whenever the queue's record does.
    pub(crate) fn record(&self) -> impl PartialEq + use<> {
        let kept = Stats { rate_milli: None, oldest_parked_at: None, ..self.stats() };
        (
            kept,
            self.settings.clone(),
            self.paused.clone(),
            self.closed,
            self.set,
            self.next_sequence,
            self.next_line,
            self.contested,
        )
    }

    /// What is shown at `now`, where the design leaves it open: ids and outcomes whose time is over, or whose message a
    /// purge took, may be shown until a tick takes them, and the rate as at the last touch or as now.
    pub(crate) fn expected_info(&self, now: u64, shown: &Stats) -> QueueInfo {
        let mut info = self.info();
        let stats = &mut info.stats;
        let known = self.dedup.iter().filter(|known| !(known.finished && known.until <= now)).count() as u64;
        if (known..=stats.dedup_ids + self.stale.len() as u64).contains(&shown.dedup_ids) {
            stats.dedup_ids = shown.dedup_ids;
        }
        let kept = self.outcomes.iter().filter(|outcome| outcome.kept_until.0 > now).count() as u64;
        if (kept..=stats.retained).contains(&shown.retained) {
            stats.retained = shown.retained;
        }
        let rates = [self.drain.kept().or_else(|| self.expected_rate()), self.rate(now)];
        if rates.iter().any(|rate| match (rate.map(|rate| rate.milli()), shown.rate_milli) {
            (Some(rate), Some(shown)) => rate.abs_diff(shown) <= 1,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }) {
            stats.rate_milli = shown.rate_milli;
        }
        info
    }
}

impl Message {
    pub(crate) fn look(&self) -> MessageState {
        match self.state {
            State::Delayed(_) => MessageState::Delayed,
            State::Ready(_) => MessageState::Ready,
            State::Blocked { .. } => MessageState::Blocked,
            State::Leased(_) => MessageState::Leased,
        }
    }

    pub(crate) fn passes(&self, filter: &Filter) -> bool {
        let has_tag = |(tag, value): (&String, &String)| self.content.tags.get(tag) == Some(value);
        (filter.group.is_empty() || filter.group == self.group)
            && (filter.r#type.is_empty() || filter.r#type == self.content.r#type)
            && filter.tags.iter().all(has_tag)
            && filter.priority.is_none_or(|priority| priority == self.priority)
            && filter.enqueued_until.is_none_or(|until| self.enqueued_at <= until.0)
            && self.failures >= filter.min_failures
    }

    pub(crate) fn lease_info(&self, queue: u64) -> Option<LeaseInfo> {
        self.lease().map(|lease| LeaseInfo {
            queue: QueueId(queue),
            sequence: self.sequence,
            deadline: LeaseTime(lease.deadline),
            granted_index: lease.granted_index,
            granted_at: Timestamp(lease.granted_at),
            worker: lease.worker.clone(),
        })
    }

    pub(crate) fn info(&self, queue: &QueueRef, id: u64) -> MessageInfo {
        MessageInfo {
            id: self.id,
            place: self.place(id),
            queue: queue.clone(),
            content: self.content.clone(),
            enqueued_at: Timestamp(self.enqueued_at),
            state: self.look(),
            receive_count: self.receive_count,
            failures: self.failures,
            due: match self.state {
                State::Delayed(Due::At(due)) => Some(Timestamp(due)),
                State::Delayed(Due::Between { .. }) | State::Ready(_) | State::Blocked { .. } | State::Leased(_) => {
                    None
                }
            },
            lease: self.lease_info(id),
            dead_letter: self.dead_letter.clone(),
            history: self.history.clone(),
            group: self.group.clone(),
            line: self.line,
            dedup_id: self.dedup_id.clone(),
            expires_at: self.expires_at.map(Timestamp),
            retry: self.retry,
            dead_letter_queue: self.dead_letter_queue.clone(),
        }
    }
}

impl Model {
    /// A message by its id, wherever it is.
    pub(crate) fn get(&self, id: MessageId) -> Option<MessageInfo> {
        let mut found = None;
        for queue in &self.queues {
            let message = queue.messages.iter().find(|message| message.id == id);
            found = found.or_else(|| message.map(|message| message.info(&queue.name, queue.id.unwrap_or_default())));
        }
        found
    }

    /// All leases in order of (queue, sequence).
    pub(crate) fn leases(&self) -> Vec<LeaseInfo> {
        let mut leases: Vec<LeaseInfo> = Vec::new();
        for queue in &self.queues {
            for message in &queue.messages {
                leases.extend(message.lease_info(queue.id.unwrap_or_default()));
            }
        }
        leases.sort_by_key(|lease| (lease.queue, lease.sequence));
        leases
    }
}
