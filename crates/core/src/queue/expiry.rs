//! Time to live: an expired message is never delivered, and ends where it is met (SEMANTICS "Cancel, expire").

use super::message::{self, Found};
use super::{dead_letter, finish};
use crate::command::OnExpired;
use crate::ids::Place;
use crate::query::{DeadReason, MessageState};
use crate::queue::transition::Cause;
use crate::reply::{Empty, Fault, SettleOutcome};
use crate::txn::Txn;

/// The time to live of the message born at `birth` is over. One that is leased may still be acked.
pub(crate) fn fire(txn: &mut Txn<'_>, birth: Place, due: u64) -> Result<(), Fault> {
    let Some(found) = message::born_at(txn, birth)? else { return Ok(()) };
    if found.message.expires_at_ms != due || found.is == MessageState::Leased {
        return Ok(());
    }
    end(txn, found)?;
    Ok(())
}

/// Ends an expired message as its queue says.
pub(crate) fn end(txn: &mut Txn<'_>, found: Found) -> Result<SettleOutcome, Fault> {
    let queue = found.place.queue;
    match txn.queue_there(queue)?.config.on_expired() {
        OnExpired::Drop => {}
        OnExpired::DeadLetter => {
            if let Some(target) = dead_letter::target(txn, queue, &found.message)? {
                dead_letter::run(txn, found, &target, DeadReason::Expired)?;
                return Ok(SettleOutcome::Expired(Empty {}));
            }
        }
    }
    finish::run(txn, &found, Cause::Expired)?;
    Ok(SettleOutcome::Expired(Empty {}))
}
