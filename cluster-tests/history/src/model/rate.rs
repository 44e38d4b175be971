//! How fast a queue's workers are: six buckets of 10 seconds of cluster time, with the time in which the queue was busy and
//! the messages that were finished.

/// A bucket in milliseconds.
const BUCKET: u64 = 10_000;
/// Buckets, the current one included.
const BUCKETS: u64 = 6;
/// Busy time and finished messages after which a rate is believed.
const BELIEVED: (u64, u64) = (10_000, 50);
/// The lowest rate: one message in so many milliseconds.
const LOWEST: u64 = 60_000;

/// Messages in so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) messages: u64,
    pub(crate) in_ms: u64,
}

impl Pace {
    /// How long `messages` take, in milliseconds, rounded down.
    pub(crate) fn time(&self, messages: u64) -> u64 {
        let time = u128::from(messages) * u128::from(self.in_ms) / u128::from(self.messages.max(1));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Whether `messages` take longer than `limit` milliseconds.
    pub(crate) fn is_longer(&self, messages: u64, limit: u64) -> bool {
        u128::from(messages) * u128::from(self.in_ms) > u128::from(limit) * u128::from(self.messages)
    }
}

/// One bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    number: u64,
    busy: u64,
    finished: u64,
}

/// A queue's rate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    buckets: [Bucket; BUCKETS as usize],
    /// Up to when busy time is counted.
    until: u64,
    /// The last rate that was measured.
    kept: Option<Pace>,
}

impl Rate {
    /// Goes on to `now`; the queue was busy since it was looked at last, or not.
    pub(crate) fn accrue(&mut self, now: u64, busy: bool) {
        let oldest = (now / BUCKET).saturating_sub(BUCKETS - 1) * BUCKET;
        let mut from = self.until.max(oldest);
        while busy && from < now {
            let to = now.min((from / BUCKET + 1) * BUCKET);
            self.bucket(from).busy += to - from;
            from = to;
        }
        self.until = self.until.max(now);
    }

    /// A message was finished.
    pub(crate) fn finish(&mut self, now: u64) {
        self.bucket(now).finished += 1;
    }

    fn bucket(&mut self, at: u64) -> &mut Bucket {
        let number = at / BUCKET;
        let bucket = &mut self.buckets[(number % BUCKETS) as usize];
        if bucket.number != number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        bucket
    }

    /// The rate now: as measured, else the last that was measured.
    pub(crate) fn pace(&self, now: u64) -> Option<Pace> {
        let current = now / BUCKET;
        let live = self.buckets.iter().filter(|bucket| bucket.number + BUCKETS > current && bucket.number <= current);
        let (busy, finished) = live.fold((0, 0), |(busy, finished), b| (busy + b.busy, finished + b.finished));
        if busy < BELIEVED.0 || (self.kept.is_none() && finished < BELIEVED.1) {
            return self.kept;
        }
        if finished * LOWEST < busy {
            return Some(Pace { messages: 1, in_ms: LOWEST });
        }
        Some(Pace { messages: finished, in_ms: busy })
    }

    /// Keeps the rate of now, as the queue has changed.
    pub(crate) fn keep(&mut self, now: u64) {
        self.kept = self.pace(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_believed_once_measured_and_kept_while_idle() {
        let mut rate = Rate::default();
        rate.accrue(5_000, false);
        for second in 5..15 {
            rate.accrue(second * 1_000, true);
            (0..5).for_each(|_| rate.finish(second * 1_000));
        }
        assert_eq!(rate.pace(14_000), None);
        rate.accrue(15_000, true);
        rate.keep(15_000);
        assert_eq!(rate.pace(15_000), Some(Pace { messages: 50, in_ms: 10_000 }));
        // Idle for long: the last rate stands.
        rate.accrue(500_000, false);
        assert_eq!(rate.pace(500_000), Some(Pace { messages: 50, in_ms: 10_000 }));
        // Busy for a minute without a finish: the lowest rate.
        rate.accrue(560_000, true);
        assert_eq!(rate.pace(560_000), Some(Pace { messages: 1, in_ms: LOWEST }));
        assert!(Pace { messages: 50, in_ms: 10_000 }.is_longer(6, 1_000));
        assert!(!Pace { messages: 50, in_ms: 10_000 }.is_longer(5, 1_000));
    }
}
