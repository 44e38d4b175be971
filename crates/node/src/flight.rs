//! What is on its way to the log, by queue: so that bounds are kept before an entry is applied, and so that no receive is
//! proposed which nothing can serve.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ticketrail_core::RequestId;
use ticketrail_core::command::{Commit, QueueRef};

/// What is on its way, of all queues.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<QueueRef, Load>,
    /// How many requests of one id: a repeat may set out before the first has its outcome.
    requests: HashMap<(u64, u64), usize>,
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

    fn add(&mut self, other: &Load) {
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
    request: Option<(u64, u64)>,
}

/// What the enqueues of a commit load on each of its queues.
pub(crate) fn loads(commit: &Commit) -> Vec<(QueueRef, Load)> {
    let mut loads: Vec<(QueueRef, Load)> = commit.queues.iter().map(|queue| (queue.clone(), Load::default())).collect();
    for part in &commit.enqueue {
        let at = usize::try_from(part.queue).unwrap_or(usize::MAX);
        let Some((_, load)) = loads.get_mut(at) else { continue };
        load.messages += 1;
        load.bytes += part.message.as_ref().map_or(0, |content| content.size());
        load.ready += u64::from(part.delay_ms == 0 && part.deliver_at_ms == 0);
    }
    loads
}

impl Flight {
    /// Notes a request that sets out.
    pub(crate) fn hold(self: &Arc<Self>, loads: Vec<(QueueRef, Load)>, request: Option<RequestId>) -> Hold {
        let request = request.map(|id| (id.session, id.seq));
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
        drop(inner);
        Hold { flight: self.clone(), loads, request }
    }

    /// What is on its way to a queue.
    pub(crate) fn load(&self, queue: &QueueRef) -> Load {
        self.inner.lock().queues.get(queue).copied().unwrap_or_default()
    }

    /// Whether a request of this id is on its way.
    pub(crate) fn has(&self, id: &RequestId) -> bool {
        self.inner.lock().requests.contains_key(&(id.session, id.seq))
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
        if let Some(request) = self.request
            && let Some(count) = inner.requests.get_mut(&request)
        {
            *count -= 1;
            if *count == 0 {
                inner.requests.remove(&request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ticketrail_core::command::{Content, Enqueue};

    use super::*;

    fn orders() -> QueueRef {
        QueueRef { namespace: "default".into(), name: "orders".into() }
    }

    #[test]
    fn what_sets_out_counts_until_its_outcome() {
        let part = |delay_ms| Enqueue { message: Some(Content::default()), delay_ms, ..Enqueue::default() };
        let commit = Commit { queues: vec![orders()], enqueue: vec![part(0), part(5), part(0)], ..Commit::default() };
        let flight = Arc::new(Flight::default());
        let id = RequestId { session: 3, seq: 4, ..RequestId::default() };
        let first = flight.hold(loads(&commit), Some(id));
        let second = flight.hold(loads(&commit), None);
        assert_eq!(flight.load(&orders()), Load { messages: 6, bytes: 0, ready: 4, asked: 0 });
        assert!(flight.has(&id));
        let repeat = flight.hold(Vec::new(), Some(id));
        drop(first);
        assert_eq!(flight.load(&orders()).messages, 3);
        assert!(flight.has(&id), "its repeat is on its way");
        drop(repeat);
        assert!(!flight.has(&id));
        drop(second);
        assert_eq!(flight.load(&orders()), Load::default());
        assert!(flight.inner.lock().queues.is_empty());
    }
}
