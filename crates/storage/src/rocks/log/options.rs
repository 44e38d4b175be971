//! How the log's RocksDB is set up, and why.

use std::path::PathBuf;
use std::time::Duration;

use rocksdb::{BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel, Options};

use super::keys;
use crate::identity::Identity;

/// Where a log is and how much memory it may use.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The directory of the log; its parent exists.
    pub dir: PathBuf,
    /// The watermark file, beside the identity.
    pub watermark: PathBuf,
    /// Whose log it is. A log of another node is refused.
    pub owner: Option<Identity>,
    /// Entries kept in memory for readers, in bytes. Entries that are not durable are kept beyond it.
    pub tail_bytes: usize,
    /// Operations that wait or are being written, in bytes; beyond it an append waits.
    pub queue_bytes: usize,
    /// One write, in bytes; at least one operation.
    pub batch_bytes: usize,
    /// One write, in operations.
    pub batch_ops: usize,
    /// One of the two memtables, in bytes.
    pub memtable_bytes: usize,
    /// How often the watermark is written, if it has changed.
    pub watermark_every: Duration,
}

impl LogOptions {
    /// The options of production.
    pub fn new(dir: impl Into<PathBuf>, watermark: impl Into<PathBuf>) -> LogOptions {
        LogOptions {
            dir: dir.into(),
            watermark: watermark.into(),
            owner: None,
            tail_bytes: 32 << 20,
            queue_bytes: 32 << 20,
            batch_bytes: 4 << 20,
            batch_ops: 4096,
            memtable_bytes: 32 << 20,
            watermark_every: Duration::from_secs(1),
        }
    }
}

/// What all of it costs a reader of old entries in memory.
const CACHE_BYTES: usize = 4 << 20;

pub(super) fn database(options: &LogOptions) -> Options {
    let mut db = Options::default();
    // A bad record before the end of the WAL refuses the start instead of cutting off what follows, votes included.
    // That mode cannot tell a recycled file's old records from damage, so files are not recycled.
    db.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    db.set_recycle_log_file_num(0);
    // A WAL file that is missing, or shorter than when it was closed, refuses the start as well.
    db.set_track_and_verify_wals_in_manifest(true);
    db.set_paranoid_checks(true);
    // The positions' family hardly ever fills its memtable and would keep every WAL file alive.
    db.set_max_total_wal_size(4 * options.memtable_bytes as u64);
    db.set_max_background_jobs(2);
    db.set_max_open_files(128);
    db.set_keep_log_file_num(4);
    db.set_log_level(LogLevel::Warn);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db.set_skip_stats_update_on_db_open(true);
    db
}

pub(super) fn families(options: &LogOptions) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_cache_index_and_filter_blocks(true);
    let mut log = Options::default();
    log.set_block_based_table_factory(&blocks);
    log.set_compression_type(DBCompressionType::None);
    log.set_write_buffer_size(options.memtable_bytes);
    log.set_max_write_buffer_number(2);
    log.set_target_file_size_base(options.memtable_bytes as u64);
    let mut meta = Options::default();
    meta.set_block_based_table_factory(&blocks);
    meta.set_compression_type(DBCompressionType::None);
    meta.set_write_buffer_size(1 << 20);
    vec![ColumnFamilyDescriptor::new(keys::LOG, log), ColumnFamilyDescriptor::new(keys::META, meta)]
}
