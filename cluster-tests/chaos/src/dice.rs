//! What is left to chance, from a seed: the same seed throws the same numbers.

use std::time::Duration;

/// Dice (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Dice of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of a seed that nobody knows yet, and the seed.
    pub fn fresh_seed() -> anyhow::Result<u64> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("expected random bytes, but {error}"))?;
        Ok(u32::from_le_bytes(bytes).into())
    }

    /// Any number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.throw().checked_rem(end).unwrap_or(0)
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
