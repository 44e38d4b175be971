//! `DeleteQueue`: the name is free at once and leases are void; ticks delete the keys later.

use super::{find, sweep};
use crate::command::DeleteQueue;
use crate::keys::Timer;
use crate::records::SweepRecord;
use crate::reply::{Answered, Fault, Rejection, Removed};
use crate::txn::Txn;

/// Carries out a `DeleteQueue`.
pub(crate) fn run(txn: &mut Txn<'_>, command: &DeleteQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let id = match find(txn, command.queue.as_ref())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let queue = txn.queue_mut(id)?;
    let (config, count) = (queue.config.clone(), queue.record.depth());
    if let Some(due) = config.pause.as_ref().map(|p| p.until_ms).filter(|until| *until != 0) {
        super::index::drop_timer(txn, Timer::Resume { due, queue: id });
    }
    txn.set_name(&config.name, None);
    txn.remove_queue(id);
    txn.header.queues = txn.header.queues.saturating_sub(1);
    let all = SweepRecord { deleted: true, below: u64::MAX, ..SweepRecord::default() };
    sweep::start(txn, id, all)?;
    Ok(Ok(Answered::QueueDeleted(Removed { count })))
}
