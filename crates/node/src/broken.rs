//! Whether this replica is broken, and why: told once, heard by all.

use tokio::sync::watch;

/// The first reason for which this replica cannot go on. The process that holds it should end.
#[derive(Debug)]
pub(crate) struct Broken {
    reason: watch::Sender<Option<String>>,
}

impl Default for Broken {
    fn default() -> Self {
        Self { reason: watch::Sender::new(None) }
    }
}

impl Broken {
    /// Tells everybody; only the first reason counts.
    pub(crate) fn report(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.reason.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                tracing::error!(%reason, "this replica is broken");
                *known = Some(reason);
            }
            first
        });
    }

    /// The reason, where there is one.
    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    /// Waits until there is a reason.
    pub(crate) async fn wait(&self) -> String {
        let mut reason = self.reason.subscribe();
        let told = reason.wait_for(Option::is_some).await;
        // The sender is `self`: it outlives the wait, and the value is there.
        told.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }
}
