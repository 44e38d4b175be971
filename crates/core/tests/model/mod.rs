//! The naive model: SEMANTICS in plain vectors and loops. It shares no code with the machine, only its words
//! (commands, replies, answers and limits), and explains every reply: it says beforehand what the answer must be.
//!
//! What nobody can foretell it takes from the answer and judges: numeric ids (never seen before), token hashes, and the
//! jitter of a backoff (between nothing and the ceiling).

mod bounds;
pub(crate) mod clock;
mod commit;
mod enqueue;
mod line;
pub(crate) mod look;
pub(crate) mod queue;
mod rate;
mod receive;
pub(crate) mod session;
mod settle;
mod soften;
mod target;
mod timers;
mod verbs;

use ticketrail_core::command::{Command, QueueRef, Request};
use ticketrail_core::query::NamespaceInfo;
use ticketrail_core::reply::{
    Answered, CancelOutcome, Committed, EnqueueOutcome, Expired, Initialized, Invalid, Received, Rejection,
    RejectionRecord, RescheduleOutcome, SettleOutcome,
};
use ticketrail_core::{Entry, LogPosition, Reply};

pub(crate) use clock::Clock;
pub(crate) use queue::{Due, Message, Queue, Ready, State};
pub(crate) use session::{Session, Token};

/// A refusal whose field the ADR leaves open.
pub(crate) const ANY_FIELD: &str = "*";

/// Retries of a commit that falls for which it is tried whether they would have waited.
const GUESSED: usize = 6;

/// What a request came to.
pub(crate) type Answer = Result<Answered, Rejection>;

/// The whole machine, naively.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) clock: Clock,
    pub(crate) initialized: bool,
    pub(crate) queues: Vec<Queue>,
    pub(crate) namespaces: Vec<NamespaceInfo>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) tokens: Vec<Token>,
    /// Lines, by queue and group, whose dead letter went with a purge or a delete: the next tick lets them go on.
    freed: Vec<(u64, String)>,
    /// Queues ever made.
    founded: u64,
    /// Lines that ever began to follow a dead letter.
    doomed: u64,
    /// Every queue id ever seen: no incarnation shares one.
    queue_ids: Vec<u64>,
    /// Every session id ever seen.
    session_ids: Vec<u64>,
    /// Counts returns to ready: the returned lane is in this order.
    returns: u64,
    /// Which retries of a commit that falls as a whole would have waited, a bit each: nobody is told.
    would_wait: u32,
}

impl Model {
    /// Applies one entry and says whether the answers are the right ones.
    pub(crate) fn explain(
        &mut self,
        at: LogPosition,
        entry: &Entry,
        replies: &[Result<Reply, Rejection>],
    ) -> Result<(), String> {
        self.clock.advance(at, entry.proposed_at_ms);
        let now = self.clock.cluster;
        for queue in &mut self.queues {
            let is_busy = queue.is_busy();
            queue.drain.pass(now, is_busy);
        }
        let before: Vec<_> = self.queues.iter().map(|queue| (queue.number, queue.record())).collect();
        if replies.len() != entry.requests.len() {
            return Err(format!("expected {} replies, but got {}", entry.requests.len(), replies.len()));
        }
        for (ordinal, (request, actual)) in entry.requests.iter().zip(replies).enumerate() {
            self.one(ordinal as u32, request, actual)?;
        }
        for queue in &mut self.queues {
            let was = before.iter().find(|(number, _)| *number == queue.number).map(|(_, record)| record);
            if was != Some(&queue.record()) {
                queue.drain.touch(now);
            }
        }
        Ok(())
    }

    /// Says whether an answer is the right one. Of a commit that falls as a whole nobody is told which of its retries would
    /// have waited, and with them less would be ready: any of them may have.
    fn one(&mut self, ordinal: u32, request: &Request, actual: &Result<Reply, Rejection>) -> Result<(), String> {
        let retries = match (&request.command, actual) {
            (Some(Command::Commit(commit)), Err(Rejection::PartRefused(_))) => commit.settle.len().min(GUESSED),
            _ => 0,
        };
        for would_wait in 1..1 << retries {
            let mut tried = Self { would_wait, ..self.clone() };
            let expected = tried.request(ordinal, request, actual);
            if expected.is_ok_and(|expected| soften::agree(expected, actual).is_ok()) {
                *self = tried;
                return Ok(());
            }
        }
        self.would_wait = 0;
        let expected = self.request(ordinal, request, actual)?;
        soften::agree(expected, actual).map_err(|both| {
            let (expected, shown) = *both;
            format!(
                "request {ordinal}: {request:#?}\nthe model expects {expected:#?}\nbut the machine answers {shown:#?}"
            )
        })
    }

    fn request(
        &mut self,
        ordinal: u32,
        request: &Request,
        actual: &Result<Reply, Rejection>,
    ) -> Result<Result<Reply, Rejection>, String> {
        let command = request.command.as_ref().ok_or("a request without a command")?;
        let heard = actual.as_ref().ok().and_then(|reply| reply.answered.as_ref());
        if let Some(id) = request.id {
            return self.in_session(id, ordinal, command, heard);
        }
        Ok(self.command(command, heard)?.map(|answered| self.reply(ordinal, answered)))
    }

    fn reply(&self, ordinal: u32, answered: Answered) -> Reply {
        Reply { replayed: false, index: self.clock.index, ordinal, at_ms: self.clock.cluster, answered: Some(answered) }
    }

    fn command(&mut self, command: &Command, heard: Option<&Answered>) -> Result<Answer, String> {
        if !self.initialized && matches!(command, Command::Commit(_) | Command::Receive(_)) {
            return Ok(Err(Rejection::NotInitialized(Default::default())));
        }
        Ok(match command {
            Command::InitCluster(_) => {
                let first = !self.initialized;
                self.initialized = true;
                Ok(Answered::Initialized(Initialized { first }))
            }
            Command::OpenSession(open) => self.open_session(open.renew, heard)?,
            Command::Commit(commit) => self.commit(commit, heard)?,
            Command::Receive(receive) => self.receive(receive, heard)?,
            Command::Expire(expire) => Ok(Answered::Expired(Expired { count: self.expire(expire) })),
            Command::Tick(_) => Ok(Answered::Ticked(self.tick(heard)?)),
            Command::CreateQueue(create) => self.create(create, heard)?,
            Command::UpdateQueue(update) => {
                self.hear_queue(&update.queue, heard)?;
                self.update(update)
            }
            Command::DeleteQueue(delete) => self.delete(delete),
            Command::PurgeQueue(purge) => self.purge(purge),
            Command::PauseQueue(pause) => {
                self.hear_queue(&pause.queue, heard)?;
                self.pause(pause)
            }
            Command::CloseQueue(close) => {
                self.hear_queue(&close.queue, heard)?;
                self.close(close)
            }
            Command::SetNamespace(set) => self.set_namespace(set),
            Command::DeleteNamespace(delete) => self.delete_namespace(delete),
        })
    }

    /// A queue that an expiry has made in this very entry may be named first by a later reply.
    fn hear_queue(&mut self, name: &Option<QueueRef>, heard: Option<&Answered>) -> Result<(), String> {
        let id = match heard {
            Some(Answered::QueueChanged(changed)) => changed.queue,
            Some(_) | None => return Ok(()),
        };
        match name.as_ref().and_then(|name| self.queue(name)) {
            Some(index) => self.bind_queue_id(index, id),
            None => Ok(()),
        }
    }

    fn knows_queue_id(&self, id: u64) -> bool {
        self.queue_ids.contains(&id)
    }

    /// A queue id not in use yet, as heard.
    pub(crate) fn bind_queue_id(&mut self, index: usize, heard: u64) -> Result<(), String> {
        match self.queues[index].id {
            Some(known) if known == heard => Ok(()),
            Some(known) => {
                Err(format!("queue {} has id {known}, but the machine says {heard}", self.queues[index].name.name))
            }
            None if self.queue_ids.contains(&heard) => Err(format!("queue id {heard} is used twice")),
            None => {
                self.queue_ids.push(heard);
                self.queues[index].id = Some(heard);
                Ok(())
            }
        }
    }
}

/// Whether an answer changed anything: only such outcomes are stored for a repeat.
pub(crate) fn took_effect(answered: &Answered) -> bool {
    match answered {
        Answered::Committed(Committed { enqueued, settled, cancelled, rescheduled }) => {
            enqueued.iter().any(|part| matches!(part.outcome, Some(EnqueueOutcome::Enqueued(_))))
                || settled.iter().any(|part| !matches!(part.outcome, Some(SettleOutcome::Rejected(_)) | None))
                || cancelled.iter().any(|part| matches!(part.outcome, Some(CancelOutcome::Cancelled(_))))
                || rescheduled.iter().any(|part| matches!(part.outcome, Some(RescheduleOutcome::Rescheduled(_))))
        }
        Answered::Received(Received { handles, taken }) => !handles.is_empty() || !taken.is_empty(),
        Answered::Expired(_)
        | Answered::Ticked(_)
        | Answered::Initialized(_)
        | Answered::SessionOpened(_)
        | Answered::QueueChanged(_)
        | Answered::QueueDeleted(_)
        | Answered::QueuePurged(_)
        | Answered::NamespaceChanged(_) => true,
    }
}

/// A refusal for a field outside its limits.
pub(crate) fn invalid(field: &str) -> Rejection {
    Rejection::Invalid(Invalid { field: field.into(), reason: String::new() })
}

/// A refusal as a part's outcome.
pub(crate) fn refused(rejection: Rejection) -> RejectionRecord {
    RejectionRecord { rejection: Some(rejection) }
}
