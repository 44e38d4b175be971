//! When to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. A second one ends the process at once: what was acknowledged is safe all the same.
pub async fn stop_signal() {
    let (mut term, mut int) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(term), Ok(int)) => (term, int),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "expected to listen for signals, but cannot; stop this process with SIGKILL");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = term.recv() => tracing::info!("SIGTERM: stopping in order; once more to stop at once"),
        _ = int.recv() => tracing::info!("SIGINT: stopping in order; once more to stop at once"),
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::warn!("second signal: stopping at once");
        std::process::exit(130);
    });
}
