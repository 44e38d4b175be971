//! What the model shows of itself, in the machine's words.

use ticketrail_core::command::QueueRef;
use ticketrail_core::query::{LeaseInfo, MessageInfo, MessageState, QueueInfo, Stats};
use ticketrail_core::{LeaseTime, QueueId, Timestamp};

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

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats { bytes: self.bytes(), ..self.counters };
        for message in &self.messages {
            match &message.state {
                State::Delayed(_) => stats.delayed += 1,
                State::Leased(_) => stats.leased += 1,
                State::Ready(ready) => {
                    stats.ready += 1;
                    let since = Timestamp(ready.since);
                    stats.oldest_ready_at = Some(stats.oldest_ready_at.map_or(since, |oldest| oldest.min(since)));
                }
            }
        }
        stats
    }
}

impl Message {
    pub(crate) fn look(&self) -> MessageState {
        match self.state {
            State::Delayed(_) => MessageState::Delayed,
            State::Ready(_) => MessageState::Ready,
            State::Leased(_) => MessageState::Leased,
        }
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
                State::Delayed(Due::Between { .. }) | State::Ready(_) | State::Leased(_) => None,
            },
            lease: self.lease_info(id),
            dead_letter: self.dead_letter.clone(),
            history: self.history.clone(),
        }
    }
}

impl Model {
    /// The earliest time at which a delayed message is due, or a pause over.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let mut earliest = None;
        for queue in &self.queues {
            if let Some(until) = queue.paused.as_ref().map(|pause| pause.until_ms).filter(|until| *until > 0) {
                earliest = Some(earliest.map_or(until, |first: u64| first.min(until)));
            }
            for message in &queue.messages {
                if let State::Delayed(Due::At(due)) = message.state {
                    earliest = Some(earliest.map_or(due, |first: u64| first.min(due)));
                }
            }
        }
        earliest
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
