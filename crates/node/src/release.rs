//! Gives back what was leased for a receiver that has gone: ready again, nothing counted.

use std::sync::Arc;

use ticketrail_core::Command;
use ticketrail_core::command::{Commit, Release, Settle, Verdict};
use ticketrail_core::reply::Handle;

use crate::broken::Broken;
use crate::consensus::AppliedState;
use crate::queue::{Pending, Queue};

/// Where leases are given back.
pub(crate) struct Releases {
    pub(crate) state: Arc<dyn AppliedState>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) broken: Arc<Broken>,
}

impl Releases {
    /// Proposes to release leases. Where that is lost they run out, which counts a failure.
    pub(crate) fn release(&self, handles: Vec<Handle>) {
        let deliveries = match self.state.deliveries(handles) {
            Ok(deliveries) => deliveries,
            Err(fault) => return self.broken.report(fault.to_string()),
        };
        if deliveries.is_empty() {
            return;
        }
        tracing::debug!(count = deliveries.len(), "releases the leases of a receiver that has gone");
        let settle = deliveries
            .into_iter()
            .map(|delivery| Settle { token: delivery.token, verdict: Some(Verdict::Release(Release {})) })
            .collect();
        let (pending, _) = Pending::own(Command::Commit(Commit { settle, ..Commit::default() }));
        self.queue.push_own(vec![pending]);
    }
}
