//! Waiting. A fault lasts for a time, and that is the one thing here for which time just passes.

use std::time::{Duration, Instant};

pub use ticketrail_cluster_tests::poll::{poll, poll_async};

/// Lets `time` pass: how long a fault lasts, or how long nothing is wrong between two.
pub fn pass(time: Duration) {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// The same for a task.
pub async fn pass_async(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until it is `due`.
pub async fn due(due: tokio::time::Instant) {
    tokio::time::sleep_until(due).await;
}
