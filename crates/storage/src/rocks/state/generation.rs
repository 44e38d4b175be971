//! One generation of a state: a RocksDB in a directory that it may own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rocksdb::{ColumnFamily, DB, FlushOptions, WriteBatch, WriteOptions};
use ticketrail_core::{Family, Write, WriteSet};

use super::StateOptions;
use super::options;
use super::segments::segments;
use crate::error::{OpenError, TREAT_AS_LOST};
use crate::files;
use crate::rocks::codec;
use crate::state::Applied;

/// The format of the database as a whole.
const FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";
const APPLIED_KEY: &[u8] = b"applied";

/// A directory that goes with its owner, unless it is to stay.
#[derive(Debug)]
pub(super) struct OwnedDir {
    path: PathBuf,
    stays: AtomicBool,
}

impl OwnedDir {
    pub(super) fn new(path: PathBuf) -> OwnedDir {
        OwnedDir { path, stays: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn set_stays(&self, stays: bool) {
        self.stays.store(stays, Ordering::Release);
    }
}

impl Drop for OwnedDir {
    fn drop(&mut self) {
        if !self.stays.load(Ordering::Acquire)
            && let Err(error) = files::remove_dir(&self.path)
        {
            // The next start removes what is left.
            tracing::warn!(%error, dir = %self.path.display(), "a state's directory could not be removed");
        }
    }
}

pub(super) struct Generation {
    // Closed before its directory goes.
    db: DB,
    pub(super) number: u64,
    pub(super) dir: OwnedDir,
}

impl Generation {
    /// Creates an empty database in `dir`, durable but for its name.
    pub(super) fn create(options: &StateOptions, dir: &Path) -> Result<(), OpenError> {
        let created = options::database(options)
            .and_then(|mut database| {
                database.create_if_missing(true);
                database.create_missing_column_families(true);
                DB::open_cf_descriptors(&database, dir, options::families(options)).map_err(String::from)
            })
            .and_then(|db| {
                let mut batch = WriteBatch::default();
                let meta = family(&db, options::META)?;
                batch.put_cf(meta, FORMAT_KEY, FORMAT.to_be_bytes());
                batch.put_cf(meta, APPLIED_KEY, codec::encode_applied(&Applied::default()));
                write(&db, batch)?;
                flush(&db)
            });
        created.map_err(|reason| OpenError::Io { action: "create", path: dir.to_path_buf(), reason })?;
        files::sync_all_in(dir).map_err(|error| OpenError::io("sync", dir, &error))
    }

    /// Opens generation `number` in `dir`, which then belongs to it.
    pub(super) fn open(options: &StateOptions, dir: OwnedDir, number: u64) -> Result<(Generation, Applied), OpenError> {
        let db = options::database(options)
            .and_then(|database| {
                DB::open_cf_descriptors(&database, dir.path(), options::families(options)).map_err(String::from)
            })
            .map_err(|reason| corrupt(dir.path(), reason))?;
        check_format(dir.path(), &db)?;
        let applied = applied(&db).map_err(|reason| corrupt(dir.path(), reason))?;
        Ok((Generation { db, number, dir }, applied))
    }

    pub(super) fn db(&self) -> &DB {
        &self.db
    }

    pub(super) fn family(&self, of: Family) -> Result<&ColumnFamily, String> {
        family(&self.db, name(of))
    }

    /// Commits `writes` and `applied` together; not durable until flushed.
    pub(super) fn commit(&self, writes: &WriteSet, applied: &Applied) -> Result<(), String> {
        let (data, body) = (self.family(Family::Data)?, self.family(Family::Body)?);
        let of = |key: &[u8]| match Family::of(key) {
            Family::Data => data,
            Family::Body => body,
        };
        let mut batch = WriteBatch::default();
        for change in writes.iter() {
            match change {
                Write::Put { key, value } => batch.put_cf(of(key), key, value),
                Write::Delete { key } => batch.delete_cf(of(key), key),
                Write::DeleteRange { from, to } => {
                    for segment in segments(from, to) {
                        batch.delete_range_cf(self.family(segment.family)?, segment.from, segment.to);
                    }
                }
            }
        }
        batch.put_cf(family(&self.db, options::META)?, APPLIED_KEY, codec::encode_applied(applied));
        write(&self.db, batch)
    }

    /// Makes what was committed durable.
    pub(super) fn flush(&self) -> Result<(), String> {
        flush(&self.db)
    }
}

/// How far the state in `dir` is, read from inside it. Changes nothing there.
pub(super) fn read_applied(options: &StateOptions, dir: &Path) -> Result<Applied, OpenError> {
    let families = options::families(options);
    let db = options::database(options)
        .and_then(|database| DB::open_cf_descriptors_read_only(&database, dir, families, false).map_err(String::from))
        .map_err(|reason| corrupt(dir, reason))?;
    check_format(dir, &db)?;
    applied(&db).map_err(|reason| corrupt(dir, reason))
}

/// Puts the database of `from` into the new directory `to`, durably, without changing `from`: tables and blobs, which
/// never change, by a second name; the rest as copies.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let immutable = source.extension().is_some_and(|extension| extension == "sst" || extension == "blob");
        let noise = entry.file_name() == "LOCK" || entry.file_name().to_string_lossy().starts_with("LOG");
        if noise || !entry.file_type()?.is_file() {
            continue;
        }
        // Another file system takes no second name.
        if !immutable || fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target)?;
            fs::File::open(&target)?.sync_all()?;
        }
    }
    files::sync_dir(to)?;
    files::sync_dir(files::parent(to))
}

fn check_format(dir: &Path, db: &DB) -> Result<(), OpenError> {
    let format = family(db, options::META)
        .and_then(|meta| db.get_cf(meta, FORMAT_KEY).map_err(String::from))
        .map_err(|reason| corrupt(dir, reason))?;
    match format.as_deref().and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes) {
        Some(found) if found > FORMAT => Err(OpenError::Newer { path: dir.to_path_buf(), found, known: FORMAT }),
        Some(_) => Ok(()),
        None => Err(OpenError::Foreign {
            path: dir.to_path_buf(),
            expected: "a state of Ticketrail".into(),
            found: "something else: it has no format number".into(),
            way_out: "point the node at its own data directory",
        }),
    }
}

fn applied(db: &DB) -> Result<Applied, String> {
    match db.get_cf(family(db, options::META)?, APPLIED_KEY).map_err(String::from)? {
        Some(bytes) => codec::decode_applied(&bytes),
        None => Err("it does not say how far it is".into()),
    }
}

fn write(db: &DB, batch: WriteBatch) -> Result<(), String> {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    db.write_opt(batch, &options).map_err(String::from)
}

fn flush(db: &DB) -> Result<(), String> {
    let families = [family(db, options::DATA)?, family(db, options::BODY)?, family(db, options::META)?];
    db.flush_cfs_opt(&families, &FlushOptions::default()).map_err(String::from)
}

fn name(of: Family) -> &'static str {
    match of {
        Family::Data => options::DATA,
        Family::Body => options::BODY,
    }
}

fn family<'a>(db: &'a DB, name: &str) -> Result<&'a ColumnFamily, String> {
    db.cf_handle(name).ok_or_else(|| format!("it has no column family {name:?}"))
}

fn corrupt(dir: &Path, reason: String) -> OpenError {
    OpenError::corrupt(dir, format!("RocksDB says: {reason}"), TREAT_AS_LOST)
}

#[cfg(test)]
mod tests {
    use ticketrail_core::GroupId;

    use super::*;

    #[test]
    fn a_newer_and_a_foreign_database_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let options = StateOptions::new(temp.path().join("1"), GroupId(1));
        let dir = temp.path().join("db");
        let open = || {
            let owned = OwnedDir::new(dir.clone());
            owned.set_stays(true);
            Generation::open(&options, owned, 1)
        };
        Generation::create(&options, &dir).unwrap();
        let (generation, applied) = open().unwrap();
        assert_eq!(applied, Applied::default());
        let set = |format: Option<u32>| {
            let (generation, _) = open().unwrap();
            let mut batch = WriteBatch::default();
            let meta = family(generation.db(), options::META).unwrap();
            match format {
                Some(format) => batch.put_cf(meta, FORMAT_KEY, format.to_be_bytes()),
                None => batch.delete_cf(meta, FORMAT_KEY),
            }
            write(generation.db(), batch).unwrap();
            generation.flush().unwrap();
        };
        drop(generation);
        set(Some(7));
        let newer = open().err().unwrap();
        assert_eq!(newer, OpenError::Newer { path: dir.clone(), found: 7, known: 1 });
        assert_eq!(read_applied(&options, &dir), Err(newer));
        fs::remove_dir_all(&dir).unwrap();
        Generation::create(&options, &dir).unwrap();
        set(None);
        assert!(matches!(open().err(), Some(OpenError::Foreign { .. })));
        assert!(matches!(read_applied(&options, &dir), Err(OpenError::Foreign { .. })));
    }
}
