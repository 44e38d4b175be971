//! What must hold when a run is over.

use std::collections::BTreeSet;

use bytes::Bytes;
use ticketrail_core::command::QueueRef;
use ticketrail_core::query::MessageState;
use ticketrail_core::{Answer, MemView, Query, View, Write, answer, invariants, limits};
use ticketrail_storage::state::StateStore as _;

use crate::load::{Ledger, QUEUE};
use crate::world::World;

/// The dead letters of the clients' queue.
const DEAD: &str = "orders.dlq";

/// Messages of the clients' queue that are not finished, as a replica has it.
pub fn waiting(world: &World<'_>, at: usize) -> Option<u64> {
    let asked = Query::Queue(queue(QUEUE));
    let told = world.places[at].disk.contents().state.read(|view| answer(view, &asked)).ok()?;
    match told {
        Answer::Queue(Some(info)) => Some(info.stats.ready + info.stats.delayed + info.stats.leased),
        Answer::Queue(None) => Some(0),
        Answer::Clock(_)
        | Answer::Queues(_)
        | Answer::Messages(_)
        | Answer::Message(_)
        | Answer::Deliveries(_)
        | Answer::Leases(_)
        | Answer::Seen(_) => None,
    }
}

/// Whether a replica has every acknowledged message that its client was not told to be finished among its dead letters.
pub fn is_accounted_for(world: &World<'_>, at: usize, ledger: &Ledger) -> bool {
    lost_or_twice(&view_of(world, at), ledger).is_empty()
}

/// All that does not hold, in words.
pub fn breaches(world: &World<'_>, ledger: &Ledger) -> Vec<String> {
    let mut breaches = world.truth.breaches();
    breaches.extend(ledger.breaches());
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
    if let Some(view) = views.first() {
        breaches.extend(lost_or_twice(view, ledger));
    }
    breaches
}

/// Messages that are neither finished nor dead, and such that are both.
fn lost_or_twice(view: &MemView, ledger: &Ledger) -> Vec<String> {
    let dead = match dead(view) {
        Ok(dead) => dead,
        Err(why) => return vec![why],
    };
    let lost = ledger.unfinished().into_iter().filter(|body| !dead.contains(body));
    let lost =
        lost.map(|body| format!("{body:?} was acknowledged, and is neither finished nor a dead letter: it is lost"));
    let both = ledger.finished().into_iter().filter(|body| dead.contains(body));
    let both = both.map(|body| format!("a worker was told that {body:?} is finished, but it is a dead letter"));
    lost.chain(both).collect()
}

/// The bodies of all dead letters.
fn dead(view: &MemView) -> Result<BTreeSet<Bytes>, String> {
    let mut bodies = BTreeSet::new();
    let mut after = Bytes::new();
    loop {
        let asked = Query::Peek { queue: queue(DEAD), state: MessageState::Ready, after, limit: limits::PAGE };
        let told = answer(view, &asked).map_err(|fault| format!("the dead letters cannot be read: {fault}"))?;
        let Answer::Messages(page) = told else { return Err("expected dead letters, but got another answer".into()) };
        let Some(page) = page else { return Ok(bodies) };
        bodies.extend(page.messages.into_iter().map(|message| message.content.body));
        if page.next.is_empty() {
            return Ok(bodies);
        }
        after = page.next;
    }
}

fn queue(name: &str) -> QueueRef {
    QueueRef { namespace: "default".into(), name: name.into() }
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
