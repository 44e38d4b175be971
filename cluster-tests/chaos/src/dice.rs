//! What is left to chance, from a seed: the same seed throws the same numbers.

use std::time::Duration;

/// Dice.
#[derive(Debug, Clone)]
pub struct Dice(fastrand::Rng);

impl Dice {
    /// Dice of this seed.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A seed that nobody knows yet; short, for people type it.
    pub fn fresh_seed() -> u64 {
        fastrand::u32(..).into()
    }

    /// Any number.
    pub fn throw(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.u64(..end) }
    }

    /// An index into `len` things.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A time from `least` to `most`, in whole milliseconds.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX - 1);
        least + Duration::from_millis(self.below(span + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_stays_in_its_bounds() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..64).map(|_| dice.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!(throws(7).iter().all(|number| *number < 10) && (0..10).all(|number| throws(7).contains(&number)));
        let (least, most) = (Duration::from_millis(5), Duration::from_millis(7));
        let mut dice = Dice::new(1);
        assert!((0..64).all(|_| (least..=most).contains(&dice.between(least, most))));
        assert_eq!((dice.below(0), dice.between(most, least)), (0, most));
    }
}
