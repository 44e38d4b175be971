//! Waiting for something to happen, never for a time to pass.

use std::time::{Duration, Instant};

use anyhow::bail;

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
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
