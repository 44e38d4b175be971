//! Looking at a condition until it holds, or the deadline is over.

use std::time::{Duration, Instant};

/// Longer than anything takes here.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Looks until there is something.
pub(crate) async fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "expected {what} within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
