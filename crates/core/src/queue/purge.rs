//! `PurgeQueue`: all that is not leased is gone at once; ticks delete the keys later.

use super::{find, sweep};
use crate::command::PurgeQueue;
use crate::records::SweepRecord;
use crate::reply::{Answered, Fault, Rejection, Removed};
use crate::txn::Txn;

/// Carries out a `PurgeQueue`. Leased messages are let finish: an ack counts as one, any other end as purged.
pub(crate) fn run(txn: &mut Txn<'_>, command: &PurgeQueue) -> Result<Result<Answered, Rejection>, Fault> {
    let id = match find(txn, command.queue.as_ref())? {
        Ok(id) => id,
        Err(rejection) => return Ok(Err(rejection)),
    };
    let record = &mut txn.queue_mut(id)?.record;
    let count = record.ready.saturating_add(record.delayed).saturating_add(record.blocked);
    record.purged = record.purged.saturating_add(count);
    record.ready = 0;
    record.delayed = 0;
    record.blocked = 0;
    record.bytes = record.leased_bytes;
    let from = std::mem::replace(&mut record.purged_below, record.last_sequence.saturating_add(1));
    record.empty_lanes();
    record.lines_from = record.last_line.saturating_add(1);
    record.parks_from = record.last_park.saturating_add(1);
    let (below, returns_below) = (record.purged_below, record.last_return.saturating_add(1));
    let parks_below = record.parks_from;
    let dead = SweepRecord { from, below, returns_below, parks_below, ..SweepRecord::default() };
    sweep::start(txn, id, dead)?;
    Ok(Ok(Answered::QueuePurged(Removed { count })))
}
