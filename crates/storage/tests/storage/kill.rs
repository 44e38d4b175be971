//! A real process, killed with -9 while it writes, again and again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ticketrail_core::WriteSet;
use ticketrail_storage::dir::{DataDir, Store};
use ticketrail_storage::disk::DiskOptions;
use ticketrail_storage::log::{LeaderId, Vote};
use ticketrail_storage::rocks::{LogOptions, RocksLog, RocksState, StateOptions};
use ticketrail_storage::state::{Applied, StateStore};
use ticketrail_storage::{ClusterId, Identity, OpenError};

use crate::log_model::GROUPS;
use crate::model::{DEADLINE, Model, Op, call, id, record};

/// Set in the process to kill: its directory, and the operation to begin with.
const LOG_DIR: &str = "TICKETRAIL_TEST_LOG_DIR";
const STATE_DIR: &str = "TICKETRAIL_TEST_STATE_DIR";
const START: &str = "TICKETRAIL_TEST_START";

/// A small generator, so that parent and child agree on what is done.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

/// The operation that follows when `number` were done and gave `model`: the same in parent and child.
fn op(number: u64, model: &Model) -> Op {
    let mut dice = Dice(number.wrapping_mul(977));
    let group = GROUPS[dice.roll(2) as usize];
    let held = model.group(group);
    // Each operation could begin a term of its own.
    let term = number + 1;
    match dice.roll(12) {
        0 => Op::Vote(group, Vote { leader: LeaderId { term, node: 1 }, committed: dice.roll(2) == 1 }),
        1 => Op::Committed(group, held.records.last().map(|record| record.id)),
        2 => {
            let back = dice.roll(4) as usize;
            Op::Truncate(group, held.records.iter().rev().nth(back).map(|record| record.id).or(held.purged))
        }
        3 => {
            let at = held.records.get(dice.roll(20) as usize).map(|record| record.id);
            Op::Purge(group, at.unwrap_or(id(term, held.next_index() + dice.roll(2))))
        }
        _ => {
            let (next, count, len) = (held.next_index(), 1 + dice.roll(3), dice.roll(2000) as usize);
            Op::Append(group, (next..next + count).map(|index| record(term, index, len)).collect())
        }
    }
}

fn log_options(dir: &Path) -> LogOptions {
    LogOptions {
        // Often written, so that kills meet it.
        watermark_every: Duration::from_millis(2),
        memtable_bytes: 256 << 10,
        tail_bytes: 16 << 10,
        ..LogOptions::new(dir.join("raft"), dir.join("WATERMARK"))
    }
}

/// Goes on with the operations from `START` on; prints the number of each that is durable, until it is killed.
fn write_a_log(dir: &Path) {
    let log = RocksLog::open(log_options(dir)).unwrap();
    let start: u64 = std::env::var(START).unwrap().parse().unwrap();
    let mut model = Model::default();
    for number in 0..start {
        model.apply(&op(number, &model));
    }
    let mut out = std::io::stdout();
    for number in start..start + 1_000_000 {
        let op = op(number, &model);
        model.apply(&op);
        let answer = call(&log, &op);
        // Some are waited for, so that kills come between as well as during.
        if let Some(answer) = answer.filter(|_| number % 3 == 0) {
            answer.recv().unwrap().unwrap();
            writeln!(out, "done {number}").unwrap();
        }
    }
}

fn spawn(test: &str, variable: &str, dir: &Path, start: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, dir)
        .env(START, start.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the child once it has said `lines` lines that begin with `word`; returns the last number it said.
fn kill_after(mut child: std::process::Child, word: &str, lines: u64) -> Option<u64> {
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = None;
    let mut count = 0;
    while count < lines {
        let Some(line) = said.next() else { panic!("the child ended by itself: {:?}", child.wait()) };
        if let Some(number) = line.unwrap().split(word).nth(1) {
            last = number.trim().parse().ok();
            count += 1;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had said meanwhile counts as well.
    for line in said.map_while(Result::ok) {
        last = line.split(word).nth(1).and_then(|number| number.trim().parse().ok()).or(last);
    }
    last
}

/// How often to kill: `TICKETRAIL_TEST_KILLS` for a longer run by hand.
fn kills(default: u64) -> u64 {
    std::env::var("TICKETRAIL_TEST_KILLS").map_or(default, |kills| kills.parse().unwrap())
}

/// The process to kill runs this test as well, and writes.
#[test]
fn the_log_survives_kill_9() {
    if let Ok(dir) = std::env::var(LOG_DIR) {
        return write_a_log(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut start = 0;
    let mut dice = Dice(7);
    for round in 0..kills(15) {
        let child = spawn("kill::the_log_survives_kill_9", LOG_DIR, dir.path(), start);
        let durable = kill_after(child, "done ", 1 + dice.roll(60)).unwrap();
        let log = RocksLog::open(log_options(dir.path())).unwrap();
        // The log is what it was after some operation, and after no earlier one than it had acknowledged.
        let mut model = Model::default();
        for number in 0..=durable {
            model.apply(&op(number, &model));
        }
        let mut number = durable + 1;
        while let Err(difference) = model.matches(&log, &GROUPS) {
            assert!(number < durable + 5000, "round {round}, after {durable}: no prefix matches: {difference}");
            model.apply(&op(number, &model));
            number += 1;
        }
        start = number;
    }
    assert!(start > 100, "{start} operations");
    println!("{start} operations");
}

/// Set in the process to kill: the directory that it founds.
const NEW_DIR: &str = "TICKETRAIL_TEST_NEW_DIR";

fn found(path: &Path) -> Result<Store, OpenError> {
    let mut dir = DataDir::open(path)?;
    dir.found(Identity { cluster: ClusterId([5; 16]), node: 1, incarnation: 1, was_member: false })?;
    dir.open_store(DiskOptions { low: 4 << 20, critical: 1 << 20, slack: 1 << 20, ballast: 1 << 20 })
}

/// The process to kill runs this test as well, and founds the directory.
#[test]
fn a_founding_survives_kill_9() {
    if let Ok(dir) = std::env::var(NEW_DIR) {
        let _store = found(Path::new(&dir)).unwrap();
        // Killed at the latest now.
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        return;
    }
    for made in [
        "LOCK",
        "IDENTITY",
        "ballast",
        "WATERMARK",
        "raft.new",
        "raft.new/CURRENT",
        "raft",
        "sm",
        "sm/1.new",
        "sm/1.new/1/CURRENT",
        "sm/1.new/CURRENT",
        "sm/1",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::a_founding_survives_kill_9", "--nocapture"])
            .env(NEW_DIR, dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // What is there for a moment only may be missed; then the next name stops the loop.
        let begun = Instant::now();
        while !dir.path().join(made).exists() && !dir.path().join("sm/1").exists() {
            assert!(begun.elapsed() < DEADLINE, "{made} never came");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Err(refused) = found(dir.path()) {
            panic!("killed when {made} was there: {refused}");
        }
    }
}

fn state_options(dir: &Path) -> StateOptions {
    StateOptions::new(dir.join("sm"), GROUPS[0])
}

/// What commit `index` writes.
fn writes(index: u64) -> WriteSet {
    use ticketrail_core::Write;
    let key = |name: &str, number: u64| format!("{name}{number:04}").into_bytes().into();
    let mut writes = WriteSet::new();
    writes.push(Write::Put { key: key("m", index % 97), value: format!("value {index}").into_bytes().into() });
    writes.push(Write::Put { key: key("b", index % 13), value: vec![index as u8; 5000].into() });
    writes.push(Write::Delete { key: key("m", (index * 31) % 97) });
    if index.is_multiple_of(50) {
        writes.push(Write::DeleteRange { from: key("a", 5), to: key("c", 0) });
    }
    writes
}

fn applied(index: u64) -> Applied {
    Applied { last: Some(id(1, index)), membership: format!("members at {index}").into_bytes().into() }
}

/// Commits from where the state is; flushes and installs now and then; prints what is durable, until it is killed.
fn write_a_state(dir: &Path) {
    let state = RocksState::open(state_options(dir)).unwrap();
    let start = state.applied().last.map_or(0, |last| last.index + 1);
    let mut out = std::io::stdout();
    for index in start..start + 1_000_000 {
        state.commit(&writes(index), &applied(index)).unwrap();
        if index % 10 == 9 {
            state.flush().unwrap();
            writeln!(out, "flushed {index}").unwrap();
        }
        if index % 25 == 24 {
            let checkpoint = state.checkpoint().unwrap();
            state.install(&checkpoint).unwrap();
            writeln!(out, "flushed {index}").unwrap();
        }
    }
}

/// The process to kill runs this test as well, and writes.
#[test]
fn the_state_survives_kill_9() {
    if let Ok(dir) = std::env::var(STATE_DIR) {
        return write_a_state(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(11);
    let mut model = ticketrail_core::MemView::new();
    let mut next = 0;
    for round in 0..kills(12) {
        let child = spawn("kill::the_state_survives_kill_9", STATE_DIR, dir.path(), 0);
        let durable = kill_after(child, "flushed ", 1 + dice.roll(12)).unwrap();
        let state = RocksState::open(state_options(dir.path())).unwrap();
        let at = state.applied().last.expect("something applied").index;
        assert!(at >= durable, "round {round}: {at} is behind {durable}");
        assert_eq!(state.applied(), applied(at));
        while next <= at {
            model.commit(&writes(next));
            next += 1;
        }
        let all = state.read(|view| view.scan(b"", b"zz", usize::MAX)).unwrap();
        let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(all, expected, "round {round}, at {at}");
        let names: Vec<_> = std::fs::read_dir(dir.path().join("sm")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.len() <= 3, "leftovers: {names:?}");
    }
}
