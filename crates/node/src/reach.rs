//! Whether this node can get anything done: a leader that no quorum answers, and a node that has heard of no leader for a
//! while, refuse its callers, who may find another node that can.
//!
//! A leader on the wrong side of a partition never hears that another one was elected, so without this its callers would
//! wait until their own deadlines, and long polls would wait beside messages that others get.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout_at};

use crate::attempt::until;
use crate::clock::Instant;
use crate::sessions::{Sessions, Slot};
use crate::shared::Shared;

/// What a node last had of those that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contact {
    /// Whether it leads.
    leads: bool,
    /// When a quorum acknowledged it as the leader last, or a leader was followed last.
    at: Option<Instant>,
}

/// Follows one node's contact.
#[derive(Debug)]
struct Reach {
    election_max: Duration,
    every: Duration,
    /// Since when there may have been none.
    since: Instant,
    led: bool,
    looked: Instant,
}

impl Reach {
    fn new(election_max: Duration, every: Duration, now: Instant) -> Self {
        Self { election_max, every, since: now, led: false, looked: now }
    }

    /// Whether the node is cut off.
    fn look(&mut self, now: Instant, contact: Contact) -> bool {
        // What comes first after a stop of the process is old by as much.
        let late = now.saturating_duration_since(self.looked).saturating_sub(2 * self.every);
        self.looked = now;
        self.since += late;
        if contact.leads && !self.led {
            self.since = now;
        }
        self.led = contact.leads;
        self.since = contact.at.map_or(self.since, |at| self.since.max(at)).min(now);
        // A leader's lease is over after one `election_max`, and another may lead after two; whoever waits for an election
        // waits for the second try, too.
        let patience = if contact.leads { 2 * self.election_max } else { 4 * self.election_max };
        now.saturating_duration_since(self.since) > patience
    }
}

impl Shared {
    /// Whether this node is cut off from those that it needs.
    pub(crate) fn is_cut_off(&self) -> bool {
        *self.cut_off.borrow()
    }

    /// Does something as long as this node is not cut off; `None` where it was before that was done.
    pub(crate) async fn in_reach<T>(&self, doing: impl Future<Output = T>) -> Option<T> {
        let mut cut_off = self.cut_off.clone();
        tokio::select! {
            biased;
            done = doing => Some(done),
            () = until(&mut cut_off, |cut_off| *cut_off) => None,
        }
    }

    /// A place in one of this node's own sessions; `None` where there is none by `deadline`, or the node is cut off.
    pub(crate) async fn reserve(&self, sessions: &Arc<Sessions>, deadline: Instant) -> Option<Slot> {
        self.in_reach(timeout_at(deadline, sessions.reserve())).await?.ok()
    }

    /// Whether this node leads, and its entries can be committed.
    pub(crate) fn commits(&self) -> bool {
        self.leads() && !self.is_cut_off()
    }

    fn contact(&self) -> Contact {
        let leads = self.standing.borrow().leading.is_some();
        let ago = |ago: Duration| self.config.clock.now().checked_sub(ago);
        let at = if leads { self.consensus.acknowledged_ago().and_then(ago) } else { self.peers.led_at() };
        Contact { leads, at }
    }
}

/// Looks again and again, and tells of a change, until the node stops.
pub(crate) async fn run(shared: Arc<Shared>, tell: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
    let every = Duration::from_millis(shared.config.heartbeat_ms);
    let clock = shared.config.clock.clone();
    let mut reach = Reach::new(Duration::from_millis(shared.config.election_max_ms), every, clock.now());
    loop {
        tokio::select! {
            () = sleep(every) => {}
            // The sender lives as long as the node.
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let contact = shared.contact();
        let cut_off = reach.look(clock.now(), contact);
        let changed = tell.send_if_modified(|known| std::mem::replace(known, cut_off) != cut_off);
        if changed {
            tracing::warn!(leads = contact.leads, cut_off, "whether this node reaches those that it needs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(800);
    const EVERY: Duration = Duration::from_millis(150);

    /// Looks every 150 ms for so many rounds; how many of them said that the node is cut off.
    fn rounds(reach: &mut Reach, now: &mut Instant, rounds: u32, contact: impl Fn(Instant) -> Contact) -> usize {
        let mut look = || {
            *now += EVERY;
            reach.look(*now, contact(*now))
        };
        (0..rounds).filter(|_| look()).count()
    }

    fn leader(at: Option<Instant>) -> Contact {
        Contact { leads: true, at }
    }

    fn follower(at: Option<Instant>) -> Contact {
        Contact { leads: false, at }
    }

    #[test]
    fn a_leader_that_no_quorum_answers_is_cut_off() {
        let start = Instant::now();
        let (mut now, mut reach) = (start, Reach::new(MAX, EVERY, start));
        assert_eq!(rounds(&mut reach, &mut now, 100, |now| leader(Some(now))), 0);
        let last = now;
        // 10 x 150 ms are within 1.6 s; 11 are not.
        assert_eq!(rounds(&mut reach, &mut now, 10, |_| leader(Some(last))), 0);
        assert_eq!(rounds(&mut reach, &mut now, 10, |_| leader(Some(last))), 10);
        assert_eq!(rounds(&mut reach, &mut now, 10, |now| leader(Some(now))), 0, "a quorum is back");
    }

    #[test]
    fn a_new_leader_has_time_for_its_first_answer() {
        let start = Instant::now();
        let (mut now, mut reach) = (start, Reach::new(MAX, EVERY, start));
        rounds(&mut reach, &mut now, 20, |_| follower(None));
        assert_eq!(rounds(&mut reach, &mut now, 11, |_| leader(None)), 0, "1.5 s after it came to lead");
        assert_eq!(rounds(&mut reach, &mut now, 1, |_| leader(None)), 1);
    }

    #[test]
    fn a_node_waits_for_two_elections_and_is_cut_off_then() {
        let start = Instant::now();
        let (mut now, mut reach) = (start, Reach::new(MAX, EVERY, start));
        assert_eq!(rounds(&mut reach, &mut now, 21, |_| follower(None)), 0, "3150 ms");
        assert_eq!(rounds(&mut reach, &mut now, 1, |_| follower(None)), 1, "3300 ms");
        assert_eq!(rounds(&mut reach, &mut now, 100, |now| follower(Some(now))), 0);
        let last = now;
        assert_eq!(rounds(&mut reach, &mut now, 100, |_| follower(Some(last))), 100 - 21);
    }

    #[test]
    fn a_stopped_process_is_not_cut_off_when_it_goes_on() {
        let start = Instant::now();
        let (mut now, mut reach) = (start, Reach::new(MAX, EVERY, start));
        rounds(&mut reach, &mut now, 10, |now| leader(Some(now)));
        let last = now;
        now += Duration::from_secs(60);
        assert!(!reach.look(now, leader(Some(last))), "nobody could answer meanwhile");
        assert!(rounds(&mut reach, &mut now, 11, |_| leader(Some(last))) > 0, "but nobody does now");
    }
}
