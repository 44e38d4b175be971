//! What is on its way to the log, by queue: so that bounds are kept before an entry is applied, and so that no receive is
//! proposed which nothing can serve.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ticketrail_core::RequestId;
use ticketrail_core::command::{Commit, Enqueue, QueueRef};

/// What is on its way, of all queues.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<QueueRef, Load>,
    /// How many requests of one id: a repeat may set out before the first has its outcome.
    requests: HashMap<RequestKey, usize>,
    /// How many enqueues with one dedup id.
    dedup_ids: HashMap<(QueueRef, String), usize>,
}

/// What tells requests apart: session and number, or the two halves of an id of 16 bytes.
type RequestKey = (u64, u64, u64, u64);

fn key_of(id: &RequestId) -> RequestKey {
    (id.session, id.seq, id.token_high, id.token_low)
}

/// What is on its way to one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    /// Messages.
    pub(crate) messages: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Those of the messages that are ready at once.
    pub(crate) ready: u64,
    /// Messages asked for by receives.
    pub(crate) asked: u64,
}

impl Load {
    fn is_none(&self) -> bool {
        *self == Load::default()
    }

    /// What one enqueue loads on its queue.
    pub(crate) fn of(part: &Enqueue) -> Self {
        let bytes = part.message.as_ref().map_or(0, |content| content.size());
        let ready = u64::from(part.delay_ms == 0 && part.deliver_at_ms == 0);
        Self { messages: 1, bytes, ready, asked: 0 }
    }

    pub(crate) fn add(&mut self, other: &Load) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.ready += other.ready;
        self.asked += other.asked;
    }

    fn subtract(&mut self, other: &Load) {
        self.messages = self.messages.saturating_sub(other.messages);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.ready = self.ready.saturating_sub(other.ready);
        self.asked = self.asked.saturating_sub(other.asked);
    }
}

/// One request's part of what is on its way. Dropping it takes it out.
#[derive(Debug)]
pub(crate) struct Hold {
    flight: Arc<Flight>,
    loads: Vec<(QueueRef, Load)>,
    request: Option<RequestKey>,
    dedup_ids: Vec<(QueueRef, String)>,
}

/// The dedup ids of a commit's enqueues.
pub(crate) fn dedup_ids(commit: &Commit) -> Vec<(QueueRef, String)> {
    let named = commit.enqueue.iter().filter(|part| !part.dedup_id.is_empty());
    let queue = |part: &Enqueue| usize::try_from(part.queue).ok().and_then(|at| commit.queues.get(at)).cloned();
    named.filter_map(|part| Some((queue(part)?, part.dedup_id.clone()))).collect()
}

/// What the enqueues of a commit load on each of its queues.
pub(crate) fn loads(commit: &Commit) -> Vec<(QueueRef, Load)> {
    let mut loads: Vec<(QueueRef, Load)> = commit.queues.iter().map(|queue| (queue.clone(), Load::default())).collect();
    for part in &commit.enqueue {
        let at = usize::try_from(part.queue).unwrap_or(usize::MAX);
        if let Some((_, load)) = loads.get_mut(at) {
            load.add(&Load::of(part));
        }
    }
    loads
}

impl Flight {
    /// Notes a request that sets out.
    pub(crate) fn hold(
        self: &Arc<Self>,
        loads: Vec<(QueueRef, Load)>,
        dedup_ids: Vec<(QueueRef, String)>,
        request: Option<RequestId>,
    ) -> Hold {
        let request = request.as_ref().map(key_of);
        let mut inner = self.inner.lock();
        for (queue, load) in &loads {
            match inner.queues.get_mut(queue) {
                Some(known) => known.add(load),
                None => {
                    inner.queues.insert(queue.clone(), *load);
                }
            }
        }
        if let Some(request) = request {
            *inner.requests.entry(request).or_default() += 1;
        }
        for named in &dedup_ids {
            *inner.dedup_ids.entry(named.clone()).or_default() += 1;
        }
        drop(inner);
        Hold { flight: self.clone(), loads, request, dedup_ids }
    }

    /// What is on its way to a queue.
    pub(crate) fn load(&self, queue: &QueueRef) -> Load {
        self.inner.lock().queues.get(queue).copied().unwrap_or_default()
    }

    /// Whether a request of this id is on its way.
    pub(crate) fn has(&self, id: &RequestId) -> bool {
        self.inner.lock().requests.contains_key(&key_of(id))
    }

    /// Whether an enqueue with one of these dedup ids is on its way.
    pub(crate) fn has_any_dedup_id(&self, dedup_ids: &[(QueueRef, String)]) -> bool {
        let inner = self.inner.lock();
        dedup_ids.iter().any(|named| inner.dedup_ids.contains_key(named))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.flight.inner.lock();
        for (queue, load) in &self.loads {
            if let Some(known) = inner.queues.get_mut(queue) {
                known.subtract(load);
                if known.is_none() {
                    inner.queues.remove(queue);
                }
            }
        }
        if let Some(request) = &self.request {
            count_down(&mut inner.requests, request);
        }
        for named in &self.dedup_ids {
            count_down(&mut inner.dedup_ids, named);
        }
    }
}

fn count_down<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use ticketrail_core::command::Content;

    use super::*;

    fn orders() -> QueueRef {
        QueueRef { namespace: "default".into(), name: "orders".into() }
    }

    #[test]
    fn what_sets_out_counts_until_its_outcome() {
        let part = |delay_ms| Enqueue {
            message: Some(Content::default()),
            delay_ms,
            dedup_id: "o-7001".into(),
            ..Enqueue::default()
        };
        let named = [(orders(), "o-7001".to_owned())];
        let commit = Commit { queues: vec![orders()], enqueue: vec![part(0), part(5), part(0)], ..Commit::default() };
        let flight = Arc::new(Flight::default());
        let id = RequestId { session: 3, seq: 4, ..RequestId::default() };
        let first = flight.hold(loads(&commit), dedup_ids(&commit), Some(id));
        let second = flight.hold(loads(&commit), Vec::new(), None);
        assert_eq!(flight.load(&orders()), Load { messages: 6, bytes: 0, ready: 4, asked: 0 });
        assert!(flight.has(&id));
        let repeat = flight.hold(Vec::new(), Vec::new(), Some(id));
        assert!(flight.has_any_dedup_id(&named));
        drop(first);
        assert!(!flight.has_any_dedup_id(&named));
        assert_eq!(flight.load(&orders()).messages, 3);
        assert!(flight.has(&id), "its repeat is on its way");
        drop(repeat);
        assert!(!flight.has(&id));
        drop(second);
        assert_eq!(flight.load(&orders()), Load::default());
        assert!(flight.inner.lock().queues.is_empty());
        let token = RequestId { token_high: 3, token_low: 4, ..RequestId::default() };
        let _held = flight.hold(Vec::new(), Vec::new(), Some(token));
        assert!(flight.has(&token) && !flight.has(&id));
    }
}
