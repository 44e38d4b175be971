//! What `apply` told the leader: which leases run, which queues have something, when a timer is due. All of it is hints
//! that can be recomputed, so it is kept merged and not queued.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use ticketrail_core::{Effect, QueueId};
use tokio::sync::{Notify, watch};

use crate::clock::{Instant, monotonic};

/// A lease that runs, in order of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease {
    /// When it ends on the lease clock, in milliseconds.
    pub(crate) deadline_ms: u64,
    pub(crate) queue: QueueId,
    pub(crate) sequence: u64,
    pub(crate) granted_index: u64,
}

/// The leader's notice board. The applier writes to it; the scheduler and the waiters read.
#[derive(Debug)]
pub(crate) struct Signals {
    /// When this replica last applied entries, or took a state over; followers and leaders alike.
    reached: watch::Sender<Instant>,
    listening: AtomicBool,
    parked: AtomicUsize,
    board: Mutex<Board>,
    scheduler: Notify,
    waiters: Notify,
}

#[derive(Debug, Default)]
struct Board {
    leases: BTreeSet<Lease>,
    /// Queues with parked receives that should look again.
    woken: BTreeSet<QueueId>,
    /// The earliest timer told of since the scheduler looked, on cluster time.
    due_ms: Option<u64>,
    tick_again: bool,
    /// Until when the scheduler sleeps, as it saw it: a lease or timer that ends earlier wakes it.
    sleep: Sleep,
}

/// Until when the scheduler sleeps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sleep {
    /// On cluster time, in milliseconds.
    pub(crate) cluster_ms: u64,
    /// On the lease clock, in milliseconds.
    pub(crate) lease_ms: u64,
}

/// What the scheduler takes off the board.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) due_ms: Option<u64>,
    pub(crate) tick_again: bool,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            reached: watch::Sender::new(monotonic()),
            listening: AtomicBool::default(),
            parked: AtomicUsize::default(),
            board: Mutex::default(),
            scheduler: Notify::default(),
            waiters: Notify::default(),
        }
    }
}

impl Signals {
    /// The applied state has moved on. Told of on every replica, once for each lot of entries.
    pub(crate) fn reached(&self) {
        self.reached.send_replace(monotonic());
    }

    /// Tells each time that the applied state has moved on, and when it last did.
    pub(crate) fn progress(&self) -> watch::Receiver<Instant> {
        self.reached.subscribe()
    }

    /// Begins to listen with an empty board: a term of this node starts.
    pub(crate) fn begin(&self) {
        *self.board.lock() = Board::default();
        self.listening.store(true, Ordering::SeqCst);
    }

    /// Stops listening: this node does not lead.
    pub(crate) fn end(&self) {
        self.listening.store(false, Ordering::SeqCst);
        *self.board.lock() = Board::default();
    }

    /// An entry was applied.
    pub(crate) fn applied(&self, effects: Vec<Effect>) {
        if effects.is_empty() || !self.listening.load(Ordering::SeqCst) {
            return;
        }
        let anyone_parked = self.parked.load(Ordering::SeqCst) > 0;
        let mut board = self.board.lock();
        let mut scheduler = false;
        let mut waiters = false;
        for effect in effects {
            match effect {
                Effect::Wake(queue) => {
                    if anyone_parked {
                        board.woken.insert(queue);
                        waiters = true;
                    }
                }
                Effect::Leased { queue, sequence, deadline_ms, granted_index } => {
                    board.leases.insert(Lease { deadline_ms, queue, sequence, granted_index });
                    scheduler |= deadline_ms < board.sleep.lease_ms;
                }
                Effect::LeaseEnded { queue, sequence, deadline_ms } => board.remove(deadline_ms, queue, sequence),
                Effect::Due(at_ms) => {
                    board.due_ms = Some(board.due_ms.map_or(at_ms, |known| known.min(at_ms)));
                    scheduler |= at_ms < board.sleep.cluster_ms;
                }
                Effect::TickAgain => {
                    board.tick_again = true;
                    scheduler = true;
                }
            }
        }
        drop(board);
        if scheduler {
            self.scheduler.notify_one();
        }
        if waiters {
            self.waiters.notify_one();
        }
    }

    /// Adds leases read from the state.
    pub(crate) fn add_leases(&self, leases: impl IntoIterator<Item = Lease>) {
        self.board.lock().leases.extend(leases);
    }

    /// Takes up to `limit` leases that end at `now_ms` on the lease clock or before.
    pub(crate) fn take_leases(&self, now_ms: u64, limit: usize) -> Vec<Lease> {
        let mut board = self.board.lock();
        let mut taken = Vec::new();
        while taken.len() < limit {
            match board.leases.first() {
                Some(lease) if lease.deadline_ms <= now_ms => taken.extend(board.leases.pop_first()),
                Some(_) | None => break,
            }
        }
        taken
    }

    /// When the first lease ends on the lease clock.
    pub(crate) fn first_deadline_ms(&self) -> Option<u64> {
        self.board.lock().leases.first().map(|lease| lease.deadline_ms)
    }

    /// How many leases the leader watches.
    pub(crate) fn leases(&self) -> usize {
        self.board.lock().leases.len()
    }

    /// Takes what the scheduler was told since it last asked.
    pub(crate) fn take_told(&self) -> Told {
        let mut board = self.board.lock();
        Told { due_ms: board.due_ms.take(), tick_again: std::mem::take(&mut board.tick_again) }
    }

    /// Says until when the scheduler sleeps. False: something earlier has come up meanwhile, look again.
    pub(crate) fn sleep_until(&self, sleep: Sleep) -> bool {
        let mut board = self.board.lock();
        board.sleep = sleep;
        let lease = board.leases.first().is_some_and(|lease| lease.deadline_ms < sleep.lease_ms);
        !(board.tick_again || lease || board.due_ms.is_some_and(|due| due < sleep.cluster_ms))
    }

    /// Waits until the scheduler should look.
    pub(crate) async fn scheduler_called(&self) {
        self.scheduler.notified().await;
    }

    /// A receive is parked. To be called before the state is looked at, so that no wake is missed.
    pub(crate) fn parked(&self) {
        self.parked.fetch_add(1, Ordering::SeqCst);
    }

    /// A receive is no longer parked.
    pub(crate) fn unparked(&self) {
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits for queues that have something for parked receives.
    pub(crate) async fn woken(&self) -> BTreeSet<QueueId> {
        loop {
            let woken = std::mem::take(&mut self.board.lock().woken);
            if !woken.is_empty() {
                return woken;
            }
            self.waiters.notified().await;
        }
    }
}

impl Board {
    fn remove(&mut self, deadline_ms: u64, queue: QueueId, sequence: u64) {
        let lease = |granted_index| Lease { deadline_ms, queue, sequence, granted_index };
        let found = self.leases.range(lease(0)..=lease(u64::MAX)).next().copied();
        if let Some(found) = found {
            self.leases.remove(&found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leased(sequence: u64, deadline_ms: u64) -> Effect {
        Effect::Leased { queue: QueueId(1), sequence, deadline_ms, granted_index: 5 }
    }

    #[test]
    fn leases_come_out_in_order_of_their_ends_and_only_once_due() {
        let signals = Signals::default();
        signals.begin();
        signals.applied(vec![leased(1, 30), leased(2, 10), leased(3, 20)]);
        signals.applied(vec![Effect::LeaseEnded { queue: QueueId(1), sequence: 3, deadline_ms: 20 }]);
        assert_eq!(signals.first_deadline_ms(), Some(10));
        let taken: Vec<u64> = signals.take_leases(29, 10).iter().map(|lease| lease.sequence).collect();
        assert_eq!(taken, [2]);
        assert_eq!(signals.leases(), 1);
    }

    #[test]
    fn a_follower_keeps_nothing() {
        let signals = Signals::default();
        signals.applied(vec![leased(1, 30), Effect::TickAgain]);
        assert_eq!(signals.leases(), 0);
        signals.begin();
        signals.applied(vec![leased(1, 30), Effect::TickAgain, Effect::Due(7), Effect::Due(9)]);
        assert_eq!(signals.leases(), 1);
        assert_eq!(signals.take_told(), Told { due_ms: Some(7), tick_again: true });
        assert_eq!(signals.take_told(), Told::default());
        signals.end();
        assert_eq!(signals.leases(), 0);
    }

    #[test]
    fn what_ends_before_the_scheduler_wakes_makes_it_look_again() {
        let signals = Signals::default();
        signals.begin();
        assert!(signals.sleep_until(Sleep { cluster_ms: 100, lease_ms: 50 }));
        signals.applied(vec![leased(1, 60), Effect::Due(100)]);
        assert!(signals.sleep_until(Sleep { cluster_ms: 100, lease_ms: 60 }));
        signals.applied(vec![leased(2, 40)]);
        assert!(!signals.sleep_until(Sleep { cluster_ms: 100, lease_ms: 50 }));
    }
}
