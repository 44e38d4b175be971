//! Checkpoints: taken while writes go on, sent to another store, and what may come between.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use ticketrail_core::{GroupId, MemView, Write, WriteSet};
use ticketrail_storage::mem::MemState;
use ticketrail_storage::rocks::{RocksState, StateCheckpoint, StateOptions};
use ticketrail_storage::state::{Applied, StateStore};

use crate::model::id;

const GROUP: GroupId = GroupId(1);

fn open(dir: &Path) -> RocksState {
    RocksState::open(StateOptions::new(dir.join("1"), GROUP)).unwrap()
}

fn writes(index: u64) -> WriteSet {
    let put = |space: &str, number: u64, len: usize| Write::Put {
        key: Bytes::from(format!("{space}{number:05}")),
        value: Bytes::from(vec![index as u8; len]),
    };
    let delete = index.checked_sub(50).map(|old| Write::Delete { key: Bytes::from(format!("m{old:05}")) });
    [put("m", index, 200), put("b", index % 40, 6000)].into_iter().chain(delete).collect()
}

fn applied(index: u64) -> Applied {
    Applied { last: Some(id(1, index)), membership: Bytes::from(format!("members {index}")) }
}

fn commit(state: &impl StateStore, indexes: std::ops::Range<u64>) {
    for index in indexes {
        state.commit(&writes(index), &applied(index)).unwrap();
    }
}

fn expected(upto: u64) -> Vec<(Bytes, Bytes)> {
    let mut view = MemView::new();
    (0..=upto).for_each(|index| view.commit(&writes(index)));
    view.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn all(state: &impl StateStore) -> Vec<(Bytes, Bytes)> {
    state.read(|view| view.scan(b"", b"\xff", usize::MAX)).unwrap()
}

/// What a network would do: every file, by its bytes.
fn send(checkpoint: &StateCheckpoint, to: &RocksState) -> PathBuf {
    let incoming = to.incoming().unwrap();
    for entry in fs::read_dir(checkpoint.path()).unwrap() {
        let entry = entry.unwrap();
        fs::write(incoming.join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
    }
    incoming
}

#[test]
fn sent_to_another_store_while_writes_go_on() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = open(here.path());
    let stop = AtomicBool::new(false);
    commit(&state, 0..100);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut index = 100;
            while !stop.load(Ordering::SeqCst) {
                commit(&state, index..index + 1);
                index += 1;
            }
            index
        });
        let other = open(there.path());
        let mut last = 0;
        for _ in 0..5 {
            let checkpoint = state.checkpoint().unwrap();
            let at = state.checkpoint_applied(&checkpoint);
            let staged = other.stage(send(&checkpoint, &other)).unwrap();
            assert_eq!(other.checkpoint_applied(&staged), at);
            other.install(&staged).unwrap();
            let index = at.last.unwrap().index;
            assert!(index >= last);
            last = index;
            assert_eq!(other.applied(), applied(index));
            assert_eq!(other.flushed(), applied(index));
            assert!(all(&other) == expected(index), "at {index}");
        }
        stop.store(true, Ordering::SeqCst);
        let end = writer.join().unwrap();
        assert!(end > 101, "writes went on");
        assert_eq!(state.applied(), applied(end - 1));
        // It goes on from there, and is there after a restart.
        commit(&other, last + 1..last + 10);
        other.flush().unwrap();
        drop(other);
        let other = open(there.path());
        assert!(all(&other) == expected(last + 9));
    });
    assert!(all(&state) == expected(state.applied().last.unwrap().index));
}

#[test]
fn gone_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    commit(&state, 0..10);
    let checkpoint = state.checkpoint().unwrap();
    let path = checkpoint.path().to_path_buf();
    assert!(path.starts_with(dir.path().join("1")) && path.exists());
    assert_eq!(state.flushed(), applied(9), "taking one flushes");
    drop(checkpoint);
    assert!(!path.exists());
}

#[test]
fn installed_where_it_was_taken_and_more_than_once() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    commit(&state, 0..10);
    let checkpoint = state.checkpoint().unwrap();
    for _ in 0..3 {
        commit(&state, 10..20);
        state.install(&checkpoint).unwrap();
        assert_eq!(state.applied(), applied(9));
        assert!(all(&state) == expected(9));
    }
    drop(checkpoint);
    // Waits until the old ones are closed.
    drop(state);
    let names = names(dir.path());
    assert!(names.len() == 2 && names[1] == "CURRENT", "leftovers: {names:?}");
}

/// The names in the group's directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir.join("1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_reader_keeps_its_generation() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    commit(&state, 0..10);
    let checkpoint = state.checkpoint().unwrap();
    commit(&state, 10..20);
    state.read(|view| {
        state.install(&checkpoint).unwrap();
        assert_eq!(view.scan(b"m", b"n", usize::MAX).unwrap().len(), 20);
        assert_eq!(state.read(|now| now.scan(b"m", b"n", usize::MAX)).unwrap().len(), 10);
    });
}

#[test]
fn what_a_crash_left_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    commit(&state, 0..10);
    state.flush().unwrap();
    drop(state);
    let group = dir.path().join("1");
    // An install that got to just before the swap; a checkpoint; a transfer; a torn CURRENT; a state half created.
    for left in ["2", "checkpoint-3", "incoming-4"] {
        fs::create_dir(group.join(left)).unwrap();
        fs::write(group.join(left).join("000001.sst"), "half").unwrap();
    }
    fs::write(group.join("CURRENT.tmp"), "ticketr").unwrap();
    fs::create_dir(dir.path().join("1.new")).unwrap();
    let state = open(dir.path());
    assert_eq!(names(dir.path()), ["1", "CURRENT", "CURRENT.tmp"]);
    assert!(all(&state) == expected(9));
    // And the numbers are free to be used.
    let checkpoint = state.checkpoint().unwrap();
    state.install(&checkpoint).unwrap();
    assert!(all(&state) == expected(9));
}

#[test]
fn a_damaged_transfer_is_refused_and_removed() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (state, other) = (open(here.path()), open(there.path()));
    commit(&state, 0..100);
    let checkpoint = state.checkpoint().unwrap();
    commit(&other, 0..5);
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("a table is missing", |dir| fs::remove_file(first(dir, ".sst")).unwrap()),
        ("a table is cut", |dir| {
            let path = first(dir, ".sst");
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("the manifest is cut", |dir| fs::write(first(dir, "MANIFEST"), "").unwrap()),
        ("there is nothing", |dir| {
            fs::remove_dir_all(dir).unwrap();
            fs::create_dir(dir).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let incoming = send(&checkpoint, &other);
        damage(&incoming);
        let refused = other.stage(incoming.clone()).err().unwrap_or_else(|| panic!("accepted although {what}"));
        assert!(refused.to_string().contains(&incoming.display().to_string()), "{what}: {refused}");
        assert!(!incoming.exists(), "{what}");
    }
    assert_eq!(other.applied(), applied(4));
    assert_eq!(names(there.path()), ["1", "CURRENT"]);
}

fn first(dir: &Path, part: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().contains(part));
    found.sort();
    found.swap_remove(0)
}

#[test]
fn both_kinds_agree() {
    let dir = tempfile::tempdir().unwrap();
    let (rocks, memory) = (open(dir.path()), MemState::new());
    commit(&rocks, 0..120);
    commit(&memory, 0..120);
    assert!(all(&rocks) == all(&memory));
    let (a, b) = (rocks.checkpoint().unwrap(), memory.checkpoint().unwrap());
    assert_eq!(rocks.checkpoint_applied(&a), memory.checkpoint_applied(&b));
}
