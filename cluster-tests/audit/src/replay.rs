//! Replays a stopped node's log from its first entry and compares the result with the state on its disk: what was
//! applied twice, not at all, or in another order gives another hash of writes. And compares replicas with each other.

use anyhow::{Context, bail, ensure};
use ticketrail_core::query::Clock;
use ticketrail_core::{Answer, MemView, Query, View, Write, answer, invariants};
use ticketrail_storage::log::RaftLog;
use ticketrail_storage::state::StateStore;

use crate::log::{Walked, ensure_whole, walk};

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

/// Where a state stands.
pub fn clock(view: &dyn View) -> anyhow::Result<Clock> {
    let answered = answer(view, &Query::Clock)?;
    if let Answer::Clock(clock) = answered { Ok(clock) } else { bail!("expected a clock, but got {answered:?}") }
}

/// Replays `log`, which must hold all entries from the first on, up to where `state` stands, and compares.
pub fn check(log: &impl RaftLog, state: &impl StateStore) -> anyhow::Result<Replay> {
    let on_disk = state.read(clock)?;
    ensure_whole(log)?;
    let mut view = MemView::new();
    let Walked { entries, requests } = walk(&mut view, log, 0, on_disk.index, |_| Ok(()))?;
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

/// A replica to compare: what errors call it, its log and its state.
#[derive(Debug)]
pub struct Replica<'a, L, S> {
    /// What errors call it.
    pub name: String,
    /// Its log.
    pub log: &'a L,
    /// Its state.
    pub state: &'a S,
}

/// Compares the states of replicas, record by record: those that stopped earlier are first given the entries that they
/// lack, from the log of the one that stopped last.
pub fn agree<L: RaftLog, S: StateStore>(replicas: &[Replica<'_, L, S>]) -> anyhow::Result<Agreement> {
    let at = |replica: &Replica<'_, L, S>| replica.state.applied().last.map_or(0, |id| id.index);
    let furthest = replicas.iter().max_by_key(|replica| at(replica)).context("expected a replica")?;
    let (clock, wanted) = (furthest.state.read(clock)?, all(furthest.state)?);
    let mut caught_up = 0;
    for replica in replicas {
        let mut view = all(replica.state)?;
        let walked = walk(&mut view, furthest.log, at(replica) + 1, at(furthest), |_| Ok(()))
            .with_context(|| format!("catch up {}", replica.name))?;
        caught_up += walked.entries;
        let differs = view.iter().zip(wanted.iter()).find(|(mine, theirs)| mine != theirs);
        ensure!(
            differs.is_none() && view.len() == wanted.len(),
            "expected {} to hold the {} records of the others, but it holds {}, of which the first to differ is {differs:?}",
            replica.name,
            wanted.len(),
            view.len()
        );
    }
    invariants::check_all(&wanted).map_err(anyhow::Error::msg)?;
    Ok(Agreement { clock, records: wanted.len(), caught_up })
}

/// All that a store holds, in memory.
fn all(state: &impl StateStore) -> anyhow::Result<MemView> {
    let records = state.read(|view| view.scan(b"", b"\xff\xff", usize::MAX))?;
    let mut view = MemView::new();
    view.commit(&records.into_iter().map(|(key, value)| Write::Put { key, value }).collect());
    Ok(view)
}
