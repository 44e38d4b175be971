//! What goes wrong, and when it is set right again. Each fault says when it had an effect.

use std::collections::BTreeSet;
use std::time::Duration;

use ticketrail_history::format::Phase;

use crate::disk::Failure;
use crate::operator::Order;
use crate::rng::Rng;
use crate::world::World;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node is cut off from the others, both ways.
    Isolate,
    /// A node does not hear the others, or they do not hear it.
    OneWay,
    /// Two nodes do not reach each other, but both reach the third.
    Link,
    /// What two nodes say to each other is held up for a while.
    Hold,
    /// A client is cut off from a node, or does not hear it.
    Client,
    /// A node loses its power.
    Crash,
    /// A majority loses its power.
    CrashMajority,
    /// All nodes lose their power.
    CrashAll,
    /// A node is stopped in order and started again.
    Restart,
    /// The syncs of a disk take long.
    SlowDisk,
    /// A disk fails once.
    DiskError,
    /// A disk is nearly full, and has room again.
    DiskLow,
    /// A disk is full, and has room again.
    DiskFull,
    /// A wall clock jumps.
    Jump,
    /// A wall clock runs too fast or too slow.
    Drift,
    /// Leadership is handed over.
    Transfer,
    /// A node loses its disk, and joins anew.
    Wipe,
    /// A member is removed, and joins anew on an empty disk.
    Remove,
    /// A new node joins.
    Join,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 19] = [
        Kind::Isolate,
        Kind::OneWay,
        Kind::Link,
        Kind::Hold,
        Kind::Client,
        Kind::Crash,
        Kind::CrashMajority,
        Kind::CrashAll,
        Kind::Restart,
        Kind::SlowDisk,
        Kind::DiskError,
        Kind::DiskLow,
        Kind::DiskFull,
        Kind::Jump,
        Kind::Drift,
        Kind::Transfer,
        Kind::Wipe,
        Kind::Remove,
        Kind::Join,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Isolate => "isolate",
            Kind::OneWay => "one-way",
            Kind::Link => "link",
            Kind::Hold => "hold",
            Kind::Client => "client",
            Kind::Crash => "crash",
            Kind::CrashMajority => "crash-majority",
            Kind::CrashAll => "crash-all",
            Kind::Restart => "restart",
            Kind::SlowDisk => "slow-disk",
            Kind::DiskError => "disk-error",
            Kind::DiskLow => "disk-low",
            Kind::DiskFull => "disk-full",
            Kind::Jump => "jump",
            Kind::Drift => "drift",
            Kind::Transfer => "transfer",
            Kind::Wipe => "wipe",
            Kind::Remove => "remove",
            Kind::Join => "join",
        }
    }
}

/// Places beside the first three, at most.
const PLACES: usize = 5;
/// Faults that last at one time.
const AT_ONCE: usize = 2;

/// What sets a fault right again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cure {
    /// Mends what goes from each of the first to each of the second.
    Mend(Vec<(String, String)>),
    /// Lets go what is held between two hosts.
    Release(String, String),
    /// Starts nodes.
    Start(Vec<usize>),
    /// A disk is fast again.
    Fast(usize),
    /// A disk has room.
    Room(usize),
    /// A clock stops drifting.
    Steady,
    /// An empty disk, and a start.
    Empty(usize),
}

/// A fault that lasts.
#[derive(Debug)]
struct Lasting {
    until: Duration,
    kind: Kind,
    /// Places that are not what they should be.
    places: BTreeSet<usize>,
    cure: Cure,
}

impl Lasting {
    fn takes_a_disk(&self) -> bool {
        matches!(self.cure, Cure::Empty(_))
    }
}

/// Brings faults into the world.
pub struct Nemesis {
    rng: Rng,
    next: Duration,
    lasting: Vec<Lasting>,
    /// A clock that drifts: its place, and by how many milliseconds in each 100.
    drift: Option<(usize, i64)>,
    drifted: Duration,
    removed: BTreeSet<usize>,
}

impl Nemesis {
    /// Faults that follow from the seed, from `start` on.
    pub fn new(seed: u64, start: Duration) -> Self {
        Self {
            rng: Rng::new(seed).fork("nemesis"),
            next: start,
            lasting: Vec::new(),
            drift: None,
            drifted: start,
            removed: BTreeSet::new(),
        }
    }

    /// To be called after each step while faults are injected.
    pub fn act(&mut self, world: &mut World<'_>) {
        let now = world.elapsed();
        self.drift(world, now);
        let (over, lasting) = std::mem::take(&mut self.lasting).into_iter().partition(|fault| fault.until <= now);
        self.lasting = lasting;
        for fault in over {
            self.cure(world, &fault);
        }
        if now < self.next {
            return;
        }
        self.next = now + self.rng.millis(world.options.calm_ms / 4, world.options.calm_ms);
        if self.lasting.len() < AT_ONCE
            && let Some(kind) = self.rng.pick(&world.options.kinds.clone()).copied()
        {
            self.inject(world, kind);
        }
    }

    /// Sets everything right again.
    pub fn heal(&mut self, world: &mut World<'_>) {
        world.trace.tell("nemesis", format_args!("heals everything"));
        for fault in std::mem::take(&mut self.lasting) {
            self.cure(world, &fault);
        }
        self.drift = None;
        let hosts = hosts(world);
        for (at, from) in hosts.iter().enumerate() {
            for to in hosts.iter().skip(at + 1) {
                world.network().repair(&**from, &**to);
                world.network().release(&**from, &**to);
            }
        }
        let speed = (world.options.sync_from_us, world.options.sync_to_us);
        for at in 0..world.places.len() {
            let place = world.places[at].clone();
            place.disk.set_speed(speed);
            place.disk.set_full(false);
            place.jump(-place.skew_ms());
            world.start(at);
        }
    }

    fn drift(&mut self, world: &mut World<'_>, now: Duration) {
        let Some((at, ms)) = self.drift else { return };
        if now >= self.drifted + Duration::from_millis(100) {
            self.drifted = now;
            world.places[at].jump(ms);
        }
    }

    /// A place whose node is up and in order, the leader's more often than not.
    fn victim(&mut self, world: &World<'_>) -> Option<usize> {
        let sick = self.sick();
        let fit: Vec<usize> = (0..world.places.len()).filter(|at| world.is_up(*at) && !sick.contains(at)).collect();
        match world.leader().filter(|leader| fit.contains(leader)) {
            Some(leader) if self.rng.chance(50) => Some(leader),
            Some(_) | None => self.rng.pick(&fit).copied(),
        }
    }

    fn sick(&self) -> BTreeSet<usize> {
        self.lasting.iter().flat_map(|fault| fault.places.iter().copied()).collect()
    }

    fn last(&mut self, world: &World<'_>, kind: Kind, span: Duration, places: &[usize], cure: Cure) {
        let until = world.elapsed() + span;
        self.lasting.push(Lasting { until, kind, places: places.iter().copied().collect(), cure });
    }

    fn inject(&mut self, world: &mut World<'_>, kind: Kind) {
        let Some(at) = self.victim(world) else { return };
        if !self.begin(world, kind, at) {
            return;
        }
        let (name, leads) = (world.places[at].name.clone(), world.leader() == Some(at));
        world.trace.tell("nemesis", format_args!("{} {name}, leader {leads}", kind.name()));
        // The world is simulated: what is done to it is done.
        for phase in [Phase::Begin, Phase::Effect] {
            world.recorder.nemesis(kind.name(), &name, phase, "");
        }
        world.count(kind.name());
    }

    /// Begins a fault, if it can be now.
    fn begin(&mut self, world: &mut World<'_>, kind: Kind, at: usize) -> bool {
        let me = world.places[at].name.to_string();
        let span = self.rng.millis(300, 3_000);
        match kind {
            Kind::Isolate | Kind::OneWay => {
                let others: Vec<String> =
                    world.places.iter().map(|place| place.name.to_string()).filter(|name| *name != me).collect();
                let both = kind == Kind::Isolate;
                let out = both || self.rng.chance(50);
                let mut cuts = Vec::new();
                for other in others {
                    if out {
                        cuts.push((me.clone(), other.clone()));
                    }
                    if both || !out {
                        cuts.push((other, me.clone()));
                    }
                }
                self.cut(world, kind, span, &[at], cuts);
            }
            Kind::Link | Kind::Hold => {
                let others: Vec<usize> = (0..world.places.len()).filter(|other| *other != at).collect();
                let Some(other) = self.rng.pick(&others).copied() else { return false };
                let other = world.places[other].name.to_string();
                if kind == Kind::Hold {
                    world.network().hold(&*me, &*other);
                    self.last(world, kind, span, &[], Cure::Release(me, other));
                } else {
                    let mut cuts = vec![(me.clone(), other.clone())];
                    if self.rng.chance(60) {
                        cuts.push((other, me));
                    }
                    self.cut(world, kind, span, &[], cuts);
                }
            }
            Kind::Client => {
                let Some(client) = self.rng.pick(&world.clients.clone()).cloned() else { return false };
                let mut cuts = vec![(me.clone(), client.clone())];
                if self.rng.chance(50) {
                    cuts.push((client, me));
                }
                self.cut(world, kind, span, &[], cuts);
            }
            Kind::Crash => {
                self.power_off(world, at);
                self.last(world, kind, span, &[at], Cure::Start(vec![at]));
            }
            Kind::CrashMajority | Kind::CrashAll => {
                let mut places: Vec<usize> = (0..world.places.len()).filter(|at| world.is_up(*at)).collect();
                if kind == Kind::CrashMajority {
                    let spared = usize::try_from(self.rng.below(places.len() as u64)).unwrap_or(0);
                    places.remove(spared);
                }
                for at in &places {
                    self.power_off(world, *at);
                }
                let span = self.rng.millis(100, 1_500);
                self.last(world, kind, span, &places.clone(), Cure::Start(places));
            }
            Kind::Restart => {
                if world.places[at].node().is_none() {
                    return false;
                }
                world.places[at].stop();
            }
            Kind::SlowDisk => {
                let from = self.rng.between(20_000, 200_000);
                let to = from + self.rng.between(10_000, 1_500_000);
                world.places[at].disk.set_speed((from, to));
                self.last(world, kind, span, &[], Cure::Fast(at));
            }
            Kind::DiskError => {
                let Some(failure) = self.rng.pick(&Failure::ALL).copied() else { return false };
                world.places[at].disk.fail(failure);
            }
            Kind::DiskLow => {
                world.places[at].disk.set_low(true);
                self.last(world, kind, span, &[], Cure::Room(at));
            }
            Kind::DiskFull => {
                world.places[at].disk.set_full(true);
                self.last(world, kind, span, &[at], Cure::Room(at));
            }
            Kind::Jump => {
                let far = *self.rng.pick(&[1_000, 10_000, 600_000, 3_600_000]).unwrap_or(&1_000);
                world.places[at].jump(if self.rng.chance(50) { far } else { -far });
            }
            Kind::Drift => {
                if self.drift.is_some() {
                    return false;
                }
                let ms = i64::try_from(self.rng.between(1, 100)).unwrap_or(1);
                self.drift = Some((at, if self.rng.chance(50) { ms } else { -ms / 2 }));
                self.last(world, kind, span, &[], Cure::Steady);
            }
            Kind::Transfer => {
                let Some(to) = world.places[at].id() else { return false };
                world.operator.order(Order::Transfer(to), self.askable(world));
            }
            Kind::Wipe => {
                if self.is_missing_a_disk(world) {
                    return false;
                }
                self.power_off(world, at);
                self.removed.insert(at);
                self.last(world, kind, span, &[at], Cure::Empty(at));
            }
            Kind::Remove => {
                let Some(id) = world.places[at].id() else { return false };
                if self.is_missing_a_disk(world) {
                    return false;
                }
                world.operator.order(Order::Remove(id), self.askable(world));
                self.removed.insert(at);
                self.last(world, kind, span + Duration::from_secs(1), &[at], Cure::Empty(at));
            }
            Kind::Join => {
                if world.places.len() >= PLACES {
                    return false;
                }
                world.add_place();
            }
        }
        true
    }

    /// Whether a node that lost its disk, or is about to, is not a member with a vote again: a second lost disk could
    /// lose data.
    fn is_missing_a_disk(&mut self, world: &World<'_>) -> bool {
        let Some(voters) = world.voters() else { return true };
        let lasting: BTreeSet<usize> =
            self.lasting.iter().filter(|fault| fault.takes_a_disk()).flat_map(|fault| fault.places.clone()).collect();
        let is_back =
            |at: &usize| !lasting.contains(at) && world.places[*at].id().is_some_and(|id| voters.contains(&id));
        self.removed.retain(|at| !is_back(at));
        !self.removed.is_empty() || voters.len() < 3
    }

    fn askable(&mut self, world: &World<'_>) -> Vec<String> {
        let mut hosts: Vec<String> = world.places.iter().map(|place| place.name.to_string()).collect();
        let first = usize::try_from(self.rng.below(hosts.len() as u64)).unwrap_or(0);
        hosts.rotate_left(first);
        hosts
    }

    fn cut(&mut self, world: &World<'_>, kind: Kind, span: Duration, places: &[usize], cuts: Vec<(String, String)>) {
        for (from, to) in &cuts {
            world.network().partition_oneway(&**from, &**to);
        }
        self.last(world, kind, span, places, Cure::Mend(cuts));
    }

    /// A host that loses its power says no goodbye; one whose process is killed does.
    fn power_off(&mut self, world: &mut World<'_>, at: usize) {
        let me = world.places[at].name.to_string();
        let silent = self.rng.chance(50);
        let others: Vec<String> = hosts(world).into_iter().filter(|name| *name != me).collect();
        if silent {
            for other in &others {
                world.network().partition_oneway(&*me, &**other);
            }
        }
        world.crash(at, None);
        if silent {
            for other in &others {
                world.network().repair_oneway(&*me, &**other);
            }
        }
    }

    fn cure(&mut self, world: &mut World<'_>, fault: &Lasting) {
        world.trace.tell("nemesis", format_args!("{} is over: {:?}", fault.kind.name(), fault.cure));
        world.recorder.nemesis(fault.kind.name(), "", Phase::End, "");
        match &fault.cure {
            Cure::Mend(cuts) => {
                for (from, to) in cuts {
                    world.network().repair_oneway(&**from, &**to);
                }
            }
            Cure::Release(one, other) => world.network().release(&**one, &**other),
            Cure::Start(places) => {
                for at in places {
                    world.start(*at);
                }
            }
            Cure::Fast(at) => {
                world.places[*at].disk.set_speed((world.options.sync_from_us, world.options.sync_to_us));
            }
            Cure::Room(at) => world.places[*at].disk.set_full(false),
            Cure::Steady => self.drift = None,
            Cure::Empty(at) => {
                world.crash(*at, None);
                world.places[*at].disk.wipe();
                world.start(*at);
            }
        }
    }
}

fn hosts(world: &World<'_>) -> Vec<String> {
    world.places.iter().map(|place| place.name.to_string()).chain(world.clients.iter().cloned()).collect()
}
