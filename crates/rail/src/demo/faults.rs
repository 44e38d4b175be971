//! What is broken while the demo runs, and what came of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::ledger::ProducerLine;
use super::nodes::{self, Leader};
use super::run::Run;
use super::stage::Stage;
use super::worker::{PARK, Parked};
use super::{outage, producer};
use crate::child::Process;
use crate::clock::monotonic_ns;

/// A fault that has not taken effect after so long never will.
const FAULT_WITHIN: Duration = Duration::from_secs(30);
/// The same for a node that is away until the others have purged what it needs, beside the time that they keep it.
const AWAY_WITHIN: Duration = Duration::from_secs(30);
/// A worker that has not stopped between line and commit after so long is killed, and another one told to.
const PARK_WITHIN: Duration = Duration::from_secs(10);
/// A snapshot that is in place is counted within this time.
const COUNTED_WITHIN: Duration = Duration::from_secs(2);
/// Without a new leader after so long, the one that was killed is started again all the same.
const LEADER_WITHIN: Duration = Duration::from_secs(10);

/// What is broken, and when: at so many percent of the orders acknowledged, or as soon as what comes before is over.
pub(super) const SCRIPT: [(usize, Fault); 9] = [
    (8, Fault::KillLeader),
    (14, Fault::KillWorker(Stage::Payment)),
    (20, Fault::KillLeader),
    (28, Fault::StopNode),
    (34, Fault::KillWorker(Stage::Stock)),
    (38, Fault::StartNode),
    (55, Fault::KillLeader),
    (62, Fault::KillWorker(Stage::Payment)),
    (70, Fault::KillLeader),
];

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The leader is killed with SIGKILL and started again once another node leads.
    KillLeader,
    /// A worker is killed with SIGKILL between its ledger line and its commit.
    KillWorker(Stage),
    /// A node that does not lead is stopped in order.
    StopNode,
    /// It is started again once the others no longer have the log that it needs.
    StartNode,
}

/// What was broken to effect so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Each with the times, in nanoseconds of the machine's monotonic clock, when it was killed and when another was seen
    /// to lead.
    leaders: Vec<([u64; 2], LeaderKill)>,
    /// What the workers that were killed had in hand.
    pub(super) victims: Vec<Parked>,
    stopped: Option<Stopped>,
    absence: Option<Absence>,
}

/// A node that is away.
#[derive(Debug, Clone, Copy)]
struct Stopped {
    place: usize,
    name: &'static str,
    since: Instant,
    /// The end of its log, at most.
    behind: u64,
}

/// The faults that took effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Struck {
    /// Times that the leader was killed with SIGKILL.
    pub(crate) leader_kills: Vec<LeaderKill>,
    /// How many there were to be.
    pub(crate) leader_kills_wanted: usize,
    /// Workers killed with SIGKILL between their ledger line and their commit.
    pub(crate) worker_kills: usize,
    /// How many there were to be.
    pub(crate) worker_kills_wanted: usize,
    /// Connections cut after a request was sent and before its reply was read.
    pub(crate) connections_cut: usize,
    /// How many were to be cut.
    pub(crate) connections_to_cut: usize,
    /// The node that was away for too long to come back by its log.
    pub(crate) absence: Option<Absence>,
    /// The longest time in which no order was acknowledged, in milliseconds.
    pub(crate) longest_write_outage_ms: u64,
}

/// The leader was killed with SIGKILL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeaderKill {
    /// The node that was killed.
    pub(crate) node: &'static str,
    /// The node that led after it.
    pub(crate) next: &'static str,
    /// The term that it led in.
    pub(crate) old_term: u64,
    /// The term after it.
    pub(crate) new_term: u64,
    /// How long no order was acknowledged around it, in milliseconds.
    pub(crate) outage_ms: u64,
}

/// A node was away until the others had purged the log that it needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Absence {
    /// The node.
    pub(crate) node: &'static str,
    /// How long it was away, in milliseconds.
    pub(crate) away_ms: u64,
    /// The last entry that it can have had when it was stopped.
    pub(crate) log_end: u64,
    /// Up to where the others, at least, had purged their logs when it was started again.
    pub(crate) purged: u64,
    /// The snapshots that it installed then.
    pub(crate) snapshots_installed: u64,
    /// How long it took from its start until it had all that was there at its start, in milliseconds.
    pub(crate) back_ms: u64,
}

impl Faults {
    /// What took effect, with what the producers saw of it.
    pub(super) fn struck(&self, producers: &[ProducerLine], orders: usize) -> Struck {
        let acknowledged = outage::acknowledged_ns(producers);
        let kill = |([killed_ns, led_ns], kill): &([u64; 2], LeaderKill)| LeaderKill {
            outage_ms: outage::around_ms(&acknowledged, *killed_ns, *led_ns).unwrap_or(0),
            ..kill.clone()
        };
        let cuts = producers.iter().filter(|line| match line {
            ProducerLine::Acknowledged { cut, replayed, .. } => *cut && *replayed,
            ProducerLine::Failed { .. } => false,
        });
        let wanted = |is: fn(Fault) -> bool| SCRIPT.into_iter().filter(|(_, fault)| is(*fault)).count();
        Struck {
            leader_kills: self.leaders.iter().map(kill).collect(),
            leader_kills_wanted: wanted(|fault| fault == Fault::KillLeader),
            worker_kills: self.victims.len(),
            worker_kills_wanted: wanted(|fault| matches!(fault, Fault::KillWorker(_))),
            connections_cut: cuts.count(),
            connections_to_cut: producer::cuts(orders),
            absence: self.absence.clone(),
            longest_write_outage_ms: outage::longest_ms(&acknowledged),
        }
    }
}

impl Run {
    /// Breaks something, and waits until that has taken effect.
    pub(super) async fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::KillLeader => self.kill_leader().await,
            Fault::KillWorker(stage) => self.kill_worker(stage).await,
            Fault::StopNode => self.stop_node().await,
            Fault::StartNode => self.start_node().await,
        }
    }

    /// Who leads, once all nodes that run agree on it; `None`: not in time.
    async fn leader(&mut self, within: Duration) -> anyhow::Result<Option<Leader>> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let nodes = self.nodes()?;
            let (told, running) = (nodes.ask().await, nodes.running());
            if let Some(leader) = nodes::leader(&told, running) {
                return Ok(Some(leader));
            }
            self.tick().await?;
        }
        Ok(None)
    }

    /// Kills the leader until a kill has taken effect: another term has begun, and producers went on in it.
    async fn kill_leader(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FAULT_WITHIN;
        loop {
            self.tally.read()?;
            if self.tally.all_acknowledged() || Instant::now() > deadline {
                self.invalid.push("a kill of the leader found no producer at work".to_owned());
                return Ok(());
            }
            let Some(old) = self.leader(FAULT_WITHIN).await? else { continue };
            let node = self.nodes()?.node(old.place);
            let name = node.name;
            let killed_ns = monotonic_ns();
            let killed = Instant::now();
            if !node.kill_9().await? {
                bail!("expected node {name} to be alive when it was killed, but it had ended by itself");
            }
            let new = self.leader(LEADER_WITHIN).await?;
            let (elected, led_ns) = (killed.elapsed(), new.map(|_| monotonic_ns()));
            self.restart(old.place).await?;
            let new = match new {
                Some(new) => Some(new),
                None => self.leader(LEADER_WITHIN).await?,
            };
            // What is acknowledged before this may have been on its way when the old leader was killed.
            let led_ns = led_ns.unwrap_or_else(monotonic_ns);
            while !self.tally.acknowledged_after(led_ns) && Instant::now() < deadline {
                self.tick().await?;
            }
            let Some(new) = new.filter(|new| new.figures.term > old.figures.term) else {
                self.invalid.push(format!("no other term began after leader {name} was killed"));
                return Ok(());
            };
            let next = self.nodes()?.node(new.place).name;
            let (old_term, new_term) = (old.figures.term, new.figures.term);
            self.progress.event(format_args!(
                "leader {name} killed with -9 in term {old_term}; {next} leads in term {new_term} after {} ms, \
                 {name} is back after {} ms",
                elected.as_millis(),
                killed.elapsed().as_millis()
            ));
            if self.tally.acknowledged_after(led_ns) {
                let kill = LeaderKill { node: name, next, old_term, new_term, outage_ms: 0 };
                self.faults.leaders.push(([killed_ns, led_ns], kill));
                return Ok(());
            }
        }
    }

    /// Starts a node that has ended, and waits until it serves.
    async fn restart(&mut self, place: usize) -> anyhow::Result<()> {
        self.nodes()?.node(place).relaunch()?;
        let deadline = Instant::now() + FAULT_WITHIN;
        while !self.nodes()?.node(place).is_ready() {
            if Instant::now() > deadline {
                bail!("expected node {} to serve within {FAULT_WITHIN:?}; see its log", self.nodes()?.node(place).name);
            }
            self.tick().await?;
        }
        Ok(())
    }

    /// Stops a node that does not lead.
    async fn stop_node(&mut self) -> anyhow::Result<()> {
        let Some(leader) = self.leader(FAULT_WITHIN).await? else {
            self.invalid.push("no leader was there when a node was to be stopped".to_owned());
            return Ok(());
        };
        let place = (leader.place + 1) % nodes::COUNT;
        let node = self.nodes()?.node(place);
        let name = node.name;
        let stopped = node.stop().await;
        self.findings.extend(nodes::not_in_order(name, stopped));
        let since = Instant::now();
        // All that anybody has at this time, is all that it can have.
        let told = self.nodes()?.ask().await;
        let behind = told.iter().map(|(_, figures)| figures.last_log).max().context("no other node answers")?;
        self.progress.event(format_args!("node {name} stopped; its log ends before entry {behind} at the latest"));
        self.faults.stopped = Some(Stopped { place, name, since, behind });
        Ok(())
    }

    /// Starts it again once the others have purged what it needs; then it must install a snapshot.
    async fn start_node(&mut self) -> anyhow::Result<()> {
        let Some(Stopped { place, name, since, behind }) = self.faults.stopped.take() else { return Ok(()) };
        let deadline = since + AWAY_WITHIN + self.retention();
        let purged = loop {
            let nodes = self.nodes()?;
            let (told, running) = (nodes.ask().await, nodes.running());
            let purged = told.iter().map(|(_, figures)| figures.purged).min().filter(|_| told.len() == running);
            if let Some(purged) = purged.filter(|purged| *purged > behind) {
                break purged;
            }
            if Instant::now() > deadline {
                self.invalid.push(format!("the others have not purged the log that node {name} needs"));
                break purged.unwrap_or(0);
            }
            self.tick().await?;
        };
        let away = since.elapsed();
        self.progress.event(format_args!(
            "node {name} was away for {} ms, and the others have purged their logs up to entry {purged}: it starts again",
            away.as_millis()
        ));
        let started = Instant::now();
        let there = self.nodes()?.ask().await.iter().map(|(_, figures)| figures.last_log).max().unwrap_or(0);
        self.restart(place).await?;
        let deadline = Instant::now() + FAULT_WITHIN;
        let mut caught_up = None;
        let figures = loop {
            let told = self.nodes()?.ask().await;
            let found = told.into_iter().find(|(asked, _)| *asked == place).map(|(_, figures)| figures);
            if let Some(figures) = found.filter(|figures| figures.applied >= there) {
                // A snapshot is counted a moment after it is in place.
                let since: Instant = *caught_up.get_or_insert_with(Instant::now);
                if figures.installed > 0 || since.elapsed() > COUNTED_WITHIN {
                    break figures;
                }
            }
            if Instant::now() > deadline {
                self.findings.push(format!("node {name} did not catch up within {FAULT_WITHIN:?}"));
                break found.unwrap_or_default();
            }
            self.tick().await?;
        };
        let back = started.elapsed();
        if figures.installed == 0 {
            self.invalid.push(format!("node {name} installed no snapshot"));
        }
        self.progress.event(format_args!(
            "node {name} has caught up after {} ms; snapshots installed: {}",
            back.as_millis(),
            figures.installed
        ));
        self.faults.absence = Some(Absence {
            node: name,
            away_ms: millis(away),
            log_end: behind,
            purged,
            snapshots_installed: figures.installed,
            back_ms: millis(back),
        });
        Ok(())
    }

    /// Has a worker stop between its ledger line and its commit, kills it there, and starts another in its place; with
    /// the next worker where one does not stop.
    async fn kill_worker(&mut self, stage: Stage) -> anyhow::Result<()> {
        let deadline = Instant::now() + FAULT_WITHIN;
        loop {
            let place = self.workers.iter().position(|worker| worker.stage == stage);
            let mut worker = self.workers.remove(place.context("no worker at that stage")?);
            let parked = self.park(&mut worker.process).await;
            let killed = worker.process.kill_9().await?;
            self.start_worker(stage)?;
            let name = &worker.name;
            match parked? {
                Some(parked) if killed => {
                    let order = &parked.order;
                    self.progress.event(format_args!(
                        "{name} killed with -9 between its ledger line for {order} and its commit"
                    ));
                    self.faults.victims.push(parked);
                    return Ok(());
                }
                Some(_) | None => {
                    self.progress
                        .event(format_args!("{name} did not stop between its ledger line and its commit: once more"));
                }
            }
            if Instant::now() > deadline {
                self.invalid.push("no worker could be killed between its ledger line and its commit".to_owned());
                return Ok(());
            }
        }
    }

    /// Tells a worker to stop between line and commit, and waits until it says so; `None`: it did not in time.
    async fn park(&mut self, worker: &mut Process) -> anyhow::Result<Option<Parked>> {
        let stdin = worker.stdin.as_mut().context("a worker without stdin")?;
        stdin.write_all(format!("{PARK}\n").as_bytes()).await?;
        stdin.flush().await?;
        let stdout = worker.stdout.take().context("a worker without stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let deadline = Instant::now() + PARK_WITHIN;
        while Instant::now() < deadline {
            let line = tokio::select! {
                line = lines.next_line() => line?,
                tick = self.tick() => {
                    tick?;
                    continue;
                }
            };
            let line = line.context("expected a worker to say that it stopped, but it ended")?;
            return serde_json::from_str(&line).map(Some).context("what a parked worker said");
        }
        Ok(None)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
