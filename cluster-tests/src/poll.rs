//! Waiting for something to happen, never for a time to pass.

use std::time::{Duration, Instant};

use anyhow::bail;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks `found` again and again until it has something, at most for `deadline`.
pub fn poll<T>(deadline: Duration, mut found: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(value) = found()? {
            return Ok(value);
        }
        if begun.elapsed() > deadline {
            bail!("expected it within {deadline:?}, but it did not happen");
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// The same for what has to be awaited.
pub async fn poll_async<T>(
    deadline: Duration,
    mut found: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(value) = found().await? {
            return Ok(value);
        }
        if begun.elapsed() > deadline {
            bail!("expected it within {deadline:?}, but it did not happen");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
