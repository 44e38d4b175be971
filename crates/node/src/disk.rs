//! Whether the disk has room, asked of whoever watches it.

use std::fmt;
use std::sync::Arc;

/// Tells whether the disk is nearly full. Asked for each enqueue, so it must answer from memory.
#[derive(Clone)]
pub struct Disk(Arc<dyn Fn() -> bool + Send + Sync>);

impl Disk {
    /// Asks `is_low`.
    pub fn watched(is_low: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_low))
    }

    /// A store that is not on a disk.
    pub fn endless() -> Self {
        Self::watched(|| false)
    }

    /// Whether the disk is past its mark.
    pub(crate) fn is_low(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_low() { "Disk(low)" } else { "Disk(has room)" })
    }
}
