//! Parked receives: long polls that nothing can serve yet. They never reach the log before something can.
//!
//! Served by an enqueue, with which they share an entry; by messages that became ready, of which `apply` tells; and by
//! what an earlier receive left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ticketrail_core::command::{QueueRef, Receive};
use ticketrail_core::reply::QueueNamed;
use ticketrail_core::{Command, Rejection, Request, RequestId};
use tokio::sync::{Notify, watch};

use crate::broken::Broken;
use crate::call::Unavailable;
use crate::clock::{Clock, Instant};
use crate::consensus::AppliedState;
use crate::flight::{Flight, Load};
use crate::queue::{Asked, Pending, Queue, Resolution};
use crate::sessions::Slot;
use crate::signals::Signals;

/// Parked receives by queue, each queue's in order of arrival. One that names several waits at each of them.
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
    again: Notify,
    limit: usize,
    signals: Arc<Signals>,
    flight: Arc<Flight>,
    state: Arc<dyn AppliedState>,
    queue: Arc<Queue>,
    broken: Arc<Broken>,
    clock: Clock,
}

#[derive(Default)]
struct Inner {
    /// By arrival.
    parked: BTreeMap<u64, Parked>,
    queues: HashMap<QueueRef, BTreeSet<u64>>,
    arrivals: u64,
    again: BTreeSet<QueueRef>,
    closed: Option<Unavailable>,
}

/// A receive that waits.
pub(crate) struct Parked {
    pub(crate) receive: Receive,
    /// The caller's request id, or this node's slot for one.
    pub(crate) id: Identity,
    /// Whether a name without a queue waits for one.
    pub(crate) auto_create: bool,
    pub(crate) asked: Asked,
    /// When it was proposed.
    pub(crate) proposed_at: Arc<OnceLock<Instant>>,
}

/// Under which id a receive is proposed.
pub(crate) enum Identity {
    /// The caller's, with the fingerprint of this receive.
    Caller(RequestId),
    /// One of this node's, when it comes to it.
    Node(Slot),
}

/// A receive's place among the parked ones. Dropping it takes the receive out, if it is still there.
pub(crate) struct Ticket {
    waiters: Arc<Waiters>,
    arrival: u64,
}

/// Why a receive is not parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotParked {
    Full,
    Closed(Unavailable),
}

impl Waiters {
    pub(crate) fn new(
        limit: usize,
        signals: Arc<Signals>,
        flight: Arc<Flight>,
        state: Arc<dyn AppliedState>,
        queue: Arc<Queue>,
        broken: Arc<Broken>,
        clock: Clock,
    ) -> Self {
        Self { inner: Mutex::default(), again: Notify::new(), limit, signals, flight, state, queue, broken, clock }
    }

    /// Parks a receive: behind all others of its queue, or in its old place if it was parked before.
    pub(crate) fn park(self: &Arc<Self>, parked: Parked, before: Option<u64>) -> Result<Ticket, NotParked> {
        let mut inner = self.inner.lock();
        if let Some(why) = &inner.closed {
            return Err(NotParked::Closed(why.clone()));
        }
        if inner.parked.len() >= self.limit {
            return Err(NotParked::Full);
        }
        let arrival = before.unwrap_or_else(|| {
            inner.arrivals += 1;
            inner.arrivals
        });
        // Before the state is looked at: what becomes ready after that look wakes this receive.
        self.signals.parked();
        for queue in &parked.receive.queues {
            inner.queues.entry(queue.clone()).or_default().insert(arrival);
        }
        inner.parked.insert(arrival, parked);
        Ok(Ticket { waiters: self.clone(), arrival })
    }

    /// Proposes as many of a queue's parked receives as what is ready, and what is on its way, can serve.
    pub(crate) fn serve(&self, queue: &QueueRef) {
        let info = match self.state.queue(queue) {
            Ok(info) => info,
            Err(fault) => return self.broken.report(fault.to_string()),
        };
        let ready = match &info {
            Some(info) if info.paused.is_some() => return,
            Some(info) => info.stats.ready,
            None => 0,
        };
        let mut inner = self.inner.lock();
        let load = self.flight.load(queue);
        let available = ready.saturating_add(load.ready).saturating_sub(load.asked);
        let served = self.take(&mut inner, queue, available);
        let strangers = if info.is_none() { self.take_strict(&mut inner, queue) } else { Vec::new() };
        drop(inner);
        for pending in served {
            self.queue.push_own(vec![pending]);
        }
        for parked in strangers {
            let QueueRef { namespace, name } = parked.receive.queues.first().unwrap_or(queue).clone();
            let rejection = Rejection::QueueNotFound(QueueNamed { namespace, name });
            // Who asked may be gone.
            let _ = parked.asked.reply.send(Resolution::Rejected(rejection));
        }
    }

    /// Takes as many of a queue's parked receives as `ready` messages, which are about to be proposed, can serve.
    pub(crate) fn join(&self, queue: &QueueRef, ready: u64) -> Vec<Pending> {
        self.take(&mut self.inner.lock(), queue, ready)
    }

    /// Proposes a receive that may have been proposed before, whether or not there is something to lease.
    pub(crate) fn propose_now(&self, ticket: &Ticket) {
        let mut inner = self.inner.lock();
        let Some(parked) = self.remove(&mut inner, ticket.arrival) else { return };
        drop(inner);
        let asked_for = u64::from(parked.receive.max);
        let queue = parked.receive.queues.first().cloned().unwrap_or_default();
        let mut pending = self.propose(parked, &queue, asked_for);
        pending.repeat = true;
        self.queue.push_own(vec![pending]);
    }

    fn take(&self, inner: &mut Inner, queue: &QueueRef, mut available: u64) -> Vec<Pending> {
        let mut taken = Vec::new();
        while available > 0 {
            let Some(parked) = inner.first(queue).and_then(|first| self.remove(inner, first)) else { break };
            let asked_for = u64::from(parked.receive.max);
            available = available.saturating_sub(asked_for);
            taken.push(self.propose(parked, queue, asked_for));
        }
        taken
    }

    fn propose(&self, parked: Parked, queue: &QueueRef, asked_for: u64) -> Pending {
        // It has a place of its own for each time that it is parked.
        let _ = parked.proposed_at.set(self.clock.now());
        let command = Command::Receive(parked.receive);
        let (request, slot) = match parked.id {
            Identity::Caller(id) => (Request { id: Some(id), command: Some(command) }, None),
            Identity::Node(slot) => {
                (Request { id: Some(slot.assign(self.clock.now())), command: Some(command) }, Some(slot))
            }
        };
        let load = Load { asked: asked_for, ..Load::default() };
        let hold = self.flight.hold(vec![(queue.clone(), load)], Vec::new(), request.id);
        Pending::new(request, false, parked.asked, slot, Some(hold))
    }

    /// Takes the receives that do not wait for a queue to appear, and have no other that is there.
    fn take_strict(&self, inner: &mut Inner, queue: &QueueRef) -> Vec<Parked> {
        let Some(arrivals) = inner.queues.get(queue) else { return Vec::new() };
        let is_strict = |arrival: &&u64| inner.parked.get(arrival).is_some_and(|parked| !parked.auto_create);
        let strict: Vec<u64> = arrivals.iter().filter(is_strict).copied().collect();
        let mut taken = Vec::new();
        for arrival in strict {
            let others = inner.parked.get(&arrival).map_or(&[][..], |parked| &parked.receive.queues);
            let any_is_there =
                others.iter().filter(|other| *other != queue).any(|other| match self.state.queue(other) {
                    Ok(info) => info.is_some(),
                    Err(fault) => {
                        self.broken.report(fault.to_string());
                        true
                    }
                });
            if !any_is_there {
                taken.extend(self.remove(inner, arrival));
            }
        }
        taken
    }

    fn remove(&self, inner: &mut Inner, arrival: u64) -> Option<Parked> {
        let removed = inner.remove(arrival);
        if removed.is_some() {
            self.signals.unparked();
        }
        removed
    }

    /// Looks at queues once more, soon: receives of theirs have come back.
    pub(crate) fn look_again(&self, queues: BTreeSet<QueueRef>) {
        if queues.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        let waited_for: Vec<QueueRef> = queues.into_iter().filter(|queue| inner.queues.contains_key(queue)).collect();
        if waited_for.is_empty() {
            return;
        }
        inner.again.extend(waited_for);
        drop(inner);
        self.again.notify_one();
    }

    /// Ends all parked receives.
    pub(crate) fn refuse_all(&self, why: &Unavailable) {
        let mut inner = self.inner.lock();
        inner.queues.clear();
        let all = std::mem::take(&mut inner.parked);
        drop(inner);
        for parked in all.into_values() {
            self.signals.unparked();
            // Who asked may be gone.
            let _ = parked.asked.reply.send(Resolution::Unavailable(why.clone()));
        }
    }

    /// Ends all parked receives, and those to come.
    pub(crate) fn close(&self, why: &Unavailable) {
        self.inner.lock().closed = Some(why.clone());
        self.refuse_all(why);
    }

    /// How many receives are parked.
    pub(crate) fn count(&self) -> usize {
        self.inner.lock().parked.len()
    }

    /// The task that serves parked receives when something became ready.
    pub(crate) async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                woken = self.signals.woken() => {
                    for queue in woken {
                        match self.state.queue_by_id(queue) {
                            Ok(Some(info)) if self.has(&info.name) => self.serve(&info.name),
                            Ok(Some(_) | None) => {}
                            Err(fault) => self.broken.report(fault.to_string()),
                        }
                    }
                }
                () = self.again.notified() => {
                    let again = std::mem::take(&mut self.inner.lock().again);
                    for queue in again {
                        self.serve(&queue);
                    }
                }
                // The sender lives as long as the node.
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    fn has(&self, queue: &QueueRef) -> bool {
        self.inner.lock().queues.contains_key(queue)
    }
}

impl Inner {
    /// The receive that waits longest at a queue.
    fn first(&self, queue: &QueueRef) -> Option<u64> {
        self.queues.get(queue)?.first().copied()
    }

    fn remove(&mut self, arrival: u64) -> Option<Parked> {
        let removed = self.parked.remove(&arrival)?;
        for queue in &removed.receive.queues {
            if let Some(waiting) = self.queues.get_mut(queue) {
                waiting.remove(&arrival);
                if waiting.is_empty() {
                    self.queues.remove(queue);
                }
            }
        }
        Some(removed)
    }
}

impl Ticket {
    /// Its place in the order of arrivals.
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival
    }

    /// Takes the receive out. False: it was taken to be served.
    pub(crate) fn leave(&self) -> bool {
        let mut inner = self.waiters.inner.lock();
        self.waiters.remove(&mut inner, self.arrival).is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}
