//! The pauses that clients make: part of the load, and before another attempt.

use std::time::Duration;

/// A pause.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
