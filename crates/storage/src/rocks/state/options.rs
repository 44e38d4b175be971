//! How a state's RocksDB is set up, and why.

use std::path::PathBuf;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, LogLevel, Options,
};
use ticketrail_core::GroupId;

/// Small records.
pub(super) const DATA: &str = "data";
/// Large bodies.
pub(super) const BODY: &str = "body";
/// How far the state is, and its format.
pub(super) const META: &str = "meta";

/// Where the state of a group is and how much memory it may use.
#[derive(Clone)]
pub struct StateOptions {
    /// The directory of the group's generations; its parent exists.
    pub dir: PathBuf,
    /// The group.
    pub group: GroupId,
    /// All memtables together, in bytes: what is being filled and what is being flushed.
    pub memtable_bytes: usize,
    cache: Cache,
}

impl StateOptions {
    /// The options of production, with a block cache of its own.
    pub fn new(dir: impl Into<PathBuf>, group: GroupId) -> StateOptions {
        let cache = Cache::new_lru_cache(32 << 20);
        StateOptions { dir: dir.into(), group, memtable_bytes: 64 << 20, cache }
    }

    /// The same for another group, with the same block cache.
    pub fn sibling(&self, dir: impl Into<PathBuf>, group: GroupId) -> StateOptions {
        StateOptions { dir: dir.into(), group, ..self.clone() }
    }
}

impl std::fmt::Debug for StateOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StateOptions { dir, group, memtable_bytes, cache: _ } = self;
        f.debug_struct("StateOptions")
            .field("dir", dir)
            .field("group", group)
            .field("memtable_bytes", memtable_bytes)
            .finish_non_exhaustive()
    }
}

pub(super) fn database(options: &StateOptions) -> Result<Options, String> {
    // Closing a state must not wait for a flush: the log replays what is not flushed, and an orderly stop flushes first.
    // There is no setter for it.
    let mut db =
        Options::default().get_options_from_string("avoid_flush_during_shutdown=true").map_err(String::from)?;
    // Without a WAL the families are consistent with each other only if they are flushed together.
    db.set_atomic_flush(true);
    db.set_db_write_buffer_size(options.memtable_bytes);
    db.set_paranoid_checks(true);
    db.set_max_background_jobs(2);
    // Opening must not read every table's index: a restart scans nothing.
    db.set_max_open_files(256);
    db.set_skip_stats_update_on_db_open(true);
    db.set_keep_log_file_num(4);
    db.set_log_level(LogLevel::Warn);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    Ok(db)
}

pub(super) fn families(options: &StateOptions) -> Vec<ColumnFamilyDescriptor> {
    let data = family(options);
    let mut body = family(options);
    // Compaction then moves keys only.
    body.set_enable_blob_files(true);
    body.set_min_blob_size(1024);
    body.set_blob_compression_type(DBCompressionType::Lz4);
    body.set_blob_file_size(64 << 20);
    body.set_enable_blob_gc(true);
    body.set_blob_gc_force_threshold(0.5);
    let meta = family(options);
    vec![
        ColumnFamilyDescriptor::new(DATA, data),
        ColumnFamilyDescriptor::new(BODY, body),
        ColumnFamilyDescriptor::new(META, meta),
    ]
}

fn family(options: &StateOptions) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&options.cache);
    // Indexes and filters live in the cache and are cut into pieces, so that memory does not grow with the backlog.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_bloom_filter(10.0, false);
    let mut family = Options::default();
    family.set_block_based_table_factory(&blocks);
    family.set_compression_type(DBCompressionType::Lz4);
    family.set_write_buffer_size(options.memtable_bytes / 2);
    family.set_max_write_buffer_number(2);
    // A queue leaves runs of deleted keys: a file that is half of them is compacted before its turn.
    family.add_compact_on_deletion_collector_factory(4096, 2048, 0.5);
    family
}
