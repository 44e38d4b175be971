//! Opening a log: what is refused, and what is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, IteratorMode, ReadOptions};
use ticketrail_core::GroupId;

use super::LogOptions;
use super::group::{Found, Group, Place};
use super::keys::{self, Tag};
use super::options;
use crate::error::{OpenError, TREAT_AS_LOST};
use crate::files;
use crate::log::{LogId, LogRecord, Vote};
use crate::rocks::codec;
use crate::watermark::{self, Watermark, Watermarks};

/// The format of the database as a whole.
const FORMAT: u32 = 1;

pub(super) struct Opened {
    pub(super) db: DB,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) marks: Watermarks,
}

/// Opens the log, or creates it if there is none, and holds it against its watermark.
pub(super) fn open(options: &LogOptions) -> Result<Opened, OpenError> {
    let dir = &options.dir;
    let marks = watermark::read(&options.watermark)?;
    let fresh = !dir.exists();
    if fresh {
        if let Some((group, mark)) = marks.iter().flatten().find(|(_, mark)| **mark != Watermark::default()) {
            return Err(behind(options, *group, mark.to_string(), "there is no log at all".into()));
        }
        if marks.is_none() {
            watermark::write(&options.watermark, &Watermarks::new())
                .map_err(|error| OpenError::io("write", &options.watermark, &error))?;
        }
        create(options)?;
    } else if marks.is_none() {
        return Err(watermark::missing(&options.watermark));
    }
    let db = open_database(options, dir, false)?;
    let corrupt = |reason: String| OpenError::corrupt(dir, reason, TREAT_AS_LOST);
    check_format(options, &db)?;
    let found = find(&db).map_err(corrupt)?;
    let marks = marks.unwrap_or_default();
    for (group, mark) in &marks {
        check_mark(options, &db, *group, mark, found.get(group))?;
    }
    let groups = found.iter().map(|(group, found)| (*group, Group::recover(found))).collect();
    Ok(Opened { db, groups, marks })
}

/// Creates an empty log aside and renames it, so that one half created is never taken for one half lost.
fn create(options: &LogOptions) -> Result<(), OpenError> {
    let dir = &options.dir;
    let aside = aside(dir);
    files::remove_dir(&aside).map_err(|error| OpenError::io("remove", &aside, &error))?;
    let db = open_database(options, &aside, true)?;
    let stamped = family(&db, keys::META).and_then(|meta| {
        let owner = options.owner.map(|owner| owner.owner()).unwrap_or_default();
        db.put_cf(meta, keys::OWNER_KEY, owner)
            .and_then(|()| db.put_cf(meta, keys::FORMAT_KEY, FORMAT.to_be_bytes()))
            .and_then(|()| db.flush_wal(true))
            .map_err(String::from)
    });
    stamped.map_err(|reason| OpenError::Io { action: "create", path: aside.clone(), reason })?;
    drop(db);
    files::sync_all_in(&aside)
        .and_then(|()| fs::rename(&aside, dir))
        .and_then(|()| files::sync_dir(files::parent(dir)))
        .map_err(|error| OpenError::io("create", dir, &error))
}

fn aside(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn open_database(options: &LogOptions, dir: &Path, create: bool) -> Result<DB, OpenError> {
    let mut database = options::database(options);
    database.create_if_missing(create);
    database.create_missing_column_families(create);
    DB::open_cf_descriptors(&database, dir, options::families(options))
        .map_err(|error| OpenError::corrupt(dir, format!("RocksDB says: {error}"), TREAT_AS_LOST))
}

fn check_format(options: &LogOptions, db: &DB) -> Result<(), OpenError> {
    let dir = &options.dir;
    let corrupt = |reason: String| OpenError::corrupt(dir, reason, TREAT_AS_LOST);
    let meta = family(db, keys::META).map_err(corrupt)?;
    let get = |key| db.get_cf(meta, key).map_err(|error| corrupt(String::from(error)));
    let format = get(keys::FORMAT_KEY)?;
    let Some(format) = format.as_deref().and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes) else {
        return Err(OpenError::Foreign {
            path: dir.clone(),
            expected: "a raft log of Ticketrail".into(),
            found: "something else: it has no format number".into(),
            way_out: "point the node at its own data directory",
        });
    };
    if format > FORMAT {
        return Err(OpenError::Newer { path: dir.clone(), found: format, known: FORMAT });
    }
    let owner = get(keys::OWNER_KEY)?.unwrap_or_default();
    let owner = String::from_utf8_lossy(&owner).into_owned();
    let expected = options.owner.map(|owner| owner.owner()).unwrap_or_default();
    if owner != expected {
        let name = |owner: String| if owner.is_empty() { "nobody".into() } else { owner };
        return Err(OpenError::Foreign {
            path: dir.clone(),
            expected: name(expected),
            found: name(owner),
            way_out: "put back the directory that belongs to this identity",
        });
    }
    Ok(())
}

fn family<'a>(db: &'a DB, name: &str) -> Result<&'a ColumnFamily, String> {
    db.cf_handle(name).ok_or_else(|| format!("it has no column family {name:?}"))
}

/// Reads the positions, and the first and last entry, of each group: a few seeks, no scan.
fn find(db: &DB) -> Result<BTreeMap<GroupId, Found>, String> {
    let (log, meta) = (family(db, keys::LOG)?, family(db, keys::META)?);
    let mut positions: BTreeMap<GroupId, Positions> = BTreeMap::new();
    for pair in db.iterator_cf(meta, IteratorMode::Start) {
        let (key, value) = pair.map_err(String::from)?;
        if *key == *keys::FORMAT_KEY || *key == *keys::OWNER_KEY {
            continue;
        }
        let (group, tag) = keys::parse_meta(&key)?;
        let found = positions.entry(group).or_default();
        match tag {
            Tag::Vote => found.vote = Some(codec::decode_vote(&value)?),
            Tag::Purged => found.purged = Some(codec::decode_purged(&value)?),
            Tag::Committed => found.committed = Some(codec::decode_log_id(&value)?),
        }
    }
    let mut groups: BTreeSet<GroupId> = positions.keys().copied().collect();
    let mut next = Some(GroupId(0));
    while let Some(from) = next {
        let group = first_at(db, log, &keys::entry(from, 0))?.map(|(group, _)| group);
        groups.extend(group);
        next = group.and_then(|group| group.0.checked_add(1)).map(GroupId);
    }
    groups.into_iter().map(|group| find_entries(db, log, group, positions.remove(&group))).collect()
}

#[derive(Default)]
struct Positions {
    purged: Option<(LogId, u64)>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

fn find_entries(
    db: &DB,
    log: &ColumnFamily,
    group: GroupId,
    positions: Option<Positions>,
) -> Result<(GroupId, Found), String> {
    let positions = positions.unwrap_or_default();
    let of_group = |at: Option<(GroupId, u64)>| at.filter(|(of, _)| *of == group).map(|(_, index)| index);
    let first = of_group(first_at(db, log, &keys::entry(group, 0))?);
    let last = last_record(db, log, group)?;
    if let (Some(first), Some((purged, _))) = (first, positions.purged)
        && first != purged.index.saturating_add(1)
    {
        return Err(format!(
            "group {} was purged up to entry {}, but its first entry is {first}: those between are missing",
            group.0, purged.index
        ));
    }
    let last = last.map(|(record, total)| Place { id: Some(record.id), total });
    let Positions { purged, vote, committed } = positions;
    Ok((group, Found { purged, first, last, vote, committed }))
}

/// The first entry at or behind `key`.
fn first_at(db: &DB, log: &ColumnFamily, key: &[u8]) -> Result<Option<(GroupId, u64)>, String> {
    let mut at = db.raw_iterator_cf(log);
    at.seek(key);
    at.status().map_err(String::from)?;
    at.key().map(keys::parse_entry).transpose()
}

fn last_record(db: &DB, log: &ColumnFamily, group: GroupId) -> Result<Option<(LogRecord, u64)>, String> {
    let mut bounds = ReadOptions::default();
    bounds.set_iterate_lower_bound(keys::entry(group, 0));
    let mut at = db.raw_iterator_cf_opt(log, bounds);
    at.seek_for_prev(keys::entry(group, u64::MAX));
    at.status().map_err(String::from)?;
    match at.item() {
        Some((key, value)) => {
            let (_, index) = keys::parse_entry(key)?;
            codec::decode_record(index, Bytes::copy_from_slice(value)).map(Some)
        }
        None => Ok(None),
    }
}

/// Refuses a log that lacks what was durable.
fn check_mark(
    options: &LogOptions,
    db: &DB,
    group: GroupId,
    mark: &Watermark,
    found: Option<&Found>,
) -> Result<(), OpenError> {
    let vote = found.and_then(|found| found.vote);
    if mark.vote > vote {
        let found = format!("its vote is {vote:?}");
        return Err(behind(options, group, format!("the vote {:?}", mark.vote), found));
    }
    let Some(last) = mark.last else { return Ok(()) };
    if found.and_then(|found| found.purged).is_some_and(|(purged, _)| purged.index >= last.index) {
        return Ok(());
    }
    let corrupt = |reason: String| OpenError::corrupt(&options.dir, reason, TREAT_AS_LOST);
    let value = family(db, keys::LOG)
        .and_then(|log| db.get_cf(log, keys::entry(group, last.index)).map_err(String::from))
        .map_err(corrupt)?;
    let there = match value {
        Some(value) => Some(codec::decode_record(last.index, value).map_err(corrupt)?.0.id),
        None => None,
    };
    if there == Some(last) {
        return Ok(());
    }
    let expected = format!("entry {} of term {}", last.index, last.leader.term);
    let found = match (there, found.and_then(|found| found.last).and_then(|place| place.id)) {
        (Some(other), _) => format!("that entry is of term {}", other.leader.term),
        (None, Some(end)) => format!("it ends with entry {}", end.index),
        (None, None) => "it holds no entry".into(),
    };
    Err(behind(options, group, expected, found))
}

fn behind(options: &LogOptions, group: GroupId, expected: String, found: String) -> OpenError {
    OpenError::Behind { path: options.dir.clone(), watermark: options.watermark.clone(), group, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_and_a_foreign_database_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let options = LogOptions::new(temp.path().join("raft"), temp.path().join("WATERMARK"));
        let opened = open(&options).unwrap();
        let meta = family(&opened.db, keys::META).unwrap();
        opened.db.put_cf(meta, keys::FORMAT_KEY, 2_u32.to_be_bytes()).unwrap();
        drop(opened);
        let newer = open(&options).err().unwrap();
        assert_eq!(newer, OpenError::Newer { path: options.dir.clone(), found: 2, known: 1 });
        assert!(newer.to_string().contains("raft") && newer.to_string().contains("run the version"), "{newer}");
        let db = open_database(&options, &options.dir, false).unwrap();
        db.delete_cf(family(&db, keys::META).unwrap(), keys::FORMAT_KEY).unwrap();
        drop(db);
        let foreign = open(&options).err().unwrap();
        assert!(matches!(foreign, OpenError::Foreign { .. }), "{foreign}");
    }

    #[test]
    fn a_hole_behind_the_purged_entries_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let options = LogOptions::new(temp.path().join("raft"), temp.path().join("WATERMARK"));
        let opened = open(&options).unwrap();
        let (log, meta) = (family(&opened.db, keys::LOG).unwrap(), family(&opened.db, keys::META).unwrap());
        let group = GroupId(1);
        let record = LogRecord { id: LogId { index: 9, ..LogId::default() }, payload: crate::log::Payload::Blank };
        let purged = LogId { index: 5, ..LogId::default() };
        opened.db.put_cf(log, keys::entry(group, 9), codec::encode_record(&record, 0)).unwrap();
        opened.db.put_cf(meta, keys::meta(group, Tag::Purged), codec::encode_purged(purged, 0)).unwrap();
        drop(opened);
        let refused = open(&options).err().unwrap().to_string();
        assert!(refused.contains("purged up to entry 5") && refused.contains("first entry is 9"), "{refused}");
    }

    #[test]
    fn a_creation_that_was_cut_off_starts_anew() {
        let temp = tempfile::tempdir().unwrap();
        let options = LogOptions::new(temp.path().join("raft"), temp.path().join("WATERMARK"));
        watermark::write(&options.watermark, &Watermarks::new()).unwrap();
        fs::create_dir(temp.path().join("raft.new")).unwrap();
        fs::write(temp.path().join("raft.new/CURRENT"), "half").unwrap();
        drop(open(&options).unwrap());
        assert!(!temp.path().join("raft.new").exists());
        drop(open(&options).unwrap());
    }
}
