//! Random numbers that a seed decides.

/// A generator: the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 where `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// True once in two times.
    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// True with the probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_chances_hold() {
        let draw = |seed| {
            std::iter::repeat_with({
                let mut rng = Rng::new(seed);
                move || rng.below(10)
            })
            .take(20)
            .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut rng = Rng::new(1);
        assert!((0..100).all(|_| rng.chance(1.0) && !rng.chance(0.0)));
        let half = (0..10_000).filter(|_| rng.chance(0.5)).count();
        assert!((4_500..5_500).contains(&half), "{half}");
    }
}
