//! Drill 7: workers are stopped with SIGSTOP while they hold messages, for longer than their leases, and let go on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use ticketrail_client::Client;
use ticketrail_cluster_tests::faults;
use ticketrail_cluster_tests::server::DEADLINE;

use crate::poll::{pass, poll};
use crate::scene::Scene;
use crate::worker::{Job, Step};
use crate::world::{USUAL, process_state};

use super::Drill;

pub(super) const DRILL: Drill = Drill {
    number: 7,
    name: "stopped-worker",
    broken: "Workers are stopped with SIGSTOP while they hold a message, for 1.2 to 5 times their lease, then let go on.",
    holds: "All their late calls are answered LEASE_LOST and change nothing; others get their messages, which are finished once.",
    tools: &[],
    setup: USUAL,
    run,
};

const QUEUE: &str = "slow";
const LEASE: Duration = Duration::from_secs(1);
const WORK: Duration = Duration::from_millis(300);
const WORKERS: usize = 4;

fn run(scene: &mut Scene) -> anyhow::Result<()> {
    scene.warm()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = {
        let _entered = runtime.enter();
        Client::builder().addresses(scene.world.cluster.addresses()).connect()?
    };
    let job =
        Job { addresses: scene.world.cluster.addresses().join(","), queue: QUEUE.into(), lease: LEASE, work: WORK };
    let mut workers = (0..WORKERS).map(|number| Process::start(&job, number)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sent = BTreeSet::new();
    let (begun, mut round) = (Instant::now(), 0);
    while scene.goes_on(begun, round, 3) {
        // The first one is stopped, the others go on.
        let Some(victim) = workers.get_mut(usize::try_from(round).unwrap_or(0) % WORKERS) else { bail!("no worker") };
        round += 1;
        let more = runtime.block_on(client.queue(QUEUE).send_batch((0..16).map(|n| format!("{round}-{n}"))))?;
        for result in more.results {
            sent.insert(result?.message_id);
        }
        stop_for_longer_than_a_lease(scene, victim)?;
    }
    // Whoever is left finishes the rest.
    let drained = poll(DEADLINE, || {
        let depth = runtime.block_on(client.admin().queue(QUEUE))?.stats.depth();
        Ok((depth == 0).then_some(()))
    });
    let mut acked: BTreeMap<String, u32> = BTreeMap::new();
    for worker in &mut workers {
        worker.read()?;
        for id in &worker.acked {
            *acked.entry(id.clone()).or_default() += 1;
        }
    }
    drained
        .with_context(|| format!("wait until {} messages are finished, of which {} are", sent.len(), acked.len()))?;
    drop(workers);
    let wrong: Vec<_> = acked.iter().filter(|(id, times)| **times != 1 || !sent.contains(*id)).collect();
    ensure!(wrong.is_empty(), "expected each to be finished once, but these were finished so often: {wrong:?}");
    // An ack whose answer the end of the drill cut off is none; all others were told.
    let untold: Vec<_> = sent.iter().filter(|id| !acked.contains_key(*id)).collect();
    ensure!(untold.is_empty(), "expected each to be finished by a worker, but nobody was told so of {untold:?}");
    scene.note(format!("{} finished once", acked.len()));
    scene.nemesis.demand("workers stopped", 3)?;
    scene.nemesis.demand("late calls refused", 6)?;
    scene.finish()
}

/// Stops a worker while it works, until another one has its message; all that it asks afterwards must be refused.
fn stop_for_longer_than_a_lease(scene: &mut Scene, victim: &mut Process) -> anyhow::Result<()> {
    let name = victim.name.clone();
    let (held, count) = poll(DEADLINE, || victim.hold_one()).with_context(|| format!("have {name} hold a message"))?;
    let pid = victim.child.id();
    let state = process_state(pid)?;
    ensure!(state == 'T', "expected {name} to be stopped, but the kernel has it as {state}");
    let times = 12 + scene.dice.below(if scene.options.short { 8 } else { 39 });
    let long = LEASE * u32::try_from(times).unwrap_or(12) / 10;
    scene.nemesis.begin("workers stopped", &name, &format!("SIGSTOP for {} ms", long.as_millis()));
    pass(long);
    scene.nemesis.effect("workers stopped", &name, &format!("state T, holding {held}, delivery {count}"), 1);
    faults::signal(&victim.child, Signal::SIGCONT)?;
    scene.nemesis.end("workers stopped", &name, "SIGCONT");
    poll(DEADLINE, || {
        victim.read()?;
        Ok(victim.lost.get(&held).filter(|calls| **calls >= 2).map(|_| ()))
    })
    .with_context(|| {
        format!("expected both late calls of {name} on {held} to be refused; it told {:?}", victim.told)
    })?;
    ensure!(!victim.acked.contains(&held), "expected the late ack of {name} on {held} to be refused, but it was not");
    scene.nemesis.effect("late calls refused", &name, "extend and ack answered LEASE_LOST", 2);
    scene
        .say(format!("{name} stopped for {} ms with {held}: its extension and its ack were refused", long.as_millis()));
    Ok(())
}

/// A worker, and what it told so far. Killed when dropped.
struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    told: Vec<Step>,
    acked: Vec<String>,
    /// Refused calls, by message.
    lost: BTreeMap<String, u32>,
}

impl Process {
    fn start(job: &Job, number: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(job.words())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a worker")?;
        let out = child.stdout.take().context("expected the output of a worker")?;
        let (sender, lines) = sync_channel(1_024);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let (told, acked) = (Vec::new(), Vec::new());
        Ok(Self { name: format!("worker {number}"), child, lines, told, acked, lost: BTreeMap::new() })
    }

    /// Reads what it has told meanwhile.
    fn read(&mut self) -> anyhow::Result<()> {
        while let Ok(line) = self.lines.try_recv() {
            let step = Step::parse(&line);
            match &step {
                Step::Acked(id) => self.acked.push(id.clone()),
                Step::ExtendLost(id) | Step::AckLost(id) => *self.lost.entry(id.clone()).or_default() += 1,
                Step::Odd(text) => bail!("expected no error, but {} says: {text}", self.name),
                Step::Took { .. } | Step::Extended(_) => {}
            }
            self.told.push(step);
        }
        Ok(())
    }

    /// Stops it if it works on a message just now, and says which. Whether it does is only sure once it is stopped.
    fn hold_one(&mut self) -> anyhow::Result<Option<(String, u32)>> {
        self.read()?;
        let Some(Step::Took { .. }) = self.told.last() else { return Ok(None) };
        faults::signal(&self.child, Signal::SIGSTOP)?;
        let pid = self.child.id();
        poll(DEADLINE, || Ok((process_state(pid)? == 'T').then_some(())))?;
        self.read()?;
        if let Some(Step::Took { id, count }) = self.told.last() {
            return Ok(Some((id.clone(), *count)));
        }
        faults::signal(&self.child, Signal::SIGCONT)?;
        Ok(None)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
