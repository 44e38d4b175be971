//! `PauseQueue` stops delivery and nothing else; `CloseQueue` refuses enqueues and nothing else.

use super::{find, invalid};
use crate::command::{CloseQueue, PauseQueue};
use crate::ids::QueueId;
use crate::keys::Timer;
use crate::limits;
use crate::records::ConfigRecord;
use crate::reply::{Answered, Fault, QueueChanged, Rejection};
use crate::txn::Txn;

/// Carries out a `PauseQueue`.
pub(crate) fn pause(txn: &mut Txn<'_>, command: &PauseQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let id = match find(txn, command.queue.as_ref())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    if let Some(pause) = &command.pause {
        for (field, text) in [("reason", &pause.reason), ("author", &pause.author)] {
            if text.len() > limits::NOTE_BYTES {
                let reason = format!("expected at most {} bytes, but got {}", limits::NOTE_BYTES, text.len());
                return Ok(Err(invalid(field, reason)));
            }
        }
        if pause.until_ms != 0 && pause.until_ms <= txn.header.cluster_ms {
            return Ok(Err(invalid("until", "expected a time to come, but it is over")));
        }
    }
    let config = txn.queue_mut(id)?.config.clone();
    if let Some(until) = config.pause.as_ref().map(|p| p.until_ms).filter(|until| *until != 0) {
        super::index::drop_timer(txn, Timer::Resume { due: until, queue: id });
    }
    match &command.pause {
        Some(pause) if pause.until_ms != 0 => {
            super::index::set_timer(txn, Timer::Resume { due: pause.until_ms, queue: id });
        }
        Some(_) => {}
        None => txn.wake(id),
    }
    txn.set_config(id, ConfigRecord { pause: command.pause.clone(), ..(*config).clone() })?;
    Ok(Ok(Answered::QueueChanged(QueueChanged { queue: id.0 })))
}

/// Ends a pause whose time is over.
pub(crate) fn fire_resume(txn: &mut Txn<'_>, id: QueueId, due: u64) -> Result<(), Fault> {
    let Some(queue) = txn.queue(id)? else { return Ok(()) };
    if queue.config.pause.as_ref().is_none_or(|p| p.until_ms != due) {
        return Ok(());
    }
    let config = ConfigRecord { pause: None, ..(*queue.config).clone() };
    txn.set_config(id, config)?;
    txn.wake(id);
    Ok(())
}

/// Carries out a `CloseQueue`.
pub(crate) fn close(txn: &mut Txn<'_>, command: &CloseQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let id = match find(txn, command.queue.as_ref())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let config = txn.queue_mut(id)?.config.clone();
    txn.set_config(id, ConfigRecord { closed: command.closed, ..(*config).clone() })?;
    Ok(Ok(Answered::QueueChanged(QueueChanged { queue: id.0 })))
}
