//! When the applied state is flushed and how much log is kept.
//!
//! A flush bounds the replay after a crash. The log is kept for followers that come back, by bytes and by age, whichever
//! is reached first; it is never purged beyond what is flushed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::Instant;
use crate::shared::Shared;

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);
/// Marks are so many parts of what is kept apart, in time or in bytes.
const MARKS: u32 = 64;

/// Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = keep(&shared) => {}
        // The sender lives as long as the node.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn keep(shared: &Shared) {
    let keep = Keep {
        bytes: shared.config.log_retention_bytes,
        age: Duration::from_millis(shared.config.log_retention_age_ms),
    };
    let mut marks = Marks::default();
    let mut clean_since = shared.config.clock.now();
    loop {
        sleep(EVERY).await;
        let now = shared.config.clock.now();
        let unflushed = shared.state.unflushed_bytes();
        if unflushed == 0 {
            clean_since = now;
        }
        let age = now.saturating_duration_since(clean_since);
        let old = age >= Duration::from_millis(shared.config.flush_age_ms);
        if unflushed >= shared.config.flush_bytes || (unflushed > 0 && old) {
            let state = shared.state.clone();
            if let Err(error) = shared.config.work.run(move || state.flush()).await {
                return shared.broken.report(error.to_string());
            }
            clean_since = now;
        }
        let figures = shared.consensus.figures();
        let Some(last) = figures.last_log else { continue };
        marks.note(Mark { at: now, index: last, appended: shared.consensus.appended_bytes() }, keep);
        let held = shared.consensus.held_bytes();
        let Some(keep_after) = marks.purge_upto(now, held, keep) else { continue };
        let step = Step::towards(keep_after, figures.purged, figures.snapshot);
        if let Some(upto) = step.purge {
            tracing::debug!(upto, held, "purges the log");
            shared.consensus.purge(upto).await;
        }
        if step.flush {
            // Its end is seen in the figures, next time.
            shared.consensus.take_snapshot().await;
        }
    }
}

/// What brings the log nearer to what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// Purge up to here.
    purge: Option<u64>,
    /// Flush, so that more can be purged.
    flush: bool,
}

impl Step {
    /// Where nothing up to `keep_after` need be kept. Under load that moves on with the log, and a flush is always behind it:
    /// whatever is flushed goes all the same.
    fn towards(keep_after: u64, purged: Option<u64>, snapshot: Option<u64>) -> Self {
        let purge = snapshot.map(|snapshot| snapshot.min(keep_after)).filter(|upto| purged < Some(*upto));
        Self { purge, flush: purged < Some(keep_after) && snapshot < Some(keep_after) }
    }
}

/// How much log is kept.
#[derive(Debug, Clone, Copy)]
struct Keep {
    bytes: u64,
    age: Duration,
}

/// Where the log was at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    at: Instant,
    index: u64,
    /// Bytes appended since the start, up to there.
    appended: u64,
}

/// Where the log was, from time to time; as far back as it is kept.
#[derive(Debug, Default)]
struct Marks(VecDeque<Mark>);

impl Marks {
    fn note(&mut self, mark: Mark, keep: Keep) {
        let far = self.0.back().is_none_or(|last| {
            mark.at.saturating_duration_since(last.at) >= keep.age / MARKS
                || mark.appended - last.appended >= keep.bytes / u64::from(MARKS)
        });
        if far {
            self.0.push_back(mark);
        }
    }

    /// The last index that need not be kept, if any: all before it is too old, or enough bytes lie behind it. `held` are
    /// the bytes in the log.
    fn purge_upto(&mut self, now: Instant, held: u64, keep: Keep) -> Option<u64> {
        let newest = self.0.back().copied()?;
        let disposable = |mark: &Mark| {
            let old = now.saturating_duration_since(mark.at) >= keep.age;
            let enough = newest.appended - mark.appended >= keep.bytes;
            // Several short lives in a row, each of which left less than it may.
            let left_over = held / 2 >= keep.bytes;
            old || enough || left_over
        };
        let count = self.0.iter().take_while(|mark| disposable(mark)).count();
        let last = self.0.get(count.checked_sub(1)?).copied()?;
        // The last one stays, in case it is not purged this time.
        self.0.drain(..count - 1);
        Some(last.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(600);
    const ALL: Keep = Keep { bytes: u64::MAX, age: AGE };

    fn marks(start: Instant) -> Marks {
        let mut marks = Marks::default();
        for minute in 0..20u64 {
            let at = start + Duration::from_secs(60 * minute);
            marks.note(Mark { at, index: minute * 100, appended: minute * 1_000 }, ALL);
        }
        marks
    }

    #[test]
    fn log_goes_when_it_is_old() {
        let start = Instant::now();
        let now = start + Duration::from_secs(60 * 19);
        let mut marks = marks(start);
        assert_eq!(marks.purge_upto(now, 20_000, ALL), Some(900));
        assert_eq!(marks.purge_upto(now, 20_000, ALL), Some(900));
        assert_eq!(marks.purge_upto(now + Duration::from_secs(60), 20_000, ALL), Some(1_000));
    }

    #[test]
    fn log_goes_when_enough_lies_behind_it() {
        let start = Instant::now();
        let now = start + Duration::from_secs(60 * 19);
        let keep = |bytes| Keep { bytes, age: AGE * 100 };
        assert_eq!(marks(start).purge_upto(now, 20_000, keep(15_000)), Some(400));
        assert_eq!(marks(start).purge_upto(now, 20_000, keep(19_001)), None);
        assert_eq!(marks(start).purge_upto(now, 80_000, keep(30_000)), Some(1_900));
    }

    #[test]
    fn a_flush_that_is_always_behind_lets_the_log_go_all_the_same() {
        let step = |purge, flush| Step { purge, flush };
        assert_eq!(Step::towards(100, None, None), step(None, true));
        assert_eq!(Step::towards(100, None, Some(90)), step(Some(90), true));
        assert_eq!(Step::towards(200, Some(90), Some(190)), step(Some(190), true));
        assert_eq!(Step::towards(200, Some(190), Some(210)), step(Some(200), false));
        assert_eq!(Step::towards(200, Some(200), Some(210)), step(None, false));
        assert_eq!(Step::towards(200, Some(200), Some(190)), step(None, false));
    }

    #[test]
    fn marks_keep_their_distance() {
        let start = Instant::now();
        let keep = Keep { bytes: 64 << 20, age: Duration::from_secs(640) };
        let mut marks = Marks::default();
        for second in 0..100u64 {
            marks.note(Mark { at: start + Duration::from_secs(second), index: second, appended: 0 }, keep);
        }
        assert_eq!(marks.0.len(), 10);
        marks.note(Mark { at: start + Duration::from_secs(100), index: 100, appended: 1 << 20 }, keep);
        assert_eq!(marks.0.len(), 11);
    }
}
