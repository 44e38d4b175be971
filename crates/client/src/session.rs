//! Sessions: who asks, and which outcomes have been seen.
//!
//! A session is opened at the first change. Each request takes the next number; `acked_below` is the lowest number that
//! is not finished. A request that stays unfinished for long (a long poll) holds `acked_below` down, so past the
//! session's window requests go to another session.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ticketrail_proto::v1;
use tokio::sync::Notify;

use crate::retry;

/// Sessions of one client at one time: with 1,024 numbers each, some 8,000 requests in flight.
const SESSIONS: usize = 8;
/// An idle session is renewed after so long; the server ends it after 10 minutes.
pub(crate) const RENEW_AFTER: Duration = Duration::from_secs(3 * 60);
/// The window where the server names none.
const WINDOW_DEFAULT: u64 = 1_024;

/// Which numbers of a session are unfinished.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u64,
    unfinished: BTreeSet<u64>,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { next: 1, unfinished: BTreeSet::new() }
    }

    /// All numbers below this one are finished.
    pub(crate) fn acked_below(&self) -> u64 {
        self.unfinished.first().copied().unwrap_or(self.next)
    }

    /// The next number, unless it would stand `window` or more above `acked_below`.
    pub(crate) fn take(&mut self, window: u64) -> Option<u64> {
        if self.next - self.acked_below() >= window {
            return None;
        }
        let seq = self.next;
        self.next += 1;
        self.unfinished.insert(seq);
        Some(seq)
    }

    /// The outcome of `seq` has been seen, or nobody waits for it any more.
    pub(crate) fn finish(&mut self, seq: u64) {
        self.unfinished.remove(&seq);
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    id: u64,
    window: u64,
    over: AtomicBool,
    state: Mutex<State>,
    /// Wakes callers that wait for a number of any session.
    freed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    numbers: Numbers,
    used_at: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The server knows it no more: no request takes a number of it.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The server has heard of it now.
    pub(crate) fn touch(&self) {
        lock(&self.state).used_at = retry::now();
    }

    fn idle_for(&self) -> Duration {
        retry::now().saturating_duration_since(lock(&self.state).used_at)
    }

    fn take(self: &Arc<Self>) -> Option<Ticket> {
        let mut state = lock(&self.state);
        state.used_at = retry::now();
        let seq = state.numbers.take(self.window)?;
        drop(state);
        Some(Ticket { session: Arc::clone(self), seq })
    }
}

/// A request's number. Dropped, it is finished: its outcome has been seen or nobody waits for it.
#[derive(Debug)]
pub(crate) struct Ticket {
    session: Arc<Session>,
    seq: u64,
}

impl Ticket {
    /// The request id for an attempt made now.
    pub(crate) fn id(&self, repeat: bool) -> v1::RequestId {
        let mut state = lock(&self.session.state);
        state.used_at = retry::now();
        let acked_below = state.numbers.acked_below();
        v1::RequestId { session: self.session.id, seq: self.seq, acked_below, repeat, ..Default::default() }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.session.state).numbers.finish(self.seq);
        self.session.freed.notify_one();
    }
}

/// The sessions of one client.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<Vec<Arc<Session>>>,
    freed: Arc<Notify>,
    /// Held while one is being opened, so that a burst of first calls opens one and not a hundred.
    pub(crate) opening: tokio::sync::Mutex<()>,
}

/// What a caller that wants a number gets.
pub(crate) enum Taken {
    /// A number.
    Ticket(Ticket),
    /// No session has one: open another.
    Open,
    /// All sessions that may be open are in use: wait.
    Wait,
}

impl Sessions {
    pub(crate) fn take(&self) -> Taken {
        let mut open = lock(&self.open);
        open.retain(|session| !session.is_over());
        if let Some(ticket) = open.iter().find_map(Session::take) {
            return Taken::Ticket(ticket);
        }
        if open.len() < SESSIONS { Taken::Open } else { Taken::Wait }
    }

    /// Ready when a number may have become free.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// A session that the server has opened.
    pub(crate) fn add(&self, opened: &v1::OpenSessionResponse) {
        let window = if opened.window == 0 { WINDOW_DEFAULT } else { u64::from(opened.window) };
        let session = Session {
            id: opened.session,
            // One below, for the request that raises `acked_below` at last.
            window: window.saturating_sub(1).max(1),
            over: AtomicBool::new(false),
            state: Mutex::new(State { numbers: Numbers::new(), used_at: retry::now() }),
            freed: Arc::clone(&self.freed),
        };
        lock(&self.open).push(Arc::new(session));
    }

    /// The sessions to renew now.
    pub(crate) fn idle(&self) -> Vec<Arc<Session>> {
        let open = lock(&self.open);
        open.iter().filter(|session| !session.is_over() && session.idle_for() >= RENEW_AFTER).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acked_below_is_the_lowest_unfinished() {
        let mut numbers = Numbers::new();
        assert_eq!(numbers.acked_below(), 1);
        assert_eq!((numbers.take(10), numbers.take(10), numbers.take(10)), (Some(1), Some(2), Some(3)));
        assert_eq!(numbers.acked_below(), 1);
        numbers.finish(2);
        assert_eq!(numbers.acked_below(), 1, "1 is unfinished still");
        numbers.finish(1);
        assert_eq!(numbers.acked_below(), 3);
        numbers.finish(3);
        assert_eq!(numbers.acked_below(), 4, "all are finished");
    }

    #[test]
    fn an_old_request_holds_the_window() {
        let mut numbers = Numbers::new();
        for seq in 1..=4 {
            assert_eq!(numbers.take(4), Some(seq));
        }
        for seq in 2..=4 {
            numbers.finish(seq);
        }
        assert_eq!(numbers.take(4), None, "1 is unfinished, four numbers are out");
        numbers.finish(1);
        assert_eq!(numbers.take(4), Some(5));
    }

    fn opened(session: u64) -> v1::OpenSessionResponse {
        v1::OpenSessionResponse { session, window: 3, ..Default::default() }
    }

    fn ticket(sessions: &Sessions) -> Ticket {
        match sessions.take() {
            Taken::Ticket(ticket) => ticket,
            Taken::Open => panic!("expected a number, but none is free"),
            Taken::Wait => panic!("expected a number, but all sessions are in use"),
        }
    }

    #[test]
    fn a_session_past_its_window_makes_room_for_another() {
        let sessions = Sessions::default();
        assert!(matches!(sessions.take(), Taken::Open));
        sessions.add(&opened(7));
        let old = ticket(&sessions);
        let second = ticket(&sessions);
        let repeated = v1::RequestId { session: 7, seq: 2, acked_below: 1, repeat: true, ..Default::default() };
        assert_eq!(second.id(true), repeated);
        drop(second);
        assert!(matches!(sessions.take(), Taken::Open), "the old request holds session 7");
        sessions.add(&opened(8));
        assert_eq!(ticket(&sessions).id(false).session, 8);
        drop(old);
        let third = ticket(&sessions);
        assert_eq!(third.id(false), v1::RequestId { session: 7, seq: 3, acked_below: 3, ..Default::default() });
    }

    #[test]
    fn an_ended_session_gives_no_numbers() {
        let sessions = Sessions::default();
        sessions.add(&opened(7));
        let held = ticket(&sessions);
        held.session().end();
        assert!(matches!(sessions.take(), Taken::Open));
        assert_eq!(held.id(true).seq, 1, "a request in flight keeps its id");
    }

    #[test]
    fn an_idle_session_is_renewed_and_a_used_one_is_not() {
        let sessions = Sessions::default();
        sessions.add(&opened(7));
        sessions.add(&opened(8));
        assert!(sessions.idle().is_empty(), "both are new");
        let long_ago = retry::now().checked_sub(RENEW_AFTER).expect("the machine runs for longer");
        for session in lock(&sessions.open).iter() {
            lock(&session.state).used_at = long_ago;
        }
        let used = ticket(&sessions);
        assert_eq!(used.id(false).session, 7);
        let idle = sessions.idle();
        assert_eq!(idle.iter().map(|session| session.id()).collect::<Vec<_>>(), [8]);
        idle.iter().for_each(|session| session.touch());
        assert!(sessions.idle().is_empty());
    }

    #[test]
    fn sessions_are_bounded() {
        let sessions = Sessions::default();
        let mut held = Vec::new();
        for id in 0..SESSIONS as u64 {
            assert!(matches!(sessions.take(), Taken::Open));
            sessions.add(&opened(id));
            held.push(ticket(&sessions));
            held.push(ticket(&sessions));
        }
        assert!(matches!(sessions.take(), Taken::Wait));
        held.clear();
        assert!(matches!(sessions.take(), Taken::Ticket(_)));
    }
}
