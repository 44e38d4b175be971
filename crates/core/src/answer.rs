//! How questions are answered from the state alone.

use bytes::Bytes;
use prost::Message;

use crate::LogPosition;
use crate::command::{Content, QueueRef};
use crate::ids::{GroupId, MessageId, Place, QueueId, Space};
use crate::keys;
use crate::limits;
use crate::query::{
    Answer, Clock, DeadLetter, Delivery, FailureInfo, LeaseInfo, MessageInfo, MessageState, Page, Query, QueueInfo,
    Stats,
};
use crate::queue::{dead_letter, failure, lease};
use crate::records::{
    DeadLetterRecord, FailureRecord, LeaseRecord, MessageRecord, QueueRecord, ReturnRecord, StateRecord, broken, decode,
};
use crate::reply::{Fault, Handle, PlaceRecord};
use crate::session;
use crate::time::{LeaseTime, Timestamp};
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
        Query::Peek { queue, state, after, limit } => Answer::Messages(match txn.queue_id(queue)? {
            Some(id) => Some(peek(txn, id, *state, after, *limit)?),
            None => None,
        }),
        Query::Get(id) => Answer::Message(get(txn, *id)?),
        Query::Deliver(handles) => Answer::Deliveries(deliver(txn, handles)?),
        Query::Leases { after, limit } => Answer::Leases(leases(txn, *after, *limit)?),
        Query::RequestSeen { session, seq } => Answer::Seen(session::seen(txn, *session, *seq)?),
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
    let Queue { config, record, .. } = queue;
    Ok(Some(QueueInfo {
        id,
        name: config.name.clone(),
        created_at: Timestamp(config.created_at_ms),
        settings: config.settings.clone(),
        paused: config.pause.clone(),
        closed: config.closed,
        stats: Stats { oldest_ready_at, ..stats(&record) },
    }))
}

fn stats(record: &QueueRecord) -> Stats {
    Stats {
        ready: record.ready,
        delayed: record.delayed,
        blocked: 0,
        leased: record.leased,
        bytes: record.bytes,
        enqueued: record.enqueued,
        moved_in: record.moved_in,
        acked: record.acked,
        moved_out: record.moved_out,
        expired_dropped: 0,
        cancelled: 0,
        purged: record.purged,
        dropped: 0,
        received: record.received,
        redelivered: record.redelivered,
        failed: record.failed,
        lease_expired: record.lease_expired,
        over_bound: record.over_bound,
        oldest_ready_at: None,
    }
}

/// The ready time of the older of the two lane heads.
fn oldest_ready_at(txn: &Txn<'_>, queue: &Queue) -> Result<Option<Timestamp>, Fault> {
    let (id, priority, record) = (queue.id, limits::PRIORITY_DEFAULT, &queue.record);
    let head = |from: keys::Key, to: keys::Key| -> Result<Option<(Bytes, Bytes)>, Fault> {
        Ok(txn.overlay.scan(&from, &to, 1)?.into_iter().next())
    };
    let mut oldest = None;
    let returned = (keys::returned(id, priority, record.returned_head), keys::returned(id, priority, u64::MAX));
    if let Some((key, value)) = head(returned.0, returned.1)? {
        let entry: ReturnRecord = decode("a place in the returned lane", &key, value)?;
        oldest = Some(entry.since_ms);
    }
    let fresh = (keys::fresh(id, priority, record.fresh_head), keys::fresh(id, priority, u64::MAX));
    if let Some((key, value)) = head(fresh.0, fresh.1)? {
        let message: MessageRecord = decode("a message", &key, value)?;
        oldest = Some(oldest.map_or(message.enqueued_at_ms, |o: u64| o.min(message.enqueued_at_ms)));
    }
    Ok(oldest.map(Timestamp))
}

/// One space of keys that a peek walks.
struct Walk {
    from: keys::Key,
    to: keys::Key,
}

fn peek(txn: &mut Txn<'_>, id: QueueId, state: MessageState, after: &[u8], limit: usize) -> Result<Page, Fault> {
    let empty = Page { messages: Vec::new(), next: Bytes::new() };
    let Some(record) = txn.queue(id)?.map(|q| q.record) else { return Ok(empty) };
    let priority = limits::PRIORITY_DEFAULT;
    let walks = match state {
        MessageState::Ready => vec![
            Walk {
                from: keys::returned(id, priority, record.returned_head),
                to: keys::returned(id, priority, u64::MAX),
            },
            Walk { from: keys::fresh(id, priority, record.fresh_head), to: keys::fresh(id, priority, u64::MAX) },
        ],
        MessageState::Delayed => {
            vec![Walk { from: keys::state(id, record.purged_below), to: keys::state(id, u64::MAX) }]
        }
        MessageState::Leased => vec![Walk { from: keys::lease(id, 0), to: keys::lease(id, u64::MAX) }],
        MessageState::Blocked => vec![],
    };
    let limit = limit.min(limits::PAGE);
    let mut page = empty;
    let mut bytes = 0usize;
    let resumed = walks.into_iter().skip_while(|walk| !after.is_empty() && walk.from.first() != after.first());
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
            if let Some(info) = info(txn, place)?.filter(|info| info.state == state) {
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
            return Ok(Place { queue, space: Space::Fresh, priority: limits::PRIORITY_DEFAULT, sequence });
        }
    };
    let place = u8::try_from(lane).ok().and_then(|lane| Place::from_parts(queue, lane, sequence));
    place.ok_or_else(|| broken("a place", key, format!("its lane is {lane}")))
}

fn get(txn: &mut Txn<'_>, id: MessageId) -> Result<Option<MessageInfo>, Fault> {
    if id.group != GroupId::QUEUES {
        return Ok(None);
    }
    let key = keys::moved(id.origin.queue, id.origin.sequence);
    let place = match txn.record::<PlaceRecord>("where a message is now", &key)? {
        Some(moved) => moved.place().ok_or_else(|| broken("a place", &key, format!("its lane is {}", moved.lane)))?,
        None => id.origin,
    };
    // A place that another message moved to is not the id of that message.
    Ok(info(txn, place)?.filter(|info| info.id == id))
}

fn info(txn: &mut Txn<'_>, place: Place) -> Result<Option<MessageInfo>, Fault> {
    let Some((queue, purged_below)) = txn.queue(place.queue)?.map(|q| (q.config.name.clone(), q.record.purged_below))
    else {
        return Ok(None);
    };
    let Some(message) = txn.record::<MessageRecord>("a message", &keys::message(place))? else { return Ok(None) };
    let lease = lease::find(txn, place.queue, place.sequence)?;
    if lease.is_none() && place.sequence < purged_below {
        return Ok(None);
    }
    let state: Option<StateRecord> = txn.record("a message's state", &keys::state(place.queue, place.sequence))?;
    // The key of a held message does not say its priority; its state does.
    if state.is_some_and(|s| s.lane != u32::from(place.lane_byte())) {
        return Ok(None);
    }
    let due = state.and_then(|s| s.due_ms).filter(|_| lease.is_none()).map(Timestamp);
    let receive_count = lease.as_ref().map(|l| l.receive_count).or(state.map(|s| s.receive_count)).unwrap_or(0);
    Ok(Some(MessageInfo {
        id: id_of(place, &message)?,
        place,
        queue,
        content: content(txn, &message)?,
        enqueued_at: Timestamp(message.enqueued_at_ms),
        state: match (&lease, due) {
            (Some(_), _) => MessageState::Leased,
            (None, Some(_)) => MessageState::Delayed,
            (None, None) => MessageState::Ready,
        },
        receive_count,
        failures: state.map_or(0, |s| s.failures),
        due,
        lease: lease.map(|lease| lease_info(place.queue, place.sequence, &lease)),
        dead_letter: message.dead_letter.as_ref().map(dead_letter_info).transpose()?,
        history: history(txn, place)?,
    }))
}

fn id_of(place: Place, message: &MessageRecord) -> Result<MessageId, Fault> {
    let origin = match message.origin {
        Some(origin) => origin
            .place()
            .ok_or_else(|| broken("a place of birth", &keys::message(place), format!("its lane is {}", origin.lane)))?,
        None => place,
    };
    Ok(MessageId { group: GroupId::QUEUES, origin })
}

/// What the producer said, the body included.
fn content(txn: &Txn<'_>, message: &MessageRecord) -> Result<Content, Fault> {
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
