//! The only place that reads clocks.
//!
//! Cluster time starts at an election, at the later of the time stored and the lower median of the members' wall clocks,
//! and goes on with the leader's monotonic clock, bent by at most 5 % towards that median. So it never goes back, and a wall clock that
//! jumps moves it by minutes an hour and not at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ticketrail_core::Timestamp;
use ticketrail_core::planted::{Bug, is_planted};
pub(crate) use tokio::time::Instant;

/// Cluster time runs at most one twentieth faster or slower than the monotonic clock.
const SLEW_DIVISOR: i64 = 20;

/// Where a node's time comes from.
#[derive(Debug, Clone)]
pub struct Clock {
    wall: Wall,
    shift_ms: Arc<AtomicI64>,
}

#[derive(Debug, Clone)]
enum Wall {
    System,
    /// Begins at a given time and goes on with the runtime's clock, which a simulation holds in its hands.
    Simulated {
        start_ms: u64,
        since: Instant,
    },
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self { wall: Wall::System, shift_ms: Arc::default() }
    }

    /// A wall clock that shows `start_ms` (Unix, in milliseconds) now and runs with the runtime's clock.
    pub fn simulated(start_ms: u64) -> Self {
        Self { wall: Wall::Simulated { start_ms, since: Instant::now() }, shift_ms: Arc::default() }
    }

    /// Moves the wall clock of this clock and of all its clones by `ms`, as an operator or a bad NTP server would.
    pub fn jump(&self, ms: i64) {
        self.shift_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// The wall clock, in milliseconds since the Unix epoch.
    #[expect(clippy::disallowed_methods, reason = "here, and nowhere else in a server")]
    pub(crate) fn wall_ms(&self) -> u64 {
        let read = match &self.wall {
            // Before 1970 is 1970.
            Wall::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
            Wall::Simulated { start_ms, since } => u128::from(*start_ms) + since.elapsed().as_millis(),
        };
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        read.saturating_add_signed(self.shift_ms.load(Ordering::Relaxed))
    }

    /// The monotonic clock.
    pub fn now(&self) -> Instant {
        monotonic()
    }
}

/// The monotonic clock, for who has no [`Clock`] at hand.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

/// By how many milliseconds the members' wall clocks are ahead of this node's, in their median.
pub(crate) type Ahead = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Cluster time as one leader stamps it during one term.
pub(crate) struct ClusterClock {
    clock: Clock,
    ahead: Ahead,
    hand: Mutex<Hand>,
}

impl fmt::Debug for ClusterClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterClock({:?})", *self.hand.lock())
    }
}

#[derive(Debug)]
struct Hand {
    /// Cluster time at `read`, in nanoseconds since the Unix epoch: enough until the year 2262.
    time_ns: i64,
    read: Instant,
}

impl ClusterClock {
    /// Starts a term whose applied state holds `stored`.
    pub(crate) fn start(clock: Clock, ahead: Ahead, stored: Timestamp) -> Self {
        let agreed = stored.0.max(clock.wall_ms().saturating_add_signed(ahead()));
        let time_ns = to_ns(if is_planted(Bug::WallClockLeads) { clock.wall_ms() } else { agreed });
        let hand = Mutex::new(Hand { time_ns, read: clock.now() });
        Self { clock, ahead, hand }
    }

    /// Cluster time now; never less than before.
    pub(crate) fn now(&self) -> Timestamp {
        let mut hand = self.hand.lock();
        let now = self.clock.now();
        let elapsed = now.saturating_duration_since(hand.read);
        hand.turn(elapsed, self.clock.wall_ms().saturating_add_signed((self.ahead)()));
        hand.read = now;
        Timestamp(u64::try_from(hand.time_ns / 1_000_000).unwrap_or(0))
    }
}

impl Hand {
    fn turn(&mut self, elapsed: Duration, wall_ms: u64) {
        let elapsed = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
        let straight = self.time_ns.saturating_add(elapsed);
        let off = to_ns(wall_ms).saturating_sub(straight);
        let bend = elapsed / SLEW_DIVISOR;
        self.time_ns = straight.saturating_add(off.clamp(-bend, bend));
    }
}

fn to_ns(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_000_000;

    fn hand() -> Hand {
        Hand { time_ns: to_ns(T), read: Instant::now() }
    }

    #[test]
    fn a_right_wall_clock_changes_nothing() {
        let mut hand = hand();
        hand.turn(Duration::from_millis(1_000), T + 1_000);
        assert_eq!(hand.time_ns, to_ns(T + 1_000));
    }

    #[test]
    fn a_wall_clock_that_leaps_is_followed_at_one_twentieth() {
        let mut ahead = hand();
        ahead.turn(Duration::from_secs(100), T + 3_600_000);
        assert_eq!(ahead.time_ns, to_ns(T + 105_000));
        let mut behind = hand();
        behind.turn(Duration::from_secs(100), T - 3_600_000);
        assert_eq!(behind.time_ns, to_ns(T + 95_000));
    }

    #[test]
    fn many_small_readings_bend_as_much_as_a_large_one() {
        let mut hand = hand();
        for _ in 0..100_000 {
            hand.turn(Duration::from_micros(20), T + 3_600_000);
        }
        assert_eq!(hand.time_ns, to_ns(T + 2_100));
    }

    #[test]
    fn a_small_lag_is_made_up_and_not_overshot() {
        let mut hand = hand();
        hand.turn(Duration::from_secs(1), T + 1_010);
        assert_eq!(hand.time_ns, to_ns(T + 1_010));
    }

    #[test]
    fn a_term_starts_at_the_later_of_stored_and_wall() {
        let clock = Clock::simulated(T);
        assert!(ClusterClock::start(clock.clone(), Arc::new(|| 0), Timestamp(0)).now().0 >= T);
        let ahead = ClusterClock::start(clock.clone(), Arc::new(|| 0), Timestamp(T + 500_000));
        let first = ahead.now();
        assert!(first.0 >= T + 500_000);
        clock.jump(-10_000_000);
        assert!(ahead.now() >= first);
    }
}
