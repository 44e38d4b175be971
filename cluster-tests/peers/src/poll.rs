//! Waiting: for something to happen, or until something is due.

use std::future::pending;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

/// How long anything may take before it is given up.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks `found` again and again until it has something; what went wrong last is told where it never has.
pub(crate) async fn poll<T>(what: &str, mut found: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        match found().await {
            Ok(value) => return Ok(value),
            Err(error) if begun.elapsed() > DEADLINE => {
                return Err(error)
                    .with_context(|| format!("expected {what} within {DEADLINE:?}, but it did not happen"));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Waits until it is `due`, and says when that was; for ever where nothing is. What is due already costs nothing: the
/// runtime's timer would wait out a whole millisecond for it.
pub(crate) async fn due(due: Option<Instant>) -> Instant {
    match due {
        Some(due) => {
            if due > Instant::now() {
                tokio::time::sleep_until(due).await;
            }
            due
        }
        None => pending().await,
    }
}
