//! A machine under test: a state in memory, its log, and the model beside it. Every entry goes through `propose`, which
//! applies it, has the model explain each reply, and then compares all there is to see.

use bytes::Bytes;
use ticketrail_core::command::{Command, InitCluster, QueueRef};
use ticketrail_core::query::{Delivery, LeaseInfo, MessageState};
use ticketrail_core::reply::{Answered, Handle, Received};
use ticketrail_core::{
    Answer, Effect, Entry, LogPosition, MemView, Outcome, Query, Rejection, Reply, Request, Timestamp, answer, apply,
    invariants, next_due,
};

use crate::model::{Due, Model, Ready, State};

/// What one entry came to.
pub(crate) type Replies = Vec<Result<Reply, Rejection>>;

/// When the story of every test begins: 2026-01-01, in milliseconds since the epoch.
pub(crate) const MORNING: u64 = 1_767_225_600_000;

pub(crate) struct Machine {
    pub(crate) view: MemView,
    pub(crate) model: Model,
    pub(crate) log: Vec<(LogPosition, Entry)>,
    pub(crate) effects: Vec<Effect>,
    /// The term of the next entry.
    pub(crate) term: u64,
    /// The stamp of the next entry.
    pub(crate) stamp: u64,
}

impl Machine {
    /// A machine without a secret.
    pub(crate) fn bare() -> Self {
        Self {
            view: MemView::new(),
            model: Model::default(),
            log: Vec::new(),
            effects: Vec::new(),
            term: 1,
            stamp: MORNING,
        }
    }

    /// A machine whose cluster has its secret.
    pub(crate) fn new() -> Result<Self, String> {
        let mut machine = Self::bare();
        machine.propose(vec![init(7)])?;
        Ok(machine)
    }

    /// The position of the next entry.
    pub(crate) fn next(&self) -> LogPosition {
        LogPosition { term: self.term, index: self.log.len() as u64 + 1 }
    }

    /// Applies `requests` as one entry and compares machine and model in every way.
    pub(crate) fn propose(&mut self, requests: Vec<Request>) -> Result<Replies, String> {
        let (replies, _) = self.propose_seen(requests)?;
        Ok(replies)
    }

    /// As `propose`; also gives the deliveries of each lease granted.
    pub(crate) fn propose_seen(&mut self, requests: Vec<Request>) -> Result<(Replies, Vec<Delivery>), String> {
        let at = self.next();
        let entry = Entry::new(Timestamp(self.stamp), requests);
        let read =
            Entry::from_bytes(entry.to_bytes()).map_err(|error| format!("the entry does not read back: {error}"))?;
        if read != entry {
            return Err("the entry reads back as another".into());
        }
        let before = self.model.clone();
        let Outcome { writes, replies, effects } =
            apply(&self.view, at, &read).map_err(|fault| format!("fault at {at:?}: {fault}\nentry: {entry:#?}"))?;
        self.view.commit(&writes);
        self.log.push((at, entry.clone()));
        self.model.explain(at, &entry, &replies).map_err(|error| format!("at {at:?}, {error}"))?;
        self.hear_due_times()?;
        self.check_effects(&before, &effects)?;
        self.effects = effects;
        let deliveries = self.hear_tokens(&replies)?;
        self.compare()?;
        Ok((replies, deliveries))
    }

    pub(crate) fn ask(&self, query: &Query) -> Result<Answer, String> {
        answer(&self.view, query).map_err(|fault| format!("fault in {query:?}: {fault}"))
    }

    /// Jitter of an expiry is in no reply: the machine is asked, and must have kept to the range.
    fn hear_due_times(&mut self) -> Result<(), String> {
        let mut model = std::mem::take(&mut self.model);
        for index in 0..model.queues.len() {
            // The id of a queue that an expiry has made is in no reply either.
            if model.queues[index].id.is_none() {
                let name = model.queues[index].name.clone();
                let Answer::Queue(Some(info)) = self.ask(&Query::Queue(name.clone()))? else {
                    return Err(format!("expected the queue {name:?}, but there is none"));
                };
                model.bind_queue_id(index, info.id.0)?;
            }
            for message in &mut model.queues[index].messages {
                let State::Delayed(Due::Between { low, high, order }) = message.state else { continue };
                let Answer::Message(Some(info)) = self.ask(&Query::Get(message.id))? else {
                    return Err(format!("expected the message {}, but there is none", message.id));
                };
                message.state = match info.due {
                    Some(Timestamp(due)) if (low + 1..=high).contains(&due) => State::Delayed(Due::At(due)),
                    None if info.state == MessageState::Ready => {
                        State::Ready(Ready { returned: Some(order), since: low })
                    }
                    due => return Err(format!("expected {} due at {low} to {high}, but it is at {due:?}", message.id)),
                };
            }
        }
        self.model = model;
        Ok(())
    }

    /// Reads the deliveries of the leases just granted or granted again, and keeps their tokens.
    fn hear_tokens(&mut self, replies: &Replies) -> Result<Vec<Delivery>, String> {
        let mut handles: Vec<Handle> = Vec::new();
        for reply in replies.iter().flatten() {
            if let Some(Answered::Received(Received { handles: granted })) = &reply.answered {
                handles.extend(granted);
            }
        }
        if handles.is_empty() {
            return Ok(Vec::new());
        }
        let Answer::Deliveries(deliveries) = self.ask(&Query::Deliver(handles.clone()))? else {
            return Err("expected deliveries, but got another answer".into());
        };
        handles.retain(|handle| self.model.live_until(handle).is_some());
        if deliveries.len() != handles.len() {
            return Err(format!("expected {} deliveries, but got {}", handles.len(), deliveries.len()));
        }
        let lease_now = self.model.clock.lease;
        for (handle, delivery) in handles.iter().zip(&deliveries) {
            let queue = self.model.queues.iter_mut().find(|queue| queue.id == Some(handle.place.queue));
            let queue = queue.ok_or("a delivery of no queue")?;
            let name = queue.name.clone();
            let message = queue.message_mut(handle.place.sequence).ok_or("a delivery of no message")?;
            let deadline = message.lease().map_or(0, |lease| lease.deadline);
            let expected = Delivery {
                id: message.id,
                queue: name,
                content: message.content.clone(),
                enqueued_at: Timestamp(message.enqueued_at),
                token: delivery.token.clone(),
                remaining_ms: deadline.saturating_sub(lease_now),
                receive_count: message.receive_count,
                failures: message.failures,
                dead_letter: message.dead_letter.clone(),
            };
            equal("delivery", &expected, delivery)?;
            if let Some(lease) = message.lease_mut() {
                match &lease.token {
                    Some(known) if *known != delivery.token => return Err("one lease, two tokens".into()),
                    Some(_) => {}
                    None => lease.token = Some(delivery.token.clone()),
                }
            }
        }
        Ok(deliveries)
    }

    /// Effects are hints, but without them nobody would wake: each change that matters must come with its hint.
    fn check_effects(&self, before: &Model, effects: &[Effect]) -> Result<(), String> {
        for queue in &self.model.queues {
            let id = queue.id.unwrap_or_default();
            let known = before.queues.iter().find(|known| known.id == queue.id);
            let was_paused = known.is_some_and(|known| known.paused.is_some());
            for message in &queue.messages {
                let was = known.and_then(|known| known.message(message.sequence)).map(|message| &message.state);
                if was == Some(&message.state) && !was_paused {
                    continue;
                }
                match &message.state {
                    State::Ready(_) if queue.paused.is_some() => {}
                    State::Ready(_) => {
                        if !effects.iter().any(|effect| matches!(effect, Effect::Wake(woken) if woken.0 == id)) {
                            return Err(format!("{} became ready, but nobody is woken: {effects:?}", message.id));
                        }
                    }
                    State::Leased(lease) => {
                        let hint = Effect::Leased {
                            queue: ticketrail_core::QueueId(id),
                            sequence: message.sequence,
                            deadline_ms: lease.deadline,
                            granted_index: lease.granted_index,
                        };
                        let same_deadline = matches!(was, Some(State::Leased(old)) if old.deadline == lease.deadline && old.granted_index == lease.granted_index);
                        if !same_deadline && !effects.contains(&hint) {
                            return Err(format!("{} is leased, but no {hint:?} is among {effects:?}", message.id));
                        }
                    }
                    State::Delayed(Due::At(due)) => {
                        let told = effects.iter().any(|effect| matches!(effect, Effect::Due(at) if at <= due));
                        if was != Some(&message.state) && !told {
                            return Err(format!("{} is due at {due}, but no timer is told: {effects:?}", message.id));
                        }
                    }
                    State::Delayed(Due::Between { .. }) => return Err("a due time was not heard".into()),
                }
            }
        }
        Ok(())
    }

    /// All that can be seen of the state, beside what the model says.
    pub(crate) fn compare(&self) -> Result<(), String> {
        invariants::check_all(&self.view)?;
        let model = &self.model;
        let Answer::Clock(clock) = self.ask(&Query::Clock)? else { return Err("expected the clock".into()) };
        equal(
            "clock",
            &(model.clock.cluster, model.clock.lease, model.clock.term, model.clock.index, model.initialized),
            &(clock.cluster.0, clock.lease.0, clock.term, clock.index, clock.initialized),
        )?;
        equal("leases", &model.leases(), &self.leases()?)?;
        for session in &model.sessions {
            let numbers = session.outcomes.iter().map(|stored| stored.seq).chain([1, session.floor]);
            for seq in numbers.take(20) {
                let seen = model.request_seen(session.id, seq);
                let Answer::Seen(shown) = self.ask(&Query::RequestSeen { session: session.id, seq })? else {
                    return Err("expected whether a request was seen".into());
                };
                if seen.is_some_and(|seen| seen != shown) {
                    return Err(format!("request {seq} of session {}: expected {seen:?}, but got {shown}", session.id));
                }
            }
        }
        for queue in &model.queues {
            let info = queue.info();
            equal("queue", &Answer::Queue(Some(info.clone())), &self.ask(&Query::Queue(queue.name.clone()))?)?;
            equal(
                "queue",
                &Answer::Queue(Some(info)),
                &self.ask(&Query::QueueById(ticketrail_core::QueueId(queue.id.unwrap_or_default())))?,
            )?;
            conserved(&queue.stats())?;
            for message in &queue.messages {
                let expected = Answer::Message(Some(message.info(&queue.name, queue.id.unwrap_or_default())));
                equal("message", &expected, &self.ask(&Query::Get(message.id))?)?;
            }
        }
        self.compare_due()
    }

    /// All leases, page by page. Those of a queue that is gone may be listed until they are swept; they are void.
    pub(crate) fn leases(&self) -> Result<Vec<LeaseInfo>, String> {
        let mut all: Vec<LeaseInfo> = Vec::new();
        let mut after = None;
        loop {
            let Answer::Leases(page) = self.ask(&Query::Leases { after, limit: 500 })? else {
                return Err("expected leases".into());
            };
            let Some(last) = page.last() else { break };
            after = Some((last.queue, last.sequence));
            all.extend(page);
        }
        all.retain(|lease| self.model.queues.iter().any(|queue| queue.id == Some(lease.queue.0)));
        Ok(all)
    }

    /// The leader must not sleep past the earliest message that is due.
    fn compare_due(&self) -> Result<(), String> {
        let told = next_due(&self.view).map_err(|fault| format!("fault in next_due: {fault}"))?;
        let now = self.model.clock.cluster;
        match (self.model.next_due(), told) {
            (Some(due), Some(Timestamp(told))) if told <= due.max(now) => Ok(()),
            (Some(due), told) => Err(format!("a message is due at {due}, but the next tick is told for {told:?}")),
            (None, _) => Ok(()),
        }
    }

    /// Every message of a queue in one state, page by page.
    pub(crate) fn peek(
        &self,
        queue: &QueueRef,
        state: MessageState,
        limit: usize,
    ) -> Result<Vec<ticketrail_core::query::MessageInfo>, String> {
        let mut all = Vec::new();
        let mut after = Bytes::new();
        loop {
            let query = Query::Peek { queue: queue.clone(), state, after, limit };
            let Answer::Messages(Some(page)) = self.ask(&query)? else {
                return Err(format!("expected a page of {queue:?}"));
            };
            if page.messages.len() > limit {
                return Err(format!("expected at most {limit} messages a page, but got {}", page.messages.len()));
            }
            all.extend(page.messages);
            if page.next.is_empty() {
                return Ok(all);
            }
            if all.len() > 100_000 {
                return Err("a peek without end".into());
            }
            after = page.next;
        }
    }

    /// Peeks and listings show exactly what the model holds.
    pub(crate) fn compare_pages(&self, limit: usize) -> Result<(), String> {
        for queue in &self.model.queues {
            for state in [MessageState::Delayed, MessageState::Ready, MessageState::Blocked, MessageState::Leased] {
                let mut shown = self.peek(&queue.name, state, limit)?;
                shown.sort_by_key(|message| message.place.sequence);
                let expected: Vec<_> = queue
                    .messages
                    .iter()
                    .filter(|message| message.look() == state)
                    .map(|message| message.info(&queue.name, queue.id.unwrap_or_default()))
                    .collect();
                equal("peek", &expected, &shown)?;
            }
        }
        let mut namespaces: Vec<String> = self.model.queues.iter().map(|queue| queue.name.namespace.clone()).collect();
        namespaces.sort();
        namespaces.dedup();
        for namespace in namespaces {
            let mut expected: Vec<_> = self
                .model
                .queues
                .iter()
                .filter(|queue| queue.name.namespace == namespace)
                .map(|queue| queue.info())
                .collect();
            expected.sort_by(|one, other| one.name.cmp(&other.name));
            let mut shown = Vec::new();
            let mut after = String::new();
            loop {
                let query = Query::Queues { namespace: namespace.clone(), after, limit };
                let Answer::Queues(page) = self.ask(&query)? else { return Err("expected queues".into()) };
                let Some(last) = page.last() else { break };
                after = last.name.name.clone();
                shown.extend(page);
            }
            equal("listing", &expected, &shown)?;
        }
        let mut expected: Vec<_> = self.model.queues.iter().map(|queue| queue.info()).collect();
        expected.sort_by_key(|info| info.id);
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let Answer::Queues(page) = self.ask(&Query::AllQueues { after, limit })? else {
                return Err("expected queues".into());
            };
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            shown.extend(page);
        }
        equal("listing of all namespaces", &expected, &shown)?;
        Ok(())
    }

    /// The log applied to an empty state gives this state.
    pub(crate) fn replay(&self) -> Result<MemView, String> {
        let mut view = MemView::new();
        for (at, entry) in &self.log {
            let read = Entry::from_bytes(entry.to_bytes()).map_err(|error| error.to_string())?;
            let outcome = apply(&view, *at, &read).map_err(|fault| fault.to_string())?;
            view.commit(&outcome.writes);
        }
        Ok(view)
    }
}

/// The first command of a cluster.
pub(crate) fn init(seed: u8) -> Request {
    Request::anonymous(Command::InitCluster(InitCluster { secret: vec![seed; 32].into() }))
}

/// enqueued + moved_in = ready + delayed + blocked + leased + acked + moved_out + expired_dropped + cancelled + purged + dropped
pub(crate) fn conserved(stats: &ticketrail_core::query::Stats) -> Result<(), String> {
    let came = stats.enqueued + stats.moved_in;
    let here = stats.ready + stats.delayed + stats.blocked + stats.leased;
    let went = stats.acked + stats.moved_out + stats.expired_dropped + stats.cancelled + stats.purged + stats.dropped;
    if came == here + went { Ok(()) } else { Err(format!("{came} came, {here} are here, {went} went: {stats:?}")) }
}

/// Says how two things differ.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, actual: &T) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what}: the model expects\n{expected:#?}\nbut the machine shows\n{actual:#?}"))
}
