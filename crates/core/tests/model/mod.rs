//! The naive model: SEMANTICS in plain vectors and loops. It shares no code with the machine, only its words
//! (commands, replies, answers and limits), and explains every reply: it says beforehand what the answer must be.
//!
//! What nobody can foretell it takes from the answer and judges: numeric ids (never seen before), token hashes, and the
//! jitter of a backoff (between nothing and the ceiling).

pub(crate) mod clock;
mod commit;
pub(crate) mod look;
pub(crate) mod queue;
pub(crate) mod session;
mod settle;
mod verbs;

use ticketrail_core::command::{Command, QueueRef, Request};
use ticketrail_core::reply::{
    Answered, Committed, EnqueueOutcome, EnqueueResult, Expired, Initialized, Invalid, PartRefused, Received,
    Rejection, RejectionRecord, SettleOutcome, SettleResult, Ticked,
};
use ticketrail_core::{Entry, LogPosition, Reply};

pub(crate) use clock::Clock;
pub(crate) use queue::{Due, Message, Queue, Ready, State};
pub(crate) use session::Session;

/// What a request came to.
pub(crate) type Answer = Result<Answered, Rejection>;

/// The whole machine, naively.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) clock: Clock,
    pub(crate) initialized: bool,
    pub(crate) queues: Vec<Queue>,
    pub(crate) sessions: Vec<Session>,
    /// Every queue id ever seen: no incarnation shares one.
    queue_ids: Vec<u64>,
    /// Every session id ever seen.
    session_ids: Vec<u64>,
    /// Counts returns to ready: the returned lane is in this order.
    returns: u64,
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
        if replies.len() != entry.requests.len() {
            return Err(format!("expected {} replies, but got {}", entry.requests.len(), replies.len()));
        }
        for (ordinal, (request, actual)) in entry.requests.iter().zip(replies).enumerate() {
            let expected = self.request(ordinal as u32, request, actual)?;
            let (expected, shown) = (blanked(expected)?, blanked(actual.clone())?);
            if expected != shown {
                return Err(format!(
                    "request {ordinal}: {request:#?}\nthe model expects {expected:#?}\nbut the machine answers {actual:#?}"
                ));
            }
        }
        Ok(())
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
        })
    }

    /// Timers: what is due becomes ready, in order of its due time.
    fn tick(&mut self, heard: Option<&Answered>) -> Result<Ticked, String> {
        let now = self.clock.cluster;
        let mut due: Vec<(u64, usize, u8, u64)> = Vec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            for message in &queue.messages {
                match message.state {
                    State::Delayed(Due::At(at)) if at <= now => {
                        due.push((at, index, message.place(0).lane_byte(), message.sequence));
                    }
                    State::Delayed(Due::Between { low, .. }) if low <= now => {
                        return Err("a tick in the entry of an expiry: the model cannot know what is due".into());
                    }
                    State::Delayed(_) | State::Ready(_) | State::Leased(_) => {}
                }
            }
        }
        // Of those due in the same millisecond, by queue, then those ready at their enqueue before those delayed then.
        due.sort_by_key(|(at, index, lane, sequence)| (*at, self.queues[*index].id, *lane, *sequence));
        // A tick is bounded; the next one goes on.
        due.truncate(1_000);
        let fired = due.len();
        for (_, index, _, sequence) in due {
            self.returns += 1;
            let (order, since) = (self.returns, self.clock.cluster);
            if let Some(message) = self.queues[index].message_mut(sequence) {
                message.state = State::Ready(queue::Ready { returned: Some(order), since });
            }
        }
        for queue in &mut self.queues {
            if queue.paused.as_ref().is_some_and(|pause| pause.until_ms != 0 && pause.until_ms <= now) {
                queue.paused = None;
            }
        }
        // How many timers fired and found nothing to do is the machine's own affair.
        match heard {
            Some(Answered::Ticked(ticked)) if ticked.fired as usize >= fired => Ok(*ticked),
            Some(_) | None => Err(format!("a tick: {fired} messages are due, but the machine answers {heard:?}")),
        }
    }

    /// A queue that an expiry has made in this very entry may be named first by a later reply.
    fn hear_queue(&mut self, name: &Option<QueueRef>, heard: Option<&Answered>) -> Result<(), String> {
        let id = match heard {
            Some(Answered::QueueChanged(changed)) => changed.queue,
            Some(Answered::Received(received)) if !received.handles.is_empty() => received.handles[0].place.queue,
            Some(_) | None => return Ok(()),
        };
        match name.as_ref().and_then(|name| self.queue(name)) {
            Some(index) => self.bind_queue_id(index, id),
            None => Ok(()),
        }
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

/// The text of a refusal is free, but it must say what was expected.
fn blanked(mut answer: Result<Reply, Rejection>) -> Result<Result<Reply, Rejection>, String> {
    fn blank(rejection: &mut Rejection) -> Result<(), String> {
        if let Rejection::PartRefused(PartRefused { why: Some(why), .. }) = rejection {
            return record(why);
        }
        if let Rejection::Invalid(Invalid { reason, .. }) = rejection {
            let says = reason.is_empty() || reason.starts_with("expected ") && reason.contains(", but ");
            if !says {
                return Err(format!("the refusal says {reason:?}, not what was expected and what came"));
            }
            reason.clear();
        }
        Ok(())
    }
    fn record(record: &mut RejectionRecord) -> Result<(), String> {
        record.rejection.as_mut().map_or(Ok(()), blank)
    }
    match &mut answer {
        Err(rejection) => blank(rejection)?,
        Ok(reply) => {
            if let Some(Answered::Committed(Committed { enqueued, settled })) = &mut reply.answered {
                for EnqueueResult { outcome } in enqueued {
                    if let Some(EnqueueOutcome::Rejected(rejected)) = outcome {
                        record(rejected)?;
                    }
                }
                for SettleResult { outcome } in settled {
                    if let Some(SettleOutcome::Rejected(rejected)) = outcome {
                        record(rejected)?;
                    }
                }
            }
        }
    }
    Ok(answer)
}

/// Whether an answer changed anything: only such outcomes are stored for a repeat.
pub(crate) fn took_effect(answered: &Answered) -> bool {
    match answered {
        Answered::Committed(Committed { enqueued, settled }) => {
            enqueued.iter().any(|part| matches!(part.outcome, Some(EnqueueOutcome::Enqueued(_))))
                || settled.iter().any(|part| !matches!(part.outcome, Some(SettleOutcome::Rejected(_)) | None))
        }
        Answered::Received(Received { handles }) => !handles.is_empty(),
        Answered::Expired(_)
        | Answered::Ticked(_)
        | Answered::Initialized(_)
        | Answered::SessionOpened(_)
        | Answered::QueueChanged(_)
        | Answered::QueueDeleted(_)
        | Answered::QueuePurged(_) => true,
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
