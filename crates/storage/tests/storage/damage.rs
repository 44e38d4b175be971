//! Damaged, truncated and incomplete data: refused with the file's name and the way out, or complete.

use std::fs;
use std::path::{Path, PathBuf};

use ticketrail_core::{GroupId, Write, WriteSet};
use ticketrail_storage::log::{LeaderId, RaftLog, Vote};
use ticketrail_storage::rocks::{LogOptions, RocksLog, RocksState, StateOptions};
use ticketrail_storage::state::{Applied, StateStore};
use ticketrail_storage::{ClusterId, Identity, OpenError};

use crate::log_model::GROUPS;
use crate::log_rocks::options;
use crate::model::{Model, Op, call_durably, id, record};

/// What is done to a directory, by name.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The largest file in `dir` whose name ends with `end`.
fn largest(dir: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = files.filter(|file| file.file_name().to_string_lossy().ends_with(end)).collect();
    files.sort_by_key(|file| file.metadata().unwrap().len());
    files.pop().unwrap().path()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path, len: usize) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..len]).unwrap();
}

/// A log of 40 synced entries, closed; with its watermark up to `marked` of them, or all.
fn log_of_40(dir: &Path, marked: u64) -> Model {
    let mut model = Model::default();
    let log = RocksLog::open(options(dir)).unwrap();
    let vote = Vote { leader: LeaderId { term: 1, node: 1 }, committed: true };
    let mut kept = None;
    for op in std::iter::once(Op::Vote(GROUPS[0], vote))
        .chain((0..40).map(|index| Op::Append(GROUPS[0], vec![record(1, index, 1000)])))
    {
        model.apply(&op);
        call_durably(&log, &op);
        if model.group(GROUPS[0]).records.len() as u64 == marked && marked < 40 {
            // A vote writes the watermark.
            let term = 2;
            let vote = Vote { leader: LeaderId { term, node: 1 }, committed: false };
            let op = Op::Vote(GROUPS[0], vote);
            model.apply(&op);
            call_durably(&log, &op);
            kept = Some(fs::read(dir.join("WATERMARK")).unwrap());
        }
    }
    drop(log);
    if let Some(kept) = kept {
        fs::write(dir.join("WATERMARK"), kept).unwrap();
    }
    model
}

/// What is there after `damage` to the WAL of a copy: the last index, or the refusal.
fn after(dir: &Path, damage: impl FnOnce(&Path)) -> Result<Option<u64>, OpenError> {
    let copied = tempfile::tempdir().unwrap();
    copy(dir, copied.path());
    damage(&largest(&copied.path().join("raft"), ".log"));
    let log = RocksLog::open(options(copied.path()))?;
    Ok(log.state(GROUPS[0]).last.map(|last| last.index))
}

#[test]
fn a_log_with_lost_synced_records_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    log_of_40(dir.path(), 40);
    let len = fs::metadata(largest(&dir.path().join("raft"), ".log")).unwrap().len() as usize;
    assert!(len > 40_000, "{len}");
    assert_eq!(after(dir.path(), |_| {}), Ok(Some(39)), "whole it does");
    // Cut anywhere, between records or within: RocksDB would start with less, the watermark does not.
    for at in [0, 1, len / 3, len / 2, len - 1100, len - 500, len - 1] {
        let refused = after(dir.path(), |wal| cut(wal, at)).expect_err(&format!("cut at {at} of {len}"));
        let text = refused.to_string();
        assert!(text.contains("raft") && text.contains("treat it as lost"), "{text}");
    }
    let refused = after(dir.path(), |wal| fs::remove_file(wal).unwrap()).expect_err("removed");
    // RocksDB itself misses nothing.
    assert!(matches!(refused, OpenError::Behind { .. }), "{refused}");
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    // The watermark is as old as it can be: nothing but the WAL's own checksums tell.
    log_of_40(dir.path(), 1);
    let len = fs::metadata(largest(&dir.path().join("raft"), ".log")).unwrap().len() as usize;
    let last_record = len - 1050;
    for at in (0..len).step_by(997).chain([last_record, len - 500, len - 1]) {
        match after(dir.path(), |wal| flip(wal, at)) {
            Ok(last) => assert_eq!(last, Some(39), "flipped at {at} of {len}"),
            Err(refused) => {
                let text = refused.to_string();
                assert!(text.contains("raft") && text.contains("treat it as lost"), "{text}");
            }
        }
    }
}

#[test]
fn an_unsynced_end_that_was_torn_off_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    // The watermark knows of 30 entries only: what was cut off may never have been synced.
    log_of_40(dir.path(), 30);
    let len = fs::metadata(largest(&dir.path().join("raft"), ".log")).unwrap().len() as usize;
    assert_eq!(after(dir.path(), |wal| cut(wal, len - 500)), Ok(Some(38)));
    let refused = after(dir.path(), |wal| cut(wal, len / 2)).expect_err("less than the watermark knows");
    assert!(matches!(refused, OpenError::Behind { .. }), "{refused}");
}

#[test]
fn an_older_wal_that_was_cut_short_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = |dir: &Path| LogOptions { memtable_bytes: 64 << 10, ..options(dir) };
    let log = RocksLog::open(small(dir.path())).unwrap();
    let vote = |term| Op::Vote(GROUPS[0], Vote { leader: LeaderId { term, node: 1 }, committed: false });
    call_durably(&log, &vote(1));
    let old = fs::read(dir.path().join("WATERMARK")).unwrap();
    let raft = dir.path().join("raft");
    let wals = || {
        let mut files: Vec<PathBuf> = fs::read_dir(&raft).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.to_string_lossy().ends_with(".log"));
        files.sort();
        files
    };
    let first = wals().pop().unwrap();
    let before = fs::metadata(&first).unwrap().len() as usize;
    call_durably(&log, &vote(2));
    // Entries fill their memtable and begin new WAL files; the positions do not, and keep the first one alive.
    for index in 0..200 {
        call_durably(&log, &Op::Append(GROUPS[0], vec![record(1, index, 1000)]));
    }
    drop(log);
    assert!(wals().len() > 1 && wals().contains(&first), "{:?}", wals());
    fs::write(dir.path().join("WATERMARK"), old).unwrap();
    let copied = tempfile::tempdir().unwrap();
    copy(dir.path(), copied.path());
    cut(&copied.path().join("raft").join(first.file_name().unwrap()), before);
    let refused = RocksLog::open(small(copied.path())).err().expect("the second vote is lost");
    assert!(refused.to_string().contains("treat it as lost"), "{refused}");
    let log = RocksLog::open(small(dir.path())).unwrap();
    assert_eq!(log.state(GROUPS[0]).vote.unwrap().leader.term, 2);
}

#[test]
fn damaged_tables_of_the_log_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let model = log_of_40(dir.path(), 40);
    // Opening moves the WAL into a table.
    drop(RocksLog::open(options(dir.path())).unwrap());
    let damages: [Damage<'_>; 5] = [
        ("cut", &|raft| cut(&largest(raft, ".sst"), 20_000)),
        ("removed", &|raft| fs::remove_file(largest(raft, ".sst")).unwrap()),
        ("no CURRENT", &|raft| fs::remove_file(raft.join("CURRENT")).unwrap()),
        ("all removed", &|raft| fs::remove_dir_all(raft).unwrap()),
        ("empty", &|raft| {
            fs::remove_dir_all(raft).unwrap();
            fs::create_dir(raft).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let copied = tempfile::tempdir().unwrap();
        copy(dir.path(), copied.path());
        damage(&copied.path().join("raft"));
        let refused = RocksLog::open(options(copied.path())).err().unwrap_or_else(|| panic!("{what}: opened"));
        assert!(refused.to_string().contains("raft"), "{what}: {refused}");
        assert!(refused.to_string().contains("treat it as lost"), "{what}: {refused}");
    }
    // A flipped bit in a table shows when it is read, at the latest.
    let copied = tempfile::tempdir().unwrap();
    copy(dir.path(), copied.path());
    let table = largest(&copied.path().join("raft"), ".sst");
    flip(&table, 20_000);
    match RocksLog::open(options(copied.path())) {
        Ok(log) => assert!(log.read(GROUPS[0], 0..u64::MAX, usize::MAX).is_err()),
        Err(refused) => assert!(refused.to_string().contains("raft"), "{refused}"),
    }
    let log = RocksLog::open(options(dir.path())).unwrap();
    assert_eq!(model.matches(&log, &GROUPS), Ok(()));
}

#[test]
fn a_vote_behind_its_watermark_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    let vote = |term| Vote { leader: LeaderId { term, node: 1 }, committed: false };
    call_durably(&log, &Op::Vote(GROUPS[0], vote(3)));
    drop(log);
    let old = tempfile::tempdir().unwrap();
    copy(dir.path(), old.path());
    let log = RocksLog::open(options(dir.path())).unwrap();
    call_durably(&log, &Op::Vote(GROUPS[0], vote(4)));
    // Written before the vote was acknowledged, not at the end.
    fs::copy(dir.path().join("WATERMARK"), old.path().join("WATERMARK")).unwrap();
    let refused = RocksLog::open(options(old.path())).err().expect("an old log under a new watermark");
    assert!(matches!(refused, OpenError::Behind { .. }), "{refused}");
    assert!(refused.to_string().contains("WATERMARK"), "{refused}");
}

#[test]
fn whoever_followed_the_winner_of_a_term_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    let vote = |node, committed| Vote { leader: LeaderId { term: 3, node }, committed };
    call_durably(&log, &Op::Vote(GROUPS[0], vote(3, false)));
    let voted = fs::read(dir.path().join("WATERMARK")).unwrap();
    call_durably(&log, &Op::Vote(GROUPS[0], vote(1, true)));
    drop(log);
    // The power went between the log's sync and that of the watermark: the log is ahead of it.
    fs::write(dir.path().join("WATERMARK"), voted).unwrap();
    let log = RocksLog::open(options(dir.path())).expect("a log that knows more than its watermark");
    assert_eq!(log.state(GROUPS[0]).vote, Some(vote(1, true)));
}

#[test]
fn a_truncation_lowers_the_watermark_first() {
    let dir = tempfile::tempdir().unwrap();
    log_of_40(dir.path(), 40);
    let log = RocksLog::open(options(dir.path())).unwrap();
    log.truncate_after(GROUPS[0], Some(id(1, 9))).unwrap();
    let text = fs::read_to_string(dir.path().join("WATERMARK")).unwrap();
    assert!(text.contains("last 1.1.9"), "{text}");
    // Whether the truncation itself reached the disk or not, the log may start.
    call_durably(&log, &Op::Append(GROUPS[0], vec![record(5, 10, 10)]));
    drop(log);
    let log = RocksLog::open(options(dir.path())).unwrap();
    assert_eq!(log.state(GROUPS[0]).last, Some(id(5, 10)));
    let text = fs::read_to_string(dir.path().join("WATERMARK")).unwrap();
    assert!(text.contains("last 5.1.10"), "{text}");
}

/// A copy of an open log as it is after the power went: what was not synced is cut off the WAL.
fn power_cut(dir: &Path, synced: usize) -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    copy(dir, copied.path());
    cut(&largest(&copied.path().join("raft"), ".log"), synced);
    copied
}

#[test]
fn truncations_and_purges_may_be_lost_with_the_power() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    let leader = LeaderId { term: 1, node: 1 };
    call_durably(&log, &Op::Append(GROUPS[0], (0..40).map(|index| record(1, index, 1000)).collect()));
    // Brings the watermark up to the last entry.
    call_durably(&log, &Op::Vote(GROUPS[0], Vote { leader, committed: true }));
    let synced = fs::metadata(largest(&dir.path().join("raft"), ".log")).unwrap().len() as usize;
    log.purge(GROUPS[0], id(1, 3)).unwrap();
    let after = power_cut(dir.path(), synced);
    let reopened = RocksLog::open(options(after.path())).unwrap();
    assert_eq!((reopened.state(GROUPS[0]).purged, reopened.held_bytes(GROUPS[0])), (None, 40_000));
    log.truncate_after(GROUPS[0], Some(id(1, 9))).unwrap();
    let after = power_cut(dir.path(), synced);
    let reopened = RocksLog::open(options(after.path())).unwrap();
    assert_eq!(reopened.state(GROUPS[0]).last, Some(id(1, 39)), "longer than the watermark says: no harm");
    log.purge(GROUPS[0], id(3, 99)).unwrap();
    let after = power_cut(dir.path(), synced);
    assert_eq!(RocksLog::open(options(after.path())).unwrap().state(GROUPS[0]).last, Some(id(1, 39)));
    // Behind the next sync they are there.
    call_durably(&log, &Op::Append(GROUPS[0], vec![record(3, 100, 10)]));
    let copied = tempfile::tempdir().unwrap();
    copy(dir.path(), copied.path());
    let reopened = RocksLog::open(options(copied.path())).unwrap();
    let state = reopened.state(GROUPS[0]);
    assert_eq!((state.purged, state.last), (Some(id(3, 99)), Some(id(3, 100))));
    assert_eq!(reopened.held_bytes(GROUPS[0]), 10);
}

#[test]
fn a_log_without_its_watermark_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    log_of_40(dir.path(), 40);
    fs::remove_file(dir.path().join("WATERMARK")).unwrap();
    let refused = RocksLog::open(options(dir.path())).err().expect("no watermark");
    assert!(refused.to_string().contains("WATERMARK") && refused.to_string().contains("missing"), "{refused}");
    fs::write(dir.path().join("WATERMARK"), "ticketrail-watermark 1\ngroup 1 = vote").unwrap();
    let refused = RocksLog::open(options(dir.path())).err().expect("half a watermark");
    assert!(refused.to_string().contains("WATERMARK") && refused.to_string().contains("truncated"), "{refused}");
}

#[test]
fn a_log_of_another_node_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let owned = |node| {
        let owner = Some(Identity { cluster: ClusterId([1; 16]), node, incarnation: 0, was_member: false });
        LogOptions { owner, ..options(dir.path()) }
    };
    drop(RocksLog::open(owned(1)).unwrap());
    drop(RocksLog::open(owned(1)).unwrap());
    let refused = RocksLog::open(owned(2)).err().expect("another node");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("node 1") && refused.to_string().contains("node 2"), "{refused}");
}

fn open_state(dir: &Path) -> Result<RocksState, OpenError> {
    RocksState::open(StateOptions::new(dir.join("1"), GroupId(1)))
}

#[test]
fn a_damaged_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let state = open_state(dir.path()).unwrap();
    let writes: WriteSet = (0..2000_u32)
        .map(|number| Write::Put { key: format!("m{number:05}").into(), value: vec![number as u8; 100].into() })
        .collect();
    state.commit(&writes, &Applied { last: Some(id(1, 5)), ..Applied::default() }).unwrap();
    state.flush().unwrap();
    drop(state);
    let damages: [Damage<'_>; 8] = [
        ("CURRENT removed", &|group| fs::remove_file(group.join("CURRENT")).unwrap()),
        ("CURRENT empty", &|group| cut(&group.join("CURRENT"), 0)),
        ("CURRENT cut", &|group| cut(&group.join("CURRENT"), 30)),
        ("CURRENT flipped", &|group| flip(&group.join("CURRENT"), 25)),
        ("table cut", &|group| cut(&largest(&group.join("1"), ".sst"), 500)),
        ("table removed", &|group| fs::remove_file(largest(&group.join("1"), ".sst")).unwrap()),
        ("manifest removed", &|group| {
            let manifest = fs::read_dir(group.join("1")).unwrap().map(|entry| entry.unwrap().path());
            manifest
                .filter(|path| path.to_string_lossy().contains("MANIFEST"))
                .for_each(|p| fs::remove_file(p).unwrap());
        }),
        ("generation removed", &|group| fs::remove_dir_all(group.join("1")).unwrap()),
    ];
    for (what, damage) in damages {
        let copied = tempfile::tempdir().unwrap();
        copy(dir.path(), copied.path());
        damage(&copied.path().join("1"));
        let refused = open_state(copied.path()).err().unwrap_or_else(|| panic!("{what}: opened"));
        let text = refused.to_string();
        let file = if what.starts_with("CURRENT") { "CURRENT" } else { "1/1" };
        assert!(text.contains(file) && text.contains("treat it as lost"), "{what}: {text}");
    }
    // A flipped bit in a table shows when it is read.
    let table = largest(&dir.path().join("1/1"), ".sst");
    flip(&table, 200);
    match open_state(dir.path()) {
        Ok(state) => assert!(state.read(|view| view.scan(b"", b"\xff", usize::MAX)).is_err()),
        Err(refused) => assert!(refused.to_string().contains("1/1"), "{refused}"),
    }
}

#[test]
fn a_state_of_another_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open_state(dir.path()).unwrap());
    let refused = RocksState::open(StateOptions::new(dir.path().join("1"), GroupId(2))).err().expect("another group");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
}
