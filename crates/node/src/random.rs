//! The only place that draws random bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a node's random bytes come from.
#[derive(Debug, Clone, Default)]
pub struct Random(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    /// Where a generator of SplitMix64 stands.
    Seeded(Arc<AtomicU64>),
}

/// The operating system has no random bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected random bytes from the operating system, but {0}")]
pub struct RandomError(String);

impl Random {
    /// The operating system's.
    pub fn system() -> Self {
        Self::default()
    }

    /// Bytes that follow from `seed`, and that whoever knows it can foresee: for a simulation. Clones draw from the same.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(AtomicU64::new(seed))))
    }

    /// The next bytes.
    pub(crate) fn bytes<const N: usize>(&self) -> Result<[u8; N], RandomError> {
        let mut bytes = [0; N];
        match &self.0 {
            Source::System => getrandom::fill(&mut bytes).map_err(|error| RandomError(error.to_string()))?,
            Source::Seeded(state) => {
                for chunk in bytes.chunks_mut(8) {
                    chunk.copy_from_slice(&next(state).to_be_bytes()[..chunk.len()]);
                }
            }
        }
        Ok(bytes)
    }

    /// A seed for a task's own random numbers; 0 where they come from the operating system, which needs none.
    pub(crate) fn seed(&self) -> u64 {
        match &self.0 {
            Source::System => 0,
            Source::Seeded(state) => next(state),
        }
    }
}

/// SplitMix64.
fn next(state: &AtomicU64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_bytes_again_and_another_one_gives_others() {
        let draw = |seed| {
            let random = Random::seeded(seed);
            (random.bytes::<13>().expect("bytes"), random.clone().bytes::<13>().expect("bytes"), random.seed())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let (first, second, _) = draw(7);
        assert_ne!(first, second);
    }

    #[test]
    fn the_operating_system_gives_other_bytes_each_time() {
        let random = Random::system();
        assert_ne!(random.bytes::<16>(), random.bytes::<16>());
        assert_eq!(random.seed(), 0);
    }
}
