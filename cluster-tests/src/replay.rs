//! Replays a stopped node's log from its first entry and compares the result with the state on its disk: what was
//! applied twice, not at all, or in another order gives another hash of writes.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use ticketrail_core::query::Clock;
use ticketrail_core::{Answer, Entry, GroupId, LogPosition, MemView, Query, View, answer, apply, invariants};
use ticketrail_storage::dir::DataDir;
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

/// Checks the data directory of a stopped node.
pub fn check_dir(data_dir: &Path) -> anyhow::Result<Replay> {
    let none = DiskOptions { low: 0, critical: 0, slack: 0, ballast: 0 };
    let store = DataDir::open(data_dir)?.open_store(none)?;
    check(&*store.log, &*store.state)
}

/// Replays `log`, which must hold all entries from the first on, up to where `state` stands, and compares.
pub fn check(log: &impl RaftLog, state: &impl StateStore) -> anyhow::Result<Replay> {
    let on_disk = state.read(clock)?;
    let held = log.state(GroupId::QUEUES);
    ensure!(held.purged.is_none(), "expected a whole log, but it is purged up to {:?}", held.purged);
    let mut view = MemView::new();
    let (mut entries, mut requests, mut next) = (0, 0, 0);
    while next <= on_disk.index {
        let records = log.read(GroupId::QUEUES, next..on_disk.index + 1, 4 << 20)?;
        ensure!(!records.is_empty(), "expected entry {next} in the log, but it ends there");
        for record in records {
            next = record.id.index + 1;
            let Payload::Normal(bytes) = record.payload else { continue };
            let entry = Entry::from_bytes(bytes)?;
            let at = LogPosition { term: record.id.leader.term, index: record.id.index };
            let outcome = apply(&view, at, &entry).with_context(|| format!("apply entry {at:?}"))?;
            view.commit(&outcome.writes);
            entries += 1;
            requests += entry.requests.len() as u64;
        }
    }
    let replayed = clock(&view)?;
    ensure!(replayed == on_disk, "expected {replayed:?} from a replay, but the disk has {on_disk:?}");
    invariants::check_all(&view).map_err(anyhow::Error::msg)?;
    Ok(Replay { entries, requests, clock: on_disk, state: view })
}
