//! `UpdateQueue`: changes settings; what is absent stays.

use super::{find, settings};
use crate::command::UpdateQueue;
use crate::records::ConfigRecord;
use crate::reply::{Answered, Fault, QueueChanged, Rejection};
use crate::txn::Txn;

/// Carries out an `UpdateQueue`.
pub(crate) fn run(txn: &mut Txn<'_>, command: &UpdateQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let id = match find(txn, command.queue.as_ref())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let config = txn.queue_mut(id)?.config.clone();
    let changes = command.settings.clone().unwrap_or_default();
    let settings = settings::merge(&config.settings, &changes);
    if let Err(rejection) = settings::check(&config.name, &settings) {
        return Ok(Err(rejection));
    }
    txn.set_config(id, ConfigRecord { settings, ..(*config).clone() })?;
    Ok(Ok(Answered::QueueChanged(QueueChanged { queue: id.0 })))
}
