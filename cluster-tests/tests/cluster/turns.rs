//! Tests that measure have the machine for themselves; the others share it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::new(());

/// Waits for a turn in which no other test runs.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed in its turn has left nothing behind here.
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a turn beside others.
pub(crate) fn together() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}
