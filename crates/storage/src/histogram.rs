//! How often which values came. Counting takes no lock and waits for nobody, so it may stand on any path.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts values by size.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram held at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The upper bounds, each included, ascending.
    pub bounds: &'static [u64],
    /// How many values fell below each bound and above the one before it; the last: above all bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// An empty one. `bounds` ascend; each is included in its class.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Counts `value`.
    pub fn record(&self, value: u64) {
        let class = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What it holds now. Values that come meanwhile may be in the sum and not in the counts, or the other way round.
    pub fn read(&self) -> Reading {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Reading { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl Reading {
    /// How many values came.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_falls_into_the_class_of_the_first_bound_that_holds_it() {
        let histogram = Histogram::new(&[10, 100]);
        for value in [0, 10, 11, 100, 101, 5_000] {
            histogram.record(value);
        }
        let reading = histogram.read();
        assert_eq!((reading.bounds, reading.counts.as_slice()), ([10, 100].as_slice(), [2, 2, 2].as_slice()));
        assert_eq!((reading.count(), reading.sum), (6, 5_222));
    }

    #[test]
    fn nothing_is_lost_where_several_count_at_once() {
        let histogram = Arc::new(Histogram::new(&[1, 2, 4]));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let histogram = histogram.clone();
                std::thread::spawn(move || (0..10_000).for_each(|n| histogram.record(n % 6)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(histogram.read().count(), 40_000);
    }
}
