//! How questions are answered from the state alone.

use bytes::Bytes;
use prost::Message;

use crate::LogPosition;
use crate::command::{Content, QueueRef};
use crate::ids::{GroupId, MessageId, Place, QueueId};
use crate::keys;
use crate::limits;
use crate::namespace;
use crate::query::{
    Answer, Clock, DeadLetter, Delivery, DoneInfo, FailureInfo, Filter, LeaseInfo, MessageInfo, MessageState, Page,
    Query, QueueInfo, Stats,
};
use crate::queue::lanes::{self, Side};
use crate::queue::message::{self, Found};
use crate::queue::{dead_letter, dedup, failure, lease, rate};
use crate::records::{
    DeadLetterRecord, DoneRecord, FailureRecord, LeaseRecord, MessageRecord, ParkRecord, QueueRecord, ReturnRecord,
    StateRecord, broken, decode,
};
use crate::reply::{Fault, Handle, PlaceRecord};
use crate::session;
use crate::time::{LeaseTime, Timestamp};
use crate::token;
use crate::txn::{Queue, Txn};
use crate::view::View;

/// Answers a question from the state alone.
pub fn query(view: &dyn View, query: &Query) -> Result<Answer, Fault> {
    // A transaction that is never finished: it reads the same records in the same way.
    let mut txn = Txn::begin(view, LogPosition { term: 0, index: u64::MAX })?;
    let txn = &mut txn;
    Ok(match query {
        Query::Clock => Answer::Clock(clock(txn)),
        Query::Queues { namespace, after, limit } => Answer::Queues(queues(txn, namespace, after, *limit)?),
        Query::AllQueues { after, limit } => Answer::Queues(all_queues(txn, *after, *limit)?),
        Query::Queue(name) => Answer::Queue(match txn.queue_id(name)? {
            Some(id) => queue(txn, id)?,
            None => None,
        }),
        Query::QueueById(id) => Answer::Queue(queue(txn, *id)?),
        Query::Peek { queue, state, after, limit, filter } => Answer::Messages(match txn.queue_id(queue)? {
            Some(id) => Some(peek(txn, id, *state, after, *limit, filter)?),
            None => None,
        }),
        Query::Get(id) => Answer::Message(get(txn, *id)?),
        Query::GetByDedupId { queue, dedup_id } => Answer::Message(match dedup_id_of(txn, queue, dedup_id)? {
            Some(birth) => get(txn, MessageId { group: GroupId::QUEUES, origin: birth })?,
            None => None,
        }),
        Query::Outcome(id) => Answer::Outcome(outcome(txn, *id)?),
        Query::OutcomeByDedupId { queue, dedup_id } => Answer::Outcome(match dedup_id_of(txn, queue, dedup_id)? {
            Some(birth) => outcome(txn, MessageId { group: GroupId::QUEUES, origin: birth })?,
            None => None,
        }),
        Query::DedupIdSeen { queue, dedup_id } => Answer::Seen(dedup_id_of(txn, queue, dedup_id)?.is_some()),
        Query::Namespace(name) => Answer::Namespaces(namespace::find(txn, name)?.into_iter().collect()),
        Query::Namespaces { after, limit } => Answer::Namespaces(namespace::list(txn, after, *limit)?),
        Query::Deliver(handles) => Answer::Deliveries(deliver(txn, handles)?),
        Query::Leases { after, limit } => Answer::Leases(leases(txn, *after, *limit)?),
        Query::RequestSeen { session, seq } => Answer::Seen(session::seen(txn, *session, *seq)?),
        Query::TokenSeen { high, low } => Answer::Seen(token::seen(txn, *high, *low)?),
    })
}

fn clock(txn: &Txn<'_>) -> Clock {
    let header = &txn.header;
    Clock {
        cluster: header.now(),
        lease: header.lease_now(),
        term: header.term,
        index: header.index,
        initialized: txn.secret().is_some(),
        digest: header.digest,
    }
}

fn queues(txn: &mut Txn<'_>, namespace: &str, after: &str, limit: usize) -> Result<Vec<QueueInfo>, Fault> {
    let (first, to) = keys::prefix(&keys::name(namespace, ""));
    let from = if after.is_empty() { first } else { keys::after(&keys::name(namespace, after)) };
    let mut infos = Vec::new();
    for (key, value) in txn.overlay.scan(&from, &to, limit.min(limits::PAGE))? {
        let id = keys::last_number(&value).ok_or_else(|| broken("a queue's id", &key, "it is too short"))?;
        infos.extend(queue(txn, QueueId(id))?);
    }
    Ok(infos)
}

fn all_queues(txn: &mut Txn<'_>, after: Option<QueueId>, limit: usize) -> Result<Vec<QueueInfo>, Fault> {
    let from = after.map_or_else(|| keys::config(QueueId(0)), |id| keys::after(&keys::config(id)));
    let mut infos = Vec::new();
    for (key, _) in txn.overlay.scan(&from, &keys::after(&keys::config(QueueId(u64::MAX))), limit.min(limits::PAGE))? {
        let id = keys::last_number(&key).ok_or_else(|| broken("a queue's id", &key, "it is too short"))?;
        infos.extend(queue(txn, QueueId(id))?);
    }
    Ok(infos)
}

fn queue(txn: &mut Txn<'_>, id: QueueId) -> Result<Option<QueueInfo>, Fault> {
    let Some(queue) = txn.queue(id)?.cloned() else { return Ok(None) };
    let oldest_ready_at = oldest_ready_at(txn, &queue)?;
    let oldest_parked_at = oldest_parked_at(txn, &queue)?;
    let rate_milli = rate::known_milli(&queue.config, &queue.record, txn.header.cluster_ms);
    let Queue { config, record, .. } = queue;
    Ok(Some(QueueInfo {
        id,
        name: config.name.clone(),
        created_at: Timestamp(config.created_at_ms),
        settings: config.settings.clone(),
        paused: config.pause.clone(),
        closed: config.closed,
        stats: Stats { oldest_ready_at, oldest_parked_at, rate_milli, ..stats(&record) },
    }))
}

fn stats(record: &QueueRecord) -> Stats {
    Stats {
        ready: record.ready,
        delayed: record.delayed,
        blocked: record.blocked,
        leased: record.leased,
        bytes: record.bytes,
        enqueued: record.enqueued,
        moved_in: record.moved_in,
        acked: record.acked,
        moved_out: record.moved_out,
        expired_dropped: record.expired_dropped,
        cancelled: record.cancelled,
        purged: record.purged,
        dropped: record.dropped,
        received: record.received,
        redelivered: record.redelivered,
        failed: record.failed,
        lease_expired: record.lease_expired,
        over_bound: record.over_bound,
        duplicates: record.duplicates,
        outcomes_dropped: record.outcomes_dropped,
        dedup_ids: record.dedup_ids,
        retained: record.retained,
        groups_blocked: record.groups_blocked,
        rate_milli: None,
        oldest_parked_at: None,
        oldest_ready_at: None,
    }
}

/// The ready time of the oldest of the at most 20 lane heads.
fn oldest_ready_at(txn: &Txn<'_>, queue: &Queue) -> Result<Option<Timestamp>, Fault> {
    let mut oldest: Option<u64> = None;
    for lane in &queue.record.lanes {
        let Ok(priority) = u8::try_from(lane.priority) else { continue };
        for (side, count) in [(Side::Returned, lane.returned), (Side::Fresh, lane.fresh)] {
            if count == 0 {
                continue;
            }
            let (from, to) = lanes::range(queue.id, &queue.record, (priority, side));
            let Some((key, value)) = txn.overlay.scan(&from, &to, 1)?.into_iter().next() else { continue };
            let since = match side {
                Side::Returned => decode::<ReturnRecord>("a place in the returned lane", &key, value)?.since_ms,
                Side::Fresh => decode::<MessageRecord>("a message", &key, value)?.enqueued_at_ms,
            };
            oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
        }
    }
    Ok(oldest.map(Timestamp))
}

/// Since when the head that was parked first is parked.
fn oldest_parked_at(txn: &Txn<'_>, queue: &Queue) -> Result<Option<Timestamp>, Fault> {
    let (from, to) = (keys::parked(queue.id, queue.record.parks_from), keys::parked(queue.id, u64::MAX));
    let Some((key, value)) = txn.overlay.scan(&from, &to, 1)?.into_iter().next() else { return Ok(None) };
    Ok(Some(Timestamp(decode::<ParkRecord>("a parked head", &key, value)?.since_ms)))
}

/// One space of keys that a peek walks.
struct Walk {
    from: keys::Key,
    to: keys::Key,
}

impl Walk {
    /// Whether a key belongs to this space, also where the walk begins behind it by now.
    fn holds(&self, key: &[u8]) -> bool {
        // All of a walk's keys are alike up to the last number.
        let prefix = |key: &[u8]| key.len().checked_sub(8).and_then(|len| key.get(..len)).map(<[u8]>::to_vec);
        prefix(&self.from) == prefix(key)
    }
}

fn peek(
    txn: &mut Txn<'_>,
    id: QueueId,
    state: MessageState,
    after: &[u8],
    limit: usize,
    filter: &Filter,
) -> Result<Page, Fault> {
    let empty = Page { messages: Vec::new(), next: Bytes::new() };
    let Some(record) = txn.queue(id)?.map(|q| q.record.clone()) else { return Ok(empty) };
    let walks = match state {
        MessageState::Ready => {
            let lanes = record.lanes.iter().filter_map(|lane| u8::try_from(lane.priority).ok());
            let lanes = lanes.flat_map(|priority| [(priority, Side::Returned), (priority, Side::Fresh)]);
            lanes.map(|lane| lanes::range(id, &record, lane)).map(|(from, to)| Walk { from, to }).collect()
        }
        MessageState::Delayed | MessageState::Blocked => {
            vec![Walk { from: keys::state(id, record.purged_below), to: keys::state(id, u64::MAX) }]
        }
        MessageState::Leased => vec![Walk { from: keys::lease(id, 0), to: keys::lease(id, u64::MAX) }],
    };
    let limit = limit.min(limits::PAGE);
    let mut page = empty;
    let mut bytes = 0usize;
    let resumed = walks.into_iter().skip_while(|walk| !after.is_empty() && !walk.holds(after));
    for (nth, walk) in resumed.enumerate() {
        let from = if nth == 0 && !after.is_empty() { keys::after(after).max(walk.from) } else { walk.from };
        let found = txn.overlay.scan(&from, &walk.to, limits::SCAN_KEYS)?;
        let cut = found.len() == limits::SCAN_KEYS;
        for (key, value) in found {
            if page.messages.len() >= limit || bytes > limits::BATCH_BYTES {
                return Ok(page);
            }
            let place = place_of(id, &key, &value)?;
            page.next = key;
            if let Some(info) = info(txn, place)?.filter(|info| info.state == state && filter.admits(info)) {
                bytes = bytes.saturating_add(usize::try_from(info.content.size()).unwrap_or(usize::MAX));
                page.messages.push(info);
            }
        }
        if cut {
            return Ok(page);
        }
    }
    page.next = Bytes::new();
    Ok(page)
}

/// The place that a key of a lane, a state or a lease speaks of.
fn place_of(queue: QueueId, key: &Bytes, value: &Bytes) -> Result<Place, Fault> {
    let sequence = keys::last_number(key).ok_or_else(|| broken("a sequence", key, "there is none"))?;
    let (lane, sequence) = match key.first() {
        Some(b'r') => {
            let entry: ReturnRecord = decode("a place in the returned lane", key, value.clone())?;
            (entry.lane, entry.sequence)
        }
        Some(b'l') => (decode::<LeaseRecord>("a lease", key, value.clone())?.lane, sequence),
        Some(b's') => (decode::<StateRecord>("a message's state", key, value.clone())?.lane, sequence),
        Some(_) | None => {
            let rank = key.get(9).copied().unwrap_or_default();
            return Ok(lanes::fresh_place(queue, limits::PRIORITY_MAX.saturating_sub(rank), sequence));
        }
    };
    let place = u8::try_from(lane).ok().and_then(|lane| Place::from_parts(queue, lane, sequence));
    place.ok_or_else(|| broken("a place", key, format!("its lane is {lane}")))
}

fn get(txn: &mut Txn<'_>, id: MessageId) -> Result<Option<MessageInfo>, Fault> {
    if id.group != GroupId::QUEUES {
        return Ok(None);
    }
    match message::born_at(txn, id.origin)? {
        Some(found) => info_of(txn, found).map(Some),
        None => Ok(None),
    }
}

/// The place of birth of the message whose dedup id a queue remembers.
fn dedup_id_of(txn: &mut Txn<'_>, queue: &QueueRef, dedup_id: &str) -> Result<Option<Place>, Fault> {
    let Some(queue) = txn.queue_id(queue)? else { return Ok(None) };
    let Some(record) = dedup::find(txn, queue, dedup_id)? else { return Ok(None) };
    message::place(&record.place, &keys::dedup(queue, dedup_id)).map(Some)
}

fn outcome(txn: &mut Txn<'_>, id: MessageId) -> Result<Option<DoneInfo>, Fault> {
    let key = keys::done(id.origin.queue, id.origin.sequence);
    let Some(record) = txn.record::<DoneRecord>("what came of a message", &key)? else { return Ok(None) };
    // It goes with the queue that it was acked in, before its timer fires too.
    let is_there = txn.queue(QueueId(record.queue_id))?.is_some();
    if !is_there || record.id != PlaceRecord::from(id) {
        return Ok(None);
    }
    Ok(Some(DoneInfo {
        id,
        queue: record.queue,
        finished_at: Timestamp(record.finished_at_ms),
        kept_until: Timestamp(record.until_ms),
        output: record.output,
        receive_count: record.receive_count,
        worker: record.worker,
    }))
}

fn info(txn: &mut Txn<'_>, place: Place) -> Result<Option<MessageInfo>, Fault> {
    match message::at(txn, place)? {
        Some(found) => info_of(txn, found).map(Some),
        None => Ok(None),
    }
}

fn info_of(txn: &mut Txn<'_>, found: Found) -> Result<MessageInfo, Fault> {
    let (line, due) = (found.line(), found.due().map(Timestamp));
    let Found { place, message, state, lease, is } = found;
    let queue = txn.queue_there(place.queue)?.config.name.clone();
    let receive_count = lease.as_ref().map(|l| l.receive_count).or(state.map(|s| s.receive_count)).unwrap_or(0);
    Ok(MessageInfo {
        id: id_of(place, &message)?,
        place,
        queue,
        content: content(txn, &message)?,
        enqueued_at: Timestamp(message.enqueued_at_ms),
        state: is,
        receive_count,
        failures: state.map_or(0, |s| s.failures),
        due,
        lease: lease.map(|lease| lease_info(place.queue, place.sequence, &lease)),
        dead_letter: message.dead_letter.as_ref().map(dead_letter_info).transpose()?,
        history: history(txn, place)?,
        group: message.group,
        line,
        dedup_id: message.dedup_id,
        expires_at: Some(message.expires_at_ms).filter(|at| *at != 0).map(Timestamp),
        retry: message.retry,
        dead_letter_queue: message.dead_letter_queue,
    })
}

impl Filter {
    /// Whether a message is one of those asked for.
    fn admits(&self, info: &MessageInfo) -> bool {
        (self.group.is_empty() || self.group == info.group)
            && (self.r#type.is_empty() || self.r#type == info.content.r#type)
            && self.tags.iter().all(|(name, value)| info.content.tags.get(name) == Some(value))
            && self.priority.is_none_or(|priority| priority == info.place.priority)
            && self.enqueued_until.is_none_or(|until| info.enqueued_at <= until)
            && info.failures >= self.min_failures
    }
}

fn id_of(place: Place, message: &MessageRecord) -> Result<MessageId, Fault> {
    let origin = message::place(&message.birth(place), &keys::message(place))?;
    Ok(MessageId { group: GroupId::QUEUES, origin })
}

/// What the producer said, the body included.
pub(crate) fn content(txn: &Txn<'_>, message: &MessageRecord) -> Result<Content, Fault> {
    let what = "a message's content";
    let mut content = Content::decode(message.content.clone()).map_err(|e| broken(what, b"content", e.to_string()))?;
    if message.body != 0 {
        let key = keys::body(message.body);
        content.body = txn.overlay.get(&key)?.ok_or_else(|| broken("a body", &key, "there is none"))?;
    }
    Ok(content)
}

fn lease_info(queue: QueueId, sequence: u64, lease: &LeaseRecord) -> LeaseInfo {
    LeaseInfo {
        queue,
        sequence,
        deadline: LeaseTime(lease.deadline_ms),
        granted_index: lease.granted_index,
        granted_at: Timestamp(lease.granted_at_ms),
        worker: lease.worker.clone(),
    }
}

fn dead_letter_info(record: &DeadLetterRecord) -> Result<DeadLetter, Fault> {
    let reason = dead_letter::reason_of(record.reason)
        .ok_or_else(|| Fault::Newer(format!("a dead letter has reason {}", record.reason)))?;
    Ok(DeadLetter {
        source: QueueRef::clone(&record.source),
        reason,
        at: Timestamp(record.at_ms),
        receive_count: record.receive_count,
        failures: record.failures,
    })
}

fn history(txn: &Txn<'_>, place: Place) -> Result<Vec<FailureInfo>, Fault> {
    let (from, to) =
        (keys::failure(place.queue, place.sequence, 0), keys::failure(place.queue, place.sequence, u64::MAX));
    let limit = usize::try_from(limits::HISTORY).unwrap_or(limits::SCAN_KEYS);
    let mut history = Vec::new();
    for (key, value) in txn.overlay.scan(&from, &to, limit)? {
        let record: FailureRecord = decode("a failure", &key, value)?;
        let class = failure::class_of(record.class)
            .ok_or_else(|| Fault::Newer(format!("a failure has class {}", record.class)))?;
        history.push(FailureInfo {
            worker: record.worker,
            started_at: Timestamp(record.started_at_ms),
            failed_at: Timestamp(record.failed_at_ms),
            class,
            code: record.code,
            text: record.text,
        });
    }
    Ok(history)
}

fn deliver(txn: &mut Txn<'_>, handles: &[Handle]) -> Result<Vec<Delivery>, Fault> {
    let Some(secret) = txn.secret() else { return Ok(Vec::new()) };
    let mut deliveries = Vec::with_capacity(handles.len());
    for handle in handles {
        let Some(lease) = lease::live(txn, handle)? else { continue };
        let key = keys::queue(QueueId(handle.place.queue));
        let place = handle.place.place().ok_or_else(|| broken("a place", &key, "its lane means nothing"))?;
        let Some(queue) = txn.queue(place.queue)?.map(|q| q.config.name.clone()) else { continue };
        let key = keys::message(place);
        let message: MessageRecord = txn
            .record("a message", &key)?
            .ok_or_else(|| broken("a message", &key, "there is none, but it is leased"))?;
        deliveries.push(Delivery {
            id: id_of(place, &message)?,
            queue,
            content: content(txn, &message)?,
            enqueued_at: Timestamp(message.enqueued_at_ms),
            token: lease::token(&secret, place.queue, place.sequence, handle.receive_count, handle.granted_index),
            remaining_ms: lease.deadline_ms.saturating_sub(txn.header.lease_ms),
            receive_count: handle.receive_count,
            failures: handle.failures,
            dead_letter: message.dead_letter.as_ref().map(dead_letter_info).transpose()?,
            group: message.group,
            priority: place.priority,
        });
    }
    Ok(deliveries)
}

fn leases(txn: &mut Txn<'_>, after: Option<(QueueId, u64)>, limit: usize) -> Result<Vec<LeaseInfo>, Fault> {
    let (first, to) = keys::space(b'l');
    let from = after.map_or(first, |(queue, sequence)| keys::after(&keys::lease(queue, sequence)));
    let mut infos = Vec::new();
    for (key, value) in txn.overlay.scan(&from, &to, limit.min(limits::PAGE))? {
        let lease: LeaseRecord = decode("a lease", &key, value)?;
        let (queue, sequence) =
            keys::last_two_numbers(&key).ok_or_else(|| broken("a lease's key", &key, "it is too short"))?;
        infos.push(lease_info(QueueId(queue), sequence, &lease));
    }
    Ok(infos)
}
