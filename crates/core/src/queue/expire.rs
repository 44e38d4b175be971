//! `Expire`: ends the leases that ran out. The leader names them; each is checked here.

use super::failure::{self, Failed};
use super::lease::{self, Held};
use super::{invalid, settle};
use crate::command::Expire;
use crate::ids::QueueId;
use crate::limits;
use crate::reply::{Answered, Effect, Expired, Fault, Rejection};
use crate::txn::Txn;

/// Carries out an `Expire`. Does what fits into the entry and leaves the rest due.
pub(crate) fn run(txn: &mut Txn<'_>, command: &Expire) -> Result<Result<Answered, Rejection>, Fault> {
    if command.leases.len() > limits::EXPIRE_LEASES {
        let (limit, got) = (limits::EXPIRE_LEASES, command.leases.len());
        return Ok(Err(invalid("leases", format!("expected at most {limit}, but got {got}"))));
    }
    let mut count = 0u32;
    for expired in &command.leases {
        let queue = QueueId(expired.queue);
        if txn.queue(queue)?.is_none() {
            continue;
        }
        let Some(lease) = lease::find(txn, queue, expired.sequence)? else { continue };
        if lease.granted_index != expired.granted_index || lease.deadline_ms > txn.header.lease_ms {
            continue;
        }
        if txn.is_nearly_full() {
            let (sequence, granted_index, deadline_ms) = (expired.sequence, lease.granted_index, lease.deadline_ms);
            txn.effects.push(Effect::Leased { queue, sequence, deadline_ms, granted_index });
            continue;
        }
        let held = Held { place: lease.place(queue, expired.sequence)?, lease };
        if settle::is_purged(txn, &held)? {
            settle::finish_purged(txn, &held)?;
        } else {
            failure::back_off(txn, &held, Failed::expired(), None)?;
        }
        count = count.saturating_add(1);
    }
    Ok(Ok(Answered::Expired(Expired { count })))
}
