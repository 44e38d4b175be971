//! What a queue refuses to take from a producer, and when to try again.

use ticketrail_core::reply::Full;

use super::queue::{Queue, State};
use super::rate::Rate;

const RETRY_MS: u128 = 1_000;
const RETRY_MIN_MS: u128 = 100;
const RETRY_MAX_MS: u128 = 60_000;

impl Queue {
    /// The rate that is reckoned with at `now`: measured, or else expected.
    pub(crate) fn rate(&self, now: u64) -> Option<Rate> {
        self.drain.at(now).or_else(|| self.expected_rate())
    }

    pub(crate) fn expected_rate(&self) -> Option<Rate> {
        let milli = self.settings.expected_rate_milli.unwrap_or(0);
        (milli > 0).then_some(Rate { messages: u128::from(milli), ms: 1_000_000 })
    }

    fn full(&self, bound: &str, limit: u64, held: u64, retry_after_ms: u128) -> Full {
        let retry_after_ms = retry_after_ms as u64;
        Full { queue: self.named(), bound: bound.into(), limit, held, retry_after_ms }
    }

    /// `max_depth` or `max_bytes`, whichever one more message of `size` bytes would pass.
    pub(crate) fn size_bound_passed(&self, size: u64) -> Option<(&'static str, u64, u64)> {
        let (depth, max_depth) = (self.depth(), self.settings.max_depth.unwrap_or(0));
        if max_depth > 0 && depth + 1 > max_depth {
            return Some(("max_depth", max_depth, depth));
        }
        let (bytes, max_bytes) = (self.bytes(), self.settings.max_bytes.unwrap_or(0));
        if max_bytes > 0 && bytes + size > max_bytes {
            return Some(("max_bytes", max_bytes, bytes));
        }
        None
    }

    /// The bound that one more message would pass.
    pub(crate) fn bound_passed(&self, size: u64, priority: u8, is_delayed: bool, now: u64) -> Option<Full> {
        let rate = self.rate(now);
        if let Some((bound, limit, held)) = self.size_bound_passed(size) {
            // In messages; of a bound in bytes, messages of the mean size held, if there are any.
            let (depth, mean) = (self.depth(), (self.bytes() / self.depth().max(1)).max(1));
            let rate = rate.filter(|_| depth > 0);
            let messages = if bound == "max_bytes" { limit / mean } else { limit };
            return Some(self.full(bound, limit, held, retry_after(rate, depth, messages)));
        }
        let depth = self.depth();
        let max_depth = self.settings.max_depth.unwrap_or(0);
        if max_depth > 0 {
            for rule in self.settings.shed.iter().flat_map(|shed| &shed.rules) {
                let share = max_depth * u64::from(rule.above_percent) / 100;
                if u32::from(priority) < rule.below_priority && depth + 1 > share {
                    return Some(self.full("shed", share, depth, RETRY_MS));
                }
            }
        }
        let max_wait = self.settings.max_wait_ms.unwrap_or(0);
        if let Some(rate) = rate
            && max_wait > 0
            && !is_delayed
        {
            let waiting = self.count(|state| matches!(state, State::Ready(_) | State::Blocked { .. }));
            // (waiting + 1) / rate > max_wait, in whole numbers.
            if (u128::from(waiting) + 1) * rate.ms > u128::from(max_wait) * rate.messages {
                let wait = rate.time_for(u128::from(waiting) + 1) as u64;
                let limit = rate.messages_in(u128::from(max_wait)) as u64;
                return Some(self.full("max_wait", max_wait, wait, retry_after(Some(rate), waiting, limit)));
            }
        }
        None
    }
}

/// How long it takes until nine tenths of the limit are held.
fn retry_after(rate: Option<Rate>, held: u64, limit: u64) -> u128 {
    let Some(rate) = rate else { return RETRY_MS };
    let over = u128::from(held).saturating_sub(9 * u128::from(limit) / 10);
    rate.time_for(over).clamp(RETRY_MIN_MS, RETRY_MAX_MS)
}
