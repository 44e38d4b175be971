//! The enqueue parts of a commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::bounds::{self, Newcomers};
use super::{check_name, create, dedup, find, group, index, invalid, message};
use crate::command::{Content, Enqueue, QueueRef, RetryPolicy};
use crate::ids::{Place, QueueId, Space};
use crate::keys::{self, Timer};
use crate::limits;
use crate::names::QueueName;
use crate::queue::transition::{Cause, carry};
use crate::records::{DedupRecord, MessageRecord, StateRecord};
use crate::reply::{Enqueued, Fault, Rejection};
use crate::txn::Txn;

/// Carries out one enqueue. Checks come in this order: the message, the queue's name, its dedup id, the queue's bounds.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    queues: &[QueueRef],
    auto_create: bool,
    part: &Enqueue,
) -> Result<Result<Enqueued, Rejection>, Fault> {
    let name = usize::try_from(part.queue).ok().and_then(|index| queues.get(index));
    let content = match check(part, txn.header.cluster_ms) {
        Ok(_) if !part.dead_letter_queue.is_empty() && name.is_some_and(|name| name.name == part.dead_letter_queue) => {
            return Ok(Err(invalid("dead_letter_queue", "expected another queue, but it is the queue itself")));
        }
        Ok(content) => content,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let now = txn.header.cluster_ms;
    let available_at_ms = now.saturating_add(part.delay_ms).max(part.deliver_at_ms);
    let newcomers = Newcomers::new(part, content.size(), available_at_ms > now);
    let id = match open(txn, name, auto_create, newcomers)? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    if !part.dedup_id.is_empty()
        && let Some(known) = dedup::find(txn, id, &part.dedup_id)?
    {
        return Ok(Ok(duplicate(txn, id, &known)?));
    }
    let queue = txn.queue_mut(id)?;
    if queue.config.closed {
        return Ok(Err(Rejection::QueueClosed((&queue.config.name).into())));
    }
    if let Some(full) = bounds::passed(&queue.config, &queue.record, newcomers) {
        return Ok(Err(Rejection::Full(full)));
    }
    let expires_at_ms = expiry(part, available_at_ms).or_else(|| after(available_at_ms, queue.config.ttl_ms()));
    let expires_at_ms = expires_at_ms.unwrap_or_default();
    let (body, content) = store_content(txn, content);
    let message = MessageRecord {
        enqueued_at_ms: now,
        size: newcomers.bytes,
        body,
        group: part.group.clone(),
        dedup_id: part.dedup_id.clone(),
        expires_at_ms,
        retry: part.retry,
        dead_letter_queue: part.dead_letter_queue.clone(),
        content,
        ..MessageRecord::default()
    };
    let priority = newcomers.priority;
    let place = if available_at_ms > now {
        put_delayed(txn, id, priority, &message, available_at_ms)?
    } else {
        put_ready(txn, id, priority, message, [Cause::Enqueued, Cause::EnqueuedBehind], None)?
    };
    if expires_at_ms != 0 {
        index::set_timer(txn, Timer::Expiry { due: expires_at_ms, place });
    }
    if !part.dedup_id.is_empty() {
        dedup::remember(txn, place, &part.dedup_id)?;
    }
    Ok(Ok(Enqueued { place: place.into(), available_at_ms, duplicate: false }))
}

/// What a queue answers that remembers the dedup id.
fn duplicate(txn: &mut Txn<'_>, queue: QueueId, known: &DedupRecord) -> Result<Enqueued, Fault> {
    let record = &mut txn.queue_mut(queue)?.record;
    record.duplicates = record.duplicates.saturating_add(1);
    let birth = message::place(&known.place, &keys::queue(queue))?;
    let due = message::born_at(txn, birth)?.and_then(|found| found.due());
    Ok(Enqueued { place: known.place, available_at_ms: due.unwrap_or(txn.header.cluster_ms), duplicate: true })
}

fn put_delayed(
    txn: &mut Txn<'_>,
    queue: QueueId,
    priority: u8,
    message: &MessageRecord,
    due: u64,
) -> Result<Place, Fault> {
    let record = &mut txn.queue_mut(queue)?.record;
    carry(record, queue, None, Cause::EnqueuedLater, message.size)?;
    let place = index::next_place(txn, queue, Space::Held, priority)?;
    index::put_message(txn, place, message)?;
    let grouped = !message.group.is_empty();
    index::put_state(txn, place, &StateRecord { due_ms: Some(due), grouped, ..StateRecord::default() });
    index::set_timer(txn, Timer::Message { due, place });
    Ok(place)
}

/// Puts a message on a queue that is ready unless others of its group are before it; `causes` are for the two. A moved
/// one brings its `state`.
pub(crate) fn put_ready(
    txn: &mut Txn<'_>,
    queue: QueueId,
    priority: u8,
    mut message: MessageRecord,
    causes: [Cause; 2],
    state: Option<StateRecord>,
) -> Result<Place, Fault> {
    let [ready, behind] = causes;
    let grouped = !message.group.is_empty();
    if grouped {
        message.line = group::next_line(txn, queue)?;
    }
    let (line, is_head) = (message.line, !grouped || group::is_free(txn, queue, &message.group)?);
    let (space, cause) = if is_head { (Space::Fresh, ready) } else { (Space::Held, behind) };
    carry(&mut txn.queue_mut(queue)?.record, queue, None, cause, message.size)?;
    let place = index::next_place(txn, queue, space, priority)?;
    index::put_message(txn, place, &message)?;
    if grouped {
        group::join(txn, place, &message.group, line)?;
    }
    if !is_head || state.is_some() {
        let state = StateRecord { line, grouped, blocked: !is_head, ..state.unwrap_or_default() };
        index::put_state(txn, place, &state);
    }
    Ok(place)
}

/// When a message expires that is first ready at `available_at_ms`, by what it says itself.
fn expiry(part: &Enqueue, available_at_ms: u64) -> Option<u64> {
    let absolute = Some(part.expires_at_ms).filter(|at| *at > 0);
    after(available_at_ms, part.ttl_ms).into_iter().chain(absolute).min()
}

fn after(available_at_ms: u64, ttl_ms: u64) -> Option<u64> {
    (ttl_ms > 0).then(|| available_at_ms.saturating_add(ttl_ms))
}

/// Checks a message against the limits that no configuration lifts.
fn check(part: &Enqueue, now: u64) -> Result<&Content, Rejection> {
    let Some(content) = &part.message else {
        return Err(invalid("message", "expected a message, but there is none"));
    };
    let most = |field: &str, limit: usize, len: usize| {
        if len > limit { Err(invalid(field, format!("expected at most {limit} bytes, but got {len}"))) } else { Ok(()) }
    };
    let sides = |map: &BTreeMap<String, String>| map.iter().flat_map(|(k, v)| [k.len(), v.len()]).collect::<Vec<_>>();
    most("body", limits::BODY_BYTES_CONFIGURABLE, content.body.len())?;
    most("content_type", limits::FIELD_BYTES, content.content_type.len())?;
    most("type", limits::FIELD_BYTES, content.r#type.len())?;
    most("correlation_id", limits::FIELD_BYTES, content.correlation_id.len())?;
    most("reply_to", limits::FIELD_BYTES, content.reply_to.len())?;
    most("headers", limits::HEADERS_BYTES, sides(&content.headers).iter().sum())?;
    if content.tags.len() > limits::TAGS {
        return Err(invalid("tags", format!("expected at most {}, but got {}", limits::TAGS, content.tags.len())));
    }
    most("tags", limits::TAG_BYTES, sides(&content.tags).into_iter().max().unwrap_or_default())?;
    check_times(part.delay_ms, part.deliver_at_ms, now)?;
    let available_at_ms = now.saturating_add(part.delay_ms).max(part.deliver_at_ms);
    for (field, ttl) in [("ttl", part.ttl_ms), ("expires_at", part.expires_at_ms.saturating_sub(available_at_ms))] {
        if ttl > limits::TTL_MAX_MS {
            let reason = format!("expected at most {} ms once it is ready, but got {ttl}", limits::TTL_MAX_MS);
            return Err(invalid(field, reason));
        }
    }
    if let Some(expires_at_ms) = expiry(part, available_at_ms).filter(|at| *at <= available_at_ms) {
        let reason =
            format!("expected a time after the message is ready, at {available_at_ms}, but got {expires_at_ms}");
        return Err(invalid("expires_at", reason));
    }
    most("group", limits::ID_BYTES, part.group.len())?;
    most("dedup_id", limits::ID_BYTES, part.dedup_id.len())?;
    let highest = u32::from(limits::PRIORITY_MAX);
    if let Some(priority) = part.priority.filter(|priority| *priority > highest) {
        return Err(invalid("priority", format!("expected 0 to {highest}, but got {priority}")));
    }
    if let Some(retry) = &part.retry {
        check_retry(retry)?;
    }
    if !part.dead_letter_queue.is_empty()
        && let Err(e) = QueueName::parse(part.dead_letter_queue.as_str())
    {
        return Err(invalid("dead_letter_queue", e.to_string()));
    }
    Ok(content)
}

/// Checks when a message is to be ready.
pub(crate) fn check_times(delay_ms: u64, deliver_at_ms: u64, now: u64) -> Result<(), Rejection> {
    for (field, delay) in [("delay", delay_ms), ("deliver_at", deliver_at_ms.saturating_sub(now))] {
        if delay > limits::DELAY_MAX_MS {
            let reason = format!("expected at most {} ms from now, but got {delay}", limits::DELAY_MAX_MS);
            return Err(invalid(field, reason));
        }
    }
    Ok(())
}

/// Checks a message's own retry policy.
fn check_retry(retry: &RetryPolicy) -> Result<(), Rejection> {
    let range = |field: &str, value: Option<u64>, low: u64, high: u64| match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(invalid(field, format!("expected {low} to {high}, but got {value}")))
        }
        Some(_) | None => Ok(()),
    };
    range("retry.max_attempts", retry.max_attempts.map(u64::from), 0, limits::ATTEMPTS_MAX.into())?;
    range("retry.backoff_base_ms", retry.backoff_base_ms, 1, limits::BACKOFF_MAX_MS)?;
    range("retry.backoff_cap_ms", retry.backoff_cap_ms, retry.backoff_base_ms.unwrap_or(1), limits::BACKOFF_MAX_MS)
}

/// The queue to enqueue on, made where it may be, and where it would take the message: a part that is refused leaves no
/// queue behind.
fn open(
    txn: &mut Txn<'_>,
    name: Option<&QueueRef>,
    auto_create: bool,
    newcomers: Newcomers,
) -> Result<Result<QueueId, Rejection>, Fault> {
    match find(txn, name)? {
        Err(Rejection::QueueNotFound(_)) if auto_create => match check_name(name) {
            Ok(name) => create::by_enqueue(txn, name, newcomers),
            Err(rejection) => Ok(Err(rejection)),
        },
        found => Ok(found),
    }
}

/// Puts a large body into its own space; returns its id and the encoded content without it.
fn store_content(txn: &mut Txn<'_>, content: &Content) -> (u64, Bytes) {
    if content.body.len() <= limits::BODY_INLINE_BYTES {
        return (0, content.encode_to_vec().into());
    }
    txn.header.last_body = txn.header.last_body.saturating_add(1);
    let id = txn.header.last_body;
    // A copy: the body is a slice of the whole entry, which would otherwise stay in memory with it.
    txn.overlay.put(keys::body(id), Bytes::copy_from_slice(&content.body));
    let rest = Content { body: Bytes::new(), ..content.clone() };
    (id, rest.encode_to_vec().into())
}
