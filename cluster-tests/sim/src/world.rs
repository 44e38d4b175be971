//! The simulated world: hosts, the network between them, and what is done to both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ticketrail_history::Recorder;
use ticketrail_node::Role;
use turmoil::{Builder, Sim};

use crate::net::Dialer;
use crate::operator::Operator;
use crate::options::Options;
use crate::place::{EPOCH_MS, Place};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::truth::Truth;

/// One step of the world.
const STEP: Duration = Duration::from_millis(1);
/// Every so many steps it is looked who leads.
const LOOK_EVERY: u32 = 5;

/// The simulated world.
pub struct World<'w> {
    /// What it is made of.
    pub options: Arc<Options>,
    /// Where nodes run.
    pub places: Vec<Arc<Place>>,
    /// Hosts of clients.
    pub clients: Vec<String>,
    /// What is told.
    pub trace: Trace,
    /// What was committed.
    pub truth: Truth,
    /// Where faults are written down.
    pub recorder: Recorder,
    /// Who changes the membership.
    pub operator: Arc<Operator>,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    sim: Sim<'w>,
    rng: Rng,
    named: Vec<String>,
    /// Places without a running host, and when it is started again.
    down: BTreeMap<usize, Option<Duration>>,
    leader: Option<(u64, usize)>,
    steps: u32,
}

impl World<'_> {
    /// Three nodes on empty disks, which found a cluster.
    pub fn new(options: Options, trace: Trace, recorder: Recorder) -> Self {
        let mut builder = Builder::new();
        builder
            .rng_seed(options.seed)
            .epoch(UNIX_EPOCH + Duration::from_millis(EPOCH_MS))
            .simulation_duration(Duration::from_secs(3_600))
            .tick_duration(STEP)
            .min_message_latency(Duration::from_micros(options.latency_from_us))
            .max_message_latency(Duration::from_micros(options.latency_to_us))
            .tcp_capacity(4_096);
        if options.random_order {
            builder.enable_random_order();
        }
        let rng = Rng::new(options.seed).fork("world");
        let options = Arc::new(options);
        let mut world = Self {
            places: Vec::new(),
            clients: Vec::new(),
            truth: Truth::default(),
            recorder,
            operator: Arc::new(Operator::new(&trace)),
            counts: BTreeMap::new(),
            sim: builder.build(),
            rng,
            named: (0..options.skews_ms.len()).map(|at| format!("rail-{at}")).collect(),
            down: BTreeMap::new(),
            leader: None,
            steps: 0,
            options: options.clone(),
            trace,
        };
        for skew_ms in options.skews_ms {
            let at = world.add_place();
            world.places[at].jump(skew_ms);
        }
        let operator = world.operator.clone();
        let dialer = world.dialer("operator");
        world.add_client("operator", move || operator.clone().run(dialer.clone()));
        world
    }

    /// One more place with an empty disk, whose node asks to be let in.
    pub fn add_place(&mut self) -> usize {
        let at = self.places.len();
        let name = format!("rail-{at}");
        let place = Arc::new(Place::new(name.clone(), &self.options, &self.named, &self.truth, &self.trace));
        self.places.push(place.clone());
        self.sim.host(name, move || place.clone().run());
        at
    }

    /// One more host, which is not a node's.
    pub fn add_client<F, Fut>(&mut self, name: &str, run: F)
    where
        F: Fn() -> Fut + 'static,
        Fut: Future<Output = turmoil::Result> + 'static,
    {
        self.clients.push(name.to_owned());
        self.sim.host(name, run);
    }

    /// Connects from a host to others.
    pub fn dialer(&self, host: &str) -> Dialer {
        let rng = Rng::new(self.options.seed).fork(host);
        Dialer::new(self.trace.clone(), rng, self.options.slow_refusals_percent)
    }

    /// Simulated time since the start.
    pub fn elapsed(&self) -> Duration {
        self.sim.elapsed()
    }

    /// How far the wall clocks of all nodes were moved, all moves together, in milliseconds.
    pub fn jumped_ms(&self) -> u64 {
        self.places.iter().map(|place| place.jumped_ms()).sum()
    }

    /// One more of `what`.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Lets a millisecond pass.
    pub fn step(&mut self) -> Result<(), String> {
        self.sim.step().map_err(|error| format!("expected all hosts to go on, but {error}"))?;
        self.trace.step(self.sim.elapsed());
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(1_000) {
            self.trace.tell_wire();
        }
        self.see_to_the_ended();
        if self.steps.is_multiple_of(LOOK_EVERY) {
            self.look_for_leaders();
        }
        Ok(())
    }

    /// Lets time pass until `done`, or until `longest` is over. Says whether it is done.
    pub fn until(&mut self, longest: Duration, mut done: impl FnMut(&mut Self) -> bool) -> Result<bool, String> {
        let end = self.elapsed() + longest;
        while self.elapsed() < end {
            if done(self) {
                return Ok(true);
            }
            self.step()?;
        }
        Ok(done(self))
    }

    /// Processes that have ended leave their hosts, and come back as a supervisor would start them.
    fn see_to_the_ended(&mut self) {
        for at in 0..self.places.len() {
            if self.down.contains_key(&at) {
                continue;
            }
            if let Some(why) = self.places[at].take_ended() {
                self.count(kind_of_end(&why));
                let pause = self.rng.millis(50, 800);
                self.crash(at, Some(pause));
            }
        }
        let now = self.elapsed();
        let due: Vec<usize> =
            self.down.iter().filter(|(_, at)| at.is_some_and(|at| at <= now)).map(|(at, _)| *at).collect();
        for at in due {
            self.start(at);
        }
    }

    /// Ends the node of a place as a loss of power does; it is started again after `back`, if that is given.
    pub fn crash(&mut self, at: usize, back: Option<Duration>) {
        let back = back.map(|pause| self.elapsed() + pause);
        if let Some(known) = self.down.get_mut(&at) {
            *known = back;
            return;
        }
        let place = self.places[at].clone();
        self.sim.crash(&*place.name);
        place.forget();
        let kept = place.disk.crash(&mut self.rng);
        let ((log, of_log), (state, of_state)) = (kept.log, kept.state);
        self.trace.tell(
            &place.name,
            format_args!("crashes: {log} of {of_log} operations of the log are kept, {state} of {of_state} commits"),
        );
        if of_log > log {
            self.count("unsynced operations lost");
        }
        if log > 0 && log < of_log {
            self.count("torn tails");
        }
        if of_state > state {
            self.count("unflushed commits lost");
        }
        self.down.insert(at, back);
    }

    /// Starts the node of a place.
    pub fn start(&mut self, at: usize) {
        if self.down.remove(&at).is_some() {
            self.sim.bounce(&*self.places[at].name.clone());
        }
    }

    /// Whether the host of a place is up.
    pub fn is_up(&self, at: usize) -> bool {
        !self.down.contains_key(&at)
    }

    /// Who leads, as the newest term has it.
    pub fn leader(&self) -> Option<usize> {
        self.leader.map(|(_, at)| at).filter(|at| self.is_up(*at))
    }

    fn look_for_leaders(&mut self) {
        for at in 0..self.places.len() {
            let Some(node) = self.places[at].node().filter(|_| self.is_up(at)) else { continue };
            let status = node.status();
            if status.role != Role::Leader || status.leader != Some(status.node_id) {
                continue;
            }
            let name = self.places[at].name.clone();
            self.truth.led(&name, status.term, status.node_id);
            if self.leader.is_none_or(|(term, _)| term < status.term) {
                self.leader = Some((status.term, at));
                self.count("leaders");
                self.trace.tell(&name, format_args!("leads term {}", status.term));
            }
        }
    }

    /// The Raft ids of the members with a vote, as the leader sees them; `None`: nobody leads, or a change is under way.
    pub fn voters(&self) -> Option<BTreeSet<u64>> {
        let cluster = self.places[self.leader()?].node()?.cluster();
        let voters = cluster.members.into_iter().filter(|member| member.voter).map(|member| member.node);
        (!cluster.changing).then(|| voters.collect())
    }

    /// The network, to be cut and mended.
    pub fn network(&self) -> &Sim<'_> {
        &self.sim
    }
}

fn kind_of_end(why: &str) -> &'static str {
    if why == "it was told to stop" { "orderly stops" } else { "nodes that gave up" }
}
