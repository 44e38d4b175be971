//! All clients of a load.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ticketrail_history::Recorder;
use ticketrail_history::format::{OnGroup, Remains, Settings};
use tokio::sync::watch;

use crate::at_work::{AtWork, Shift};
use crate::caller::{Caller, Dial, Shared};
use crate::meter::Meter;
use crate::plan::Plan;
use crate::poll::pause;
use crate::tally::Tally;
use crate::{looker, producer, worker};

/// How far a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Producers enqueue, workers do all that the plan's mix says.
    Load,
    /// Nobody enqueues any more, and workers ack all that comes.
    Drain,
    /// All clients end.
    Stop,
}

/// A client: to be run on a host or task of its own until it ends, which it does in [`Phase::Stop`].
pub struct Client {
    /// Its number, from 0; the first makes the queues before the others begin.
    pub number: u32,
    /// What it does.
    pub run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What a client is.
enum Role {
    /// Makes the queues and tells that they are made, then looks at them and tells whether they are empty.
    Looker {
        tell: watch::Sender<bool>,
        made: watch::Sender<bool>,
    },
    Producer(Shift),
    Worker(Shift),
}

/// A load: its clients, and how they are steered and watched.
pub struct Load {
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    /// Whether the last look found nothing in any queue.
    empty: watch::Receiver<bool>,
}

impl Load {
    /// The clients of `plan` against `nodes` nodes, which begin as soon as they are run. All that they choose follows from
    /// `seed`.
    pub fn new(plan: &Plan, nodes: usize, dial: Dial, recorder: Recorder, seed: u64) -> (Self, Vec<Client>) {
        let shared = Arc::new(Shared::new(recorder, dial, nodes));
        let (phase, phases) = watch::channel(Phase::Load);
        let (tell, empty) = watch::channel(false);
        let (made, ready) = watch::channel(false);
        let at_work = AtWork::default();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut clients = Vec::new();
        let roles = std::iter::once(Role::Looker { tell, made })
            .chain((0..plan.producers).map(|_| Role::Producer(at_work.begin())))
            .chain((0..plan.workers).map(|_| Role::Worker(at_work.begin())));
        for (number, role) in (0u32..).zip(roles) {
            let (shared, plan, phases, seed) = (shared.clone(), plan.clone(), phases.clone(), rng.u64(..));
            let (ready, at_work) = (ready.clone(), at_work.clone());
            let run: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                let mut caller = Caller::new(shared, number, plan.patience.clone(), plan.mix.free, seed);
                match role {
                    Role::Looker { tell, made } => {
                        make_queues(&mut caller, &plan, &phases).await;
                        made.send_replace(true);
                        looker::run(caller, plan, phases, at_work, tell).await;
                    }
                    Role::Producer(shift) => {
                        if begins(ready).await {
                            producer::run(caller, plan, phases, shift).await;
                        }
                    }
                    Role::Worker(shift) => {
                        if begins(ready).await {
                            let queue = queue_of(&plan, number);
                            worker::run(caller, plan, queue, phases, shift).await;
                        }
                    }
                }
            });
            clients.push(Client { number, run });
        }
        (Self { shared, phase, empty }, clients)
    }

    /// Says how far the load is.
    pub fn set(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Whether all queues were found empty since the load is drained.
    pub fn is_drained(&self) -> bool {
        *self.empty.borrow()
    }

    /// What was done so far.
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// For how long nobody could write.
    pub fn writes(&self) -> &Meter {
        &self.shared.writes
    }

    /// One more client, for calls beside the load.
    pub fn caller(&self, number: u32, plan: &Plan, seed: u64) -> Caller {
        Caller::new(self.shared.clone(), number, plan.patience.clone(), plan.mix.free, seed)
    }
}

/// Waits for the queues. False: whoever makes them is gone, and so is the load.
async fn begins(mut ready: watch::Receiver<bool>) -> bool {
    ready.wait_for(|made| *made).await.is_ok()
}

/// The queue that a worker serves: five in ten the first, two the next, one each of the dead-letter queues and that whose
/// messages are taken at most once.
fn queue_of(plan: &Plan, number: u32) -> String {
    let shares: BTreeMap<u32, usize> = [(5, 4), (6, 1), (7, 1), (8, 2), (9, 3)].into();
    let at = shares.get(&(number % 10)).copied().unwrap_or(0);
    plan.queues().swap_remove(at)
}

/// Makes the queues, however long that takes.
async fn make_queues(caller: &mut Caller, plan: &Plan, phase: &watch::Receiver<Phase>) {
    let ms = |time: Duration| u64::try_from(time.as_millis()).ok();
    let settings = Settings {
        lease: ms(plan.lease),
        max_attempts: Some(plan.max_attempts),
        base: ms(plan.backoff.0),
        cap: ms(plan.backoff.1),
        dedup: ms(plan.dedup_window),
        ..Settings::default()
    };
    let first = Settings { on_group: Some(OnGroup::Block), retain: Some(10_000), ..settings.clone() };
    let next = Settings { on_group: Some(OnGroup::Follow), on_expired: Some(Remains::DeadLetter), ..settings.clone() };
    for (queue, settings) in [(plan.queue.clone(), first), (plan.next(), next), (plan.once(), settings)] {
        while *phase.borrow() != Phase::Stop && caller.create(&queue, settings.clone()).await.is_err() {
            pause(plan.look).await;
        }
    }
}
