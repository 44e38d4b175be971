//! A machine under test: a state in memory, its log, and the model beside it. Every entry goes through `propose`, which
//! applies it, has the model explain each reply, and then compares all there is to see.

use std::collections::BTreeMap;

use bytes::Bytes;
use ticketrail_core::command::{Command, InitCluster, QueueRef};
use ticketrail_core::query::{Delivery, Filter, LeaseInfo, MessageInfo, MessageState, QueueInfo, Stats};
use ticketrail_core::reply::{Answered, Handle, Received};
use ticketrail_core::{
    Answer, Effect, Entry, LogPosition, MemView, Outcome, Query, Rejection, Reply, Request, Timestamp, answer, apply,
    invariants, next_due,
};

use crate::model::{Due, Model, Queue, Ready, State};

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
        if entry.requests.iter().any(|request| matches!(request.command, Some(Command::Tick(_)))) {
            self.hear_sweep(&effects)?;
        }
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

    /// Which of the dead letters that went with a purge or a delete a tick has reached is in no reply: the first of a
    /// line that waited is no longer blocked, or the count of blocked groups says so.
    fn hear_sweep(&mut self, effects: &[Effect]) -> Result<(), String> {
        let mut released = Vec::new();
        let mut unseen: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut blocked = BTreeMap::new();
        for (number, group, queue, first) in self.model.swept_lines() {
            let Some(queue) = queue else {
                released.push((number, group));
                continue;
            };
            blocked.entry(number).or_insert((queue.name.clone(), queue.blocked_groups.len() as u64));
            match first.map(|first| self.ask(&Query::Get(first))).transpose()? {
                Some(Answer::Message(Some(info))) if info.state == MessageState::Blocked => {}
                Some(_) => {
                    if let Some((_, left)) = blocked.get_mut(&number) {
                        *left -= 1;
                    }
                    released.push((number, group));
                }
                None => unseen.entry(number).or_default().push(group),
            }
        }
        for (number, groups) in unseen {
            let Some((name, left)) = blocked.get(&number) else { continue };
            let Answer::Queue(Some(info)) = self.ask(&Query::Queue(name.clone()))? else { continue };
            let gone = left.saturating_sub(info.stats.groups_blocked) as usize;
            released.extend(groups.into_iter().take(gone).map(|group| (number, group)));
        }
        self.model.work_off(&released, !effects.contains(&Effect::TickAgain));
        Ok(())
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
            if let Some(Answered::Received(Received { handles: granted, .. })) = &reply.answered {
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
                group: message.group.clone(),
                priority: message.priority,
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
            let told = |due: u64| effects.iter().any(|effect| matches!(effect, Effect::Due(at) if *at <= due));
            for message in &queue.messages {
                let was = known.and_then(|known| known.message(message.sequence)).map(|message| &message.state);
                if let (None, Some(expires_at)) = (was, message.expires_at)
                    && !told(expires_at)
                {
                    return Err(format!("{} expires at {expires_at}, but no timer is told: {effects:?}", message.id));
                }
                if was == Some(&message.state) && !was_paused {
                    continue;
                }
                match &message.state {
                    State::Ready(_) if queue.paused.is_some() => {}
                    State::Blocked { .. } => {}
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
                        if was != Some(&message.state) && !told(*due) {
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
        for token in &model.tokens {
            let (high, low) = (token.high, token.low);
            let Answer::Seen(shown) = self.ask(&Query::TokenSeen { high, low })? else {
                return Err("expected whether a request was seen".into());
            };
            equal("token", &model.token_seen(high, low), &shown)?;
        }
        for queue in &model.queues {
            let Answer::Queue(Some(shown)) = self.ask(&Query::Queue(queue.name.clone()))? else {
                return Err(format!("expected the queue {:?}, but there is none", queue.name));
            };
            let info = queue.expected_info(model.clock.cluster, &shown.stats);
            equal("queue", &info, &shown)?;
            equal(
                "queue",
                &Answer::Queue(Some(info)),
                &self.ask(&Query::QueueById(ticketrail_core::QueueId(queue.id.unwrap_or_default())))?,
            )?;
            conserved(&shown.stats)?;
            for message in &queue.messages {
                let expected = Answer::Message(Some(message.info(&queue.name, queue.id.unwrap_or_default())));
                equal("message", &expected, &self.ask(&Query::Get(message.id))?)?;
            }
            self.compare_remembered(queue)?;
        }
        self.compare_due()
    }

    /// Dedup ids and outcomes that a queue holds.
    fn compare_remembered(&self, queue: &Queue) -> Result<(), String> {
        let (model, now) = (&self.model, self.model.clock.cluster);
        for known in &queue.dedup {
            let (name, dedup_id) = (queue.name.clone(), known.dedup_id.clone());
            let id = queue.birth(known);
            let is_over = known.finished && known.until <= now;
            let seen = Query::DedupIdSeen { queue: name.clone(), dedup_id: dedup_id.clone() };
            let Answer::Seen(seen) = self.ask(&seen)? else { return Err("expected whether an id was seen".into()) };
            if !seen && !is_over {
                return Err(format!("the dedup id {dedup_id:?} of {id} is remembered, but was not seen"));
            }
            match self.ask(&Query::GetByDedupId { queue: name, dedup_id })? {
                Answer::Message(None) if is_over => {}
                Answer::Message(shown) => equal("message by dedup id", &model.get(id), &shown)?,
                other => return Err(format!("expected a message by dedup id, but got {other:?}")),
            }
        }
        for outcome in &queue.outcomes {
            let is_over = outcome.kept_until.0 <= now;
            match self.ask(&Query::Outcome(outcome.id))? {
                Answer::Outcome(None) if is_over => {}
                shown => equal("outcome", &Answer::Outcome(Some(outcome.clone())), &shown)?,
            }
        }
        Ok(())
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

    /// Every message of a queue in one state that passes a filter, page by page.
    pub(crate) fn peek(
        &self,
        queue: &QueueRef,
        state: MessageState,
        filter: &Filter,
        limit: usize,
    ) -> Result<Vec<MessageInfo>, String> {
        let mut all = Vec::new();
        let mut after = Bytes::new();
        for _ in 0..10_000 {
            let query = Query::Peek { queue: queue.clone(), state, after, limit, filter: filter.clone() };
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
            after = page.next;
        }
        Err("a peek without end".into())
    }

    /// What a peek with this filter must show, by sequence.
    fn compare_peek(&self, queue: &Queue, filter: &Filter, limit: usize) -> Result<(), String> {
        for state in [MessageState::Delayed, MessageState::Ready, MessageState::Blocked, MessageState::Leased] {
            let mut shown = self.peek(&queue.name, state, filter, limit)?;
            shown.sort_by_key(|message| message.place.sequence);
            let expected: Vec<_> = queue
                .messages
                .iter()
                .filter(|message| message.look() == state && message.passes(filter))
                .map(|message| message.info(&queue.name, queue.id.unwrap_or_default()))
                .collect();
            equal("peek", &expected, &shown)?;
        }
        Ok(())
    }

    /// Peeks and listings show exactly what the model holds.
    pub(crate) fn compare_pages(&self, limit: usize) -> Result<(), String> {
        let now = self.model.clock.cluster;
        for queue in &self.model.queues {
            let any = Filter::default();
            self.compare_peek(queue, &any, limit)?;
            // One filter after the other, each by what some message of this queue has; and two together.
            for message in queue.messages.iter().take(3) {
                let info = message.info(&queue.name, 0);
                let group = Filter { group: info.group.clone(), ..any.clone() };
                self.compare_peek(queue, &group, limit)?;
                let priority = Filter { priority: Some(info.place.priority), ..any.clone() };
                self.compare_peek(queue, &priority, limit)?;
                let tags =
                    Filter { tags: info.content.tags.clone(), r#type: info.content.r#type.clone(), ..any.clone() };
                self.compare_peek(queue, &tags, limit)?;
                let until = Filter { enqueued_until: Some(info.enqueued_at), min_failures: 1, ..any.clone() };
                self.compare_peek(queue, &until, limit)?;
            }
        }
        let mut namespaces = self.model.namespaces.clone();
        namespaces.sort_by(|one, other| one.name.cmp(&other.name));
        let (mut shown, mut after) = (Vec::new(), String::new());
        loop {
            let Answer::Namespaces(page) = self.ask(&Query::Namespaces { after, limit })? else {
                return Err("expected namespaces".into());
            };
            let Some(last) = page.last() else { break };
            after = last.name.clone();
            shown.extend(page);
        }
        equal("namespaces", &namespaces, &shown)?;
        let mut namespaces: Vec<String> = self.model.queues.iter().map(|queue| queue.name.namespace.clone()).collect();
        namespaces.sort();
        namespaces.dedup();
        for namespace in namespaces {
            let mut expected: Vec<&Queue> =
                self.model.queues.iter().filter(|queue| queue.name.namespace == namespace).collect();
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
            equal("listing", &described(&expected, &shown, now), &shown)?;
        }
        let mut expected: Vec<&Queue> = self.model.queues.iter().collect();
        expected.sort_by_key(|queue| queue.id);
        let (mut shown, mut after) = (Vec::new(), None);
        loop {
            let Answer::Queues(page) = self.ask(&Query::AllQueues { after, limit })? else {
                return Err("expected queues".into());
            };
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            shown.extend(page);
        }
        equal("listing of all namespaces", &described(&expected, &shown, now), &shown)?;
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

/// What a listing must say of each queue.
fn described(queues: &[&Queue], shown: &[QueueInfo], now: u64) -> Vec<QueueInfo> {
    let none = Stats::default();
    let shown = shown.iter().map(|info| &info.stats).chain(std::iter::repeat(&none));
    queues.iter().zip(shown).map(|(queue, stats)| queue.expected_info(now, stats)).collect()
}

/// The first command of a cluster.
pub(crate) fn init(seed: u8) -> Request {
    Request::anonymous(Command::InitCluster(InitCluster { secret: vec![seed; 32].into() }))
}

/// enqueued + moved_in = ready + delayed + blocked + leased + acked + moved_out + expired_dropped + cancelled + purged + dropped
pub(crate) fn conserved(stats: &Stats) -> Result<(), String> {
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
