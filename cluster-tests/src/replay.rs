//! Replays a stopped node's log from its first entry and compares the result with the state on its disk: what was
//! applied twice, not at all, or in another order gives another hash of writes. And compares replicas with each other.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ticketrail_core::query::Clock;
use ticketrail_core::{Answer, Entry, GroupId, LogPosition, MemView, Query, View, Write, answer, apply, invariants};
use ticketrail_storage::dir::{DataDir, Store};
use ticketrail_storage::disk::DiskOptions;
use ticketrail_storage::log::{Payload, RaftLog};
use ticketrail_storage::state::StateStore;

/// What a replay found.
#[derive(Debug)]
pub struct Replay {
    /// Entries replayed.
    pub entries: u64,
    /// Requests in them.
    pub requests: u64,
    /// Where the state on the disk stands: the same as the replayed one.
    pub clock: Clock,
    /// The replayed state.
    pub state: MemView,
}

fn clock(view: &dyn View) -> anyhow::Result<Clock> {
    let answered = answer(view, &Query::Clock)?;
    if let Answer::Clock(clock) = answered { Ok(clock) } else { bail!("expected a clock, but got {answered:?}") }
}

fn open(data_dir: &Path) -> anyhow::Result<Store> {
    let none = DiskOptions { low: 0, critical: 0, slack: 0, ballast: 0 };
    DataDir::open(data_dir)?.open_store(none).with_context(|| format!("open {}", data_dir.display()))
}

/// Checks the data directory of a stopped node.
pub fn check_dir(data_dir: &Path) -> anyhow::Result<Replay> {
    let store = open(data_dir)?;
    check(&*store.log, &*store.state)
}

/// Applies the entries from `next` to `last` of a log. Returns how many there were, and how many requests in them.
fn replay(view: &mut MemView, log: &impl RaftLog, mut next: u64, last: u64) -> anyhow::Result<(u64, u64)> {
    let (mut entries, mut requests) = (0, 0);
    while next <= last {
        let records = log.read(GroupId::QUEUES, next..last + 1, 4 << 20)?;
        ensure!(!records.is_empty(), "expected entry {next} in the log, but it ends there");
        for record in records {
            ensure!(record.id.index == next, "expected entry {next} in the log, but got {:?}", record.id);
            next = record.id.index + 1;
            let Payload::Normal(bytes) = record.payload else { continue };
            let entry = Entry::from_bytes(bytes)?;
            let at = LogPosition { term: record.id.leader.term, index: record.id.index };
            let outcome = apply(view, at, &entry).with_context(|| format!("apply entry {at:?}"))?;
            view.commit(&outcome.writes);
            entries += 1;
            requests += entry.requests.len() as u64;
        }
    }
    Ok((entries, requests))
}

/// Replays `log`, which must hold all entries from the first on, up to where `state` stands, and compares.
pub fn check(log: &impl RaftLog, state: &impl StateStore) -> anyhow::Result<Replay> {
    let on_disk = state.read(clock)?;
    let held = log.state(GroupId::QUEUES);
    ensure!(held.purged.is_none(), "expected a whole log, but it is purged up to {:?}", held.purged);
    let mut view = MemView::new();
    let (entries, requests) = replay(&mut view, log, 0, on_disk.index)?;
    let replayed = clock(&view)?;
    ensure!(replayed == on_disk, "expected {replayed:?} from a replay, but the disk has {on_disk:?}");
    invariants::check_all(&view).map_err(anyhow::Error::msg)?;
    Ok(Replay { entries, requests, clock: on_disk, state: view })
}

/// That replicas hold the same.
#[derive(Debug)]
pub struct Agreement {
    /// Where the furthest of them stands, and with it all of them.
    pub clock: Clock,
    /// The records that each holds.
    pub records: usize,
    /// Entries that the others lacked, and were given from the log of the furthest one.
    pub caught_up: u64,
}

/// Compares the states of stopped replicas, record by record: those that stopped earlier are first given the entries that
/// they lack, from the log of the one that stopped last.
pub fn agree(data_dirs: &[PathBuf]) -> anyhow::Result<Agreement> {
    let stores = data_dirs.iter().map(|dir| open(dir)).collect::<anyhow::Result<Vec<_>>>()?;
    let at = |store: &Store| store.state.applied().last.map_or(0, |id| id.index);
    let furthest = stores.iter().max_by_key(|store| at(store)).context("expected a replica")?;
    let (clock, wanted) = (furthest.state.read(clock)?, all(furthest)?);
    let mut caught_up = 0;
    for (store, dir) in stores.iter().zip(data_dirs) {
        let mut view = all(store)?;
        let (entries, _) = replay(&mut view, &*furthest.log, at(store) + 1, at(furthest))
            .with_context(|| format!("catch up {}", dir.display()))?;
        caught_up += entries;
        let differs = view.iter().zip(wanted.iter()).find(|(mine, theirs)| mine != theirs);
        ensure!(
            differs.is_none() && view.len() == wanted.len(),
            "expected {} to hold the {} records of the others, but it holds {}, of which the first to differ is {differs:?}",
            dir.display(),
            wanted.len(),
            view.len()
        );
    }
    invariants::check_all(&wanted).map_err(anyhow::Error::msg)?;
    Ok(Agreement { clock, records: wanted.len(), caught_up })
}

/// All that a store holds, in memory.
fn all(store: &Store) -> anyhow::Result<MemView> {
    let records = store.state.read(|view| view.scan(b"", b"\xff\xff", usize::MAX))?;
    let mut view = MemView::new();
    view.commit(&records.into_iter().map(|(key, value)| Write::Put { key, value }).collect());
    Ok(view)
}
