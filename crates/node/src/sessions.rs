//! The node's own sessions, for calls that come without a request id: so a call that is proposed again after a change of
//! leader has no second effect.
//!
//! A call reserves a slot before it waits for anything, and gets its number when it is proposed. So a parked receive
//! holds no number, and the numbers below which all outcomes are seen move on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ticketrail_core::RequestId;
use tokio::sync::{Notify, watch};

use crate::clock::Instant;

/// Numbers of one session that may be reserved or not yet seen; half of what a session stores, so that outcomes which
/// share an entry with an unseen one fit as well.
const WINDOW: u64 = 512;
/// Sessions of one node: 512,000 calls at a time.
const SESSIONS: usize = 1_000;
/// An idle session is renewed this often, well before it ends.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(180);

/// The sessions of one node.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: Mutex<Pool>,
    /// Somebody wants a session.
    wanted: Notify,
    /// Counts the sessions that have come.
    opened: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pool {
    sessions: Vec<Session>,
    /// Where the search for a free slot starts.
    next: usize,
}

#[derive(Debug)]
struct Session {
    id: u64,
    /// The next number to give out.
    next: u64,
    /// All outcomes below this number are seen.
    floor: u64,
    /// Numbers from `floor` on whose outcomes are seen.
    seen: BTreeSet<u64>,
    reserved: u64,
    used_at: Instant,
}

impl Session {
    fn has_room(&self) -> bool {
        self.next - self.floor + self.reserved < WINDOW
    }

    fn is_idle(&self) -> bool {
        self.next == self.floor && self.reserved == 0
    }
}

/// One call's place in a session. Dropping it says that nobody waits for the outcome any more.
#[derive(Debug)]
pub(crate) struct Slot {
    sessions: Arc<Sessions>,
    session: u64,
    seq: Option<u64>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { pool: Mutex::default(), wanted: Notify::new(), opened: watch::Sender::new(0) }
    }
}

impl Sessions {
    /// A slot, as soon as there is one.
    pub(crate) async fn reserve(self: &Arc<Self>) -> Slot {
        let mut opened = self.opened.subscribe();
        loop {
            opened.mark_unchanged();
            if let Some(slot) = self.try_reserve() {
                return slot;
            }
            self.wanted.notify_one();
            // The sender is `self`, which lives.
            let _ = opened.changed().await;
        }
    }

    fn try_reserve(self: &Arc<Self>) -> Option<Slot> {
        let mut pool = self.pool.lock();
        let count = pool.sessions.len();
        for step in 0..count {
            let at = (pool.next + step) % count;
            if pool.sessions[at].has_room() {
                pool.next = at;
                let session = &mut pool.sessions[at];
                session.reserved += 1;
                return Some(Slot { sessions: self.clone(), session: session.id, seq: None });
            }
        }
        None
    }

    /// Waits until a call finds no room in any session.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether another session would help: there is no room, and there may be more.
    pub(crate) fn is_short(&self) -> bool {
        let pool = self.pool.lock();
        pool.sessions.len() < SESSIONS && !pool.sessions.iter().any(Session::has_room)
    }

    /// A session was opened.
    pub(crate) fn add(&self, id: u64, now: Instant) {
        let session = Session { id, next: 1, floor: 1, seen: BTreeSet::new(), reserved: 0, used_at: now };
        self.pool.lock().sessions.push(session);
        self.opened.send_modify(|count| *count += 1);
    }

    /// A session has ended. Its slots lead nowhere.
    pub(crate) fn remove(&self, id: u64) {
        self.pool.lock().sessions.retain(|session| session.id != id);
    }

    /// Sessions to renew: unused for a while. All but one of those that nobody needs are let go instead.
    pub(crate) fn stale(&self, now: Instant) -> Vec<u64> {
        let mut pool = self.pool.lock();
        let old = |session: &Session| now.saturating_duration_since(session.used_at) >= RENEW_EVERY;
        let mut kept = 0;
        pool.sessions.retain(|session| {
            let keep = kept == 0 || !(old(session) && session.is_idle());
            kept += usize::from(keep);
            keep
        });
        pool.sessions.iter().filter(|session| old(session)).map(|session| session.id).collect()
    }

    /// A session was renewed.
    pub(crate) fn renewed(&self, id: u64, now: Instant) {
        if let Some(session) = self.pool.lock().find(id) {
            session.used_at = now;
        }
    }
}

impl Pool {
    fn find(&mut self, id: u64) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }
}

impl Slot {
    /// Gives the call its number, to be proposed now.
    pub(crate) fn assign(&mut self, now: Instant) -> RequestId {
        let mut pool = self.sessions.pool.lock();
        let Some(session) = pool.find(self.session) else {
            // The session has ended: `apply` says so, and the call gets another slot.
            return RequestId { session: self.session, seq: 1, acked_below: 1, fingerprint: 0 };
        };
        let seq = session.next;
        session.next += 1;
        session.reserved = session.reserved.saturating_sub(1);
        session.used_at = now;
        // No fingerprint: the node gives no number to two commands.
        let id = RequestId { session: self.session, seq, acked_below: session.floor, fingerprint: 0 };
        drop(pool);
        self.seq = Some(seq);
        id
    }

    /// The session has ended, as `apply` says.
    pub(crate) fn expired(&self) {
        self.sessions.remove(self.session);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut pool = self.sessions.pool.lock();
        let Some(session) = pool.find(self.session) else { return };
        let was_full = !session.has_room();
        match self.seq {
            None => session.reserved = session.reserved.saturating_sub(1),
            Some(seq) => {
                session.seen.insert(seq);
                while session.seen.remove(&session.floor) {
                    session.floor += 1;
                }
            }
        }
        let has_room = session.has_room();
        drop(pool);
        if was_full && has_room {
            self.sessions.opened.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Arc<Sessions> {
        let sessions = Arc::new(Sessions::default());
        sessions.add(7, Instant::now());
        sessions
    }

    #[test]
    fn what_is_seen_moves_on_without_gaps() {
        let sessions = pool();
        let now = Instant::now();
        let mut slots: Vec<Slot> = (0..4).filter_map(|_| sessions.try_reserve()).collect();
        let seqs: Vec<u64> = slots.iter_mut().map(|slot| slot.assign(now).seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4]);
        drop(slots.remove(1));
        let acked_below = || {
            let mut probe = sessions.try_reserve().expect("room");
            probe.assign(now).acked_below
        };
        assert_eq!(acked_below(), 1);
        drop(slots.remove(0));
        assert_eq!(acked_below(), 3);
        drop(slots);
        assert_eq!(acked_below(), 7);
    }

    #[test]
    fn a_session_is_full_at_its_window() {
        let sessions = pool();
        let mut slots: Vec<Slot> = (0..WINDOW).filter_map(|_| sessions.try_reserve()).collect();
        assert_eq!(slots.len() as u64, WINDOW);
        assert!(sessions.try_reserve().is_none());
        assert!(sessions.is_short());
        // One unseen outcome holds the window back, however many after it are seen.
        for slot in &mut slots {
            slot.assign(Instant::now());
        }
        let first = slots.remove(0);
        drop(slots);
        assert!(sessions.try_reserve().is_none());
        drop(first);
        assert!(sessions.try_reserve().is_some());
    }

    #[tokio::test]
    async fn a_call_waits_for_a_session() {
        let sessions = Arc::new(Sessions::default());
        let waiting = sessions.clone();
        let call = tokio::spawn(async move { waiting.reserve().await.session });
        sessions.wanted().await;
        sessions.add(9, Instant::now());
        assert_eq!(call.await.ok(), Some(9));
    }

    #[test]
    fn unneeded_sessions_are_let_go_but_for_one() {
        let sessions = pool();
        let start = Instant::now();
        sessions.add(8, start);
        sessions.add(9, start);
        let held = sessions.try_reserve();
        assert_eq!(held.as_ref().map(|slot| slot.session), Some(7));
        assert!(sessions.stale(start).is_empty());
        assert_eq!(sessions.stale(start + RENEW_EVERY * 2), [7]);
        sessions.renewed(7, start + RENEW_EVERY * 2);
        assert!(sessions.stale(start + RENEW_EVERY * 2).is_empty());
    }
}
