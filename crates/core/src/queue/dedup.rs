//! Dedup ids: a producer's business key is remembered until its window is over and its message is finished (SEMANTICS
//! "Enqueue").

use super::{index, message};
use crate::ids::{Place, QueueId};
use crate::keys::{self, Timer};
use crate::planted::{Bug, is_planted};
use crate::records::DedupRecord;
use crate::reply::{Fault, PlaceRecord};
use crate::txn::Txn;

/// What a queue remembers under a dedup id. One whose window is over and whose message has finished is free, before
/// its timer fires too; so is one whose message was purged.
pub(crate) fn find(txn: &mut Txn<'_>, queue: QueueId, id: &str) -> Result<Option<DedupRecord>, Fault> {
    let Some(record) = stored(txn, queue, id)? else { return Ok(None) };
    let is_free = if record.finished {
        txn.header.cluster_ms >= record.until_ms
    } else {
        message::is_purged_away(txn, queue, record.place.sequence)?
    };
    Ok((!is_free).then_some(record))
}

fn stored(txn: &Txn<'_>, queue: QueueId, id: &str) -> Result<Option<DedupRecord>, Fault> {
    txn.record("a dedup id", &keys::dedup(queue, id))
}

/// Remembers the dedup id of a message that has just been enqueued at `place`.
pub(crate) fn remember(txn: &mut Txn<'_>, place: Place, id: &str) -> Result<(), Fault> {
    let is_new = stored(txn, place.queue, id)?.is_none();
    let queue = txn.queue_mut(place.queue)?;
    let until_ms = queue.config.dedup_window_ms();
    if is_new {
        queue.record.dedup_ids = queue.record.dedup_ids.saturating_add(1);
    }
    let until_ms = txn.header.cluster_ms.saturating_add(until_ms);
    let record = DedupRecord { place: place.into(), finished: false, over: false, until_ms };
    txn.put(keys::dedup(place.queue, id), &record);
    index::set_timer_for(txn, Timer::Dedup { due: until_ms, place }, id.as_bytes().to_vec());
    Ok(())
}

/// The message born at `birth` has finished in its queue: its id is kept until the window is over.
pub(crate) fn finish(txn: &mut Txn<'_>, queue: QueueId, id: &str, birth: PlaceRecord) -> Result<(), Fault> {
    let Some(record) = stored(txn, queue, id)?.filter(|record| record.place == birth) else { return Ok(()) };
    if record.over || txn.header.cluster_ms >= record.until_ms || is_planted(Bug::DedupForgotten) {
        return forget(txn, queue, id);
    }
    txn.put(keys::dedup(queue, id), &DedupRecord { finished: true, ..record });
    Ok(())
}

/// The message born at `birth` was taken away: its id is free.
pub(crate) fn free(txn: &mut Txn<'_>, queue: QueueId, id: &str, birth: PlaceRecord) -> Result<(), Fault> {
    let Some(record) = stored(txn, queue, id)?.filter(|record| record.place == birth) else { return Ok(()) };
    if let Some(place) = birth.place() {
        index::drop_timer(txn, Timer::Dedup { due: record.until_ms, place });
    }
    forget(txn, queue, id)
}

fn forget(txn: &mut Txn<'_>, queue: QueueId, id: &str) -> Result<(), Fault> {
    txn.overlay.delete(keys::dedup(queue, id));
    let record = &mut txn.queue_mut(queue)?.record;
    record.dedup_ids = record.dedup_ids.saturating_sub(1);
    Ok(())
}

/// The window of a dedup id is over. While its message is unfinished, it is remembered all the same.
pub(crate) fn fire(txn: &mut Txn<'_>, place: Place, id: &str) -> Result<(), Fault> {
    let queue = place.queue;
    if txn.queue(queue)?.is_none() {
        return Ok(());
    }
    let birth = PlaceRecord::from(place);
    let Some(record) = stored(txn, queue, id)?.filter(|record| record.place == birth) else { return Ok(()) };
    if record.finished || message::is_purged_away(txn, queue, place.sequence)? {
        return forget(txn, queue, id);
    }
    txn.put(keys::dedup(queue, id), &DedupRecord { over: true, ..record });
    Ok(())
}
