//! Sessions of the model: every outcome ever stored, in a list.

use ticketrail_core::Reply;
use ticketrail_core::RequestId;
use ticketrail_core::command::Command;
use ticketrail_core::reply::{Answered, Handle, LimitReached, Received, Rejection, RequestIdOld, SessionOpened};

use super::{Answer, Model, invalid, took_effect};

const IDLE_MS: u64 = 600_000;
const OUTCOMES: usize = 1_024;
const BUCKET_MS: u64 = 300_000;
/// A token's outcome is found in the bucket of its time and in so many after it.
const BUCKETS_AFTER: u64 = 2;

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: u64,
    /// On the lease clock.
    pub(crate) used: u64,
    /// All requests below it are forgotten.
    pub(crate) floor: u64,
    pub(crate) outcomes: Vec<Stored>,
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    command: Command,
    reply: Reply,
}

/// The outcome of a request that has 16 bytes in place of a session.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) high: u64,
    pub(crate) low: u64,
    /// When it was applied, in buckets of the lease clock.
    bucket: u64,
    command: Command,
    reply: Reply,
}

impl Model {
    /// The outcome of a request without a session, while it can be found.
    fn token(&self, high: u64, low: u64) -> Option<&Token> {
        let bucket = self.clock.lease / BUCKET_MS;
        let mut tokens = self.tokens.iter().filter(|token| bucket - token.bucket <= BUCKETS_AFTER);
        tokens.find(|token| (token.high, token.low) == (high, low))
    }

    pub(crate) fn token_seen(&self, high: u64, low: u64) -> bool {
        self.token(high, low).is_some()
    }

    fn by_token(
        &mut self,
        id: RequestId,
        ordinal: u32,
        command: &Command,
        heard: Option<&Answered>,
    ) -> Result<Result<Reply, Rejection>, String> {
        let (high, low) = (id.token_high, id.token_low);
        if let Some(token) = self.token(high, low) {
            if token.command != *command {
                return Ok(Err(Rejection::RequestIdReused(Default::default())));
            }
            let replay = Reply { replayed: true, ..token.reply.clone() };
            return Ok(Ok(self.still_leased(replay)));
        }
        let answered = match self.command(command, heard)? {
            Ok(answered) => answered,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let reply = self.reply(ordinal, answered);
        if reply.answered.as_ref().is_some_and(took_effect) {
            let bucket = self.clock.lease / BUCKET_MS;
            let (command, reply) = (command.clone(), reply.clone());
            self.tokens.push(Token { high, low, bucket, command, reply });
        }
        Ok(Ok(reply))
    }

    pub(super) fn open_session(&mut self, renew: u64, heard: Option<&Answered>) -> Result<Answer, String> {
        let now = self.clock.lease;
        if renew != 0 {
            let Some(session) = self.session(renew) else {
                return Ok(Err(Rejection::SessionExpired(Default::default())));
            };
            session.used = now;
            return Ok(Ok(Answered::SessionOpened(SessionOpened { session: renew })));
        }
        let Some(Answered::SessionOpened(SessionOpened { session: id })) = heard else {
            return Ok(Ok(Answered::SessionOpened(SessionOpened { session: 0 })));
        };
        if *id == 0 || self.session_ids.contains(id) {
            return Err(format!("session id {id} is used twice"));
        }
        self.session_ids.push(*id);
        self.sessions.push(Session { id: *id, used: now, floor: 1, outcomes: Vec::new() });
        Ok(Ok(Answered::SessionOpened(SessionOpened { session: *id })))
    }

    fn session(&mut self, id: u64) -> Option<&mut Session> {
        let now = self.clock.lease;
        self.sessions.iter_mut().find(|session| session.id == id && now - session.used < IDLE_MS)
    }

    pub(super) fn in_session(
        &mut self,
        id: RequestId,
        ordinal: u32,
        command: &Command,
        heard: Option<&Answered>,
    ) -> Result<Result<Reply, Rejection>, String> {
        if id.session == 0 && id.seq == 0 {
            return self.by_token(id, ordinal, command, heard);
        }
        let now = self.clock.lease;
        let Some(session) = self.session(id.session) else {
            return Ok(Err(Rejection::SessionExpired(Default::default())));
        };
        // A request that is refused leaves no trace, not even on its session.
        let before = session.clone();
        let answer = self.admitted(id, now, ordinal, command, heard)?;
        if answer.is_err()
            && let Some(session) = self.sessions.iter_mut().find(|session| session.id == id.session)
        {
            *session = before;
        }
        Ok(answer)
    }

    fn admitted(
        &mut self,
        id: RequestId,
        now: u64,
        ordinal: u32,
        command: &Command,
        heard: Option<&Answered>,
    ) -> Result<Result<Reply, Rejection>, String> {
        let Some(session) = self.session(id.session) else {
            return Ok(Err(Rejection::SessionExpired(Default::default())));
        };
        session.used = now;
        if id.acked_below > session.floor {
            session.floor = id.acked_below;
            session.outcomes.retain(|stored| stored.seq >= id.acked_below);
        }
        if id.seq == 0 {
            return Ok(Err(invalid("request_id.seq")));
        }
        if id.seq < session.floor {
            return Ok(Err(Rejection::RequestIdOld(RequestIdOld { acked_below: session.floor })));
        }
        if let Some(stored) = session.outcomes.iter().find(|stored| stored.seq == id.seq) {
            if stored.command != *command {
                return Ok(Err(Rejection::RequestIdReused(Default::default())));
            }
            let replay = Reply { replayed: true, ..stored.reply.clone() };
            return Ok(Ok(self.still_leased(replay)));
        }
        if session.outcomes.len() >= OUTCOMES {
            return Ok(Err(Rejection::SessionWindow(LimitReached { limit: OUTCOMES as u64 })));
        }
        let answered = match self.command(command, heard)? {
            Ok(answered) => answered,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let reply = self.reply(ordinal, answered);
        let stored = reply.answered.as_ref().is_some_and(took_effect);
        if let Some(session) = self.session(id.session)
            && stored
        {
            session.outcomes.push(Stored { seq: id.seq, command: command.clone(), reply: reply.clone() });
        }
        Ok(Ok(reply))
    }

    /// A repeated receive gives back the handles whose lease is still live, with its deadline as it is now.
    fn still_leased(&self, mut reply: Reply) -> Reply {
        if let Some(Answered::Received(Received { handles, taken })) = &mut reply.answered {
            // Messages that were acked as they were received are not kept for a repeat.
            taken.clear();
            handles.retain_mut(|handle| match self.live_until(handle) {
                Some(deadline) => {
                    handle.deadline_ms = deadline;
                    true
                }
                None => false,
            });
        }
        reply
    }

    /// When the lease that a handle speaks of ends; `None` where it settles nothing any more.
    pub(crate) fn live_until(&self, handle: &Handle) -> Option<u64> {
        self.queues
            .iter()
            .filter(|queue| queue.id == Some(handle.place.queue))
            .filter_map(|queue| queue.message(handle.place.sequence))
            .filter_map(super::Message::lease)
            .find(|lease| lease.granted_index == handle.granted_index && self.clock.lease < lease.deadline)
            .map(|lease| lease.deadline)
    }

    /// Whether a request's outcome is stored or forgotten; `None` where its session idled too long.
    pub(crate) fn request_seen(&self, session: u64, seq: u64) -> Option<bool> {
        let session = self.sessions.iter().find(|known| known.id == session)?;
        (self.clock.lease - session.used < IDLE_MS)
            .then(|| seq < session.floor || session.outcomes.iter().any(|stored| stored.seq == seq))
    }
}
