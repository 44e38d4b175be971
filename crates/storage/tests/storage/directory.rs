//! A data directory as a whole.

use std::fs;
use std::path::Path;
use std::process::Command;

use ticketrail_core::GroupId;
use ticketrail_storage::dir::{DataDir, Store};
use ticketrail_storage::disk::{DiskOptions, DiskState};
use ticketrail_storage::log::{LeaderId, RaftLog, Vote};
use ticketrail_storage::state::{Applied, StateStore};
use ticketrail_storage::{ClusterId, Identity, OpenError};

use crate::model::{Op, call_durably, id, record};

const IDENTITY: Identity = Identity { cluster: ClusterId([9; 16]), node: 1, incarnation: 1, was_member: false };
const VOTE: Vote = Vote { leader: LeaderId { term: 1, node: 1 }, committed: true };
const DISK: DiskOptions = DiskOptions { low: 4 << 20, critical: 1 << 20, slack: 1 << 20, ballast: 1 << 20 };

fn open(path: &Path) -> Store {
    let mut dir = DataDir::open(path).unwrap();
    dir.found(IDENTITY).unwrap();
    dir.open_store(DISK).unwrap()
}

#[test]
fn founded_used_and_opened_again() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a/b");
    let dir = DataDir::open(&path).unwrap();
    assert_eq!(dir.identity(), None);
    let refused = dir.open_store(DISK).err().expect("nobody's directory");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    let store = open(&path);
    assert_eq!(store.disk.state(), DiskState::Ok);
    call_durably(&*store.log, &Op::Vote(GroupId::QUEUES, VOTE));
    call_durably(&*store.log, &Op::Append(GroupId::QUEUES, vec![record(1, 0, 9)]));
    let applied = Applied { last: Some(id(1, 0)), ..Applied::default() };
    store.state.commit(&Default::default(), &applied).unwrap();
    store.state.flush().unwrap();
    drop(store);
    let dir = DataDir::open(&path).unwrap();
    assert_eq!(dir.identity(), Some(IDENTITY));
    let store = dir.open_store(DISK).unwrap();
    assert_eq!(store.log.state(GroupId::QUEUES).last, Some(id(1, 0)));
    assert_eq!(store.state.applied(), applied);
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["IDENTITY", "LOCK", "WATERMARK", "ballast", "raft", "sm"]);
}

#[test]
fn another_identity_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    let mut dir = DataDir::open(temp.path()).unwrap();
    let refused = dir.found(Identity { node: 2, ..IDENTITY }).unwrap_err();
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("IDENTITY"), "{refused}");
    assert_eq!(dir.found(IDENTITY), Ok(()));
}

#[test]
fn data_without_identity_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    drop(open(temp.path()));
    fs::remove_file(temp.path().join("IDENTITY")).unwrap();
    let refused = DataDir::open(temp.path()).unwrap_err();
    assert!(refused.to_string().contains("IDENTITY") && refused.to_string().contains("missing"), "{refused}");
}

#[test]
fn a_foreign_log_under_an_identity_is_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(one.path()));
    let mut dir = DataDir::open(two.path()).unwrap();
    dir.found(Identity { node: 2, ..IDENTITY }).unwrap();
    drop(dir.open_store(DISK).unwrap());
    fs::copy(one.path().join("IDENTITY"), two.path().join("IDENTITY")).unwrap();
    let refused = DataDir::open(two.path()).unwrap().open_store(DISK).err().expect("node 2's log under node 1's name");
    assert!(matches!(refused, OpenError::Foreign { .. }), "{refused}");
}

#[test]
fn a_log_and_a_state_of_two_histories_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    call_durably(&*store.log, &Op::Vote(GroupId::QUEUES, VOTE));
    call_durably(&*store.log, &Op::Append(GroupId::QUEUES, (0..10).map(|index| record(1, index, 9)).collect()));
    let applied = Applied { last: Some(id(1, 8)), ..Applied::default() };
    store.state.commit(&Default::default(), &applied).unwrap();
    store.state.flush().unwrap();
    store.log.purge(GroupId::QUEUES, id(1, 5)).unwrap();
    drop(store);
    let reopen = || DataDir::open(temp.path()).unwrap().open_store(DISK);
    drop(reopen().unwrap());
    let (sm, raft, kept) = (temp.path().join("sm"), temp.path().join("raft"), temp.path().join("kept"));
    // Without its state, a purged log is of no use.
    fs::rename(&sm, &kept).unwrap();
    let refused = reopen().err().expect("no state");
    assert!(refused.to_string().contains("sm") && refused.to_string().contains("entry 5"), "{refused}");
    fs::remove_dir_all(&sm).unwrap();
    fs::rename(&kept, &sm).unwrap();
    drop(reopen().unwrap());
    // Without its log and what the log should hold, a state is of no use.
    fs::remove_dir_all(&raft).unwrap();
    fs::remove_file(temp.path().join("WATERMARK")).unwrap();
    let refused = reopen().err().expect("no log");
    assert!(refused.to_string().contains("raft") && refused.to_string().contains("no vote"), "{refused}");
}

/// Set in the second process: the directory that it tries to open.
const SECOND: &str = "TICKETRAIL_TEST_SECOND_DIR";

/// The second process runs this test as well, and tries.
#[test]
fn a_second_process_is_refused() {
    if let Ok(dir) = std::env::var(SECOND) {
        println!("refused: {}", DataDir::open(Path::new(&dir)).unwrap_err());
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    let second = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "directory::a_second_process_is_refused", "--nocapture"])
            .env(SECOND, temp.path())
            .output()
            .unwrap();
        (child.status.success(), String::from_utf8(child.stdout).unwrap())
    };
    let (ok, text) = second();
    assert!(ok && text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(store);
    let (ok, text) = second();
    assert!(!ok, "once it is free it opens: {text}");
}
