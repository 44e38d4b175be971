//! A queue's counters say what its records say.

use super::Image;
use crate::records::LaneRecord;

pub(super) fn check(image: &Image) -> Result<(), String> {
    for (id, q) in &image.queues {
        let (mut ready, mut delayed, mut blocked, mut leased) = (0u64, 0u64, 0u64, 0u64);
        let (mut bytes, mut leased_bytes) = (0u64, 0u64);
        for (at, (_, message)) in image.live().filter(|(at, _)| at.0 == *id) {
            bytes += message.size;
            if image.leases.contains_key(at) {
                leased += 1;
                leased_bytes += message.size;
            } else if image.states.get(at).is_some_and(|s| s.blocked) {
                blocked += 1;
            } else if image.states.get(at).is_some_and(|s| s.due_ms.is_some()) {
                delayed += 1;
            } else {
                ready += 1;
            }
        }
        let counted = (q.ready, q.delayed, q.blocked, q.leased, q.bytes, q.leased_bytes);
        let found = (ready, delayed, blocked, leased, bytes, leased_bytes);
        if counted != found {
            return Err(format!(
                "queue {id}: (ready, delayed, blocked, leased, bytes, leased bytes) {counted:?}, found {found:?}"
            ));
        }
        let beyond =
            |lane: &LaneRecord| lane.fresh_head > q.last_sequence + 1 || lane.returned_head > q.last_return + 1;
        if q.purged_below > q.last_sequence + 1 || q.lanes.iter().any(beyond) {
            return Err(format!("queue {id}: a head lies beyond the last sequence: {q:?}"));
        }
    }
    let queues = u64::try_from(image.queues.len()).unwrap_or(u64::MAX);
    if image.header.queues != queues
        || image.configs.len() != image.queues.len()
        || image.names.len() != image.queues.len()
    {
        return Err(format!(
            "{} queues counted, but {queues} records, {} settings, {} names",
            image.header.queues,
            image.configs.len(),
            image.names.len()
        ));
    }
    for (name, id) in &image.names {
        if !image.queues.contains_key(id) {
            return Err(format!("the name {name:?} stands for queue {id}, which is not there"));
        }
    }
    Ok(())
}
