//! Opens the directories of stopped nodes and has them audited: see [`ticketrail_audit`].

use std::path::{Path, PathBuf};

use anyhow::Context;
pub use ticketrail_audit::{Agreement, Replay};
use ticketrail_audit::{chain, lines, replay};
use ticketrail_core::query::Clock;
use ticketrail_storage::dir::{DataDir, Store};
use ticketrail_storage::disk::DiskOptions;
use ticketrail_storage::state::StateStore;

fn open(data_dir: &Path) -> anyhow::Result<Store> {
    let none = DiskOptions { low: 0, critical: 0, slack: 0, ballast: 0 };
    DataDir::open(data_dir)?.open_store(none).with_context(|| format!("open {}", data_dir.display()))
}

/// Checks the data directory of a stopped node: replays its log, which must be whole, and compares with its state.
pub fn check_dir(data_dir: &Path) -> anyhow::Result<Replay> {
    let store = open(data_dir)?;
    replay::check(&*store.log, &*store.state)
}

/// Compares the states of stopped replicas, record by record: those that stopped earlier are first given the entries that
/// they lack, from the log of the one that stopped last.
pub fn agree(data_dirs: &[PathBuf]) -> anyhow::Result<Agreement> {
    let stores = data_dirs.iter().map(|dir| open(dir)).collect::<anyhow::Result<Vec<_>>>()?;
    let replica = |(store, dir): (_, &PathBuf)| {
        let store: &Store = store;
        replay::Replica { name: dir.display().to_string(), log: &*store.log, state: &*store.state }
    };
    replay::agree(&stores.iter().zip(data_dirs).map(replica).collect::<Vec<_>>())
}

/// Writes what a stopped node has applied into the directory of a run, for its checker: the audit, and the node's chain.
/// Its log must be whole. Returns where its state stands.
pub fn audit_dir(data_dir: &Path, node: u64, run: &Path) -> anyhow::Result<Clock> {
    let store = open(data_dir)?;
    let clock = store.state.read(replay::clock)?;
    lines::write_audit(run, &*store.log, clock.index)?;
    chain_of(&store, node, run)?;
    Ok(clock)
}

/// Writes the chain of a stopped node, whose log must be whole, into the directory of a run.
pub fn chain_dir(data_dir: &Path, node: u64, run: &Path) -> anyhow::Result<()> {
    chain_of(&open(data_dir)?, node, run)
}

fn chain_of(store: &Store, node: u64, run: &Path) -> anyhow::Result<()> {
    let last = store.state.applied().last.map_or(0, |id| id.index);
    chain::write(run, node, &chain::of_log(&*store.log, last)?)
}
