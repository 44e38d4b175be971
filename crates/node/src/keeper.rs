//! The task that opens and renews the node's own sessions.

use std::sync::Arc;
use std::time::Duration;

use ticketrail_core::command::OpenSession;
use ticketrail_core::reply::Answered;
use ticketrail_core::{Command, Rejection};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::queue::{Pending, Resolution};
use crate::sessions::RENEW_EVERY;
use crate::shared::Shared;

/// How long it waits after the cluster has refused a session.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = keep(&shared) => {}
        // The sender lives as long as the node.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn keep(shared: &Shared) {
    let mut lead = shared.lead.clone();
    // Fails only where the node stops, which ends this task.
    while lead.wait_for(Option::is_some).await.is_ok() {
        // The first call should not have to wait for its session.
        while shared.sessions.is_short() && shared.leads() {
            open(shared).await;
        }
        tokio::select! {
            () = shared.sessions.wanted() => {}
            () = sleep(RENEW_EVERY / 6) => renew(shared).await,
            _ = lead.changed() => {}
        }
    }
}

async fn open(shared: &Shared) {
    match propose(shared, 0).await {
        Resolution::Replied { reply, .. } => {
            if let Some(Answered::SessionOpened(opened)) = reply.answered {
                shared.sessions.add(opened.session, shared.config.clock.now());
            }
        }
        Resolution::Rejected(rejection) => {
            tracing::warn!(?rejection, "no session for calls without a request id");
            sleep(PAUSE).await;
        }
        // Asked again once this node leads.
        Resolution::Unavailable(_) | Resolution::Unknown => sleep(PAUSE).await,
    }
}

async fn renew(shared: &Shared) {
    for session in shared.sessions.stale(shared.config.clock.now()) {
        match propose(shared, session).await {
            Resolution::Replied { .. } => shared.sessions.renewed(session, shared.config.clock.now()),
            Resolution::Rejected(Rejection::SessionExpired(_)) => shared.sessions.remove(session),
            Resolution::Rejected(_) | Resolution::Unavailable(_) | Resolution::Unknown => {}
        }
    }
}

async fn propose(shared: &Shared, renew: u64) -> Resolution {
    let (pending, waiting) = Pending::own(Command::OpenSession(OpenSession { renew }));
    shared.queue.push_own(vec![pending]);
    waiting.outcome.await.unwrap_or(Resolution::Unknown)
}
