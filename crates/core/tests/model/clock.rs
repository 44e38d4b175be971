//! Cluster time and the lease clock.

use ticketrail_core::LogPosition;

const STEP_MS: u64 = 10_000;

/// Where the clocks stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    pub(crate) cluster: u64,
    pub(crate) lease: u64,
    pub(crate) term: u64,
    pub(crate) index: u64,
}

impl Clock {
    /// An entry of a new term moves cluster time as far forward as it says, and the lease clock not at all. Any other
    /// moves both by the same step, at most 10 s. Neither ever goes back.
    pub(crate) fn advance(&mut self, at: LogPosition, stamp: u64) {
        let ahead = stamp.saturating_sub(self.cluster);
        if at.term == self.term {
            let step = ahead.min(STEP_MS);
            self.cluster += step;
            self.lease += step;
        } else {
            self.cluster += ahead;
        }
        self.term = at.term;
        self.index = at.index;
    }
}
