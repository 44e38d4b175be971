//! The node's own sessions, for calls that come without a request id: so a call that is proposed again after a change of
//! leader has no second effect.
//!
//! A call reserves a slot before it waits for anything, and gets its number when it is proposed. So a parked receive
//! holds no number, and the numbers below which all outcomes are seen move on.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
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

/// Sessions of one node, for calls of one kind.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: Mutex<Pool>,
    /// Sessions held ready while nobody needs one.
    ready: usize,
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
    /// Calls that wait for a slot.
    waiting: usize,
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

/// One call's place in a session, held by all who may still repeat the call or wait for its outcome. Dropping the last
/// clone says that nobody does any more.
#[derive(Debug, Clone)]
pub(crate) struct Slot(Arc<Claim>);

#[derive(Debug)]
struct Claim {
    sessions: Arc<Sessions>,
    session: u64,
    seq: OnceLock<u64>,
}

impl Sessions {
    /// Sessions of which `ready` are held ready while nobody needs one; the others are opened when a call waits.
    pub(crate) fn new(ready: usize) -> Self {
        Self { pool: Mutex::default(), ready, wanted: Notify::new(), opened: watch::Sender::new(0) }
    }

    /// A slot, as soon as there is one.
    pub(crate) async fn reserve(self: &Arc<Self>) -> Slot {
        if let Some(slot) = self.try_reserve() {
            return slot;
        }
        let mut opened = self.opened.subscribe();
        let _waiting = Waiting::new(self);
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
                let claim = Claim { sessions: self.clone(), session: session.id, seq: OnceLock::new() };
                return Some(Slot(Arc::new(claim)));
            }
        }
        None
    }

    /// Waits until a call finds no room in any session.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether another session would help: there is no room, somebody may need it, and there may be more.
    pub(crate) fn is_short(&self) -> bool {
        let pool = self.pool.lock();
        let needed = self.ready > 0 || pool.waiting > 0;
        needed && pool.sessions.len() < SESSIONS && !pool.sessions.iter().any(Session::has_room)
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

    /// Sessions to renew: unused for a while. Those that nobody needs are let go instead, but for those held ready.
    pub(crate) fn stale(&self, now: Instant) -> Vec<u64> {
        let mut pool = self.pool.lock();
        let old = |session: &Session| now.saturating_duration_since(session.used_at) >= RENEW_EVERY;
        let mut kept = 0;
        pool.sessions.retain(|session| {
            let keep = kept < self.ready || !(old(session) && session.is_idle());
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

/// A call that waits for a slot.
struct Waiting<'s>(&'s Sessions);

impl<'s> Waiting<'s> {
    fn new(sessions: &'s Sessions) -> Self {
        sessions.pool.lock().waiting += 1;
        Self(sessions)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pool.lock().waiting -= 1;
    }
}

impl Slot {
    /// Gives the call its number, to be proposed now. It keeps it over all attempts.
    pub(crate) fn assign(&self, now: Instant) -> RequestId {
        let Claim { sessions, session: id, seq } = &*self.0;
        let mut pool = sessions.pool.lock();
        let Some(session) = pool.find(*id) else {
            // The session has ended: `apply` says so, and the call gets another slot. Without a number of its own it must
            // not pass for another call, nor for one without a session: no session has the last number of all.
            let (session, seq) = seq.get().map_or((u64::MAX, 1), |seq| (*id, *seq));
            return RequestId { session, seq, acked_below: 1, ..RequestId::default() };
        };
        let seq = *seq.get_or_init(|| {
            let next = session.next;
            session.next += 1;
            session.reserved = session.reserved.saturating_sub(1);
            next
        });
        session.used_at = now;
        // No fingerprint: the node gives no number to two commands.
        RequestId { session: *id, seq, acked_below: session.floor, ..RequestId::default() }
    }

    /// Whether the session is one of `sessions`.
    pub(crate) fn is_of(&self, sessions: &Arc<Sessions>) -> bool {
        Arc::ptr_eq(&self.0.sessions, sessions)
    }

    /// The session has ended, as `apply` says.
    pub(crate) fn expired(&self) {
        self.0.sessions.remove(self.0.session);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut pool = self.sessions.pool.lock();
        let Some(session) = pool.find(self.session) else { return };
        let was_full = !session.has_room();
        match self.seq.get() {
            None => session.reserved = session.reserved.saturating_sub(1),
            Some(seq) => {
                session.seen.insert(*seq);
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
        let sessions = Arc::new(Sessions::new(1));
        sessions.add(7, Instant::now());
        sessions
    }

    #[test]
    fn what_is_seen_moves_on_without_gaps() {
        let sessions = pool();
        let now = Instant::now();
        let mut slots: Vec<Slot> = (0..4).filter_map(|_| sessions.try_reserve()).collect();
        let seqs: Vec<u64> = slots.iter().map(|slot| slot.assign(now).seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4]);
        drop(slots.remove(1));
        let acked_below = || {
            let probe = sessions.try_reserve().expect("room");
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
        for slot in &slots {
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
        let sessions = Arc::new(Sessions::new(1));
        let waiting = sessions.clone();
        let call = tokio::spawn(async move { waiting.reserve().await.0.session });
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
        assert_eq!(held.as_ref().map(|slot| slot.0.session), Some(7));
        assert!(sessions.stale(start).is_empty());
        assert_eq!(sessions.stale(start + RENEW_EVERY * 2), [7]);
        sessions.renewed(7, start + RENEW_EVERY * 2);
        assert!(sessions.stale(start + RENEW_EVERY * 2).is_empty());
    }

    #[test]
    fn a_call_keeps_its_number_and_holds_it_until_the_last_who_may_repeat_it_has_gone() {
        let sessions = pool();
        let now = Instant::now();
        let slot = sessions.try_reserve().expect("room");
        let repeats = slot.clone();
        assert_eq!(slot.assign(now), repeats.assign(now));
        drop(slot);
        let probe = || sessions.try_reserve().expect("room").assign(now).acked_below;
        assert_eq!(probe(), 1);
        drop(repeats);
        assert_eq!(probe(), 3);
    }

    #[tokio::test]
    async fn without_one_held_ready_a_session_is_opened_for_who_waits_and_let_go_when_idle() {
        let sessions = Arc::new(Sessions::new(0));
        assert!(!sessions.is_short());
        let waiting = sessions.clone();
        let call = tokio::spawn(async move { waiting.reserve().await.0.session });
        sessions.wanted().await;
        assert!(sessions.is_short());
        let now = Instant::now();
        sessions.add(9, now);
        assert_eq!(call.await.ok(), Some(9));
        assert!(!sessions.is_short());
        assert!(sessions.stale(now + RENEW_EVERY * 2).is_empty());
        assert!(sessions.try_reserve().is_none());
    }

    #[test]
    fn a_slot_of_a_session_that_has_ended_passes_for_no_other_call() {
        let sessions = pool();
        let now = Instant::now();
        let (numbered, unnumbered) = (sessions.try_reserve().expect("room"), sessions.try_reserve().expect("room"));
        let id = numbered.assign(now);
        sessions.remove(7);
        assert_eq!((numbered.assign(now).session, numbered.assign(now).seq), (7, id.seq));
        assert_eq!(unnumbered.assign(now).session, u64::MAX);
    }
}
