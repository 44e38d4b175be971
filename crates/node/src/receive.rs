//! One long poll, from its arrival to the messages it takes home.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use ticketrail_core::command::{Content, QueueRef};
use ticketrail_core::query::Delivery;
use ticketrail_core::reply::{Answered, Handle, Received, Taken};
use ticketrail_core::{Command, Fault, Rejection, Reply, Request, RequestId, Timestamp, limits};
use tokio::time::timeout_at;

use crate::attempt::{Attempt, Place, Route};
use crate::call::{CallError, Deliveries, ReceiveCall, Unavailable};
use crate::clock::Instant;
use crate::forward::client::Bound;
use crate::proposer::handles_of;
use crate::queue::{Resolution, Waiting, asked};
use crate::read::FEW;
use crate::release::Releases;
use crate::sessions::Slot;
use crate::shared::Shared;
use crate::waiters::{Identity, NotParked, Parked, Ticket};

/// How long a receive for which there is something outlasts its wait: its outcome is on its way.
const GRACE: Duration = Duration::from_secs(10);

/// What one round in the queue of receives ended with.
enum Round {
    /// Leases to hand out.
    Granted(Reply, Vec<Handle>, u64),
    /// Messages that were acked as they were received; or nothing, as the caller's request was granted before what is
    /// over by now.
    Taken(Reply, Vec<Taken>, u64),
    /// Somebody else was faster, or the session was over: wait on, in the same place.
    Again,
    /// The wait is over, and nothing was proposed.
    Over,
    /// It can't go on here.
    Ended(Attempt<Deliveries>),
}

/// The most that a receive may ask for, in bytes: its answer must fit into one message between peers.
const BYTES_MAX: u64 = 12 << 20;
/// The least time that a receive has to find the leader and a session, however short its wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// A receive over its attempts.
pub(crate) struct Receiving {
    call: ReceiveCall,
    /// Whether an earlier attempt may have been proposed.
    repeat: bool,
    /// Its place in a session of this node, unless the caller has one.
    slot: Option<Slot>,
    /// Its place in the order of arrivals, once it was parked here.
    arrival: Option<u64>,
    /// When it arrived here.
    begun: Instant,
}

impl Receiving {
    /// A receive whose id, where it has one, has the fingerprint that it keeps at every node.
    pub(crate) fn new(call: ReceiveCall, begun: Instant) -> Self {
        Self { repeat: call.repeat, call, slot: None, arrival: None, begun }
    }

    /// The repeat of a receive that has its number from a session of this node.
    #[cfg(test)]
    pub(crate) fn again(call: ReceiveCall, slot: Slot, begun: Instant) -> Self {
        Self { repeat: true, slot: Some(slot), ..Self::new(call, begun) }
    }
}

impl Shared {
    /// Waits for messages of a queue, here or at the leader.
    pub(crate) async fn receive(self: &Arc<Self>, mut call: ReceiveCall) -> Result<Deliveries, CallError> {
        self.admit()?;
        Self::check_receive(&call.receive)?;
        call.receive.max_bytes = call.receive.max_bytes.min(BYTES_MAX);
        call.wait = call.wait.min(Duration::from_millis(limits::WAIT_MAX_MS));
        if let Some(id) = call.id {
            call.id = Request::of(id, Command::Receive(call.receive.clone())).id;
        }
        let begun = self.config.clock.now();
        let deadline = begun + call.wait;
        let last = deadline.max(begun + PATIENCE);
        let mut receiving = Receiving::new(call, begun);
        let mut route = Route::new(self);
        loop {
            if self.is_cut_off() {
                return Err(self.no_leader(receiving.repeat));
            }
            let attempt = match route.place() {
                Place::Here => self.receive_here(&mut receiving, deadline).await,
                Place::At(leader) => {
                    let received = self.in_reach(self.receive_at(leader, &route, &mut receiving, deadline)).await;
                    received.unwrap_or_else(|| Attempt::Over(self.unknown()))
                }
                Place::Stopped => return Err(self.no_leader(receiving.repeat)),
            };
            match attempt {
                Attempt::Done(deliveries) => return Ok(deliveries),
                Attempt::Rejected(Rejection::SessionExpired(_) | Rejection::SessionWindow(_))
                    if receiving.slot.is_some() =>
                {
                    // What it may have been granted before is lost with the session: it waits on in another one.
                    if let Some(slot) = receiving.slot.take() {
                        slot.expired();
                    }
                    receiving.repeat = false;
                }
                Attempt::Rejected(rejection) => return Err(CallError::Rejected(rejection)),
                Attempt::Elsewhere(hint) => route.elsewhere(hint, last).await,
                Attempt::InDoubt => {
                    receiving.repeat = true;
                    route.wait(last).await;
                }
                Attempt::Over(error) => return Err(self.over(error, receiving.repeat)),
            }
            if let Some(reason) = self.broken.reason() {
                return Err(CallError::Broken(reason));
            }
            if self.is_draining() {
                return Err(self.over(CallError::Unavailable(Unavailable::Draining), receiving.repeat));
            }
            if self.config.clock.now() >= last {
                return Err(self.no_leader(receiving.repeat));
            }
        }
    }

    /// Has the leader wait.
    async fn receive_at(
        self: &Arc<Self>,
        leader: u64,
        route: &Route<'_>,
        receiving: &mut Receiving,
        deadline: Instant,
    ) -> Attempt<Deliveries> {
        let now = self.config.clock.now();
        let command = Command::Receive(receiving.call.receive.clone());
        let request = match receiving.call.id {
            Some(id) => Request { id: Some(id), command: Some(command) },
            None => {
                let fits = |slot: &Slot| receiving.repeat || slot.is_of(&self.poll_sessions);
                if !receiving.slot.as_ref().is_some_and(fits) {
                    match self.reserve(&self.poll_sessions, deadline.max(now + PATIENCE)).await {
                        Some(slot) => receiving.slot = Some(slot),
                        None => return Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum)),
                    }
                }
                let id = receiving.slot.as_ref().map(|slot| slot.assign(self.config.clock.now()));
                Request { id, command: Some(command) }
            }
        };
        let bound = Bound {
            leader,
            seen: route.seen(),
            line_by: deadline.max(now + PATIENCE),
            // The leader's own patience with what it has proposed, and a little for the way.
            answer_by: deadline.max(self.config.clock.now()) + GRACE + PATIENCE,
        };
        let before = self.config.clock.now().duration_since(receiving.begun);
        let polled = self.poll_at(bound, &request, receiving.repeat, (deadline, receiving.call.auto_create)).await;
        polled.map(|polled| Attempt::Done(Deliveries { waited: before + polled.waited, ..polled }))
    }

    /// Waits here, as long as this node leads or nobody does.
    pub(crate) async fn receive_here(
        self: &Arc<Self>,
        receiving: &mut Receiving,
        deadline: Instant,
    ) -> Attempt<Deliveries> {
        loop {
            let (identity, id) = match receiving.call.id {
                Some(id) => (Identity::Caller(id), Some(id)),
                None => {
                    let slot = match receiving.slot.take() {
                        Some(slot) => slot,
                        None => {
                            let by = deadline.max(self.config.clock.now() + PATIENCE);
                            match self.reserve(&self.sessions, by).await {
                                Some(slot) => slot,
                                None => return Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum)),
                            }
                        }
                    };
                    receiving.slot = Some(slot.clone());
                    (Identity::Node(slot), None)
                }
            };
            let (asked, waiting) = asked();
            let receive = receiving.call.receive.clone();
            let queues = receive.queues.clone();
            let proposed_at = Arc::new(OnceLock::new());
            let parked = Parked {
                receive,
                id: identity,
                auto_create: receiving.call.auto_create,
                asked,
                proposed_at: proposed_at.clone(),
            };
            let ticket = match self.waiters.park(parked, receiving.arrival) {
                Ok(ticket) => ticket,
                Err(NotParked::Full) => {
                    return Attempt::Over(CallError::Overloaded { queued_bytes: self.queue.bytes() });
                }
                Err(NotParked::Closed(why)) => return Attempt::Over(CallError::Unavailable(why)),
            };
            receiving.arrival = Some(ticket.arrival());
            let receiver = Receiver { waiting, id, releases: self.releases.clone() };
            if let Place::At(leader) = self.place()
                && ticket.leave()
            {
                // Another node came to lead before this was parked: nobody else would tell.
                return Attempt::Elsewhere(Some(leader));
            }
            if receiving.repeat {
                // It may have leased something before: only `apply` knows.
                self.waiters.propose_now(&ticket);
            } else {
                for queue in &queues {
                    self.waiters.serve(queue);
                }
            }
            let round = self.round(receiver, &ticket, receiving, deadline).await;
            // Before the same place is taken again.
            drop(ticket);
            match round {
                Round::Granted(reply, handles, term) => {
                    let waited = proposed_at.get().map(|at| at.duration_since(receiving.begun)).unwrap_or_default();
                    return self.hand_out(reply, id, handles, (term, waited)).await;
                }
                Round::Taken(reply, taken, term) => return self.hand_over(reply, taken, term),
                Round::Again => {
                    receiving.repeat = false;
                    // A parked receive holds no number.
                    receiving.slot = None;
                    if self.config.clock.now() >= deadline {
                        return self.nothing(false);
                    }
                }
                Round::Over => return self.nothing(receiving.repeat),
                Round::Ended(attempt) => return attempt,
            }
        }
    }

    async fn round(&self, mut receiver: Receiver, ticket: &Ticket, receiving: &Receiving, deadline: Instant) -> Round {
        let outcome = match self.in_reach(timeout_at(deadline, &mut receiver.waiting.outcome)).await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) | None if ticket.leave() => return Round::Over,
            Some(Err(_)) | None if !self.commits() && receiver.waiting.fate.withdraw() => return Round::Over,
            // There is something for it, and it is about to be proposed or has been.
            Some(Err(_)) | None => {
                let last = self.config.clock.now() + GRACE;
                match self.in_reach(timeout_at(last, &mut receiver.waiting.outcome)).await {
                    Some(Ok(outcome)) => outcome,
                    Some(Err(_)) | None if receiver.waiting.fate.withdraw() => return Round::Over,
                    Some(Err(_)) | None => return Round::Ended(Attempt::Over(self.unknown())),
                }
            }
        };
        match outcome {
            Ok(Resolution::Replied { reply, term }) => {
                let (reply, Received { handles, taken }) = split(reply);
                if !handles.is_empty() {
                    Round::Granted(reply, handles, term)
                } else if !taken.is_empty() || (reply.replayed && receiving.call.id.is_some()) {
                    Round::Taken(reply, taken, term)
                } else {
                    Round::Again
                }
            }
            Ok(Resolution::Rejected(Rejection::SessionExpired(_) | Rejection::SessionWindow(_)))
                if receiving.call.id.is_none() =>
            {
                Round::Again
            }
            Ok(Resolution::Rejected(Rejection::QueueNotFound(_))) if receiving.call.auto_create => Round::Again,
            Ok(resolution) => Round::Ended(Attempt::of(resolution, |reply, term| Deliveries {
                deliveries: Vec::new(),
                reply: Some(reply),
                origin: self.origin_of(term),
                waited: Duration::ZERO,
            })),
            // Whoever would tell has ended.
            Err(_) => Round::Ended(Attempt::Over(self.unknown())),
        }
    }

    /// The wait is over.
    fn nothing(&self, in_doubt: bool) -> Attempt<Deliveries> {
        if in_doubt {
            return Attempt::Over(self.unknown());
        }
        if !self.commits() {
            return Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum));
        }
        Attempt::Done(Deliveries { deliveries: Vec::new(), reply: None, origin: self.origin(), waited: Duration::ZERO })
    }

    /// What was acked already is in the reply.
    fn hand_over(&self, reply: Reply, taken: Vec<Taken>, term: u64) -> Attempt<Deliveries> {
        match taken.into_iter().map(delivery_of).collect::<Result<_, _>>() {
            Ok(deliveries) => Attempt::Done(Deliveries {
                deliveries,
                reply: Some(reply),
                origin: self.origin_of(term),
                waited: Duration::ZERO,
            }),
            Err(fault) => Attempt::Over(self.fault(&fault)),
        }
    }

    /// Reads the bodies. Where the receiver goes meanwhile, its leases are released.
    async fn hand_out(
        &self,
        reply: Reply,
        id: Option<RequestId>,
        handles: Vec<Handle>,
        (term, waited): (u64, Duration),
    ) -> Attempt<Deliveries> {
        let unread = Unread { handles: handles.clone(), id, releases: self.releases.clone() };
        let deliveries = if handles.len() <= FEW {
            self.state.deliveries(handles)
        } else {
            let state = self.state.clone();
            self.config.work.run(move || state.deliveries(handles)).await
        };
        match deliveries {
            Ok(deliveries) => {
                unread.handed_out();
                Attempt::Done(Deliveries { deliveries, reply: Some(reply), origin: self.origin_of(term), waited })
            }
            Err(fault) => Attempt::Over(self.fault(&fault)),
        }
    }
}

/// Takes what was received out of a reply.
fn split(mut reply: Reply) -> (Reply, Received) {
    match &mut reply.answered {
        Some(Answered::Received(received)) => {
            let received = std::mem::take(received);
            (reply, received)
        }
        Some(_) | None => (reply, Received::default()),
    }
}

/// A message that was acked as it was received: there is no lease, and so no token.
fn delivery_of(taken: Taken) -> Result<Delivery, Fault> {
    let broken = |expected, found: String| Fault::Broken { expected, key: String::new(), found };
    let Taken { handle, id, queue, enqueued_at_ms, group, content } = taken;
    let id = id.message_id().ok_or_else(|| broken("a message's id", format!("its lane is {}", id.lane)))?;
    let content = Content::decode(content).map_err(|error| broken("a message's content", error.to_string()))?;
    Ok(Delivery {
        id,
        queue: QueueRef { namespace: queue.namespace, name: queue.name },
        content,
        enqueued_at: Timestamp(enqueued_at_ms),
        token: Bytes::new(),
        remaining_ms: 0,
        receive_count: handle.receive_count,
        failures: handle.failures,
        dead_letter: None,
        group,
        priority: handle.place.place().map_or(limits::PRIORITY_DEFAULT, |place| place.priority),
    })
}

/// A receiver that waits for an outcome. If it goes, what it is granted is released: by whoever comes second, the
/// proposer that tells or the receiver that goes.
struct Receiver {
    waiting: Waiting,
    /// The caller's request id: a repeat of it gets what this one is granted.
    id: Option<RequestId>,
    releases: Arc<Releases>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.waiting.outcome.close();
        if let Ok(resolution) = self.waiting.outcome.try_recv() {
            self.releases.release(self.id, handles_of(resolution));
        }
    }
}

/// Leases granted and not yet handed out.
struct Unread {
    handles: Vec<Handle>,
    id: Option<RequestId>,
    releases: Arc<Releases>,
}

impl Unread {
    fn handed_out(mut self) {
        self.handles.clear();
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.releases.release(self.id, std::mem::take(&mut self.handles));
    }
}
