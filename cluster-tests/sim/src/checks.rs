//! What must hold when a run is over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_audit::{replay, write_audit};
use ticketrail_core::{GroupId, MemView, View, Write, invariants};
use ticketrail_history::format::{Expect, Meta};
use ticketrail_history::{RunDir, judge};
use ticketrail_storage::log::RaftLog as _;
use ticketrail_storage::mem::MemLog;
use ticketrail_storage::state::StateStore as _;

use crate::world::World;

/// How soon after the last fault an enqueue has to succeed.
const SERVED_MS: u64 = 10_000;

/// All that does not hold of the replicas, in words.
pub fn replicas(world: &World<'_>) -> Vec<String> {
    let mut breaches = world.truth.breaches();
    let views: Vec<MemView> = (0..world.places.len()).map(|at| view_of(world, at)).collect();
    for (at, view) in views.iter().enumerate() {
        let name = &world.places[at].name;
        if let Err(why) = invariants::check_all(view) {
            breaches.push(format!("the state of {name} breaks an invariant: {why}"));
        }
        if let Some(difference) = views.first().and_then(|first| difference(first, view)) {
            breaches.push(format!("the states of {} and {name} differ: {difference}", world.places[0].name));
        }
    }
    breaches
}

/// What clients were told, held against what was committed: all that does not hold, in words.
///
/// `dir` has what the clients recorded; what the nodes applied is written beside it. `healed`: when the last fault was
/// over; `None`: the run did not come so far, and nothing is demanded of its end.
pub fn history(world: &World<'_>, dir: &Path, healed: Option<Duration>) -> Result<Vec<String>, String> {
    let log = whole_log(world);
    let Some(last) = log.state(GroupId::QUEUES).last.map(|id| id.index) else { return Ok(Vec::new()) };
    let state = world.places[0].disk.contents().state;
    let mut breaches = Vec::new();
    if let Err(why) = replay::check(&log, &*state) {
        breaches.push(format!("the log does not give the state of {}: {why:#}", world.places[0].name));
    }
    write_audit(dir, &log, last).map_err(|error| format!("expected to write down what was applied, but {error:#}"))?;
    let run = RunDir::new(dir);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let meta = Meta {
        seed: world.options.seed,
        options: BTreeMap::from([("all".to_owned(), world.options.to_string())]),
        jump_ms: world.jumped_ms(),
        healed_at: healed.map(nanos),
        drained: healed.is_some(),
        expect: Expect { heal_ms: healed.map(|_| SERVED_MS), ..Expect::default() },
        ..Meta::default()
    };
    run.write_meta(&meta).map_err(|error| format!("expected to write down what the run was, but {error}"))?;
    let report = judge(&run).map_err(|error| format!("expected to read the history, but {error}"))?;
    for (name, findings) in &report.checks {
        breaches.extend(findings.violations.iter().map(|text| format!("{name}: {text}")));
        breaches.extend(findings.invalid.iter().map(|text| format!("{name}: the run does not count: {text}")));
    }
    Ok(breaches)
}

/// All entries that were committed, in one log.
fn whole_log(world: &World<'_>) -> MemLog {
    let log = MemLog::new();
    // In memory, and without a gap: each replica applies one entry after the other.
    log.append(GroupId::QUEUES, world.truth.records(), Box::new(|_| {}));
    log
}

fn view_of(world: &World<'_>, at: usize) -> MemView {
    let pairs = world.places[at].disk.contents().state.read(|view| view.scan(b"", b"\xff\xff", usize::MAX));
    let mut view = MemView::new();
    view.commit(&pairs.unwrap_or_default().into_iter().map(|(key, value)| Write::Put { key, value }).collect());
    view
}

/// The first key at which two states differ.
fn difference(one: &MemView, other: &MemView) -> Option<String> {
    if one == other {
        return None;
    }
    let keys: BTreeSet<&Bytes> = one.iter().chain(other.iter()).map(|(key, _)| key).collect();
    let get = |view: &MemView, key: &Bytes| view.get(key).ok().flatten();
    let key = keys.into_iter().find(|key| get(one, key) != get(other, key))?;
    Some(format!("under {key:?} one has {:?}, the other {:?}", get(one, key), get(other, key)))
}
