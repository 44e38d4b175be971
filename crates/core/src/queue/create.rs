//! `CreateQueue`, and the queues that come to be by their first enqueue or move.

use super::bounds::{self, Newcomers};
use super::{check_name, settings};
use crate::command::{CreateQueue, QueueRef, QueueSettings};
use crate::ids::QueueId;
use crate::limits;
use crate::namespace;
use crate::records::{ConfigRecord, QueueRecord};
use crate::reply::{Answered, Fault, LimitReached, QueueChanged, Rejection};
use crate::txn::Txn;

/// Carries out a `CreateQueue`.
pub(crate) fn run(txn: &mut Txn<'_>, command: &CreateQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let name = match check_name(command.queue.as_ref()) {
        Ok(name) => name,
        Err(rejection) => return Ok(Err(rejection)),
    };
    if txn.queue_id(name)?.is_some() {
        return Ok(Err(Rejection::QueueExists(name.into())));
    }
    let changes = command.settings.clone().unwrap_or_default();
    let (defaults, _) = namespace::defaults(txn, &name.namespace)?;
    let settings = settings::merge(&defaults, &changes);
    Ok(create(txn, name, settings).map(|id| Answered::QueueChanged(QueueChanged { queue: id.0 })))
}

/// Makes a queue whose name is free, by its first enqueue, unless its namespace forbids that, or it would not take what
/// is to be enqueued.
pub(crate) fn by_enqueue(
    txn: &mut Txn<'_>,
    name: &QueueRef,
    newcomers: Newcomers,
) -> Result<Result<QueueId, Rejection>, Fault> {
    let (settings, true) = namespace::defaults(txn, &name.namespace)? else {
        return Ok(Err(Rejection::QueueNotFound(name.into())));
    };
    let config = ConfigRecord { name: name.clone(), settings, ..ConfigRecord::default() };
    if let Some(full) = bounds::passed(&config, &QueueRecord::new(), newcomers) {
        return Ok(Err(Rejection::Full(full)));
    }
    Ok(create(txn, name, config.settings))
}

fn create(txn: &mut Txn<'_>, name: &QueueRef, settings: QueueSettings) -> Result<QueueId, Rejection> {
    settings::check(name, &settings)?;
    if txn.header.queues >= limits::QUEUES {
        return Err(Rejection::QueuesFull(LimitReached { limit: limits::QUEUES }));
    }
    Ok(add(txn, name, settings))
}

/// Makes a dead-letter queue for a move, which nothing may stop: neither the count of queues, nor a name that leaves
/// no room for a dead-letter queue of its own.
pub(crate) fn by_move(txn: &mut Txn<'_>, name: &QueueRef) -> QueueId {
    add(txn, name, settings::defaults())
}

fn add(txn: &mut Txn<'_>, name: &QueueRef, settings: QueueSettings) -> QueueId {
    txn.header.last_queue = txn.header.last_queue.saturating_add(1);
    txn.header.queues = txn.header.queues.saturating_add(1);
    let id = QueueId(txn.header.last_queue);
    let config =
        ConfigRecord { name: name.clone(), created_at_ms: txn.header.cluster_ms, settings, pause: None, closed: false };
    let record = QueueRecord::new();
    txn.add_queue(id, config, record);
    txn.set_name(name, Some(id));
    id
}
