//! The machine's monotonic clock: the same for all processes, so that their ledgers can be compared.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment in the past, such as the machine's start.
pub(crate) fn monotonic_ns() -> u64 {
    // This clock is there on every system that the program runs on; 0 would make the audit complain.
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    let (seconds, nanos) = (now.tv_sec(), now.tv_nsec());
    u64::try_from(seconds).unwrap_or(0) * 1_000_000_000 + u64::try_from(nanos).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward() {
        let (first, second) = (monotonic_ns(), monotonic_ns());
        assert!(0 < first && first <= second);
    }
}
