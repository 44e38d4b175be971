//! A dedup id that is remembered belongs to its message, or to one that has finished; ids and outcomes are counted.

use super::Image;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for ((queue, id), record) in &image.dedups {
        if !image.queues.contains_key(queue) || record.finished {
            continue;
        }
        let birth = (record.place.queue, record.place.sequence);
        let at = image.moved.get(&birth).map_or(birth, |place| (place.queue, place.sequence));
        if image.messages.get(&at).is_none_or(|(_, message)| message.dedup_id != *id) {
            return Err(format!("queue {queue}: the dedup id {id:?} is of {birth:?}, which is not there: {record:?}"));
        }
    }
    for (at, (_, message)) in image.live() {
        let born_here = message.origin.is_none_or(|origin| origin.queue == at.0);
        if message.dedup_id.is_empty() || !born_here || message.dead_letter.is_some() {
            continue;
        }
        let birth = message.origin.map_or(at.1, |origin| origin.sequence);
        let record = image.dedups.get(&(at.0, message.dedup_id.clone()));
        if record.is_none_or(|record| record.place.sequence != birth || record.finished) {
            return Err(format!("message {at:?} has the dedup id {:?}, which says {record:?}", message.dedup_id));
        }
    }
    for (id, q) in &image.queues {
        let ids = image.dedups.keys().filter(|(queue, _)| queue == id).count();
        if u64::try_from(ids) != Ok(q.dedup_ids) {
            return Err(format!("queue {id}: {} dedup ids counted, but {ids} found", q.dedup_ids));
        }
    }
    if u64::try_from(image.namespaces) != Ok(image.header.namespaces) {
        return Err(format!("{} namespaces counted, but {} found", image.header.namespaces, image.namespaces));
    }
    for bucket in &image.header.token_buckets {
        let found = image.tokens.get(&bucket.bucket).copied().unwrap_or_default();
        if found != bucket.count {
            return Err(format!("{bucket:?} counted, but {found} outcomes found"));
        }
    }
    match image.tokens.keys().find(|found| image.header.token_buckets.iter().all(|known| known.bucket != **found)) {
        Some(bucket) => Err(format!("outcomes of bucket {bucket} are left, which is dropped")),
        None => Ok(()),
    }
}
