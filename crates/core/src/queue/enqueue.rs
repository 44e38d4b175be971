//! The enqueue parts of a commit.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{check_name, create, find, index, invalid};
use crate::command::{Content, Enqueue, QueueRef};
use crate::ids::{QueueId, Space};
use crate::keys::{self, Timer};
use crate::limits;
use crate::queue::transition::{Cause, carry};
use crate::records::{ConfigRecord, MessageRecord, QueueRecord, StateRecord};
use crate::reply::{Enqueued, Fault, Full, Rejection};
use crate::txn::Txn;

/// Carries out one enqueue. Checks come in this order: the message, the queue, its bounds.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    queues: &[QueueRef],
    auto_create: bool,
    part: &Enqueue,
) -> Result<Result<Enqueued, Rejection>, Fault> {
    let content = match check(part, txn.header.cluster_ms) {
        Ok(content) => content,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let name = usize::try_from(part.queue).ok().and_then(|index| queues.get(index));
    let id = match open(txn, name, auto_create)? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let size = content.size();
    let now = txn.header.cluster_ms;
    let queue = txn.queue_mut(id)?;
    if let Some(full) = full(&queue.config, &queue.record, 1, size) {
        return Ok(Err(Rejection::Full(full)));
    }
    let available_at_ms = now.saturating_add(part.delay_ms).max(part.deliver_at_ms);
    let delayed = available_at_ms > now;
    let (space, cause) = if delayed { (Space::Held, Cause::EnqueuedLater) } else { (Space::Fresh, Cause::Enqueued) };
    carry(&mut queue.record, id, None, cause, size)?;
    let place = index::next_place(txn, id, space)?;
    let (body, content) = store_content(txn, content);
    let message = MessageRecord { enqueued_at_ms: now, size, body, origin: None, dead_letter: None, content };
    index::put_message(txn, place, &message);
    if delayed {
        let state = StateRecord { due_ms: Some(available_at_ms), ..StateRecord::default() };
        index::put_state(txn, place, &state);
        index::set_timer(txn, Timer::Message { due: available_at_ms, place });
    } else {
        txn.wake(id);
    }
    Ok(Ok(Enqueued { place: place.into(), available_at_ms }))
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
    for (field, delay) in [("delay", part.delay_ms), ("deliver_at", part.deliver_at_ms.saturating_sub(now))] {
        if delay > limits::DELAY_MAX_MS {
            let reason = format!("expected at most {} ms from now, but got {delay}", limits::DELAY_MAX_MS);
            return Err(invalid(field, reason));
        }
    }
    Ok(content)
}

/// The queue to enqueue on, made where it may be.
fn open(txn: &mut Txn<'_>, name: Option<&QueueRef>, auto_create: bool) -> Result<Result<QueueId, Rejection>, Fault> {
    let id = match find(txn, name)? {
        Ok(id) => id,
        Err(Rejection::QueueNotFound(_)) if auto_create => {
            return Ok(check_name(name).and_then(|name| create::by_enqueue(txn, name)));
        }
        Err(rejection) => return Ok(Err(rejection)),
    };
    let closed = txn.queue(id)?.is_some_and(|q| q.config.closed);
    Ok(match name {
        Some(name) if closed => Err(Rejection::QueueClosed(name.into())),
        Some(_) | None => Ok(id),
    })
}

/// The bound that `messages` more of `bytes` in all would pass, if there is one.
pub(crate) fn full(config: &ConfigRecord, record: &QueueRecord, messages: u64, bytes: u64) -> Option<Full> {
    let passed = |bound: &str, limit: Option<u64>, held: u64, more: u64| {
        let limit = limit.filter(|limit| *limit > 0)?;
        (held.saturating_add(more) > limit).then(|| Full {
            queue: (&config.name).into(),
            bound: bound.into(),
            limit,
            held,
            retry_after_ms: limits::RETRY_AFTER_MS,
        })
    };
    passed("max_depth", config.settings.max_depth, record.depth(), messages)
        .or_else(|| passed("max_bytes", config.settings.max_bytes, record.bytes, bytes))
}

impl QueueRecord {
    /// Messages here now.
    pub(crate) fn depth(&self) -> u64 {
        self.ready.saturating_add(self.delayed).saturating_add(self.leased)
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
