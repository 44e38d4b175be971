//! The synced writes of the log.

use ticketrail_storage::rocks::Syncs;

use super::page::{Family, Labels};

const MICROS_PER_SECOND: f64 = 1e6;

/// What they were like since the process started.
pub(super) fn families(syncs: &Syncs) -> [Family; 3] {
    [
        Family::histograms(
            "ticketrail_log_sync_duration_seconds",
            "How long each synced write of the Raft log took, the sync included.",
            MICROS_PER_SECOND,
            [(Labels::new(), syncs.micros.read())],
        ),
        Family::histograms(
            "ticketrail_log_sync_size_bytes",
            "How much each synced write of the Raft log wrote.",
            1.0,
            [(Labels::new(), syncs.bytes.read())],
        ),
        Family::histograms(
            "ticketrail_log_sync_size_entries",
            "How many entries each synced write of the Raft log made durable.",
            1.0,
            [(Labels::new(), syncs.entries.read())],
        ),
    ]
}
