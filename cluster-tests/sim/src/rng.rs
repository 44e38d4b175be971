//! Random numbers that follow from a seed.

use std::time::Duration;

/// A generator of SplitMix64.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Numbers of their own for `what`: what is drawn here changes nothing there.
    pub fn fork(&self, what: &str) -> Self {
        let label = what.bytes().fold(self.0, |state, byte| mix(state ^ u64::from(byte)));
        Self::new(label)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from).saturating_add(1))
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, if there is any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        items.get(at)
    }

    /// A span from `from` to `to` milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// A span from `from` to `to` microseconds.
    pub fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.between(from, to))
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_a_fork_others() {
        let draw = |mut rng: Rng| (0..50).map(|_| rng.draw()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::new(3)), draw(Rng::new(3)));
        assert_ne!(draw(Rng::new(3)), draw(Rng::new(4)));
        assert_ne!(draw(Rng::new(3).fork("disk")), draw(Rng::new(3).fork("load")));
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = Rng::new(1);
        assert!((0..1_000).all(|_| (3..=5).contains(&rng.between(3, 5))));
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert!((1..2_000).filter(|_| rng.chance(30)).count().abs_diff(600) < 100);
    }
}
