//! Queues: one file a verb, named for it.

pub(crate) mod bounds;
pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod dead_letter;
pub(crate) mod dedup;
pub(crate) mod delete;
pub(crate) mod done;
pub(crate) mod enqueue;
pub(crate) mod expire;
pub(crate) mod expiry;
pub(crate) mod failure;
pub(crate) mod finish;
pub(crate) mod gate;
pub(crate) mod group;
pub(crate) mod index;
pub(crate) mod lanes;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod purge;
pub(crate) mod rate;
pub(crate) mod receive;
pub(crate) mod settings;
pub(crate) mod settle;
pub(crate) mod sweep;
pub(crate) mod transition;
pub(crate) mod update;

use crate::command::QueueRef;
use crate::ids::QueueId;
use crate::names::{Namespace, QueueName};
use crate::reply::{Fault, Invalid, QueueNamed, Rejection};
use crate::txn::Txn;

impl From<&QueueRef> for QueueNamed {
    fn from(queue: &QueueRef) -> Self {
        Self { namespace: queue.namespace.clone(), name: queue.name.clone() }
    }
}

/// A rejection that names a field.
pub(crate) fn invalid(field: &str, reason: impl Into<String>) -> Rejection {
    Rejection::Invalid(Invalid { field: field.into(), reason: reason.into() })
}

fn nameless() -> Rejection {
    invalid("queue", "expected a queue's name, but there is none")
}

/// Checks a queue's two names.
pub(crate) fn check_name(queue: Option<&QueueRef>) -> Result<&QueueRef, Rejection> {
    let Some(queue) = queue else { return Err(nameless()) };
    if let Err(e) = Namespace::parse(queue.namespace.as_str()) {
        return Err(invalid("namespace", e.to_string()));
    }
    if let Err(e) = QueueName::parse(queue.name.as_str()) {
        return Err(invalid("queue", e.to_string()));
    }
    Ok(queue)
}

/// The queue of that name, which must be there.
pub(crate) fn find(txn: &mut Txn<'_>, queue: Option<&QueueRef>) -> Result<Result<QueueId, Rejection>, Fault> {
    let Some(queue) = queue else { return Ok(Err(nameless())) };
    // A name that a queue has is legal.
    match txn.queue_id(queue)? {
        Some(id) => Ok(Ok(id)),
        None => Ok(check_name(Some(queue)).and_then(|queue| Err(Rejection::QueueNotFound(queue.into())))),
    }
}
