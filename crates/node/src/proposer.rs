//! Turns what waits into log entries: what is there, at once, up to the size of an entry and a few entries at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use ticketrail_core::command::QueueRef;
use ticketrail_core::reply::{Answered, Handle, Invalid};
use ticketrail_core::{Command, Entry, Rejection, Reply, Request};
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::call::Unavailable;
use crate::clock::{Clock, Instant};
use crate::consensus::{Consensus, Outcome, Proposed, Role, Standing};
use crate::lead::Lead;
use crate::queue::{Pending, Queue, Resolution};
use crate::release::Releases;
use crate::waiters::Waiters;

/// Entries on their way at one time: enough to keep the disks busy, few enough that what waits gathers into batches, and that
/// what goes first does not stand behind megabytes that are on their way already.
const IN_FLIGHT: usize = 4;
/// How long it waits after Raft has refused an entry of a leader that has not been told of another one.
const PAUSE: Duration = Duration::from_millis(10);

/// What others may know of the proposer.
#[derive(Debug)]
pub(crate) struct Progress {
    in_flight: AtomicUsize,
    last_proposed: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { in_flight: AtomicUsize::new(0), last_proposed: Mutex::new(now) }
    }

    /// Entries on their way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// When the last entry was proposed.
    pub(crate) fn last_proposed(&self) -> Instant {
        *self.last_proposed.lock()
    }
}

/// The task that proposes.
pub(crate) struct Proposer {
    pub(crate) queue: Arc<Queue>,
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) lead: watch::Receiver<Option<Lead>>,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) releases: Arc<Releases>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) clock: Clock,
}

/// An entry on its way.
struct InFlight {
    requests: Vec<Pending>,
    term: u64,
    outcome: Outcome,
}

impl InFlight {
    async fn outcome(self) -> (Vec<Pending>, u64, Proposed) {
        (self.requests, self.term, self.outcome.0.await)
    }
}

impl Proposer {
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut in_flight = FuturesUnordered::new();
        let (mut elections, mut standings) = (true, true);
        let mut paused_until: Option<Instant> = None;
        loop {
            let lead = self.lead.borrow_and_update().clone();
            self.refuse_where_another_leads();
            if let (Some(lead), None) = (&lead, paused_until) {
                while in_flight.len() < IN_FLIGHT {
                    let requests = self.queue.take();
                    if requests.is_empty() {
                        break;
                    }
                    let entry = self.propose(lead, requests).await;
                    in_flight.push(entry.outcome());
                    self.progress.in_flight.store(in_flight.len(), Ordering::SeqCst);
                }
            }
            tokio::select! {
                biased;
                // The sender lives as long as the node.
                _ = stop.wait_for(|stop| *stop) => break,
                Some((requests, term, proposed)) = in_flight.next(), if !in_flight.is_empty() => {
                    if matches!(proposed, Proposed::NotLeader) {
                        paused_until = Some(self.clock.now() + PAUSE);
                    }
                    self.finish(requests, term, proposed);
                    self.progress.in_flight.store(in_flight.len(), Ordering::SeqCst);
                }
                () = sleep_until(paused_until.unwrap_or_else(|| self.clock.now())), if paused_until.is_some() => {
                    paused_until = None;
                }
                () = self.queue.filled(), if in_flight.len() < IN_FLIGHT => {}
                // Where openraft has stopped, nothing changes any more.
                changed = self.lead.changed(), if elections => elections = changed.is_ok(),
                changed = self.standing.changed(), if standings => standings = changed.is_ok(),
            }
        }
        drop(in_flight);
        for pending in self.queue.drain() {
            self.refuse(pending, Unavailable::Draining);
        }
    }

    async fn propose(&self, lead: &Lead, mut requests: Vec<Pending>) -> InFlight {
        let taken: Vec<Request> = requests.iter_mut().map(|pending| std::mem::take(&mut pending.request)).collect();
        let entry = Entry::new(lead.clock.now(), taken);
        let bytes = entry.to_bytes();
        for (pending, request) in requests.iter_mut().zip(entry.requests) {
            pending.request = request;
        }
        *self.progress.last_proposed.lock() = self.clock.now();
        let outcome = self.consensus.propose(lead.leader, bytes).await;
        InFlight { requests, term: lead.leader.term, outcome }
    }

    fn finish(&self, requests: Vec<Pending>, term: u64, proposed: Proposed) {
        let received = queues_of_receives(&requests);
        match proposed {
            Proposed::Applied { replies } => self.answer(requests, term, replies),
            Proposed::NotLeader => self.again(requests, false),
            Proposed::Unknown => self.again(requests, true),
            Proposed::Stopped => {
                for pending in requests {
                    self.refuse(pending, Unavailable::NoQuorum);
                }
            }
        }
        self.waiters.look_again(received);
    }

    fn answer(&self, requests: Vec<Pending>, term: u64, replies: Vec<Result<Reply, Rejection>>) {
        let alone = requests.len() == 1;
        let mut full = Vec::new();
        for (pending, result) in requests.into_iter().zip(replies) {
            match result {
                Err(Rejection::EntryFull(_)) if alone => self.tell(pending, Resolution::Rejected(too_large())),
                Err(Rejection::EntryFull(_)) => full.push(vec![pending]),
                Err(Rejection::SessionExpired(_)) if pending.doubted => {
                    // The first attempt may have taken effect before the session ended.
                    if let Some(slot) = &pending.slot {
                        slot.expired();
                    }
                    self.tell(pending, Resolution::Unknown);
                }
                Err(rejection) => {
                    if let (Rejection::SessionExpired(_) | Rejection::SessionWindow(_), Some(slot)) =
                        (&rejection, &pending.slot)
                    {
                        slot.expired();
                    }
                    self.tell(pending, Resolution::Rejected(rejection));
                }
                Ok(reply) => self.tell(pending, Resolution::Replied { reply, term }),
            }
        }
        if !full.is_empty() {
            self.queue.push_front(full);
        }
    }

    /// Proposes requests once more, `in_doubt` if they may be in the log already.
    fn again(&self, requests: Vec<Pending>, in_doubt: bool) {
        let mut units = Vec::new();
        for mut pending in requests {
            pending.repeat |= in_doubt;
            pending.doubted |= in_doubt;
            if pending.request.id.is_none() {
                let resolution =
                    if pending.repeat { Resolution::Unknown } else { Resolution::Unavailable(Unavailable::NoQuorum) };
                self.tell(pending, resolution);
                continue;
            }
            if !pending.repeat {
                pending.fate.put_back();
            }
            units.push(vec![pending]);
        }
        if !units.is_empty() {
            self.queue.push_front(units);
        }
    }

    /// Nothing is proposed here while another node leads.
    fn refuse_where_another_leads(&mut self) {
        let standing = *self.standing.borrow_and_update();
        let refusal = match (standing.role, standing.leader) {
            (Role::Stopped, _) => Unavailable::NoQuorum,
            (Role::Follower | Role::Learner, leader @ Some(_)) => Unavailable::NotLeader { leader },
            (Role::Follower | Role::Learner | Role::Candidate | Role::Leader, _) => return,
        };
        for pending in self.queue.drain() {
            self.refuse(pending, refusal.clone());
        }
        self.waiters.refuse_all(&refusal);
    }

    fn refuse(&self, pending: Pending, why: Unavailable) {
        let resolution = if pending.repeat { Resolution::Unknown } else { Resolution::Unavailable(why) };
        self.tell(pending, resolution);
    }

    /// Tells an outcome; what a receiver leased and does not take any more is given back.
    fn tell(&self, pending: Pending, resolution: Resolution) {
        let id = pending.request.id;
        if let Err(untold) = pending.resolve(resolution) {
            self.releases.release(id, handles_of(untold));
        }
    }
}

/// The leases that an outcome grants.
pub(crate) fn handles_of(resolution: Resolution) -> Vec<Handle> {
    match resolution {
        Resolution::Replied { reply, .. } => match reply.answered {
            Some(Answered::Received(received)) => received.handles,
            Some(
                Answered::Committed(_)
                | Answered::Expired(_)
                | Answered::Ticked(_)
                | Answered::Initialized(_)
                | Answered::SessionOpened(_)
                | Answered::QueueChanged(_)
                | Answered::QueueDeleted(_)
                | Answered::QueuePurged(_)
                | Answered::NamespaceChanged(_),
            )
            | None => Vec::new(),
        },
        Resolution::Rejected(_) | Resolution::Unavailable(_) | Resolution::Unknown => Vec::new(),
    }
}

fn queues_of_receives(requests: &[Pending]) -> BTreeSet<QueueRef> {
    let receives = requests.iter().flat_map(|pending| match &pending.request.command {
        Some(Command::Receive(receive)) => receive.queues.as_slice(),
        Some(_) | None => &[],
    });
    receives.cloned().collect()
}

fn too_large() -> Rejection {
    Rejection::Invalid(Invalid {
        field: "request".into(),
        reason: "expected a request that fits into one log entry, but it writes too much; split it".into(),
    })
}
