//! The data directory and its disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::statvfs::statvfs;
use ticketrail_storage::dir::{DataDir, Store};
use ticketrail_storage::disk::{DiskGuard, DiskOptions, DiskState};

use crate::config::{Config, DISK_SLACK};

/// How often the disk is looked at: it must be seen before a burst at disk speed fills what lies below the mark.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Opens the data directory, of which this process is then the only user. Blocks.
pub(crate) fn lock(config: &Config) -> anyhow::Result<DataDir> {
    Ok(DataDir::open(&config.data_dir)?)
}

/// Opens the stores of a directory that has an identity. Blocks.
pub(crate) fn open(config: &Config, dir: DataDir) -> anyhow::Result<Store> {
    Ok(dir.open_store(DiskOptions {
        low: config.disk_low_bytes.0,
        critical: config.disk_critical_bytes.0,
        slack: DISK_SLACK.0,
        ballast: config.ballast_bytes.0,
    })?)
}

/// Looks at the disk now and then, for ever.
pub(crate) async fn watch(disk: Arc<DiskGuard>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let disk = disk.clone();
        match tokio::task::spawn_blocking(move || disk.check()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "expected to look at the disk's free space, but cannot"),
            // Not run: the runtime ends.
            Err(_) => return,
        }
    }
}

/// Whether the disk is past its mark.
pub(crate) fn is_low(disk: &DiskGuard) -> bool {
    match disk.state() {
        DiskState::Ok => false,
        DiskState::Low | DiskState::Critical => true,
    }
}

/// The disk under `dir`, for people.
pub(crate) fn figures(dir: &Path, low_watermark_bytes: u64) -> Option<ticketrail_api::Disk> {
    let stat = statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    Some(ticketrail_api::Disk {
        free_bytes: bytes(stat.blocks_available()),
        total_bytes: bytes(stat.blocks()),
        low_watermark_bytes,
    })
}

/// The file that tells others that the server serves, and where. Gone with the server.
pub(crate) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// The file at `path`; empty: none. Removes what an earlier server left.
    pub(crate) fn prepare(path: &Path) -> Self {
        let file = Self((!path.as_os_str().is_empty()).then(|| path.to_path_buf()));
        file.remove();
        file
    }

    /// Writes `text`, at once and whole.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        std::fs::write(&name, text)
            .and_then(|()| std::fs::rename(&name, path))
            .with_context(|| format!("expected to write the ready file {}, but cannot", path.display()))
    }

    /// Removes it: the server serves no longer.
    pub(crate) fn remove(&self) {
        if let Some(path) = &self.0 {
            // It need not be there.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        self.remove();
    }
}
