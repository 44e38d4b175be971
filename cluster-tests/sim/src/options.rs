//! What a run is made of. All of it follows from the seed.

use std::fmt;

use crate::nemesis::Kind;
use crate::rng::Rng;

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where everything else comes from.
    pub seed: u64,
    /// The fastest that a message travels, in microseconds.
    pub latency_from_us: u64,
    /// The slowest.
    pub latency_to_us: u64,
    /// The fastest sync of a healthy disk, in microseconds.
    pub sync_from_us: u64,
    /// The slowest.
    pub sync_to_us: u64,
    /// How often a leader shows itself, in milliseconds.
    pub heartbeat_ms: u64,
    /// The shortest silence after which a follower campaigns, in milliseconds.
    pub election_min_ms: u64,
    /// The longest, in milliseconds.
    pub election_max_ms: u64,
    /// Log bytes that are kept for followers that come back.
    pub log_retention_bytes: u64,
    /// Age of the oldest write at which a state is flushed, in milliseconds.
    pub flush_age_ms: u64,
    /// So many of a hundred connections that are refused take as long as a lost packet.
    pub slow_refusals_percent: u64,
    /// Whether the order of the hosts is drawn at each step.
    pub random_order: bool,
    /// How far the wall clocks of the nodes are off at first, in milliseconds.
    pub skews_ms: [i64; 3],
    /// Clients that enqueue.
    pub producers: u32,
    /// Clients that receive and settle.
    pub workers: u32,
    /// Calls a second of all producers together.
    pub rate: u32,
    /// The lease that workers ask for, in milliseconds.
    pub lease_ms: u64,
    /// How long faults are injected, in milliseconds.
    pub safety_ms: u64,
    /// The pause between two faults, at most, in milliseconds.
    pub calm_ms: u64,
    /// Which faults.
    pub kinds: Vec<Kind>,
    /// Draw the nodes' random numbers from the operating system, so that no two runs are alike: to see that the comparison of two runs sees it.
    pub plain: bool,
}

impl Options {
    /// What follows from `seed`.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork("options");
        let latency_from_us = rng.between(100, 1_000);
        let latency_to_us = if rng.chance(25) { rng.between(20_000, 60_000) } else { rng.between(1_500, 8_000) };
        let sync_from_us = rng.between(100, 1_000);
        let sync_to_us = sync_from_us + rng.between(200, 6_000);
        let election_min_ms = rng.between(400, 600);
        let skew = |rng: &mut Rng| {
            let far = if rng.chance(10) { 3_600_000 } else { 500 };
            i64::try_from(rng.below(2 * far)).unwrap_or(0) - i64::try_from(far).unwrap_or(0)
        };
        let skews_ms = [skew(&mut rng), skew(&mut rng), skew(&mut rng)];
        let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|_| rng.chance(45)).collect();
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
        }
        Self {
            seed,
            latency_from_us,
            latency_to_us,
            sync_from_us,
            sync_to_us,
            heartbeat_ms: rng.between(100, 150),
            election_min_ms,
            election_max_ms: election_min_ms + rng.between(200, 400),
            log_retention_bytes: if rng.chance(60) { rng.between(2 << 10, 16 << 10) } else { 1 << 20 },
            flush_age_ms: rng.between(1_000, 10_000),
            slow_refusals_percent: *rng.pick(&[0, 50, 100]).unwrap_or(&0),
            random_order: rng.chance(50),
            skews_ms,
            producers: small(rng.between(2, 3)),
            // So many that each queue has one.
            workers: 8,
            rate: small(rng.between(8, 30)),
            lease_ms: rng.between(1_000, 2_000),
            safety_ms: rng.between(5_000, 10_000),
            calm_ms: rng.between(200, 1_500),
            kinds,
            plain: false,
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  network: {} to {} us a message", self.latency_from_us, self.latency_to_us)?;
        writeln!(f, "  {} % of refused connections take as long as a lost packet", self.slow_refusals_percent)?;
        writeln!(f, "  hosts in {} order", if self.random_order { "random" } else { "fixed" })?;
        writeln!(f, "  disks: {} to {} us a sync", self.sync_from_us, self.sync_to_us)?;
        writeln!(
            f,
            "  raft: heartbeat {} ms, elections after {} to {} ms, {} bytes of log kept, flush after {} ms",
            self.heartbeat_ms, self.election_min_ms, self.election_max_ms, self.log_retention_bytes, self.flush_age_ms
        )?;
        writeln!(f, "  wall clocks off by {:?} ms at first", self.skews_ms)?;
        writeln!(
            f,
            "  load: {} producers with {} calls a second, {} workers with leases of {} ms",
            self.producers, self.rate, self.workers, self.lease_ms
        )?;
        writeln!(f, "  faults for {} ms with pauses up to {} ms: {:?}", self.safety_ms, self.calm_ms, self.kinds)?;
        if self.plain {
            writeln!(f, "  the nodes draw their random numbers from the operating system")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_from_the_seed() {
        assert_eq!(Options::of(9), Options::of(9));
        assert_ne!(Options::of(9), Options { seed: 9, ..Options::of(10) });
    }
}
