//! The task that opens and renews the node's own sessions, here or through the leader.

use std::sync::Arc;
use std::time::Duration;

use ticketrail_core::command::OpenSession;
use ticketrail_core::reply::Answered;
use ticketrail_core::{Command, Rejection, Request};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::attempt::{Attempt, Place, Route};
use crate::call::Done;
use crate::forward::client::Bound;
use crate::queue::Pending;
use crate::sessions::{RENEW_EVERY, Sessions};
use crate::shared::Shared;

/// How long it waits after it got no session.
const PAUSE: Duration = Duration::from_millis(500);
/// How long it looks for the leader, and waits for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = keep(&shared) => {}
        // The sender lives as long as the node.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn keep(shared: &Arc<Shared>) {
    let (mut lead, mut standing) = (shared.lead.clone(), shared.standing.clone());
    let pools = [&shared.sessions, &shared.poll_sessions];
    loop {
        lead.mark_unchanged();
        standing.mark_unchanged();
        // The first call should not have to wait for its session.
        for pool in pools {
            while pool.is_short() && can_ask(shared) {
                open(shared, pool).await;
            }
        }
        tokio::select! {
            () = shared.sessions.wanted() => {}
            () = shared.poll_sessions.wanted() => {}
            () = sleep(RENEW_EVERY / 6), if can_ask(shared) => {
                for pool in pools {
                    renew(shared, pool).await;
                }
            }
            // They fail only where the node stops, which ends this task.
            Ok(()) = lead.changed() => {}
            Ok(()) = standing.changed() => {}
        }
    }
}

/// Whether there is a leader to ask: this node, ready, or another one.
fn can_ask(shared: &Shared) -> bool {
    shared.leads() || matches!(shared.place(), Place::At(_))
}

async fn open(shared: &Arc<Shared>, pool: &Sessions) {
    match propose(shared, 0).await {
        Attempt::Done(done) => {
            if let Some(Answered::SessionOpened(opened)) = done.reply.answered {
                pool.add(opened.session, shared.config.clock.now());
            }
        }
        Attempt::Rejected(rejection) => {
            tracing::warn!(?rejection, "no session for calls without a request id");
            sleep(PAUSE).await;
        }
        // Asked again where somebody leads. One that was opened all the same ends by itself.
        Attempt::Elsewhere(_) | Attempt::InDoubt | Attempt::Over(_) => sleep(PAUSE).await,
    }
}

async fn renew(shared: &Arc<Shared>, pool: &Sessions) {
    for session in pool.stale(shared.config.clock.now()) {
        match propose(shared, session).await {
            Attempt::Done(_) => pool.renewed(session, shared.config.clock.now()),
            Attempt::Rejected(Rejection::SessionExpired(_)) => pool.remove(session),
            Attempt::Rejected(_) | Attempt::Elsewhere(_) | Attempt::InDoubt | Attempt::Over(_) => {}
        }
    }
}

async fn propose(shared: &Arc<Shared>, renew: u64) -> Attempt<Done> {
    let by = shared.config.clock.now() + PATIENCE;
    let mut route = Route::new(shared);
    loop {
        let command = Command::OpenSession(OpenSession { renew });
        let attempt = match route.place() {
            Place::Here => propose_here(shared, command).await,
            Place::At(leader) => {
                let bound = Bound { leader, seen: route.seen(), line_by: by, answer_by: by };
                shared.propose_at(bound, &Request::anonymous(command), false).await
            }
            Place::Stopped => return Attempt::Elsewhere(None),
        };
        match attempt {
            Attempt::Elsewhere(hint) if shared.config.clock.now() < by => route.elsewhere(hint, by).await,
            Attempt::Elsewhere(_) | Attempt::Done(_) | Attempt::Rejected(_) | Attempt::InDoubt | Attempt::Over(_) => {
                return attempt;
            }
        }
    }
}

async fn propose_here(shared: &Shared, command: Command) -> Attempt<Done> {
    let (pending, waiting) = Pending::own(command);
    shared.queue.push_own(vec![pending]);
    match waiting.outcome.await {
        Ok(resolution) => Attempt::of(resolution, |reply, term| Done { reply, origin: shared.origin_of(term) }),
        Err(_) => Attempt::InDoubt,
    }
}
