//! For how long nobody could write.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

/// Measures the longest time without a success. Clones of an `Arc` share it among clients.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Gaps>);

#[derive(Debug, Default)]
struct Gaps {
    /// The last success, or the last question.
    since: Option<Instant>,
    longest: Duration,
}

impl Meter {
    /// Something has succeeded now.
    pub fn tick(&self) {
        self.lock().close(Instant::now());
    }

    /// The longest gap since the last question, the one that is open now included; begins anew.
    pub fn take(&self) -> Duration {
        let mut gaps = self.lock();
        gaps.close(Instant::now());
        std::mem::take(&mut gaps.longest)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gaps {
    fn close(&mut self, now: Instant) {
        if let Some(since) = self.since {
            self.longest = self.longest.max(now.saturating_duration_since(since));
        }
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_gap_counts_up_to_now() {
        let meter = Meter::default();
        meter.tick();
        for ms in [10, 30, 20] {
            tokio::time::advance(Duration::from_millis(ms)).await;
            meter.tick();
        }
        assert_eq!(meter.take(), Duration::from_millis(30));
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(meter.take(), Duration::from_millis(50));
    }
}
