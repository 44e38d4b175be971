//! How tests wait: for a condition, until a deadline.

use std::time::{Duration, Instant};

use crate::rig::SOON;

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_it(what, async || condition()).await;
}

/// Waits until a condition holds that has to be asked for.
pub(crate) async fn until_it(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < deadline, "expected {what} within {SOON:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets simulated time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
