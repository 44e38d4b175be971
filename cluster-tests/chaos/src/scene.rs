//! What a drill works with: the world, the load, dice, and the record of what was done.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ticketrail_cluster_tests::cluster::{Cluster, Leader};
use ticketrail_cluster_tests::server::DEADLINE;
use ticketrail_history::Recorder;
use ticketrail_history::format::{Expect, Kind};

use crate::dice::Dice;
use crate::drills::Drill;
use crate::judgement::Evidence;
use crate::nemesis::Nemesis;
use crate::poll::poll;
use crate::traffic::{Mixed, Sum, Traffic, usual};
use crate::verdict::{Vacuous, Verdict};
use crate::world::World;

/// Messages acknowledged before a fault, and after the last one, at least.
const CALM: u64 = 80;
/// Calls of each of these kinds that are answered, at least: fewer are no load.
const LEAST: [(Kind, u64); 5] =
    [(Kind::Enqueue, 150), (Kind::Receive, 100), (Kind::Settle, 50), (Kind::Commit, 5), (Kind::Stats, 5)];

/// The share of the operations begun while nothing is wrong that succeed, at least.
const SUCCESS: f64 = 0.9;

/// How a drill is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long its faults last.
    pub length: Duration,
    /// Whether it is as short as the gate needs it.
    pub short: bool,
    /// Whether latencies are held against what is promised on a machine of its own.
    pub strict: bool,
    /// Whether herds are as large as the design says.
    pub large: bool,
    /// The seed of its dice.
    pub seed: u64,
    /// Where it has its files.
    pub home: PathBuf,
    /// The run's part of names.
    pub run: String,
}

/// A drill on its way.
pub struct Scene {
    /// The cluster, its network, its disks.
    pub world: World,
    /// What is left to chance.
    pub dice: Dice,
    /// The record of faults.
    pub nemesis: Nemesis,
    /// How it is run.
    pub options: Options,
    recorder: Recorder,
    load: Option<Traffic>,
    sum: Option<Sum>,
    counts: Vec<(Kind, u64)>,
    name: &'static str,
    begun: Instant,
    /// When the last fault was over, in nanoseconds since the begin.
    healed_at: Option<u64>,
    outages: Vec<Duration>,
    /// The same for clients of the SDK.
    by_sdk: Duration,
    notes: Vec<String>,
    finished: bool,
}

impl Scene {
    /// Makes the world of a drill; no node runs yet.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn open(drill: &Drill, options: Options) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let recorder = Recorder::create(&options.home, move || begun.elapsed())?;
        Ok(Self {
            world: World::make(&options.home, &options.run, &drill.setup)?,
            dice: Dice::new(options.seed),
            nemesis: Nemesis::new(recorder.clone()),
            options,
            recorder,
            load: None,
            sum: None,
            counts: Vec::new(),
            name: drill.name,
            begun,
            healed_at: None,
            outages: Vec::new(),
            by_sdk: Duration::ZERO,
            notes: Vec::new(),
            finished: false,
        })
    }

    /// Says what happens now.
    pub fn say(&self, what: impl AsRef<str>) {
        println!("  {:>6.1} s  {}", self.begun.elapsed().as_secs_f64(), what.as_ref());
    }

    /// Keeps something that was measured for the line of the drill.
    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    /// One of two values: the first in the form that the gate runs.
    pub fn sized<T>(&self, short: T, long: T) -> T {
        if self.options.short { short } else { long }
    }

    /// Rounds go on until this says no: one more than `least` rounds only within the time that faults last.
    pub fn goes_on(&self, since: Instant, round: u32, least: u32) -> bool {
        round < least || (!self.options.short && since.elapsed() < self.options.length)
    }

    /// Starts all nodes and the usual load, and waits until it runs.
    ///
    /// # Errors
    /// Where nodes or load do not come up.
    pub fn warm(&mut self) -> anyhow::Result<Leader> {
        self.warm_with(usual(self.options.short))
    }

    /// Starts all nodes and a load, and waits until it runs.
    ///
    /// # Errors
    /// Where nodes or load do not come up.
    pub fn warm_with(&mut self, load: Mixed) -> anyhow::Result<Leader> {
        self.start()?;
        self.load_with(load)
    }

    /// Starts all nodes.
    ///
    /// # Errors
    /// Where they do not come up.
    pub fn start(&mut self) -> anyhow::Result<Leader> {
        let leader = self.world.cluster.start_all()?;
        let all = self.world.cluster.nodes.len();
        self.world.cluster.until_members("all to vote", |members| {
            members.len() == all && members.iter().all(|member| member.votes() && member.alive)
        })?;
        Ok(leader)
    }

    /// Starts a load, and waits until it runs.
    ///
    /// # Errors
    /// Where it does not come up.
    pub fn load_with(&mut self, load: Mixed) -> anyhow::Result<Leader> {
        let addresses = self.world.cluster.addresses();
        let load = Traffic::start(addresses, load, self.recorder.clone(), self.options.seed)?;
        load.until_more(CALM)?;
        load.until_more_by_sdk(CALM / 4)?;
        load.longest_gaps();
        self.load = Some(load);
        let leader = self.world.cluster.leader()?;
        self.say(format!("warm: {} leads in term {}, load runs", self.world.name(leader.at), leader.term));
        Ok(leader)
    }

    /// The load.
    ///
    /// # Errors
    /// Where none runs.
    pub fn load(&self) -> anyhow::Result<&Traffic> {
        self.load.as_ref().context("expected a load to run")
    }

    /// Waits until writes are acknowledged again, and takes down how long there were none.
    ///
    /// # Errors
    /// Where there are none in time.
    pub fn outage(&mut self) -> anyhow::Result<Duration> {
        let load = self.load()?;
        load.until_more(30).with_context(|| self.world.cluster.logs())?;
        load.until_more_by_sdk(5).with_context(|| self.world.cluster.logs())?;
        let (outage, by_sdk) = load.longest_gaps();
        self.outages.push(outage);
        self.by_sdk = self.by_sdk.max(by_sdk);
        Ok(outage)
    }

    /// The longest time between two writes that was measured for clients of the SDK.
    pub fn longest_by_sdk(&self) -> Duration {
        self.by_sdk
    }

    /// Forgets how long there were no writes up to now.
    ///
    /// # Errors
    /// Where no load runs.
    pub fn forget_outage(&self) -> anyhow::Result<()> {
        self.load()?.longest_gaps();
        Ok(())
    }

    /// A promised time: told always, and held against what came only where latencies are judged.
    ///
    /// # Errors
    /// Where it took longer and that counts.
    pub fn promised(&self, what: &str, took: Duration, most: Duration) -> anyhow::Result<()> {
        if took > most {
            let text = format!("{what} took {} ms, where {} ms are promised", took.as_millis(), most.as_millis());
            ensure!(!self.options.strict, "expected it faster: {text}");
            self.say(format!("slow: {text}"));
        }
        Ok(())
    }

    /// Waits until a node has applied what the others have committed meanwhile, which one that is broken never does; or
    /// until it has ended, and returns how.
    ///
    /// # Errors
    /// Where it does neither in time.
    pub fn until_it_follows_or_ends(&mut self, at: usize) -> anyhow::Result<Option<ExitStatus>> {
        self.load()?.until_more(20)?;
        let figure = |cluster: &Cluster, at: usize, name: &str| {
            let figures = cluster.node(at).ok().and_then(|node| node.figures());
            figures.and_then(|figures| figures.get(name))
        };
        let least = self.world.cluster.until("what the leader has committed", |cluster| {
            Ok(cluster.leader_now().and_then(|leader| figure(cluster, leader.at, "ticketrail_raft_committed_index")))
        })?;
        let cluster = &mut self.world.cluster;
        poll(DEADLINE, || {
            if let Some(status) = cluster.node_mut(at)?.server.ended()? {
                return Ok(Some(Some(status)));
            }
            let applied = figure(cluster, at, "ticketrail_raft_applied_index");
            Ok(applied.is_some_and(|applied| applied >= least).then_some(None))
        })
        .context("wait until the node follows or ends")
    }

    /// Heals, drains and checks, as most drills end.
    ///
    /// # Errors
    /// Where something does not hold.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        self.heal()?;
        self.drain()?;
        self.check()
    }

    /// Ends all cuts, starts all nodes that do not run, and waits until writes are acknowledged.
    ///
    /// # Errors
    /// Where the cluster does not come back.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        let healed = Instant::now();
        self.healed_at = u64::try_from(self.recorder.now().as_nanos()).ok();
        self.world.cluster.start_all()?;
        self.outage()?;
        self.load()?.until_more(CALM)?;
        self.world.cluster.until_level_under_load()?;
        self.say(format!("heal: all nodes follow, {} ms after", healed.elapsed().as_millis()));
        Ok(())
    }

    /// Stops the producers, and waits until each message is finished.
    ///
    /// # Errors
    /// Where one is not, or something was told that must not be.
    pub fn drain(&mut self) -> anyhow::Result<()> {
        let drained = Instant::now();
        let load = self.load.take().context("expected a load to run")?;
        self.counts = load.tally().calls().iter().map(|(kind, count)| (*kind, count.ok)).collect();
        let sum = load.drain()?;
        self.say(format!(
            "drain: each message finished after {} ms: {} calls OK, {} without effect, {} unknown ({}); by the SDK {} \
             acknowledged and finished, {} redelivered",
            drained.elapsed().as_millis(),
            sum.ok,
            sum.failed,
            sum.unknown,
            sum.text,
            sum.sdk.acknowledged(),
            sum.sdk.redelivered
        ));
        self.sum = Some(sum);
        Ok(())
    }

    /// Stops all nodes, replays their logs and compares them.
    ///
    /// # Errors
    /// Where they differ, or a log does not give the state beside it.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.world.cluster.until_level()?;
        self.world.cluster.stop_all()?;
        self.recorder.finish().context("write down what clients were told")?;
        let evidence = Evidence {
            home: &self.options.home,
            disks: self.world.cluster.disks()?,
            keeps_log: self.world.keeps_log,
            seed: self.options.seed,
            drill: self.name,
            healed_at: self.healed_at,
            expect: Expect {
                ok: LEAST.into(),
                success: SUCCESS,
                heal_ms: Some(if self.options.strict { 10_000 } else { 60_000 }),
                ..Expect::default()
            },
        };
        let judged = evidence.judge()?;
        self.say(format!("check: {judged}"));
        self.finished = true;
        Ok(())
    }

    /// The drill went to its end, under load, and its fault took effect.
    ///
    /// # Errors
    /// [`Vacuous`] where not.
    pub fn check_it_was_finished(&self) -> anyhow::Result<()> {
        ensure!(self.finished, "expected the drill to end with a check of the replicas, but it did not");
        if self.nemesis.is_empty() {
            bail!(Vacuous("expected a fault, but none took effect".to_owned()));
        }
        for (kind, least) in LEAST {
            let count = self.counts.iter().find(|(counted, _)| *counted == kind).map_or(0, |(_, count)| *count);
            if count < least {
                let name = kind.name();
                bail!(Vacuous(format!("expected {least} calls of the kind {name} at least, but there were {count}")));
            }
        }
        Ok(())
    }

    fn operations(&self) -> u64 {
        let running = self.load.as_ref().map_or(0, Traffic::operations);
        running + self.sum.as_ref().map_or(0, |sum| sum.ok + sum.sdk.acknowledged())
    }

    /// The longest time without an acknowledged write.
    pub fn longest_outage(&self) -> Duration {
        self.outages.iter().max().copied().unwrap_or_default()
    }

    /// The line of the drill.
    pub fn line(&self, drill: &Drill, verdict: Verdict) -> String {
        let by_sdk = self.by_sdk.as_millis();
        let notes = if self.notes.is_empty() { String::new() } else { format!("; {}", self.notes.join(", ")) };
        format!(
            "{:<18} {verdict:<7} {:>6.1} s  {:>7} ops  outage {:>5} ms (SDK {by_sdk} ms)  {}{notes}",
            drill.name,
            self.begun.elapsed().as_secs_f64(),
            self.operations(),
            self.longest_outage().as_millis(),
            self.nemesis.effects()
        )
    }

    /// Saves what would vanish with this process.
    ///
    /// # Errors
    /// Where it can't be saved.
    pub fn rescue(&mut self) -> anyhow::Result<()> {
        self.world.rescue()
    }
}
