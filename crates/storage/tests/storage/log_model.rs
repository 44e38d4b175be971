//! Random operations on both logs, against the model, with crashes between any two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use proptest::prelude::*;
use ticketrail_core::GroupId;
use ticketrail_storage::log::{LeaderId, RaftLog, Vote};
use ticketrail_storage::mem::MemLog;

use crate::model::{Model, Op, call, id, record};

pub(crate) const GROUPS: [GroupId; 2] = [GroupId(1), GroupId(7)];

/// What a test does next; places are relative to what the log holds then.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Append {
        group: usize,
        lens: Vec<usize>,
    },
    Vote {
        group: usize,
        committed: bool,
    },
    Committed {
        group: usize,
        back: u64,
    },
    Truncate {
        group: usize,
        back: u64,
    },
    Purge {
        group: usize,
        back: i64,
    },
    Read {
        group: usize,
        from: u64,
        len: u64,
        max_bytes: usize,
    },
    /// Keeps so many of the operations that were not durable.
    Crash {
        keep: usize,
    },
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let group = 0..GROUPS.len();
    prop_oneof![
        6 => (group.clone(), prop::collection::vec(0..1500_usize, 0..5))
            .prop_map(|(group, lens)| Step::Append { group, lens }),
        1 => (group.clone(), any::<bool>()).prop_map(|(group, committed)| Step::Vote { group, committed }),
        1 => (group.clone(), 0..6_u64).prop_map(|(group, back)| Step::Committed { group, back }),
        1 => (group.clone(), 0..6_u64).prop_map(|(group, back)| Step::Truncate { group, back }),
        1 => (group.clone(), -3..8_i64).prop_map(|(group, back)| Step::Purge { group, back }),
        3 => (group, 0..8_u64, 0..12_u64, 0..4000_usize)
            .prop_map(|(group, from, len, max_bytes)| Step::Read { group, from, len, max_bytes }),
        1 => (0..12_usize).prop_map(|keep| Step::Crash { keep }),
    ]
}

/// The change that `step` means now, if it is one; `term` grows with each branch.
pub(crate) fn op(step: &Step, model: &Model, term: &mut u64) -> Option<Op> {
    match step {
        Step::Append { group, lens } => {
            let next = model.group(GROUPS[*group]).next_index();
            let records = (next..).zip(lens).map(|(index, len)| record(*term, index, *len)).collect();
            Some(Op::Append(GROUPS[*group], records))
        }
        Step::Vote { group, committed } => {
            *term += 1;
            let leader = LeaderId { term: *term, node: 1 };
            Some(Op::Vote(GROUPS[*group], Vote { leader, committed: *committed }))
        }
        Step::Committed { group, back } => {
            let held = model.group(GROUPS[*group]);
            let at = held.records.iter().rev().nth(*back as usize).map(|record| record.id);
            Some(Op::Committed(GROUPS[*group], at))
        }
        Step::Truncate { group, back } => {
            *term += 1;
            let held = model.group(GROUPS[*group]);
            let at = held.records.iter().rev().nth(*back as usize).map(|record| record.id).or(held.purged);
            Some(Op::Truncate(GROUPS[*group], at))
        }
        Step::Purge { group, back } => {
            let held = model.group(GROUPS[*group]);
            let index = held.next_index().checked_add_signed(-1 - back)?;
            let at = held.records.iter().map(|record| record.id).find(|id| id.index == index);
            if at.is_none() {
                *term += 1;
            }
            Some(Op::Purge(GROUPS[*group], at.unwrap_or(id(*term, index))))
        }
        Step::Read { .. } | Step::Crash { .. } => None,
    }
}

pub(crate) fn check_read(log: &impl RaftLog, model: &Model, step: &Step) {
    if let Step::Read { group, from, len, max_bytes } = step {
        let held = model.group(GROUPS[*group]);
        let from = held.purged.map_or(0, |purged| purged.index) + from;
        let read = log.read(GROUPS[*group], from..from + len, *max_bytes).unwrap();
        assert_eq!(read, held.read(from, from + len, *max_bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_the_model_and_a_crash_keeps_a_prefix(steps in prop::collection::vec(step(), 1..80), held: bool) {
        let mut log = MemLog::new();
        if held {
            log.hold_syncs();
        }
        let (mut model, mut term) = (Model::default(), 1);
        // What the log was after each change since the crash; what is durable is one of them.
        let mut history = vec![model.clone()];
        for (number, step) in steps.iter().enumerate() {
            if let Some(op) = op(step, &model, &mut term) {
                model.apply(&op);
                call(&log, &op);
                history.push(model.clone());
            }
            check_read(&log, &model, step);
            if held && number % 5 == 4 {
                log.sync(3);
            }
            if let Step::Crash { keep } = step {
                let durable = history.len() - 1 - log.pending();
                let keep = (*keep).min(log.pending());
                log = log.crash_keeping(keep);
                if held {
                    log.hold_syncs();
                }
                model = history[durable + keep].clone();
                history = vec![model.clone()];
            }
            if let Err(difference) = model.matches(&log, &GROUPS) {
                prop_assert!(false, "after step {}, {:?}: {}", number, step, difference);
            }
        }
    }
}

#[test]
fn memory_answers_in_order_and_not_before_the_sync() {
    let log = MemLog::new();
    log.hold_syncs();
    let first = call(&log, &Op::Append(GROUPS[0], vec![record(1, 0, 5)])).unwrap();
    let second = call(&log, &Op::Append(GROUPS[0], vec![record(1, 1, 5)])).unwrap();
    assert_eq!(log.state(GROUPS[0]).last, Some(id(1, 1)), "readable at once");
    assert!(first.try_recv().is_err());
    log.sync(1);
    assert_eq!(first.try_recv(), Ok(Ok(())));
    assert!(second.try_recv().is_err());
    let after = log.crash();
    assert_eq!(after.state(GROUPS[0]).last, Some(id(1, 0)));
    log.release_syncs();
    assert_eq!(second.try_recv(), Ok(Ok(())));
}

#[test]
fn memory_fails_for_good_after_a_failed_sync() {
    let log = MemLog::new();
    call(&log, &Op::Append(GROUPS[0], vec![record(1, 0, 5)])).unwrap().try_recv().unwrap().unwrap();
    log.fail_next_sync("the disk is gone");
    for index in [1, 2] {
        let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, index, 5)])).unwrap();
        assert!(answer.try_recv().unwrap().unwrap_err().to_string().contains("the disk is gone"));
    }
    assert!(log.read(GROUPS[0], 0..9, 9).is_err());
    assert!(log.truncate_after(GROUPS[0], None).is_err());
    assert!(log.purge(GROUPS[0], id(1, 0)).is_err());
    assert_eq!(log.crash().state(GROUPS[0]).last, Some(id(1, 0)));
}

#[test]
fn memory_never_writes_a_gap() {
    let log = MemLog::new();
    call(&log, &Op::Append(GROUPS[0], vec![record(1, 0, 5)]));
    let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, 2, 5)])).unwrap();
    assert!(answer.try_recv().unwrap().unwrap_err().to_string().contains("entry 2 was appended where entry 1 is next"));
    assert_eq!(log.state(GROUPS[0]).last, Some(id(1, 0)));
}

#[test]
fn memory_fails_on_a_full_disk_and_what_was_synced_is_left() {
    let log = MemLog::new();
    call(&log, &Op::Append(GROUPS[0], vec![record(1, 0, 5)])).unwrap().try_recv().unwrap().unwrap();
    log.fail_reads(Some("a bad sector"));
    assert!(log.read(GROUPS[0], 0..9, 9).unwrap_err().to_string().contains("a bad sector"));
    log.fail_reads(None);
    log.fail_writes(Some("no space left"));
    let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, 1, 5)])).unwrap();
    assert!(answer.try_recv().unwrap().unwrap_err().to_string().contains("no space left"));
    log.fail_writes(None);
    let answer = call(&log, &Op::Append(GROUPS[0], vec![record(1, 1, 5)])).unwrap();
    assert!(answer.try_recv().unwrap().is_err(), "poisoned until it is opened again");
    let opened = log.crash();
    assert_eq!(opened.state(GROUPS[0]).last, Some(id(1, 0)));
    call(&opened, &Op::Append(GROUPS[0], vec![record(1, 1, 5)])).unwrap().try_recv().unwrap().unwrap();
}

#[test]
fn memory_tells_a_simulated_disk_when_somebody_waits_for_a_sync() {
    let log = MemLog::new();
    log.hold_syncs();
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut context = Context::from_waker(&waker);
    assert_eq!(log.poll_unsynced(&mut context), Poll::Pending);
    log.save_committed(GROUPS[0], None);
    assert!(!woken.0.load(Ordering::SeqCst), "nobody waits for a hint");
    call(&log, &Op::Append(GROUPS[0], vec![record(1, 0, 5)])).unwrap();
    assert!(woken.0.load(Ordering::SeqCst));
    assert_eq!(log.poll_unsynced(&mut context), Poll::Ready(2));
    log.sync(2);
    assert_eq!(log.poll_unsynced(&mut context), Poll::Pending);
}

/// Whether it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
