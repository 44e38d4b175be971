//! One run, from its seed to its verdict.
//!
//! First faults, while only safety counts; then everything is healed, and progress is demanded within a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checks;
use crate::load::{Client, Ledger};
use crate::nemesis::Nemesis;
use crate::options::Options;
use crate::trace::{Digest, Trace};
use crate::world::World;

/// How long three empty nodes may take to found a cluster.
const FOUNDED: Duration = Duration::from_secs(10);
/// How long it may take after the last fault until everything is done.
const HEALED: Duration = Duration::from_secs(60);
/// How long the replicas may take to become level once nothing comes any more.
const LEVEL: Duration = Duration::from_secs(10);

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

/// Runs what follows from `options`.
pub fn run(options: &Options, trace: &Trace) -> Result<Verdict, String> {
    let ledger = Ledger::default();
    let mut world = World::new(options.clone(), trace.clone());
    let mut breaches = match play(&mut world, &ledger) {
        Ok(()) => Vec::new(),
        Err(why) => vec![why],
    };
    breaches.extend(checks::breaches(&world, &ledger));
    for breach in &breaches {
        trace.tell("breach", format_args!("{breach}"));
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    counts.extend(world.counts.iter().map(|(what, count)| ((*what).to_owned(), *count)));
    counts.extend(ledger.counts().into_iter().map(|(what, count)| (format!("told: {what}"), count)));
    counts.extend(world.truth.commands().into_iter().map(|(what, count)| (format!("log: {what}"), count)));
    let digest = trace.end().map_err(|error| format!("expected to write the trace, but {error}"))?;
    Ok(Verdict { breaches, counts, simulated: world.elapsed(), digest })
}

fn play(world: &mut World<'_>, ledger: &Ledger) -> Result<(), String> {
    if !world.until(FOUNDED, |world| world.leader().is_some() && world.truth.last() > Some(2))? {
        return Err(format!("expected three empty nodes to found a cluster within {FOUNDED:?}, but they have not"));
    }
    let options = world.options.clone();
    clients(world, ledger);
    let start = world.elapsed();
    let mut nemesis = Nemesis::new(options.seed, start);
    while world.elapsed() < start + Duration::from_millis(options.safety_ms) {
        world.step()?;
        nemesis.act(world);
    }
    nemesis.heal(world);
    let healed = world.elapsed();
    let clients = usize::try_from(options.producers + options.workers).unwrap_or(usize::MAX);
    let producers = usize::try_from(options.producers).unwrap_or(usize::MAX);
    // Not each step: it reads the states.
    let mut looked = healed;
    let done = world.until(HEALED, |world| {
        if world.elapsed() < looked + Duration::from_millis(50) {
            return false;
        }
        looked = world.elapsed();
        ledger.done() == producers
            && ledger.served_since(healed) == clients
            && world.leader().is_some_and(|leader| checks::waiting(world, leader) == Some(0))
            && is_whole(world)
            && world.leader().is_some_and(|leader| checks::is_accounted_for(world, leader, ledger))
    })?;
    if !done {
        return Err(format!(
            "expected everything to be done within {HEALED:?} of the last fault, but {}",
            what_is_not(world, ledger, healed)
        ));
    }
    if !world.until(LEVEL, is_level)? {
        return Err(format!("expected all replicas to be level within {LEVEL:?}, but {}", positions(world)));
    }
    Ok(())
}

fn clients(world: &mut World<'_>, ledger: &Ledger) {
    let options = world.options.clone();
    let hosts: Vec<String> = world.places.iter().map(|place| place.name.to_string()).collect();
    let roles = (0..options.producers).map(|number| format!("producer-{number}"));
    let roles = roles.chain((0..options.workers).map(|number| format!("worker-{number}")));
    for name in roles.collect::<Vec<_>>() {
        let client = Client::new(&name, &world.dialer(&name), &hosts, &options, ledger.clone(), world.trace.clone());
        let (produces, options) = (name.starts_with("producer"), options.clone());
        world.add_client(&name, move || {
            let (client, options) = (client.clone(), options.clone());
            async move {
                if produces { client.produce(options.messages, options.pause_ms).await } else { client.work().await }
            }
        });
    }
}

/// Whether the members of the cluster are the nodes that are there, each with a vote.
fn is_whole(world: &World<'_>) -> bool {
    let there: Option<BTreeSet<u64>> = world.places.iter().map(|place| place.id()).collect();
    there.is_some() && there == world.voters() && members(world) == there.map(|there| there.len())
}

fn members(world: &World<'_>) -> Option<usize> {
    Some(world.places[world.leader()?].node()?.cluster().members.len())
}

fn is_level(world: &mut World<'_>) -> bool {
    let statuses: Option<Vec<_>> = world.places.iter().map(|place| Some(place.node()?.status())).collect();
    let Some(statuses) = statuses else { return false };
    let last = statuses.first().and_then(|status| status.last_log_index);
    statuses.iter().all(|status| status.last_log_index == last && status.applied_index == last)
}

fn what_is_not(world: &World<'_>, ledger: &Ledger, healed: Duration) -> String {
    let waiting: Vec<Option<u64>> = (0..world.places.len()).map(|at| checks::waiting(world, at)).collect();
    format!(
        "{} of {} producers are done, {} of {} clients were served since, messages that wait are {waiting:?}, voters \
         {:?} of members {:?} where nodes {:?} are; {}",
        ledger.done(),
        world.options.producers,
        ledger.served_since(healed),
        world.options.producers + world.options.workers,
        world.voters(),
        members(world),
        world.places.iter().map(|place| place.id()).collect::<Vec<_>>(),
        positions(world)
    )
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
