//! How fast a queue's workers are: finished messages by busy time, over six buckets of 10 s (SEMANTICS "Enqueue",
//! `max_wait`). Integers on cluster time.

use crate::limits;
use crate::records::{ConfigRecord, QueueRecord, RateBucket, RateRecord};

/// A rate: `messages` in `time_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    messages: u64,
    time_ms: u64,
}

impl Rate {
    /// How long so many messages take, in milliseconds, rounded down.
    pub(crate) fn time_of(&self, messages: u64) -> u64 {
        divide(u128::from(messages).saturating_mul(self.time_ms.into()), self.messages)
    }

    /// How many messages that time is enough for, rounded down.
    pub(crate) fn messages_in(&self, time_ms: u64) -> u64 {
        divide(u128::from(time_ms).saturating_mul(self.messages.into()), self.time_ms)
    }

    /// Whether so many messages take longer than that.
    pub(crate) fn takes_longer(&self, messages: u64, time_ms: u64) -> bool {
        u128::from(messages).saturating_mul(self.time_ms.into())
            > u128::from(time_ms).saturating_mul(self.messages.into())
    }
}

fn divide(product: u128, by: u64) -> u64 {
    let quotient = product.checked_div(by.into()).unwrap_or(u128::MAX);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

fn bucket_of(at_ms: u64) -> u64 {
    at_ms.checked_div(limits::RATE_BUCKET_MS).unwrap_or_default()
}

impl RateRecord {
    /// Changes a bucket, which is there or comes to be: the last, since time goes forward.
    fn change(&mut self, bucket: u64, change: impl FnOnce(&mut RateBucket)) {
        match self.buckets.iter_mut().find(|known| known.bucket == bucket) {
            Some(known) => change(known),
            None => {
                let mut new = RateBucket { bucket, ..RateBucket::default() };
                change(&mut new);
                self.buckets.push(new);
            }
        }
    }

    /// Spreads busy time over the buckets that it lies in.
    fn add_busy(&mut self, from_ms: u64, to_ms: u64) {
        let mut from_ms = from_ms;
        while from_ms < to_ms {
            let bucket = bucket_of(from_ms);
            let end_ms = bucket.saturating_add(1).saturating_mul(limits::RATE_BUCKET_MS).min(to_ms);
            let busy_ms = end_ms.saturating_sub(from_ms);
            self.change(bucket, |counted| counted.busy_ms = counted.busy_ms.saturating_add(busy_ms));
            from_ms = end_ms;
        }
    }

    /// Takes the rate from the buckets, where they say enough.
    fn judge(&mut self) {
        let finished = self.buckets.iter().map(|bucket| bucket.finished).fold(0, u64::saturating_add);
        let busy_ms = self.buckets.iter().map(|bucket| bucket.busy_ms).fold(0, u64::saturating_add);
        let is_measured = self.busy_ms > 0 || finished >= limits::RATE_FINISHED;
        if is_measured && busy_ms >= limits::RATE_BUSY_MS {
            self.finished = finished;
            self.busy_ms = busy_ms;
        }
    }
}

impl QueueRecord {
    /// Reckons busy time up to `now`, before anything changes.
    pub(crate) fn reckon(&mut self, now: u64, is_paused: bool) {
        let is_busy = self.ready > 0 && !is_paused;
        let rate = self.rate.get_or_insert_with(|| RateRecord { until_ms: now, ..RateRecord::default() });
        if now <= rate.until_ms {
            return;
        }
        let oldest = bucket_of(now).saturating_sub(limits::RATE_BUCKETS.saturating_sub(1));
        if is_busy {
            rate.add_busy(rate.until_ms.max(oldest.saturating_mul(limits::RATE_BUCKET_MS)), now);
        }
        rate.until_ms = now;
        rate.buckets.retain(|bucket| bucket.bucket >= oldest);
        rate.judge();
    }

    /// Counts a finished message, at the time up to which busy time is reckoned.
    pub(crate) fn count_finished(&mut self) {
        if let Some(rate) = &mut self.rate {
            let now = bucket_of(rate.until_ms);
            rate.change(now, |bucket| bucket.finished = bucket.finished.saturating_add(1));
            rate.judge();
        }
    }
}

/// The rate to reckon with: the one measured, else the one expected.
pub(crate) fn known(config: &ConfigRecord, record: &QueueRecord) -> Option<Rate> {
    if let Some(rate) = record.rate.as_ref().filter(|rate| rate.busy_ms > 0) {
        let measured = Rate { messages: rate.finished, time_ms: rate.busy_ms };
        let lowest = Rate { messages: 1, time_ms: limits::RATE_LOWEST_MS };
        return Some(if lowest.takes_longer(rate.finished, rate.busy_ms) { measured } else { lowest });
    }
    let expected = config.settings.expected_rate_milli.filter(|milli| *milli > 0)?;
    Some(Rate { messages: expected, time_ms: 1_000_000 })
}

/// The rate to reckon with at `now`, in thousandths of a message a second, rounded down.
pub(crate) fn known_milli(config: &ConfigRecord, record: &QueueRecord, now: u64) -> Option<u64> {
    let mut record = record.clone();
    record.reckon(now, config.pause.is_some());
    known(config, &record).map(|rate| rate.messages_in(1_000_000))
}
