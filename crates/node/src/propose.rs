//! One call, from its arrival to its answer: over as many attempts as it takes, here or at the leader, under one id.

use std::sync::Arc;

use ticketrail_core::planted::{Bug, is_planted};
use ticketrail_core::{Command, Rejection, Request};
use tokio::time::timeout_at;

use crate::attempt::{Attempt, Place, Route};
use crate::call::{Call, CallError, Done, Unavailable};
use crate::clock::Instant;
use crate::forward::client::Bound;
use crate::precheck::Admitted;
use crate::queue::{Pending, asked};
use crate::sessions::Slot;
use crate::shared::Shared;

impl Shared {
    /// Puts a command through the log, unless this node shuts down.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Result<Done, CallError> {
        self.admit()?;
        self.put(call).await
    }

    /// Puts a command through the log.
    pub(crate) async fn put(self: &Arc<Self>, call: Call) -> Result<Done, CallError> {
        Self::check_shape(&call.command)?;
        let Call { command, id, mut repeat, timeout } = call;
        let deadline = self.config.clock.now() + timeout;
        // A renewal is the same once more; and the end of the session it renews is not the end of one of ours.
        let ours = id.is_none() && !is_renewal(&command);
        let mut request = match id {
            Some(id) => Request::of(id, command),
            None => Request::anonymous(command),
        };
        let mut slot: Option<Slot> = None;
        let mut route = Route::new(self);
        loop {
            if self.forwards.has_ended() {
                return Err(self.over(CallError::Unavailable(Unavailable::Draining), repeat));
            }
            if self.is_cut_off() {
                return Err(self.no_leader(repeat));
            }
            let place = route.place();
            let admitted = match (place, &request.command) {
                (Place::Here, Some(command)) => Some(self.check(command, id.as_ref(), repeat)?),
                (Place::Here, None) | (Place::At(_) | Place::Stopped, _) => None,
            };
            if ours && slot.is_none() {
                let Some(reserved) = self.reserve(&self.sessions, deadline).await else {
                    return Err(self.over(self.not_proposed(), repeat));
                };
                request.id = Some(reserved.assign(self.config.clock.now()));
                slot = Some(reserved);
            }
            let attempt = match (place, admitted) {
                (Place::Here, Some(admitted)) => {
                    self.propose_here(request.clone(), slot.clone(), repeat, admitted, deadline).await
                }
                (Place::At(leader), _) => {
                    let bound = Bound { leader, seen: route.seen(), line_by: deadline, answer_by: deadline };
                    let proposed = self.in_reach(self.propose_at(bound, &request, repeat)).await;
                    proposed.unwrap_or_else(|| Attempt::Over(self.unknown()))
                }
                (Place::Here, None) | (Place::Stopped, _) => {
                    Attempt::Over(CallError::Unavailable(Unavailable::NoQuorum))
                }
            };
            match attempt {
                Attempt::Done(done) => return Ok(done),
                Attempt::Rejected(rejection) => match (rejection, slot.take()) {
                    // Whether the first attempt took effect is forgotten with the session.
                    (Rejection::SessionExpired(_), Some(_)) if repeat => return Err(self.unknown()),
                    // This node's own session has ended, and so nothing happened: once more in another one.
                    (Rejection::SessionExpired(_) | Rejection::SessionWindow(_), Some(slot)) => slot.expired(),
                    (rejection, _) => return Err(CallError::Rejected(rejection)),
                },
                Attempt::Elsewhere(hint) => route.elsewhere(hint, deadline).await,
                Attempt::InDoubt => {
                    repeat = true;
                    if is_planted(Bug::DoubtForgotten) {
                        (repeat, request.id) = (false, None);
                    }
                    route.wait(deadline).await;
                }
                Attempt::Over(error) => return Err(self.over(error, repeat)),
            }
            if let Some(reason) = self.broken.reason() {
                return Err(CallError::Broken(reason));
            }
            if self.config.clock.now() >= deadline {
                return Err(self.no_leader(repeat));
            }
        }
    }

    /// One attempt here.
    pub(crate) async fn propose_here(
        self: &Arc<Self>,
        request: Request,
        slot: Option<Slot>,
        repeat: bool,
        admitted: Admitted,
        deadline: Instant,
    ) -> Attempt<Done> {
        let ready: Vec<_> = admitted
            .loads
            .iter()
            .zip(&admitted.delivering)
            .filter(|((_, load), delivers)| load.ready > 0 && **delivers)
            .map(|((queue, load), _)| (queue.clone(), load.ready))
            .collect();
        let hold = self.flight.hold(admitted.loads, admitted.dedup_ids, request.id);
        let (asked, mut waiting) = asked();
        let pending = Pending::new(request, repeat, asked, slot, Some(hold));
        let served = || ready.into_iter().flat_map(|(queue, ready)| self.waiters.join(&queue, ready)).collect();
        if let Err(queued_bytes) = self.queue.push(pending, served) {
            return Attempt::Over(CallError::Overloaded { queued_bytes });
        }
        match self.in_reach(timeout_at(deadline, &mut waiting.outcome)).await {
            Some(Ok(Ok(resolution))) => {
                Attempt::of(resolution, |reply, term| Done { reply, origin: self.origin_of(term) })
            }
            // Whoever would tell has ended.
            Some(Ok(Err(_))) => Attempt::Over(self.unknown()),
            Some(Err(_)) | None if waiting.fate.withdraw() => Attempt::Over(self.not_proposed()),
            Some(Err(_)) | None => Attempt::Over(self.unknown()),
        }
    }

    /// The time is over, and this attempt never was in the log.
    fn not_proposed(&self) -> CallError {
        if self.commits() {
            CallError::Overloaded { queued_bytes: self.queue.bytes() }
        } else {
            CallError::Unavailable(Unavailable::NoQuorum)
        }
    }
}

fn is_renewal(command: &Command) -> bool {
    matches!(command, Command::OpenSession(open) if open.renew != 0)
}
