//! Messages go to a receiver: leased, or taken for good.

use bytes::Bytes;
use prost::Message as _;
use ticketrail_core::Timestamp;
use ticketrail_core::command::Receive;
use ticketrail_core::query::DoneInfo;
use ticketrail_core::reply::{Answered, Handle, Received, Rejection, Taken};

use super::line::Leaving;
use super::queue::{Lease, Message, State, named};
use super::verbs::name_is_legal;
use super::{ANY_FIELD, Answer, Model, invalid};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
/// Expired messages that one receive ends.
const LOOKS: u32 = 200;

impl Model {
    pub(super) fn receive(&mut self, receive: &Receive, heard: Option<&Answered>) -> Result<Answer, String> {
        if let Some(Answered::Received(Received { handles, taken })) = heard {
            // A queue that this very entry has made may be named first here.
            for taken in taken {
                let name = ticketrail_core::command::QueueRef {
                    namespace: taken.queue.namespace.clone(),
                    name: taken.queue.name.clone(),
                };
                if let Some(index) = self.queue(&name) {
                    self.bind_queue_id(index, taken.handle.place.queue)?;
                }
            }
            let unnamed: Vec<usize> = receive
                .queues
                .iter()
                .filter_map(|name| self.queue(name))
                .filter(|i| self.queues[*i].id.is_none())
                .collect();
            let strange = handles.iter().map(|handle| handle.place.queue).find(|id| !self.knows_queue_id(*id));
            if let (Some(index), Some(id)) = (unnamed.first(), strange) {
                self.bind_queue_id(*index, id)?;
            }
        }
        Ok(self.deliver(receive))
    }

    fn deliver(&mut self, receive: &Receive) -> Answer {
        if receive.max == 0 || receive.max > 1_000 {
            return Err(invalid("max"));
        }
        if receive.queues.is_empty() || receive.queues.len() > 16 {
            return Err(invalid(ANY_FIELD));
        }
        if receive.lease_ms != 0 && !(SECOND..=12 * HOUR).contains(&receive.lease_ms) {
            return Err(invalid("lease"));
        }
        if receive.worker.len() > 256 {
            return Err(invalid("worker"));
        }
        for name in &receive.queues {
            name_is_legal(name)?;
        }
        if receive.queues.iter().any(|name| name.namespace != receive.queues[0].namespace) {
            return Err(invalid(ANY_FIELD));
        }
        if receive.queues.iter().all(|name| self.queue(name).is_none()) {
            return Err(Rejection::QueueNotFound(named(&receive.queues[0])));
        }
        let max_bytes = if receive.max_bytes == 0 { 4 << 20 } else { receive.max_bytes };
        let mut received = Received::default();
        let (mut count, mut bytes, mut looks) = (0, 0, 0);
        // Those that are there when the receive begins.
        let indexes: Vec<usize> = receive.queues.iter().filter_map(|name| self.queue(name)).collect();
        'queues: for index in indexes {
            if self.queues[index].paused.is_some() {
                continue;
            }
            while count < receive.max {
                let Some((sequence, contested)) = self.queues[index].next_delivery() else { break };
                let Some(message) = self.queues[index].message(sequence) else { break };
                if message.has_expired(self.clock.cluster) {
                    if looks == LOOKS {
                        break 'queues;
                    }
                    looks += 1;
                    self.end_expired(index, sequence);
                    continue;
                }
                let size = message.size();
                if count > 0 && bytes + size > max_bytes {
                    break 'queues;
                }
                bytes += size;
                count += 1;
                let priority = usize::from(message.priority);
                self.queues[index].contested[priority] += u64::from(contested);
                let handle = self.grant(index, sequence, receive);
                if receive.auto_ack {
                    received.taken.extend(self.taken(index, sequence, handle));
                    self.ack(index, sequence, Bytes::new());
                } else {
                    received.handles.push(handle);
                }
            }
        }
        Ok(Answered::Received(received))
    }

    fn grant(&mut self, index: usize, sequence: u64, receive: &Receive) -> Handle {
        let (now, lease_now, granted_index) = (self.clock.cluster, self.clock.lease, self.clock.index);
        let queue = &mut self.queues[index];
        let lease_ms = if receive.lease_ms == 0 { queue.settings.lease_ms.unwrap_or(0) } else { receive.lease_ms };
        let deadline = lease_now + lease_ms;
        let id = queue.id.unwrap_or_default();
        queue.counters.received += 1;
        let Some(message) = queue.message_mut(sequence) else { return Handle::default() };
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
        let handle = Handle {
            place: message.place(id).into(),
            receive_count: message.receive_count,
            failures: message.failures,
            granted_index,
            deadline_ms: deadline,
        };
        queue.counters.redelivered += u64::from(handle.receive_count > 1);
        handle
    }

    fn taken(&self, index: usize, sequence: u64, handle: Handle) -> Option<Taken> {
        let queue = &self.queues[index];
        let message: &Message = queue.message(sequence)?;
        Some(Taken {
            handle,
            id: message.id.origin.into(),
            queue: queue.named(),
            enqueued_at_ms: message.enqueued_at,
            group: message.group.clone(),
            content: message.content.encode_to_vec().into(),
        })
    }

    /// Done. What came of it can be read for a while, where the queue says so.
    pub(super) fn ack(&mut self, index: usize, sequence: u64, output: Bytes) {
        let now = self.clock.cluster;
        let queue = &mut self.queues[index];
        let keep = queue.settings.retain_done_ms.unwrap_or(0);
        let name = queue.name.clone();
        let Some(message) = queue.message(sequence) else { return };
        let group = message.group.clone();
        if keep > 0 {
            let outcome = DoneInfo {
                id: message.id,
                queue: name,
                finished_at: Timestamp(now),
                kept_until: Timestamp(now + keep),
                output,
                receive_count: message.receive_count,
                worker: message.lease().map(|lease| lease.worker.clone()).unwrap_or_default(),
            };
            queue.outcomes.push(outcome);
        }
        queue.drain.finish(now);
        self.leave(index, sequence, Leaving::Acked);
        self.promote(index, &group);
    }
}
