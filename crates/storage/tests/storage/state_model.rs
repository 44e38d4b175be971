//! Random commits on both states, against the view in memory, with crashes, checkpoints and installs.

use bytes::Bytes;
use proptest::prelude::*;
use ticketrail_core::{MemView, View, Write, WriteSet};
use ticketrail_storage::mem::MemState;
use ticketrail_storage::state::{Applied, StateStore};

use crate::model::id;

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Write>),
    Flush,
    Crash,
    Checkpoint,
    Install,
    Scan { from: Bytes, to: Bytes, limit: usize },
}

fn key() -> impl Strategy<Value = Bytes> {
    (prop::sample::select(vec!["", "a", "b", "c", "m"]), 0..12_u8).prop_map(|(space, number)| {
        let mut key = space.as_bytes().to_vec();
        if number > 0 {
            key.push(number);
        }
        Bytes::from(key)
    })
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => (key(), 0..3000_usize, any::<u8>())
            .prop_map(|(key, len, fill)| Write::Put { key, value: Bytes::from(vec![fill; len]) }),
        2 => key().prop_map(|key| Write::Delete { key }),
        1 => (key(), key()).prop_map(|(from, to)| Write::DeleteRange { from, to }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(write(), 0..6).prop_map(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Install),
        4 => (key(), key(), 0..8_usize).prop_map(|(from, to, limit)| Step::Scan { from, to, limit }),
    ]
}

#[derive(Clone, Default, PartialEq)]
struct Model {
    view: MemView,
    applied: Applied,
}

fn check(state: &impl StateStore, model: &Model) {
    assert_eq!(state.applied(), model.applied);
    let all = state.read(|view| view.scan(b"", b"\xff", usize::MAX)).unwrap();
    let expected: Vec<_> = model.view.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert!(all == expected, "expected {} pairs, got {}", expected.len(), all.len());
}

/// Runs `steps`; `crash` turns a state into what a restart finds, which is what was flushed.
fn run<S: StateStore>(mut state: S, mut crash: impl FnMut(S) -> S, steps: &[Step]) {
    let (mut model, mut flushed) = (Model::default(), Model::default());
    let mut checkpoint: Option<(S::Checkpoint, Model)> = None;
    let mut index = 0;
    for step in steps {
        match step {
            Step::Commit(writes) => {
                let writes: WriteSet = writes.iter().cloned().collect();
                index += 1;
                let membership = Bytes::from(vec![index as u8; 3]);
                model.applied = Applied { last: Some(id(1, index)), membership };
                model.view.commit(&writes);
                let before = state.unflushed_bytes();
                state.commit(&writes, &model.applied).unwrap();
                assert_eq!(state.unflushed_bytes(), before + writes.bytes() as u64);
            }
            Step::Flush => {
                assert_eq!(state.flush().unwrap(), model.applied);
                flushed = model.clone();
                assert_eq!(state.unflushed_bytes(), 0);
            }
            Step::Crash => {
                checkpoint = None;
                state = crash(state);
                model = flushed.clone();
            }
            Step::Checkpoint => {
                let taken = state.checkpoint().unwrap();
                assert_eq!(state.checkpoint_applied(&taken), model.applied);
                checkpoint = Some((taken, model.clone()));
                flushed = model.clone();
            }
            Step::Install => {
                if let Some((taken, then)) = &checkpoint {
                    state.install(taken).unwrap();
                    model = then.clone();
                    flushed = then.clone();
                    assert_eq!(state.unflushed_bytes(), 0);
                }
            }
            Step::Scan { from, to, limit } => {
                let (some, one) = state.read(|view| (view.scan(from, to, *limit), view.get(from)));
                assert_eq!(some.unwrap(), model.view.scan(from, to, *limit).unwrap());
                assert_eq!(one.unwrap(), model.view.get(from).unwrap());
            }
        }
        assert_eq!(state.flushed(), flushed.applied);
        check(&state, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_the_model(steps in prop::collection::vec(step(), 1..60)) {
        run(MemState::new(), |state| state.crash(), &steps);
    }
}

#[cfg(feature = "rocksdb")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rocks_is_the_model(steps in prop::collection::vec(step(), 1..40)) {
        use ticketrail_storage::rocks::{RocksState, StateOptions};

        let dir = tempfile::tempdir().unwrap();
        let open = || RocksState::open(StateOptions::new(dir.path().join("1"), ticketrail_core::GroupId(1))).unwrap();
        // Closing it flushes nothing, so that it is as good as a crash.
        run(open(), |state| { drop(state); open() }, &steps);
    }
}

#[test]
fn memory_may_have_flushed_more_than_it_says() {
    let state = MemState::new();
    for index in 1..=5 {
        let put = Write::Put { key: Bytes::from(vec![index as u8]), value: Bytes::new() };
        state
            .commit(&[put].into_iter().collect(), &Applied { last: Some(id(1, index)), ..Applied::default() })
            .unwrap();
    }
    assert_eq!(state.pending(), 5);
    assert_eq!(state.flushed(), Applied::default());
    let after = state.crash_keeping(3);
    assert_eq!(after.applied().last, Some(id(1, 3)));
    assert_eq!(after.read(|view| view.scan(b"", b"\xff", 9)).unwrap().len(), 3);
    state.fail_flushes(Some("the disk is gone"));
    assert!(state.flush().unwrap_err().to_string().contains("the disk is gone"));
    assert!(state.checkpoint().is_err());
    state.fail_commits(Some("a bad sector"));
    let refused = state.commit(&WriteSet::new(), &Applied { last: Some(id(1, 6)), ..Applied::default() });
    assert!(refused.unwrap_err().to_string().contains("a bad sector"));
    assert_eq!(state.applied().last, Some(id(1, 5)));
    assert_eq!(state.crash().applied(), Applied::default());
}
