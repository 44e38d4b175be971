//! The log on RocksDB: against the model, its callbacks, and what happens when a write fails.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use ticketrail_core::GroupId;
use ticketrail_storage::log::{LogError, RaftLog};
use ticketrail_storage::rocks::{LogOptions, RocksLog};

use crate::log_model::{GROUPS, Step, check_read, op, step};
use crate::model::{DEADLINE, Model, Op, call, call_durably, done, id, record};

/// A log in `dir` that soon forgets what it has in memory, and never writes its watermark by the clock.
pub(crate) fn options(dir: &Path) -> LogOptions {
    LogOptions {
        tail_bytes: 4000,
        queue_bytes: 20_000,
        watermark_every: Duration::from_secs(3600),
        ..LogOptions::new(dir.join("raft"), dir.join("WATERMARK"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rocks_is_the_model_and_a_restart_keeps_all(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RocksLog::open(options(dir.path())).unwrap();
        let (mut model, mut term) = (Model::default(), 1);
        for (number, step) in steps.iter().enumerate() {
            if let Some(op) = op(step, &model, &mut term) {
                model.apply(&op);
                // Most of the time nobody waits, so that reads meet what is not written yet.
                if number % 3 == 0 { call_durably(&log, &op) } else { drop(call(&log, &op)) }
            }
            check_read(&log, &model, step);
            if let Step::Crash { .. } = step {
                drop(log);
                log = RocksLog::open(options(dir.path())).unwrap();
            }
            if let Err(difference) = model.matches(&log, &GROUPS) {
                prop_assert!(false, "after step {}, {:?}: {}", number, step, difference);
            }
        }
        // Once more from the disk alone.
        drop(log);
        let log = RocksLog::open(options(dir.path())).unwrap();
        prop_assert_eq!(model.matches(&log, &GROUPS), Ok(()));
    }
}

#[test]
fn callbacks_come_in_order_and_after_the_sync() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    let called = Arc::new(AtomicU64::new(0));
    for index in 0..500 {
        let called = Arc::clone(&called);
        let done = Box::new(move |result: Result<(), LogError>| {
            assert_eq!(result, Ok(()));
            assert_eq!(called.fetch_add(1, Ordering::SeqCst), index);
        });
        log.append(GROUPS[0], vec![record(1, index, 100)], done);
        assert_eq!(log.state(GROUPS[0]).last, Some(id(1, index)), "readable at once");
    }
    call_durably(&log, &Op::Append(GROUPS[0], vec![]));
    assert_eq!(called.load(Ordering::SeqCst), 500);
}

#[test]
fn many_threads_and_groups_share_one_stream() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    thread::scope(|scope| {
        for group in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for index in 0..200 {
                    drop(call(log, &Op::Append(GroupId(group), vec![record(1, index, 300)])));
                    if index % 50 == 49 {
                        let from = index - 40;
                        let read = log.read(GroupId(group), from..index + 1, usize::MAX).unwrap();
                        assert_eq!(read.len(), 41);
                        log.purge(GroupId(group), id(1, from)).unwrap();
                    }
                }
                call_durably(log, &Op::Append(GroupId(group), vec![]));
            });
        }
    });
    drop(log);
    let log = RocksLog::open(options(dir.path())).unwrap();
    for group in 0..4 {
        assert_eq!(log.state(GroupId(group)).last, Some(id(1, 199)));
        assert_eq!(log.state(GroupId(group)).purged, Some(id(1, 159)));
        assert_eq!(log.held_bytes(GroupId(group)), 40 * 300);
    }
}

#[test]
fn many_purges_drop_files_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let small = || LogOptions { memtable_bytes: 64 << 10, ..options(dir.path()) };
    let log = RocksLog::open(small()).unwrap();
    for index in 0..600 {
        call_durably(&log, &Op::Append(GROUPS[0], vec![record(1, index, 4000)]));
        if index % 10 == 9 {
            log.purge(GROUPS[0], id(1, index - 5)).unwrap();
        }
    }
    let read = log.read(GROUPS[0], 0..u64::MAX, usize::MAX).unwrap();
    assert_eq!(read.iter().map(|record| record.id.index).collect::<Vec<_>>(), [595, 596, 597, 598, 599]);
    drop(log);
    let log = RocksLog::open(small()).unwrap();
    assert_eq!(log.state(GROUPS[0]).purged, Some(id(1, 594)));
    assert_eq!(log.read(GROUPS[0], 0..u64::MAX, usize::MAX).unwrap(), read);
}

#[test]
fn a_gap_poisons() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    call_durably(&log, &Op::Append(GROUPS[0], vec![record(1, 5, 5)]));
    let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, 7, 5)])).unwrap();
    let error = answer.recv_timeout(DEADLINE).unwrap().unwrap_err();
    assert_eq!(error, LogError::Poisoned("entry 7 was appended where entry 6 is next".into()));
    assert_eq!(log.read(GROUPS[0], 0..9, 9), Err(error.clone()));
    assert_eq!(log.purge(GROUPS[0], id(1, 5)), Err(error.clone()));
    let (done, answer) = done();
    log.append(GROUPS[0], vec![record(1, 6, 5)], done);
    assert_eq!(answer.recv_timeout(DEADLINE).unwrap(), Err(error));
}

#[test]
fn the_last_handle_may_go_in_a_callback() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(RocksLog::open(options(dir.path())).unwrap());
    let (done, answer) = done();
    let held = Arc::clone(&log);
    let wrapped = Box::new(move |result| {
        drop(held);
        done(result);
    });
    log.append(GROUPS[0], vec![record(1, 0, 5)], wrapped);
    drop(log);
    assert_eq!(answer.recv_timeout(DEADLINE).unwrap(), Ok(()));
}

/// Set in the process in which no file may grow past a limit: its directory.
const FULL_DISK: &str = "TICKETRAIL_TEST_FULL_DISK";

fn write_until_it_fails(dir: &Path) {
    let log = RocksLog::open(options(dir)).unwrap();
    let mut durable = 0;
    let error = loop {
        let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, durable, 8000)])).unwrap();
        match answer.recv_timeout(DEADLINE).unwrap() {
            Ok(()) => durable += 1,
            Err(error) => break error,
        }
        assert!(durable < 10_000, "no write has failed");
    };
    assert!(matches!(error, LogError::Poisoned(_)), "{error}");
    let (done, answer) = done();
    log.append(GROUPS[0], vec![record(1, durable + 1, 1)], done);
    assert_eq!(answer.recv_timeout(DEADLINE).unwrap(), Err(error.clone()));
    let vote = call(&log, &Op::Vote(GROUPS[0], ticketrail_storage::log::Vote::default())).unwrap();
    assert_eq!(vote.recv_timeout(DEADLINE).unwrap(), Err(error.clone()));
    assert_eq!(log.read(GROUPS[0], 0..1, 1), Err(error));
    println!("durable={durable}");
}

/// A second process runs this test as well, and writes.
#[test]
fn a_failed_write_poisons() {
    if let Ok(dir) = std::env::var(FULL_DISK) {
        return write_until_it_fails(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    // The limit must fail the write instead of killing the process.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""])
        .arg(program)
        .args(["--exact", "log_rocks::a_failed_write_poisons", "--nocapture"])
        .env(FULL_DISK, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let durable: u64 = text.lines().find_map(|line| line.strip_prefix("durable=")).unwrap().parse().unwrap();
    assert!(durable > 10);
    // What was acknowledged is there.
    let log = RocksLog::open(options(dir.path())).unwrap();
    let read = log.read(GROUPS[0], 0..durable, usize::MAX).unwrap();
    assert_eq!(read.len() as u64, durable);
}

#[test]
fn synced_writes_are_measured_before_they_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let log = RocksLog::open(options(dir.path())).unwrap();
    let syncs = log.syncs();
    assert_eq!(syncs.micros.read().count(), 0);
    let group = GroupId::QUEUES;
    call_durably(&log, &Op::Append(group, vec![record(1, 1, 100), record(1, 2, 100)]));
    assert_eq!((syncs.micros.read().count(), syncs.entries.read().sum), (1, 2));
    assert!((200..1_000).contains(&syncs.bytes.read().sum), "{:?}", syncs.bytes.read());
    log.save_committed(group, Some(id(1, 1)));
    call_durably(&log, &Op::Append(group, vec![record(1, 3, 100)]));
    assert_eq!(syncs.entries.read().sum, 3);
    drop(log);
    assert!(syncs.micros.read().count() >= 2, "what it was like outlives the log");
}
