//! One long poll, from its arrival to the messages it takes home.

use std::sync::Arc;
use std::time::Duration;

use ticketrail_core::reply::Handle;
use ticketrail_core::{Rejection, Reply, limits};
use tokio::time::timeout_at;

use crate::call::{CallError, Deliveries, ReceiveCall, Unavailable};
use crate::clock::Instant;
use crate::proposer::handles_of;
use crate::queue::{Resolution, Waiting, asked};
use crate::read::FEW;
use crate::release::Releases;
use crate::shared::Shared;
use crate::waiters::{Identity, NotParked, Parked, Ticket, queue_of};

/// How long a receive that has been proposed outlasts its wait: its outcome is on its way.
const GRACE: Duration = Duration::from_secs(10);

/// What one round in the queue of receives ended with.
enum Round {
    /// Leases to hand out.
    Granted(Reply, Vec<Handle>, u64),
    /// Somebody else was faster, or the session was over: wait on, in the same place.
    Again,
    /// The wait is over, and nothing was proposed.
    Over,
}

impl Shared {
    /// Waits for messages of a queue.
    pub(crate) async fn receive(self: &Arc<Self>, call: ReceiveCall) -> Result<Deliveries, CallError> {
        self.admit()?;
        Self::check_receive(&call.receive)?;
        let wait = call.wait.min(Duration::from_millis(limits::WAIT_MAX_MS));
        let deadline = self.config.clock.now() + wait;
        let mut repeat = call.repeat;
        let mut arrival = None;
        loop {
            let identity = match call.id {
                Some(id) => Identity::Caller(id),
                None => {
                    let slot = timeout_at(deadline.max(self.config.clock.now() + GRACE), self.sessions.reserve());
                    Identity::Node(slot.await.map_err(|_| CallError::Unavailable(Unavailable::NoQuorum))?)
                }
            };
            let (asked, waiting) = asked();
            let parked = Parked { receive: call.receive.clone(), id: identity, auto_create: call.auto_create, asked };
            let ticket = self.waiters.park(parked, arrival).map_err(|why| match why {
                NotParked::Full => CallError::Overloaded { queued_bytes: self.queue.bytes() },
                NotParked::Closed(why) => CallError::Unavailable(why),
            })?;
            arrival = Some(ticket.arrival());
            let receiver = Receiver { waiting, releases: self.releases.clone() };
            if repeat {
                // It may have leased something before: only `apply` knows.
                self.waiters.propose_now(&ticket);
            } else {
                self.waiters.serve(&queue_of(&call.receive));
            }
            match self.round(receiver, &ticket, &call, deadline).await? {
                Round::Granted(reply, handles, term) => return self.hand_out(reply, handles, term).await,
                Round::Again if self.config.clock.now() < deadline => repeat = false,
                Round::Again => return self.nothing(false),
                Round::Over => return self.nothing(repeat),
            }
            // Before the same place is taken again.
            drop(ticket);
        }
    }

    async fn round(
        &self,
        mut receiver: Receiver,
        ticket: &Ticket,
        call: &ReceiveCall,
        deadline: Instant,
    ) -> Result<Round, CallError> {
        let outcome = match timeout_at(deadline, &mut receiver.waiting.outcome).await {
            Ok(outcome) => outcome,
            Err(_) if ticket.leave() || receiver.waiting.fate.withdraw() => return Ok(Round::Over),
            Err(_) => {
                let last = self.config.clock.now() + GRACE;
                match timeout_at(last, &mut receiver.waiting.outcome).await {
                    Ok(outcome) => outcome,
                    Err(_) => return Err(self.unknown()),
                }
            }
        };
        match outcome {
            Ok(Resolution::Replied { reply, term }) => {
                let handles = handles_of(Resolution::Replied { reply: reply.clone(), term });
                Ok(if handles.is_empty() { Round::Again } else { Round::Granted(reply, handles, term) })
            }
            Ok(Resolution::Rejected(Rejection::SessionExpired(_) | Rejection::SessionWindow(_)))
                if call.id.is_none() =>
            {
                Ok(Round::Again)
            }
            Ok(Resolution::Rejected(Rejection::QueueNotFound(_))) if call.auto_create => Ok(Round::Again),
            Ok(Resolution::Rejected(rejection)) => Err(CallError::Rejected(rejection)),
            Ok(Resolution::Unavailable(why)) => Err(CallError::Unavailable(why)),
            Ok(Resolution::Unknown) | Err(_) => Err(self.unknown()),
        }
    }

    /// The wait is over.
    fn nothing(&self, in_doubt: bool) -> Result<Deliveries, CallError> {
        if in_doubt {
            return Err(self.unknown());
        }
        if !self.leads() {
            return Err(CallError::Unavailable(Unavailable::NoQuorum));
        }
        Ok(Deliveries { deliveries: Vec::new(), reply: None, origin: self.origin() })
    }

    /// Reads the bodies. Where the receiver goes meanwhile, its leases are released.
    async fn hand_out(&self, reply: Reply, handles: Vec<Handle>, term: u64) -> Result<Deliveries, CallError> {
        let unread = Unread { handles: Some(handles.clone()), releases: self.releases.clone() };
        let deliveries = if handles.len() <= FEW {
            self.state.deliveries(handles)
        } else {
            let state = self.state.clone();
            self.config.work.run(move || state.deliveries(handles)).await
        };
        let deliveries = deliveries.map_err(|fault| self.fault(&fault))?;
        unread.handed_out();
        Ok(Deliveries { deliveries, reply: Some(reply), origin: self.origin_of(term) })
    }
}

/// A receiver that waits for an outcome. If it goes, what it is granted is released: by whoever comes second, the
/// proposer that tells or the receiver that goes.
struct Receiver {
    waiting: Waiting,
    releases: Arc<Releases>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.waiting.outcome.close();
        if let Ok(resolution) = self.waiting.outcome.try_recv() {
            let handles = handles_of(resolution);
            if !handles.is_empty() {
                self.releases.release(handles);
            }
        }
    }
}

/// Leases granted and not yet handed out.
struct Unread {
    handles: Option<Vec<Handle>>,
    releases: Arc<Releases>,
}

impl Unread {
    fn handed_out(mut self) {
        self.handles = None;
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(handles) = self.handles.take() {
            self.releases.release(handles);
        }
    }
}
