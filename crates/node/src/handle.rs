//! How callers reach a node.

use std::sync::Arc;

use ticketrail_core::{Answer, Command, Query, Rejection, Request};
use tokio::time::timeout_at;

use crate::call::{Call, CallError, Deliveries, Done, Freshness, Origin, ReceiveCall, Unavailable};
use crate::member::ClusterView;
use crate::peering::{ChangeError, MemberChange};
use crate::queue::{Pending, Resolution, Waiting, asked};
use crate::sessions::Slot;
use crate::shared::Shared;
use crate::status::NodeStatus;

/// A node, for its callers. Clones are cheap; a handle that outlives its node is refused everything.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl Handle {
    /// Puts a command through the log and waits for its outcome. Where the future is dropped, it may happen or not.
    pub async fn call(&self, call: Call) -> Result<Done, CallError> {
        self.shared.call(call).await
    }

    /// Waits for messages of one queue. Dropping the future means that the receiver has gone: what was leased for it
    /// and not handed out is released, and nothing is counted.
    pub async fn receive(&self, call: ReceiveCall) -> Result<Deliveries, CallError> {
        self.shared.receive(call).await
    }

    /// Answers a question.
    pub async fn query(&self, query: Query, freshness: Freshness) -> Result<(Answer, Origin), CallError> {
        self.shared.query(query, freshness).await
    }

    /// The cluster, as this node sees it.
    pub fn cluster(&self) -> ClusterView {
        self.shared.cluster()
    }

    /// Changes the membership, at the leader. Returns the id of the member that was added or changed, or that leads now.
    pub async fn change_members(&self, change: MemberChange) -> Result<u64, ChangeError> {
        self.shared.peering.change(change).await
    }

    /// What the node tells of itself.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// Waits until the node leads and serves. Ends early where it is broken: the status says so.
    pub async fn serving(&self) {
        let mut lead = self.shared.lead.clone();
        tokio::select! {
            // Fails only where the node has stopped.
            _ = lead.wait_for(Option::is_some) => {}
            _ = self.shared.broken.wait() => {}
        }
    }
}

impl Shared {
    async fn call(self: &Arc<Self>, call: Call) -> Result<Done, CallError> {
        self.admit()?;
        let deadline = self.config.clock.now() + call.timeout;
        loop {
            let admitted = self.check(&call.command, call.id.as_ref(), call.repeat)?;
            let (request, slot) = match call.id {
                Some(id) => (Request::of(id, call.command.clone()), None),
                // A renewal is the same once more; and the end of the session it renews is not the end of one of ours.
                None if is_renewal(&call.command) => (Request::anonymous(call.command.clone()), None),
                None => {
                    let slot = timeout_at(deadline, self.sessions.reserve()).await;
                    let slot = slot.map_err(|_| self.not_proposed(call.repeat))?;
                    self.number(slot, call.command.clone())
                }
            };
            let ready: Vec<_> = admitted
                .loads
                .iter()
                .zip(&admitted.delivering)
                .filter(|((_, load), delivers)| load.ready > 0 && **delivers)
                .map(|((queue, load), _)| (queue.clone(), load.ready))
                .collect();
            let hold = self.flight.hold(admitted.loads, request.id);
            let own = slot.is_some();
            let (asked, waiting) = asked();
            let pending = Pending::new(request, call.repeat, asked, slot, Some(hold));
            let served = || ready.into_iter().flat_map(|(queue, ready)| self.waiters.join(&queue, ready)).collect();
            if let Err(queued_bytes) = self.queue.push(pending, served) {
                return Err(if call.repeat { self.unknown() } else { CallError::Overloaded { queued_bytes } });
            }
            match self.outcome(waiting, deadline, call.repeat).await? {
                // This node's own session has ended, and so nothing happened: once more in another one.
                Resolution::Rejected(Rejection::SessionExpired(_) | Rejection::SessionWindow(_)) if own => {}
                Resolution::Rejected(rejection) => return Err(CallError::Rejected(rejection)),
                Resolution::Replied { reply, term } => return Ok(Done { reply, origin: self.origin_of(term) }),
                Resolution::Unavailable(why) => return Err(CallError::Unavailable(why)),
                Resolution::Unknown => return Err(self.unknown()),
            }
        }
    }

    fn number(&self, mut slot: Slot, command: Command) -> (Request, Option<Slot>) {
        let id = slot.assign(self.config.clock.now());
        (Request { id: Some(id), command: Some(command) }, Some(slot))
    }

    async fn outcome(
        &self,
        mut waiting: Waiting,
        deadline: crate::clock::Instant,
        repeat: bool,
    ) -> Result<Resolution, CallError> {
        match timeout_at(deadline, &mut waiting.outcome).await {
            Ok(Ok(resolution)) => Ok(resolution),
            Ok(Err(_)) => Err(self.unknown()),
            Err(_) if waiting.fate.withdraw() => Err(self.not_proposed(repeat)),
            Err(_) => Err(self.unknown()),
        }
    }

    /// The time is over, and this attempt never was in the log.
    fn not_proposed(&self, repeat: bool) -> CallError {
        if repeat {
            self.unknown()
        } else if self.leads() {
            CallError::Overloaded { queued_bytes: self.queue.bytes() }
        } else {
            CallError::Unavailable(Unavailable::NoQuorum)
        }
    }
}

fn is_renewal(command: &Command) -> bool {
    matches!(command, Command::OpenSession(open) if open.renew != 0)
}
