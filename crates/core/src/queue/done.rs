//! Outcomes of acks, kept for a while where a queue retains them (`retain_done`). They stand under the birth of their
//! message: whoever has its id finds them.

use super::{index, message, settle};
use crate::command::Ack;
use crate::ids::{Place, QueueId};
use crate::keys::{self, Timer};
use crate::limits;
use crate::queue::lease::Held;
use crate::records::{DoneRecord, broken};
use crate::reply::{Fault, PlaceRecord};
use crate::txn::Txn;

/// Keeps what came of a message that is being acked, if its queue does so.
pub(crate) fn keep(txn: &mut Txn<'_>, held: &Held, ack: &Ack) -> Result<(), Fault> {
    let Held { place, lease } = held;
    let queue = txn.queue_mut(place.queue)?;
    let retain_ms = queue.config.retain_done_ms();
    if retain_ms == 0 {
        return Ok(());
    }
    if queue.record.retained >= limits::RETAIN_DONE {
        queue.record.outcomes_dropped = queue.record.outcomes_dropped.saturating_add(1);
        return Ok(());
    }
    queue.record.retained = queue.record.retained.saturating_add(1);
    let name = queue.config.name.clone();
    let id = if lease.moved { settle::message(txn, held)?.birth(*place) } else { PlaceRecord::from(*place) };
    let birth = message::place(&id, &keys::message(*place))?;
    let finished_at_ms = txn.header.cluster_ms;
    let until_ms = finished_at_ms.saturating_add(retain_ms);
    // A copy: the output is a slice of the whole entry.
    let output = bytes::Bytes::copy_from_slice(&ack.output);
    let (receive_count, worker) = (lease.receive_count, lease.worker.clone());
    let queue_id = place.queue.0;
    let record = DoneRecord { id, queue: name, queue_id, finished_at_ms, until_ms, output, receive_count, worker };
    txn.put(keys::done(birth.queue, birth.sequence), &record);
    let acked_in = place.queue.0.to_be_bytes().to_vec();
    index::set_timer_for(txn, Timer::Done { due: until_ms, place: birth }, acked_in);
    Ok(())
}

/// An outcome need not be kept any longer; `acked_in` is the queue that counts it.
pub(crate) fn fire(txn: &mut Txn<'_>, birth: Place, acked_in: &[u8]) -> Result<(), Fault> {
    let key = keys::done(birth.queue, birth.sequence);
    let queue = keys::last_number(acked_in).ok_or_else(|| broken("a queue's id", &key, "its timer has none"))?;
    txn.overlay.delete(key);
    if txn.queue(QueueId(queue))?.is_some() {
        let record = &mut txn.queue_mut(QueueId(queue))?.record;
        record.retained = record.retained.saturating_sub(1);
    }
    Ok(())
}
