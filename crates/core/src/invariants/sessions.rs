//! A session's directory names its outcomes, all of them, and nothing else; it holds no more than it may.

use super::Image;
use crate::limits;

pub(super) fn check(image: &Image) -> Result<(), String> {
    if u64::try_from(image.sessions.len()) != Ok(image.header.sessions) {
        return Err(format!("{} sessions counted, but {} there", image.header.sessions, image.sessions.len()));
    }
    for (id, session) in &image.sessions {
        let mut stored = 0;
        for row in &session.rows {
            let Some(record) = image.outcomes.get(&(*id, row.index)) else {
                return Err(format!("session {id}: the outcomes of entry {} are gone", row.index));
            };
            let seqs: Vec<u64> = record.outcomes.iter().map(|o| o.seq).collect();
            let found = (seqs.iter().min().copied(), seqs.iter().max().copied(), u64::try_from(seqs.len()).ok());
            if found != (Some(row.lowest), Some(row.highest), Some(row.count)) {
                return Err(format!("session {id}: the directory says {row:?}, but the record holds {seqs:?}"));
            }
            stored += row.count;
        }
        if stored != session.stored || stored > limits::SESSION_OUTCOMES {
            return Err(format!("session {id}: {} outcomes counted, {stored} stored", session.stored));
        }
    }
    for (id, index) in image.outcomes.keys() {
        let known = image.sessions.get(id).is_some_and(|s| s.rows.iter().any(|row| row.index == *index));
        if !known {
            return Err(format!("the outcomes of session {id} in entry {index} belong to nothing"));
        }
    }
    Ok(())
}
