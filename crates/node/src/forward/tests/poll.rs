//! How tests wait: for a condition, until a deadline.

use std::time::Duration;

/// The longest that anything here takes.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "expected {what} within {SOON:?}");
}

/// Lets simulated time pass.
pub(super) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
