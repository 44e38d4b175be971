//! Gives back what was leased for a receiver that has gone: ready again, nothing counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ticketrail_core::command::{Commit, Release, Settle, Verdict};
use ticketrail_core::reply::Handle;
use ticketrail_core::{Command, RequestId, limits};
use tokio::sync::{Notify, watch};

use crate::broken::Broken;
use crate::call::Call;
use crate::consensus::AppliedState;
use crate::flight::Flight;
use crate::queue::{Pending, Queue};
use crate::shared::Shared;

/// How long a follower tries to give leases back.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tokens that wait to be given back through the leader; more are left to expire.
const WAITING: usize = 100_000;

/// Where leases are given back.
pub(crate) struct Releases {
    state: Arc<dyn AppliedState>,
    queue: Arc<Queue>,
    flight: Arc<Flight>,
    broken: Arc<Broken>,
    /// What the leader granted through this node.
    tokens: Mutex<Vec<Bytes>>,
    given: Notify,
}

impl Releases {
    pub(crate) fn new(
        state: Arc<dyn AppliedState>,
        queue: Arc<Queue>,
        flight: Arc<Flight>,
        broken: Arc<Broken>,
    ) -> Self {
        Self { state, queue, flight, broken, tokens: Mutex::default(), given: Notify::new() }
    }

    /// Proposes to release leases that the request `id` was granted here. Where that is lost they run out, which counts
    /// a failure. Where the request is on its way once more, its repeat gets them instead.
    pub(crate) fn release(&self, id: Option<RequestId>, handles: Vec<Handle>) {
        if handles.is_empty() || id.is_some_and(|id| self.flight.has(&id)) {
            return;
        }
        let deliveries = match self.state.deliveries(handles) {
            Ok(deliveries) => deliveries,
            Err(fault) => return self.broken.report(fault.to_string()),
        };
        if deliveries.is_empty() {
            return;
        }
        tracing::debug!(count = deliveries.len(), "releases the leases of a receiver that has gone");
        let (pending, _) = Pending::own(commit(deliveries.into_iter().map(|delivery| delivery.token)));
        self.queue.push_own(vec![pending]);
    }

    /// Has leases released that another node granted, soon.
    pub(crate) fn give_back(&self, tokens: impl IntoIterator<Item = Bytes>) {
        let mut waiting = self.tokens.lock();
        let room = WAITING.saturating_sub(waiting.len());
        waiting.extend(tokens.into_iter().take(room));
        let any = !waiting.is_empty();
        drop(waiting);
        if any {
            self.given.notify_one();
        }
    }

    fn take(&self) -> Vec<Bytes> {
        let mut waiting = self.tokens.lock();
        let many = waiting.len().min(limits::BATCH);
        waiting.drain(..many).collect()
    }
}

/// The task that has leases released through the leader. Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let give_back = async {
        loop {
            let tokens = shared.releases.take();
            if tokens.is_empty() {
                shared.releases.given.notified().await;
                continue;
            }
            tracing::debug!(count = tokens.len(), "has the leases of a receiver that has gone released");
            let call = Call { command: commit(tokens), id: None, repeat: false, timeout: PATIENCE };
            if let Err(error) = shared.put(call).await {
                tracing::warn!(%error, "leases of a receiver that has gone run out, which counts a failure");
            }
        }
    };
    tokio::select! {
        () = give_back => {}
        // The sender lives as long as the node.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

fn commit(tokens: impl IntoIterator<Item = Bytes>) -> Command {
    let release = |token| Settle { token, verdict: Some(Verdict::Release(Release {})) };
    Command::Commit(Commit { settle: tokens.into_iter().map(release).collect(), ..Commit::default() })
}
