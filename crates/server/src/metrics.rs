//! What `/metrics` tells. All figures are read when they are asked for.
//!
//! - `queues`: messages and counters of each queue; a leader alone tells them;
//! - `raft`: what the node is, where its log is, what waits in it;
//! - `log_sync`: the synced writes of the log;
//! - `calls`: gRPC calls, by method and code;
//! - `machine`: this process and its disk;
//! - `page`: how figures are written.

pub(crate) mod calls;
mod log_sync;
mod machine;
mod page;
mod queues;
mod raft;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;

pub(crate) use self::page::CONTENT_TYPE;

use self::calls::Calls;
use self::page::Family;
use self::queues::Queues;
use crate::phase::Phase;

/// All that the metrics are read from.
pub(crate) struct Metrics {
    calls: Arc<Calls>,
    queues: Queues,
    data_dir: PathBuf,
    disk_low_bytes: u64,
}

impl Metrics {
    /// Of a server with its data in `data_dir`, which refuses enqueues while less than `disk_low_bytes` are free.
    pub(crate) fn new(calls: Arc<Calls>, data_dir: PathBuf, disk_low_bytes: u64) -> Self {
        Self { calls, queues: Queues::default(), data_dir, disk_low_bytes }
    }

    /// A page, as of now.
    pub(crate) async fn page(&self, phase: &Phase) -> anyhow::Result<String> {
        let mut families = vec![Family::info(
            "ticketrail_build",
            "The program's version.",
            vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
        )];
        if let Some(running) = phase.running() {
            let status = running.node.status();
            if status.leading {
                families.extend(self.queues.families(&running.node, status.uptime_ms).await?);
            }
            families.extend(raft::families(&status, running.first_term));
            families.extend(log_sync::families(&running.syncs));
        }
        families.extend(self.calls.families());
        let (dir, low) = (self.data_dir.clone(), self.disk_low_bytes);
        let machine = tokio::task::spawn_blocking(move || machine::families(&dir, low)).await;
        families.extend(machine.context("look at this process and its disk")?);
        page::write(families).context("expected to write the metrics, but a figure has no text")
    }
}
