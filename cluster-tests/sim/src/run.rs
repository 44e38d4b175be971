//! One run, from its seed to its verdict.
//!
//! First faults, while only safety counts; then everything is healed, and progress is demanded within a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ticketrail_history::Recorder;
use ticketrail_history::format::Kind;
use ticketrail_load::Phase;

use crate::checks;
use crate::clients::Clients;
use crate::nemesis::Nemesis;
use crate::options::Options;
use crate::trace::{Digest, Trace};
use crate::world::World;

/// How long three empty nodes may take to found a cluster.
const FOUNDED: Duration = Duration::from_secs(10);
/// How long it may take after the last fault until an enqueue is acknowledged.
const SERVED: Duration = Duration::from_secs(10);
/// How long it may take from then on until everything is done.
const DONE: Duration = Duration::from_secs(60);
/// How long the clients may take to end, and the replicas to become level once nothing comes any more.
const LEVEL: Duration = Duration::from_secs(20);

/// What a run came to.
#[derive(Debug)]
pub struct Verdict {
    /// What does not hold, in words; none: all is well.
    pub breaches: Vec<String>,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// How long it was, in simulated time.
    pub simulated: Duration,
    /// What the trace tells.
    pub digest: Digest,
}

/// Runs what follows from `options`. What clients are told, and nodes apply, is written to the folder `dir`.
pub fn run(options: &Options, trace: &Trace, dir: &Path) -> Result<Verdict, String> {
    let clock = trace.clone();
    let recorder = Recorder::create(dir, move || clock.now()).map_err(|error| error.to_string())?;
    let mut world = World::new(options.clone(), trace.clone(), recorder.clone());
    let mut breaches = Vec::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut healed = None;
    match play(&mut world, &recorder, &mut healed, &mut counts) {
        Ok(()) => {}
        Err(why) => {
            healed = None;
            breaches.push(why);
        }
    }
    recorder.finish().map_err(|error| error.to_string())?;
    breaches.extend(checks::replicas(&world));
    breaches.extend(checks::history(&world, dir, healed).unwrap_or_else(|why| vec![why]));
    for breach in &breaches {
        trace.tell("breach", format_args!("{breach}"));
    }
    counts.extend(world.counts.iter().map(|(what, count)| ((*what).to_owned(), *count)));
    counts.extend(world.truth.commands().into_iter().map(|(what, count)| (format!("log: {what}"), count)));
    let digest = trace.end().map_err(|error| format!("expected to write the trace, but {error}"))?;
    Ok(Verdict { breaches, counts, simulated: world.elapsed(), digest })
}

fn play(
    world: &mut World<'_>,
    recorder: &Recorder,
    healed: &mut Option<Duration>,
    counts: &mut BTreeMap<String, u64>,
) -> Result<(), String> {
    if !world.until(FOUNDED, |world| world.leader().is_some() && world.truth.last() > Some(2))? {
        return Err(format!("expected three empty nodes to found a cluster within {FOUNDED:?}, but they have not"));
    }
    let clients = Clients::start(world, recorder);
    let result = play_with(world, &clients, healed);
    let tally = clients.load.tally();
    for (kind, count) in tally.calls() {
        let ends = [("answered", count.ok), ("without effect", count.failed), ("unknown", count.unknown)];
        counts.extend(ends.map(|(end, count)| (format!("told: {} {end}", kind.name()), count)));
    }
    counts.extend(tally.all_seen().into_iter().map(|(what, count)| (format!("seen: {what}"), count)));
    counts.retain(|_, count| *count > 0);
    result
}

fn play_with(world: &mut World<'_>, clients: &Clients, healed: &mut Option<Duration>) -> Result<(), String> {
    let options = world.options.clone();
    let start = world.elapsed();
    let mut nemesis = Nemesis::new(options.seed, start);
    while world.elapsed() < start + Duration::from_millis(options.safety_ms) {
        world.step()?;
        nemesis.act(world);
    }
    nemesis.heal(world);
    *healed = Some(world.elapsed());
    let written = |clients: &Clients| clients.load.tally().of(Kind::Enqueue).ok;
    // Those that were on their way may have been asked before.
    let wanted = written(clients) + u64::from(options.producers) + 1;
    if !world.until(SERVED, |_| written(clients) >= wanted)? {
        return Err(format!(
            "expected {} more enqueues to be acknowledged within {SERVED:?} of the last fault, but {} were; {}",
            u64::from(options.producers) + 1,
            u64::from(options.producers) + 1 - (wanted - written(clients)),
            positions(world)
        ));
    }
    clients.load.set(Phase::Drain);
    if !world.until(DONE, |world| clients.load.is_drained() && is_whole(world))? {
        return Err(format!(
            "expected everything to be done within {DONE:?}, but all queues are empty: {}, voters are {:?} of {:?} members \
             where nodes {:?} are; {}",
            clients.load.is_drained(),
            world.voters(),
            members(world),
            world.places.iter().map(|place| place.id()).collect::<Vec<_>>(),
            positions(world)
        ));
    }
    clients.load.set(Phase::Stop);
    if !world.until(LEVEL, |world| clients.have_ended() && is_level(world))? {
        return Err(format!(
            "expected all clients to end and all replicas to be level within {LEVEL:?}, but clients have ended: {}; {}",
            clients.have_ended(),
            positions(world)
        ));
    }
    Ok(())
}

/// Whether the members of the cluster are the nodes that are there, each with a vote.
fn is_whole(world: &World<'_>) -> bool {
    let there: Option<BTreeSet<u64>> = world.places.iter().map(|place| place.id()).collect();
    there.is_some() && there == world.voters() && members(world) == there.map(|there| there.len())
}

fn members(world: &World<'_>) -> Option<usize> {
    Some(world.places[world.leader()?].node()?.cluster().members.len())
}

fn is_level(world: &World<'_>) -> bool {
    let statuses: Option<Vec<_>> = world.places.iter().map(|place| Some(place.node()?.status())).collect();
    let Some(statuses) = statuses else { return false };
    let last = statuses.first().and_then(|status| status.last_log_index);
    statuses.iter().all(|status| status.last_log_index == last && status.applied_index == last)
}

fn positions(world: &World<'_>) -> String {
    let position = |place: &std::sync::Arc<crate::place::Place>| match place.node().map(|node| node.status()) {
        Some(status) => format!(
            "{} is {:?} in term {}, log {:?}, applied {:?}",
            place.name, status.role, status.term, status.last_log_index, status.applied_index
        ),
        None => format!("{} does not run", place.name),
    };
    world.places.iter().map(position).collect::<Vec<_>>().join("; ")
}
