//! Keyed hashes under the cluster's secret: lease tokens and jitter. SipHash-2-4, from the paper of Aumasson and
//! Bernstein (2012), because the standard library's hasher may change between releases.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24_128};

use crate::ids::QueueId;

/// 32 random bytes that the whole cluster shares: one half keys tokens, the other jitter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret {
    tokens: [u8; 16],
    jitter: [u8; 16],
}

impl Secret {
    /// The length in bytes.
    pub(crate) const LEN: usize = 32;

    /// `None` where `bytes` are not 32.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let (tokens, rest) = bytes.split_first_chunk::<16>()?;
        let (jitter, rest) = rest.split_first_chunk::<16>()?;
        rest.is_empty().then_some(Self { tokens: *tokens, jitter: *jitter })
    }

    /// The hash in a lease's token.
    pub(crate) fn token(&self, queue: QueueId, sequence: u64, receive_count: u32, granted_index: u64) -> [u8; 16] {
        let mut hasher = SipHasher24_128::new_with_key(&self.tokens);
        for number in [queue.0, sequence, u64::from(receive_count), granted_index] {
            hasher.write(&number.to_be_bytes());
        }
        hasher.finish128().as_bytes()
    }

    /// A number in `0..=ceiling` that depends on the message and its failure alone.
    pub(crate) fn jitter(&self, queue: QueueId, sequence: u64, failures: u32, ceiling: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.jitter);
        for number in [queue.0, sequence, u64::from(failures)] {
            hasher.write(&number.to_be_bytes());
        }
        let hash = u128::from(hasher.finish());
        let scaled = hash.wrapping_mul(u128::from(ceiling).wrapping_add(1)) >> 64;
        u64::try_from(scaled).unwrap_or(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_in_each_of_their_parts() {
        let secret = Secret::new(&[7; 32]).unwrap();
        let token = secret.token(QueueId(1), 2, 3, 4);
        assert_ne!(token, secret.token(QueueId(2), 2, 3, 4));
        assert_ne!(token, secret.token(QueueId(1), 3, 3, 4));
        assert_ne!(token, secret.token(QueueId(1), 2, 4, 4));
        assert_ne!(token, secret.token(QueueId(1), 2, 3, 5));
        assert_ne!(token, Secret::new(&[8; 32]).unwrap().token(QueueId(1), 2, 3, 4));
    }

    #[test]
    fn jitter_fills_its_range() {
        let secret = Secret::new(&[7; 32]).unwrap();
        let drawn: Vec<u64> = (0..10_000).map(|s| secret.jitter(QueueId(1), s, 1, 9)).collect();
        for value in 0..=9 {
            let hits = drawn.iter().filter(|d| **d == value).count();
            assert!((800..1_200).contains(&hits), "{value}: {hits}");
        }
        assert_eq!(secret.jitter(QueueId(1), 1, 1, 0), 0);
        assert!(secret.jitter(QueueId(1), 1, 1, u64::MAX) > 0);
    }
}
