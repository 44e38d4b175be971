//! The pause between two looks of a poll. Every loop around it has a deadline.

use std::time::Duration;

/// Lets the node go on for a moment.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
