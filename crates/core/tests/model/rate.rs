//! What a queue's workers finish: every busy stretch and every finish ever, and a look at the last six buckets of them.

const BUCKET_MS: u64 = 10_000;
const BUCKETS: u64 = 6;
const ENOUGH_BUSY_MS: u64 = 10_000;
const ENOUGH_FINISHED: u64 = 50;
const LOWEST_MS: u64 = 60_000;

/// So many messages in so many milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) messages: u128,
    pub(crate) ms: u128,
}

impl Rate {
    /// Milliseconds that `messages` take.
    pub(crate) fn time_for(&self, messages: u128) -> u128 {
        messages * self.ms / self.messages
    }

    /// Messages in `ms` milliseconds.
    pub(crate) fn messages_in(&self, ms: u128) -> u128 {
        self.messages * ms / self.ms
    }

    /// In thousandths of a message a second.
    pub(crate) fn milli(&self) -> u64 {
        (self.messages * 1_000_000 / self.ms) as u64
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Drain {
    /// Up to when it is known whether the queue was busy.
    known_to: u64,
    /// Busy stretches, from and to.
    busy: Vec<(u64, u64)>,
    finished: Vec<u64>,
    /// Kept from the last touch at which the buckets held enough; `None`: never measured.
    measured: Option<Rate>,
}

impl Drain {
    pub(crate) fn begin(now: u64) -> Self {
        Self { known_to: now, ..Self::default() }
    }

    /// Since it was last said, the queue was busy, or it was not.
    pub(crate) fn pass(&mut self, now: u64, busy: bool) {
        if busy && now > self.known_to {
            match self.busy.last_mut() {
                Some((_, to)) if *to == self.known_to => *to = now,
                Some(_) | None => self.busy.push((self.known_to, now)),
            }
        }
        self.known_to = now;
    }

    pub(crate) fn finish(&mut self, now: u64) {
        self.finished.push(now);
    }

    /// The queue's record changed.
    pub(crate) fn touch(&mut self, now: u64) {
        self.measured = self.at(now);
    }

    /// The measured rate as it would be seen at `now`.
    pub(crate) fn at(&self, now: u64) -> Option<Rate> {
        let first = (now / BUCKET_MS + 1).saturating_sub(BUCKETS) * BUCKET_MS;
        let busy: u64 = self.busy.iter().map(|(from, to)| to.saturating_sub((*from).max(first))).sum();
        let finished = self.finished.iter().filter(|at| **at >= first).count() as u64;
        let enough = busy >= ENOUGH_BUSY_MS && (self.measured.is_some() || finished >= ENOUGH_FINISHED);
        if !enough {
            return self.measured;
        }
        let lowest = Rate { messages: 1, ms: u128::from(LOWEST_MS) };
        let rate = Rate { messages: u128::from(finished), ms: u128::from(busy) };
        Some(if finished * LOWEST_MS < busy { lowest } else { rate })
    }

    /// As at the last touch.
    pub(crate) fn kept(&self) -> Option<Rate> {
        self.measured
    }
}
