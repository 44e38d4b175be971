//! Looking at a condition until it holds, or the time is over.

use std::time::Duration;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until there is something; `None`: not in time.
pub(super) async fn poll<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.ok()
}
