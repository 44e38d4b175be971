//! Namespaces: what queues get that are made in one, and whether enqueues make them.

use crate::command::{DeleteNamespace, QueueRef, QueueSettings, SetNamespace};
use crate::keys;
use crate::limits;
use crate::names::Namespace;
use crate::query::NamespaceInfo;
use crate::queue::{invalid, settings};
use crate::records::{NamespaceRecord, decode};
use crate::reply::{Answered, Empty, Fault, LimitReached, QueueNamed, Rejection};
use crate::txn::Txn;

/// Carries out a `SetNamespace`.
pub(crate) fn set(txn: &mut Txn<'_>, command: &SetNamespace) -> Result<Result<Answered, Rejection>, Fault> {
    if let Err(e) = Namespace::parse(command.namespace.as_str()) {
        return Ok(Err(invalid("namespace", e.to_string())));
    }
    let defaults = command.defaults.clone().unwrap_or_default();
    if defaults.dead_letter_queue.as_deref().is_some_and(|named| !named.is_empty()) {
        let reason = "expected none, since one queue can't be that of all, but one is named";
        return Ok(Err(invalid("dead_letter_queue", reason)));
    }
    // Under any name: the limits are the same for all.
    let sample = QueueRef { namespace: command.namespace.clone(), name: "a".into() };
    if let Err(rejection) = settings::check(&sample, &settings::merge(&settings::defaults(), &defaults)) {
        return Ok(Err(rejection));
    }
    let key = keys::namespace(&command.namespace);
    if txn.overlay.get(&key)?.is_none() {
        if txn.header.namespaces >= limits::NAMESPACES {
            return Ok(Err(Rejection::NamespacesFull(LimitReached { limit: limits::NAMESPACES })));
        }
        txn.header.namespaces = txn.header.namespaces.saturating_add(1);
    }
    txn.put(key, &NamespaceRecord { defaults, auto_create: command.auto_create.unwrap_or(true) });
    Ok(Ok(Answered::NamespaceChanged(Empty {})))
}

/// Carries out a `DeleteNamespace`.
pub(crate) fn delete(txn: &mut Txn<'_>, command: &DeleteNamespace) -> Result<Result<Answered, Rejection>, Fault> {
    let key = keys::namespace(&command.namespace);
    if txn.overlay.get(&key)?.is_none() {
        let named = QueueNamed { namespace: command.namespace.clone(), name: String::new() };
        return Ok(Err(Rejection::NamespaceNotFound(named)));
    }
    txn.overlay.delete(key);
    txn.header.namespaces = txn.header.namespaces.saturating_sub(1);
    Ok(Ok(Answered::NamespaceChanged(Empty {})))
}

/// What a new queue of a namespace gets, and whether enqueues make one.
pub(crate) fn defaults(txn: &Txn<'_>, namespace: &str) -> Result<(QueueSettings, bool), Fault> {
    let record: Option<NamespaceRecord> = txn.record("a namespace", &keys::namespace(namespace))?;
    Ok(match record {
        Some(record) => (settings::merge(&settings::defaults(), &record.defaults), record.auto_create),
        None => (settings::defaults(), true),
    })
}

/// One namespace.
pub(crate) fn find(txn: &Txn<'_>, name: &str) -> Result<Option<NamespaceInfo>, Fault> {
    let record: Option<NamespaceRecord> = txn.record("a namespace", &keys::namespace(name))?;
    Ok(record.map(|NamespaceRecord { defaults, auto_create }| NamespaceInfo {
        name: name.to_owned(),
        defaults,
        auto_create,
    }))
}

/// Namespaces by name.
pub(crate) fn list(txn: &Txn<'_>, after: &str, limit: usize) -> Result<Vec<NamespaceInfo>, Fault> {
    let (first, to) = keys::space(b'v');
    let from = if after.is_empty() { first } else { keys::after(&keys::namespace(after)) };
    let mut infos = Vec::new();
    for (key, value) in txn.overlay.scan(&from, &to, limit.min(limits::PAGE))? {
        let NamespaceRecord { defaults, auto_create } = decode("a namespace", &key, value)?;
        let name = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
        infos.push(NamespaceInfo { name, defaults, auto_create });
    }
    Ok(infos)
}
