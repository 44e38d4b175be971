//! The demo's stage manager: starts everybody, has things broken, waits for the end, and hands the ledgers to the audit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ticketrail_client::{Client, Error, MessageState, QueueSettings, Reason};
use tokio::io::AsyncWriteExt as _;

use super::audit::{self, Books, Evidence};
use super::dataset::{self, Order};
use super::faults::{Faults, SCRIPT};
use super::ledger;
use super::nodes::Nodes;
use super::producer::HURRY;
use super::progress::Progress;
use super::report::Report;
use super::stage::Stage;
use super::tally::Tally;
use super::worker::LEASE;
use crate::child::{self, Process};
use crate::exit::Exit;

const PRODUCERS: usize = 2;
/// Workers at each stage.
const WORKERS: usize = 2;
/// How often the ledgers are read.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Without any order coming on for so long, the run is over.
const STUCK_AFTER: Duration = Duration::from_secs(45);
/// How long the nodes may take to have the same entries, once nothing more comes.
const LEVEL_WITHIN: Duration = Duration::from_secs(15);

/// How the demo is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Orders to send.
    pub(crate) orders: usize,
    /// Orders a second; 0: as fast as it goes.
    pub(crate) rate: u32,
    /// How long the nodes keep log for one that is away.
    pub(crate) retention: Duration,
}

/// A run of the demo.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
    settings: Settings,
    pub(super) orders: Vec<Order>,
    pub(super) progress: Progress,
    pub(super) tally: Tally,
    pub(super) nodes: Option<Nodes>,
    producers: Vec<Process>,
    pub(super) workers: Vec<Worker>,
    workers_started: usize,
    pub(super) faults: Faults,
    /// Faults that took no effect.
    pub(super) invalid: Vec<String>,
    /// What went wrong beside the orders.
    pub(super) findings: Vec<String>,
}

/// A worker process.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) stage: Stage,
    pub(super) name: String,
    pub(super) process: Process,
}

impl Run {
    /// A run in `dir`.
    pub(crate) fn new(dir: &Path, settings: Settings) -> anyhow::Result<Self> {
        let orders = dataset::orders(settings.orders)?;
        Ok(Self {
            dir: dir.to_owned(),
            settings,
            progress: Progress::new(orders.len()),
            tally: Tally::new(orders.len()),
            orders,
            nodes: None,
            producers: Vec::new(),
            workers: Vec::new(),
            workers_started: 0,
            faults: Faults::default(),
            invalid: Vec::new(),
            findings: Vec::new(),
        })
    }

    /// Plays it all. Children are left to [`Run::end`] where it fails or is dropped.
    pub(crate) async fn play(&mut self) -> anyhow::Result<Report> {
        let started = Instant::now();
        self.start().await?;
        for (percent, fault) in SCRIPT {
            self.wait_for_percent(percent).await?;
            self.strike(fault).await?;
        }
        self.hurry().await?;
        self.wait_for_producers().await?;
        self.wait_for_the_end().await?;
        self.watch_for_late_deliveries().await?;
        self.stop_workers().await?;
        self.wait_for_level().await?;
        let books = self.look().await?;
        let unordered = self.nodes()?.stop().await;
        self.findings.extend(unordered);
        self.tally.read()?;
        self.progress.show(self.tally.standing());
        self.progress.finish();
        self.report(books, started)
    }

    /// Kills whoever is left.
    pub(crate) async fn end(&mut self) {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.process);
        for process in self.producers.iter_mut().chain(workers) {
            // Whatever cannot be killed has ended.
            let _ = process.kill_9().await;
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.end().await;
        }
    }

    pub(super) fn nodes(&mut self) -> anyhow::Result<&mut Nodes> {
        self.nodes.as_mut().context("the nodes are not started yet")
    }

    /// How long the nodes keep log for one that is away.
    pub(super) fn retention(&self) -> Duration {
        self.settings.retention
    }

    fn client(&mut self) -> anyhow::Result<Client> {
        let addresses = self.nodes()?.addresses();
        Ok(Client::builder().addresses(addresses).connect()?)
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.nodes = Some(Nodes::launch(&self.dir, self.settings.retention)?);
        self.nodes()?.serve().await?;
        let addresses = self.nodes()?.addresses();
        self.progress.event(format_args!("three nodes serve as one cluster: {}", addresses.join(" ")));
        let admin = self.client()?.admin();
        for stage in Stage::ALL {
            let settings = QueueSettings { lease: Some(LEASE), ..QueueSettings::default() };
            admin.create_queue(stage.queue(), settings).await.context("making the queues")?;
            for _ in 0..WORKERS {
                self.start_worker(stage)?;
            }
        }
        for number in 0..PRODUCERS {
            let ledger = self.dir.join(format!("producer-{number}.jsonl"));
            self.tally.follow_producer(&ledger);
            let log = child::log(&self.dir.join(format!("producer-{number}.log")))?;
            let told = [
                ("--addresses", addresses.join(",")),
                ("--ledger", path_text(&ledger)?),
                ("--orders", self.orders.len().to_string()),
                ("--number", number.to_string()),
                ("--producers", PRODUCERS.to_string()),
                ("--rate", self.settings.rate.to_string()),
            ];
            self.producers.push(child::rail(args("demo-producer", told), log)?);
        }
        let (orders, producers) = (self.orders.len(), PRODUCERS);
        let pipeline = Stage::ALL.map(Stage::queue).join(" → ");
        self.progress
            .event(format_args!("{producers} producers send {orders} orders: {pipeline}, {WORKERS} workers at each"));
        Ok(())
    }

    pub(super) fn start_worker(&mut self, stage: Stage) -> anyhow::Result<()> {
        self.workers_started += 1;
        let name = format!("{stage}-worker-{}", self.workers_started);
        let ledger = self.dir.join(format!("{name}.jsonl"));
        self.tally.follow_worker(stage, &ledger);
        let log = child::log(&self.dir.join(format!("{name}.log")))?;
        let told = [
            ("--addresses", self.nodes()?.addresses().join(",")),
            ("--stage", stage.queue().to_owned()),
            ("--ledger", path_text(&ledger)?),
            ("--charges", path_text(&self.charges())?),
            ("--name", name.clone()),
        ];
        let process = child::rail(args("demo-worker", told), log)?;
        self.workers.push(Worker { stage, name, process });
        Ok(())
    }

    fn charges(&self) -> PathBuf {
        self.dir.join("charges.jsonl")
    }

    /// Reads the ledgers, and looks whether everybody is alive who should be.
    pub(super) async fn tick(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(READ_EVERY).await;
        self.tally.read()?;
        self.progress.show(self.tally.standing());
        self.nodes()?.check()?;
        for worker in &mut self.workers {
            if let Some(status) = worker.process.ended()? {
                bail!("expected {} to work, but it ended with {status}; see its log", worker.name);
            }
        }
        Ok(())
    }

    async fn wait_for_percent(&mut self, percent: usize) -> anyhow::Result<()> {
        let mut stuck = Stuck::new();
        while self.tally.standing().acknowledged * 100 < self.orders.len() * percent {
            self.tick().await?;
            stuck.check(self.tally.standing().acknowledged)?;
        }
        Ok(())
    }

    /// All faults have struck: the last orders may come as fast as the others.
    async fn hurry(&mut self) -> anyhow::Result<()> {
        for producer in &mut self.producers {
            let stdin = producer.stdin.as_mut().context("a producer without stdin")?;
            // One that has sent all its orders has ended.
            let _ = stdin.write_all(format!("{HURRY}\n").as_bytes()).await;
            let _ = stdin.flush().await;
        }
        Ok(())
    }

    async fn wait_for_producers(&mut self) -> anyhow::Result<()> {
        let mut stuck = Stuck::new();
        for number in 0..self.producers.len() {
            loop {
                self.tick().await?;
                stuck.check(self.tally.standing().acknowledged)?;
                let Some(producer) = self.producers.get_mut(number) else { break };
                let Some(status) = producer.ended()? else { continue };
                if status.code() == Some(i32::from(Exit::Usage.code())) {
                    self.invalid.push(format!("producer {number} could not cut its connections to effect"));
                } else if !status.success() {
                    bail!("expected producer {number} to send its orders, but it ended with {status}; see its log");
                }
                break;
            }
        }
        Ok(())
    }

    /// Until each order has passed all stages or is dead-lettered, or none comes on any more.
    async fn wait_for_the_end(&mut self) -> anyhow::Result<()> {
        let mut stuck = Stuck::new();
        while !self.tally.all_ended() {
            self.tick().await?;
            let standing = self.tally.standing();
            let moved = standing.finished.iter().sum::<usize>() + standing.dead_lettered;
            if stuck.check(moved).is_err() {
                self.progress.event(format_args!("no order has come on for {STUCK_AFTER:?}: giving up"));
                return Ok(());
            }
        }
        Ok(())
    }

    /// For one more lease: whoever still held an order would be given it again in that time.
    async fn watch_for_late_deliveries(&mut self) -> anyhow::Result<()> {
        self.progress.event(format_args!("all orders ended; watching one more lease, {LEASE:?}, for late deliveries"));
        let until = Instant::now() + LEASE + Duration::from_millis(500);
        while Instant::now() < until {
            self.tick().await?;
        }
        Ok(())
    }

    async fn stop_workers(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            drop(worker.process.stdin.take());
        }
        for worker in &mut self.workers {
            let ended = tokio::time::timeout(LEASE, worker.process.wait()).await;
            let status = ended.with_context(|| format!("{} did not end", worker.name))??;
            if !status.success() {
                bail!("expected {} to end in order, but it ended with {status}; see its log", worker.name);
            }
        }
        self.workers.clear();
        Ok(())
    }

    /// Until all nodes have applied the same last entry; a finding where they don't.
    async fn wait_for_level(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + LEVEL_WITHIN;
        loop {
            let nodes = self.nodes()?;
            let (running, told) = (nodes.running(), nodes.ask().await);
            let last = told.iter().map(|(_, figures)| figures.last_log).max();
            if told.len() == running && told.iter().all(|(_, figures)| Some(figures.applied) == last) {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.findings.push(format!("the nodes do not have the same entries {LEVEL_WITHIN:?} after the end"));
                return Ok(());
            }
            self.tick().await?;
        }
    }

    /// What the cluster says of each stage: counts, and the dead letters by looking.
    async fn look(&mut self) -> anyhow::Result<BTreeMap<Stage, Books>> {
        let client = self.client()?;
        let mut books = BTreeMap::new();
        for stage in Stage::ALL {
            let stats = client.admin().queue(stage.queue()).await?.stats;
            let dead_letters = dead_letters(&client, stage, self.orders.len() + 1).await?;
            let (depth, enqueued, acked) = (stats.depth(), stats.enqueued, stats.acked);
            books.insert(stage, Books { dead_letters, depth, enqueued, acked });
        }
        Ok(books)
    }

    fn report(&mut self, books: BTreeMap<Stage, Books>, started: Instant) -> anyhow::Result<Report> {
        let undelivered = self.faults.victims.iter().filter(|victim| {
            let again = self.tally.redelivered(&victim.message, victim.receive_count);
            !again
        });
        let undelivered: Vec<String> = undelivered
            .map(|victim| format!("{} was never delivered again after its worker was killed", victim.order))
            .collect();
        let evidence = Evidence {
            orders: std::mem::take(&mut self.orders),
            producers: std::mem::take(&mut self.tally.producer_lines),
            workers: std::mem::take(&mut self.tally.worker_lines),
            charges: ledger::read_all(&self.charges())?,
            books,
        };
        let mut audit = audit::audit(&evidence);
        audit.findings.append(&mut self.findings);
        audit.findings.extend(undelivered);
        let invalid = std::mem::take(&mut self.invalid);
        let struck = self.faults.struck(&evidence.producers, evidence.orders.len());
        Ok(Report::new(evidence.orders.len(), audit, struck, invalid, started.elapsed().as_secs()))
    }
}

/// The orders in a stage's dead-letter queue, with their messages.
async fn dead_letters(client: &Client, stage: Stage, limit: usize) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for state in MessageState::ALL {
        let looked =
            crate::commands::msg::looked_at(client, &stage.dead_letters(), |peek| peek.state(state), limit).await;
        let messages = match looked {
            // Without any dead letter there is no such queue.
            Err(Error::Refused(refusal)) if refusal.reason == Reason::QueueNotFound => Vec::new(),
            looked => looked?,
        };
        for info in messages {
            let order = info.message.tags.get("order").context("a dead letter without the tag `order`")?;
            found.push((order.clone(), info.message.id));
        }
    }
    Ok(found)
}

/// A subcommand with its flags.
fn args<const N: usize>(verb: &str, told: [(&str, String); N]) -> Vec<String> {
    let flags = told.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    std::iter::once(verb.to_owned()).chain(flags).collect()
}

fn path_text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("expected a path in UTF-8, but it is {}", path.display()))
}

/// Notices that nothing comes on any more.
struct Stuck {
    count: usize,
    since: Instant,
}

impl Stuck {
    fn new() -> Self {
        Self { count: 0, since: Instant::now() }
    }

    fn check(&mut self, count: usize) -> anyhow::Result<()> {
        if count != self.count {
            *self = Self { count, since: Instant::now() };
        }
        if self.since.elapsed() > STUCK_AFTER {
            bail!("expected orders to come on, but for {STUCK_AFTER:?} none did");
        }
        Ok(())
    }
}
