//! Pauses of the simulated world: what a disk or a link takes its time for.

use std::time::Duration;

/// A pause, in simulated time.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
