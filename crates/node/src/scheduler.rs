//! Sleeps until something is due, and proposes what makes it happen: `Tick` for timers, `Expire` for leases that ran
//! out. Each round belongs to one term.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use ticketrail_core::command::{Expire, ExpiredLease, Tick};
use ticketrail_core::query::{Clock as StateClock, LeaseInfo};
use ticketrail_core::reply::Answered;
use ticketrail_core::{Command, Fault, QueueId, limits};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::Instant;
use crate::lead::Lead;
use crate::queue::{Pending, Resolution};
use crate::shared::Shared;
use crate::signals::{Lease, Sleep};

/// Ticks, and expiries, on their way at one time.
const IN_FLIGHT: usize = 2;
/// The least time between two ticks where the first left nothing due.
const TICK_EVERY: Duration = Duration::from_millis(50);
/// A leader that proposed nothing for this long ticks, so that the clocks move on.
const IDLE: Duration = Duration::from_secs(5);
/// The longest sleep: cluster time may run a little faster than the clock slept by.
const NAP: Duration = Duration::from_millis(1_000);

/// When the scheduler looked last, for the status.
#[derive(Debug, Default)]
pub(crate) struct Passes(Mutex<Option<Instant>>);

impl Passes {
    /// When it was.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// Runs until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = follow(&shared) => {}
        // The sender lives as long as the node.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn follow(shared: &Shared) {
    let mut lead = shared.lead.clone();
    loop {
        let now = lead.borrow_and_update().clone();
        match now {
            None => {
                if lead.changed().await.is_err() {
                    return;
                }
            }
            Some(term) => {
                tokio::select! {
                    result = Term::new(shared, term).run() => {
                        if let Err(fault) = result {
                            shared.broken.report(fault.to_string());
                            return;
                        }
                    }
                    changed = lead.changed() => {
                        if changed.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// What came back.
enum Done {
    Tick { left: bool },
    Expire { leases: Vec<Lease>, ended: Option<u32> },
}

/// One term's scheduler.
struct Term<'s> {
    shared: &'s Shared,
    lead: Lead,
    /// When the first timer is due, on cluster time.
    due_ms: Option<u64>,
    ticks: usize,
    expiries: usize,
    tick_again: bool,
    /// No tick before.
    quiet_until: Instant,
    in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl<'s> Term<'s> {
    fn new(shared: &'s Shared, lead: Lead) -> Self {
        let quiet_until = shared.config.clock.now();
        Self {
            shared,
            lead,
            due_ms: None,
            ticks: 0,
            expiries: 0,
            tick_again: false,
            quiet_until,
            in_flight: FuturesUnordered::new(),
        }
    }

    async fn run(mut self) -> Result<(), Fault> {
        load_leases(self.shared).await?;
        self.due_ms = self.shared.state.next_due()?.map(|due| due.0);
        loop {
            let nap = self.pass()?;
            *self.shared.passes.0.lock() = Some(self.shared.config.clock.now());
            let Some(nap) = nap else { continue };
            tokio::select! {
                Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => self.settle(done)?,
                () = self.shared.signals.scheduler_called() => {}
                () = sleep(nap) => {}
            }
        }
    }

    /// Proposes what is due. Says how long to sleep; `None`: look again at once.
    fn pass(&mut self) -> Result<Option<Duration>, Fault> {
        let shared = self.shared;
        let told = shared.signals.take_told();
        self.tick_again |= told.tick_again;
        self.due_ms = self.due_ms.into_iter().chain(told.due_ms).min();
        let state = shared.state.clock()?;
        let now_ms = self.lead.clock.now().0;
        let lease_ms = lease_clock(&state, now_ms, self.lead.leader.term);
        while self.expiries < IN_FLIGHT {
            let leases = shared.signals.take_leases(lease_ms, limits::EXPIRE_LEASES);
            if leases.is_empty() {
                break;
            }
            self.expire(leases);
        }
        let now = shared.config.clock.now();
        let due = self.due_ms.is_some_and(|due| due <= now_ms);
        let idle = now.saturating_duration_since(shared.progress.last_proposed());
        let wanted = self.tick_again || (due && now >= self.quiet_until) || idle >= IDLE;
        if wanted && self.ticks < IN_FLIGHT && (self.ticks == 0 || self.tick_again) {
            self.tick(now);
        }
        // What is due and could not be proposed now waits for one of those in flight, or for the quiet to be over.
        let busy_expiring = self.expiries >= IN_FLIGHT;
        let first = shared.signals.first_deadline_ms().filter(|_| !busy_expiring);
        let due = self.due_ms.filter(|_| self.ticks == 0);
        let asleep = Sleep { cluster_ms: due.unwrap_or(u64::MAX), lease_ms: first.unwrap_or(u64::MAX) };
        if !shared.signals.sleep_until(asleep) && self.ticks == 0 && !busy_expiring {
            return Ok(None);
        }
        let until_lease = first.map(|first| Duration::from_millis(first.saturating_sub(lease_ms)));
        let until_due = due.map(|due| {
            Duration::from_millis(due.saturating_sub(now_ms)).max(self.quiet_until.saturating_duration_since(now))
        });
        let until_idle = (self.ticks == 0).then(|| IDLE.saturating_sub(idle));
        let nap = [until_lease, until_due, until_idle].into_iter().flatten().fold(NAP, Duration::min);
        Ok(Some(nap.max(Duration::from_millis(1))))
    }

    fn tick(&mut self, now: Instant) {
        self.tick_again = false;
        self.ticks += 1;
        self.quiet_until = now + TICK_EVERY;
        let outcome = self.propose(Command::Tick(Tick {}));
        self.in_flight.push(Box::pin(async move {
            let left = match outcome.await {
                Resolution::Replied { .. } | Resolution::Rejected(_) => false,
                Resolution::Unavailable(_) | Resolution::Unknown => true,
            };
            Done::Tick { left }
        }));
    }

    fn expire(&mut self, leases: Vec<Lease>) {
        self.expiries += 1;
        let expired = leases.iter().map(|lease| ExpiredLease {
            queue: lease.queue.0,
            sequence: lease.sequence,
            granted_index: lease.granted_index,
        });
        let outcome = self.propose(Command::Expire(Expire { leases: expired.collect() }));
        self.in_flight.push(Box::pin(async move {
            let ended = match outcome.await {
                Resolution::Replied { reply, .. } => match reply.answered {
                    Some(Answered::Expired(expired)) => Some(expired.count),
                    Some(_) | None => None,
                },
                Resolution::Rejected(_) | Resolution::Unavailable(_) | Resolution::Unknown => None,
            };
            Done::Expire { leases, ended }
        }));
    }

    fn propose(&self, command: Command) -> BoxFuture<'static, Resolution> {
        let (pending, waiting) = Pending::own(command);
        self.shared.queue.push_own(vec![pending]);
        Box::pin(async move { waiting.outcome.await.unwrap_or(Resolution::Unknown) })
    }

    fn settle(&mut self, done: Done) -> Result<(), Fault> {
        match done {
            Done::Tick { left } => {
                self.ticks -= 1;
                self.tick_again |= left;
                self.due_ms = self.shared.state.next_due()?.map(|due| due.0);
            }
            Done::Expire { leases, ended } => {
                self.expiries -= 1;
                // Most often all have ended. The others were settled or extended meanwhile, or `apply` has told of them
                // again; the state knows.
                if ended.is_none_or(|ended| usize::try_from(ended).unwrap_or(usize::MAX) < leases.len()) {
                    for lease in leases {
                        let before = lease.sequence.checked_sub(1).map(|before| (lease.queue, before));
                        let found = self.shared.state.leases(before, 1)?;
                        let live = found.iter().map(lease_of).filter(|found| *found == lease);
                        self.shared.signals.add_leases(live);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads all leases into the heap. `apply` goes on meanwhile and tells what changes.
async fn load_leases(shared: &Shared) -> Result<(), Fault> {
    let mut after: Option<(QueueId, u64)> = None;
    loop {
        let page = shared.state.leases(after, limits::PAGE)?;
        after = page.last().map(|lease| (lease.queue, lease.sequence));
        shared.signals.add_leases(page.iter().map(lease_of));
        if page.len() < limits::PAGE {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}

fn lease_of(info: &LeaseInfo) -> Lease {
    Lease {
        deadline_ms: info.deadline.0,
        queue: info.queue,
        sequence: info.sequence,
        granted_index: info.granted_index,
    }
}

/// Where an entry proposed now would put the lease clock, at least.
fn lease_clock(state: &StateClock, now_ms: u64, term: u64) -> u64 {
    if state.term != term {
        return state.lease.0;
    }
    state.lease.0.saturating_add(now_ms.saturating_sub(state.cluster.0).min(limits::CLOCK_STEP_MS))
}

#[cfg(test)]
mod tests {
    use ticketrail_core::{LeaseTime, Timestamp};

    use super::*;

    #[test]
    fn the_lease_clock_is_reckoned_as_apply_would_move_it() {
        let state = StateClock { cluster: Timestamp(1_000), lease: LeaseTime(50), term: 3, ..StateClock::default() };
        assert_eq!(lease_clock(&state, 1_700, 3), 750);
        assert_eq!(lease_clock(&state, 900, 3), 50);
        assert_eq!(lease_clock(&state, 3_600_000, 3), 10_050);
        assert_eq!(lease_clock(&state, 1_700, 4), 50, "the first entry of a term adds nothing");
    }
}
