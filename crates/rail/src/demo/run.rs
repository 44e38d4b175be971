//! The demo's stage manager: starts everybody, breaks things, waits for the end, and hands the ledgers to the audit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ticketrail_client::{Client, Error, MessageState, QueueSettings, Reason};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::audit::{self, Evidence};
use super::dataset::{self, Order};
use super::ledger::{self, ProducerLine};
use super::producer;
use super::progress::Progress;
use super::report::{Faults, Report};
use super::tally::Tally;
use super::worker::{LEASE, PARK, Parked};
use crate::child::{self, Process, Server};
use crate::clock::monotonic_ns;
use crate::exit::Exit;

const QUEUE: &str = "orders";
const DEAD_LETTERS: &str = "orders.dlq";
const PRODUCERS: usize = 2;
const WORKERS: usize = 3;
/// How often the ledgers are read.
const READ_EVERY: Duration = Duration::from_millis(20);
/// A fault that has not taken effect after so long never will.
const FAULT_WITHIN: Duration = Duration::from_secs(30);
/// A worker that has not stopped between line and ack after so long is killed, and another one told to.
const PARK_WITHIN: Duration = Duration::from_secs(10);
/// Without any order coming on for so long, the run is over.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// A fault, and when it comes: at so many percent of the orders acknowledged.
const FAULTS: [(usize, Fault); 6] = [
    (12, Fault::Server),
    (25, Fault::Worker),
    (35, Fault::Server),
    (50, Fault::Server),
    (62, Fault::Worker),
    (75, Fault::Server),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The server is killed with SIGKILL and started again.
    Server,
    /// A worker is killed with SIGKILL between its ledger line and its ack.
    Worker,
}

/// A run of the demo.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
    orders: Vec<Order>,
    rate: u32,
    progress: Progress,
    tally: Tally,
    server: Option<Server>,
    producers: Vec<Process>,
    workers: Vec<Worker>,
    workers_started: usize,
    kills_ns: Vec<u64>,
    victims: Vec<Parked>,
    invalid: Vec<String>,
}

#[derive(Debug)]
struct Worker {
    name: String,
    process: Process,
}

impl Run {
    /// A run in `dir`. `rate` in orders a second; 0: as fast as it goes.
    pub(crate) fn new(dir: &Path, orders: usize, rate: u32) -> anyhow::Result<Self> {
        let orders = dataset::orders(orders)?;
        Ok(Self {
            dir: dir.to_owned(),
            rate,
            progress: Progress::new(orders.len()),
            tally: Tally::new(orders.len()),
            orders,
            server: None,
            producers: Vec::new(),
            workers: Vec::new(),
            workers_started: 0,
            kills_ns: Vec::new(),
            victims: Vec::new(),
            invalid: Vec::new(),
        })
    }

    /// Plays it all. Children are left to [`Run::end`] where it fails or is dropped.
    pub(crate) async fn play(&mut self) -> anyhow::Result<Report> {
        let started = Instant::now();
        self.start().await?;
        for (percent, fault) in FAULTS {
            self.wait_for_percent(percent).await?;
            match fault {
                Fault::Server => self.kill_server().await?,
                Fault::Worker => self.kill_worker().await?,
            }
        }
        self.wait_for_producers().await?;
        self.wait_for_the_end().await?;
        self.watch_for_late_deliveries().await?;
        self.stop_workers().await?;
        let (dead_letters, mut findings) = self.look().await?;
        findings.extend(self.stop_server().await);
        self.tally.read()?;
        self.progress.show(self.tally.standing());
        self.progress.finish();
        self.report(dead_letters, findings, started)
    }

    /// Kills whoever is left.
    pub(crate) async fn end(&mut self) {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.process);
        for process in self.producers.iter_mut().chain(workers) {
            // Whatever cannot be killed has ended.
            let _ = process.kill_9().await;
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill_9().await;
        }
    }

    fn server(&mut self) -> anyhow::Result<&mut Server> {
        self.server.as_mut().context("the server is not started yet")
    }

    fn client(&mut self) -> anyhow::Result<Client> {
        let address = self.server()?.address();
        Ok(Client::builder().address(address).connect()?)
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        self.server = Some(Server::start(&self.dir).await?);
        let address = self.server()?.address();
        self.progress.event(format_args!("a server serves at {address}"));
        let settings = QueueSettings { lease: Some(LEASE), ..QueueSettings::default() };
        self.client()?.admin().create_queue(QUEUE, settings).await.context("making the queue")?;
        for _ in 0..WORKERS {
            self.start_worker()?;
        }
        for number in 0..PRODUCERS {
            let ledger = self.dir.join(format!("producer-{number}.jsonl"));
            self.tally.follow_producer(&ledger);
            let log = child::log(&self.dir.join(format!("producer-{number}.log")))?;
            let numbers = [self.orders.len(), number, PRODUCERS].map(|number| number.to_string());
            let [orders, number, producers] = &numbers;
            let (ledger, rate) = (path_text(&ledger)?, self.rate.to_string());
            let args = [
                "demo-producer",
                "--address",
                &address,
                "--queue",
                QUEUE,
                "--ledger",
                &ledger,
                "--orders",
                orders,
                "--number",
                number,
                "--producers",
                producers,
                "--rate",
                &rate,
            ];
            self.producers.push(child::rail(args, log)?);
        }
        let (orders, producers) = (self.orders.len(), PRODUCERS);
        self.progress.event(format_args!("{producers} producers send {orders} orders to {WORKERS} workers"));
        Ok(())
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        self.workers_started += 1;
        let name = format!("worker-{}", self.workers_started);
        let ledger = self.dir.join(format!("{name}.jsonl"));
        self.tally.follow_worker(&ledger);
        let log = child::log(&self.dir.join(format!("{name}.log")))?;
        let (ledger, charges) = (path_text(&ledger)?, path_text(&self.charges())?);
        let address = self.server()?.address();
        let args = [
            "demo-worker",
            "--address",
            &address,
            "--queue",
            QUEUE,
            "--ledger",
            &ledger,
            "--charges",
            &charges,
            "--name",
            &name,
        ];
        let process = child::rail(args, log)?;
        self.workers.push(Worker { name, process });
        Ok(())
    }

    fn charges(&self) -> PathBuf {
        self.dir.join("charges.jsonl")
    }

    /// Reads the ledgers, and looks whether everybody is alive who should be.
    async fn tick(&mut self) -> anyhow::Result<()> {
        tokio::time::sleep(READ_EVERY).await;
        self.tally.read()?;
        self.progress.show(self.tally.standing());
        let server = self.server()?;
        if let Some(status) = server.ended()? {
            bail!("expected the server to run, but it ended with {status}; see {}", server.log_path().display());
        }
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

    /// Kills the server with SIGKILL until a kill has taken effect: producers were cut short by it and went on after it.
    async fn kill_server(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FAULT_WITHIN;
        loop {
            self.tally.read()?;
            if self.tally.all_acknowledged() || Instant::now() > deadline {
                self.invalid.push("a kill of the server found no producer at work".to_owned());
                return Ok(());
            }
            let killed_ns = monotonic_ns();
            let killed = Instant::now();
            if !self.server()?.kill_9().await? {
                bail!("expected the server to be alive when it was killed, but it had ended by itself");
            }
            self.server()?.restart().await?;
            let down = killed.elapsed();
            self.progress.event(format_args!("server killed with -9; it serves again after {} ms", down.as_millis()));
            while !self.tally.acknowledged_after(killed_ns) && Instant::now() < deadline {
                self.tick().await?;
            }
            if self.tally.acknowledged_after(killed_ns) {
                self.kills_ns.push(killed_ns);
                return Ok(());
            }
        }
    }

    /// Has a worker stop between its ledger line and its ack, kills it there, and starts another in its place; with the
    /// next worker where one does not stop.
    async fn kill_worker(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + FAULT_WITHIN;
        loop {
            let mut worker = self.workers.remove(0);
            let parked = self.park(&mut worker.process).await;
            let killed = worker.process.kill_9().await?;
            self.start_worker()?;
            let name = &worker.name;
            match parked? {
                Some(victim) if killed => {
                    let order = &victim.order;
                    self.progress
                        .event(format_args!("{name} killed with -9 after it charged {order} and before its ack"));
                    self.victims.push(victim);
                    return Ok(());
                }
                Some(_) | None => {
                    self.progress
                        .event(format_args!("{name} did not stop between its ledger line and its ack: once more"));
                }
            }
            if Instant::now() > deadline {
                self.invalid.push("no worker could be killed between its ledger line and its ack".to_owned());
                return Ok(());
            }
        }
    }

    /// Tells a worker to stop between line and ack, and waits until it says so; `None`: it did not in time.
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

    /// Until each order is finished or dead-lettered, or none comes on any more.
    async fn wait_for_the_end(&mut self) -> anyhow::Result<()> {
        let mut stuck = Stuck::new();
        while !self.tally.all_ended() {
            self.tick().await?;
            let standing = self.tally.standing();
            if stuck.check(standing.finished + standing.dead_lettered).is_err() {
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

    /// The orders in the dead-letter queue, by looking; and whatever the queue still holds.
    async fn look(&mut self) -> anyhow::Result<(Vec<(String, String)>, Vec<String>)> {
        let client = self.client()?;
        let depth = client.admin().queue(QUEUE).await?.stats.depth();
        let findings = if depth == 0 { Vec::new() } else { vec![format!("the queue still holds {depth} messages")] };
        let mut found = Vec::new();
        for state in MessageState::ALL {
            let limit = self.orders.len() + 1;
            let looked = crate::commands::msg::looked_at(&client, DEAD_LETTERS, state, limit).await;
            let messages = match looked {
                // Without any dead letter there is no such queue.
                Err(Error::Refused(refusal)) if refusal.reason == Reason::QueueNotFound => Vec::new(),
                looked => looked?,
            };
            for info in messages {
                let order: Order = serde_json::from_slice(&info.message.body).context("the body of a dead letter")?;
                found.push((order.order, info.message.id));
            }
        }
        Ok((found, findings))
    }

    async fn stop_server(&mut self) -> Option<String> {
        let server = self.server.as_mut()?;
        match server.stop().await {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("the server did not stop in order: {status}")),
            Err(error) => Some(format!("the server did not stop in order: {error:#}")),
        }
    }

    fn report(
        &mut self,
        dead_letters: Vec<(String, String)>,
        findings: Vec<String>,
        started: Instant,
    ) -> anyhow::Result<Report> {
        let cuts = self.tally.producer_lines.iter().filter(|line| match line {
            ProducerLine::Acknowledged { cut, replayed, .. } => *cut && *replayed,
            ProducerLine::Failed { .. } => false,
        });
        let faults = Faults {
            server_kills: self.kills_ns.len(),
            worker_kills: self.victims.len(),
            connections_cut: cuts.count(),
            connections_to_cut: producer::cuts(self.orders.len()),
        };
        let undelivered = self.victims.iter().filter(|victim| {
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
            dead_letters,
            kills_ns: std::mem::take(&mut self.kills_ns),
        };
        let mut audit = audit::audit(&evidence);
        audit.findings.extend(findings);
        audit.findings.extend(undelivered);
        let invalid = std::mem::take(&mut self.invalid);
        Ok(Report::new(evidence.orders.len(), audit, faults, invalid, started.elapsed().as_secs()))
    }
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
