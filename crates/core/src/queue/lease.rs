//! Leases: who holds which message, and how the holder proves it.

use bytes::Bytes;

use crate::ids::{GroupId, LeaseToken, Place, QueueId};
use crate::keys;
use crate::planted::{Bug, is_planted};
use crate::records::{LeaseRecord, StateRecord, broken};
use crate::reply::{Fault, Handle, LeaseLost, Rejection};
use crate::secret::Secret;
use crate::txn::Txn;

/// A live lease and where its message is.
pub(crate) struct Held {
    /// The message's place.
    pub place: Place,
    /// The lease.
    pub lease: LeaseRecord,
}

impl LeaseRecord {
    /// The message's place in `queue`.
    pub(crate) fn place(&self, queue: QueueId, sequence: u64) -> Result<Place, Fault> {
        u8::try_from(self.lane).ok().and_then(|lane| Place::from_parts(queue, lane, sequence)).ok_or_else(|| {
            broken("a lease with a lane", &keys::lease(queue, sequence), format!("its lane is {}", self.lane))
        })
    }
}

/// The token of a lease, as a delivery carries it.
pub(crate) fn token(secret: &Secret, queue: QueueId, sequence: u64, receive_count: u32, granted_index: u64) -> Bytes {
    let hash = secret.token(queue, sequence, receive_count, granted_index);
    LeaseToken { group: GroupId::QUEUES, queue, sequence, hash }.to_bytes().into()
}

/// The lease of a message, if it has one.
pub(crate) fn find(txn: &Txn<'_>, queue: QueueId, sequence: u64) -> Result<Option<LeaseRecord>, Fault> {
    txn.record("a lease", &keys::lease(queue, sequence))
}

/// The lease that was granted with `handle`, as it is now, if it is still live.
pub(crate) fn live(txn: &mut Txn<'_>, handle: &Handle) -> Result<Option<LeaseRecord>, Fault> {
    let queue = QueueId(handle.place.queue);
    if txn.queue(queue)?.is_none() {
        return Ok(None);
    }
    let now = txn.header.lease_ms;
    let lease = find(txn, queue, handle.place.sequence)?;
    Ok(lease.filter(|l| l.granted_index == handle.granted_index && l.deadline_ms > now))
}

/// The lease that `token` proves. A lease past its deadline settles nothing, even before it has been ended.
pub(crate) fn prove(txn: &mut Txn<'_>, token: &[u8]) -> Result<Result<Held, Rejection>, Fault> {
    let token = match LeaseToken::from_bytes(token) {
        Ok(token) => token,
        Err(e) => return Ok(Err(super::invalid("lease_token", e.to_string()))),
    };
    let LeaseToken { group, queue, sequence, hash } = token;
    let lost = |receive_count| Rejection::LeaseLost(LeaseLost { receive_count });
    if group != GroupId::QUEUES || txn.queue(queue)?.is_none() {
        return Ok(Err(lost(None)));
    }
    let Some(lease) = find(txn, queue, sequence)? else {
        let state: Option<StateRecord> = txn.record("a message's state", &keys::state(queue, sequence))?;
        let purged = txn.queue(queue)?.is_some_and(|q| sequence < q.record.purged_below);
        return Ok(Err(lost(state.filter(|_| !purged).map(|s| s.receive_count))));
    };
    let proven =
        txn.secret().is_some_and(|s| s.token(queue, sequence, lease.receive_count, lease.granted_index) == hash);
    let proven = proven || is_planted(Bug::AcceptOldToken);
    let over = lease.deadline_ms <= txn.header.lease_ms && !is_planted(Bug::AcceptExpiredToken);
    if !proven || over {
        return Ok(Err(lost(Some(lease.receive_count))));
    }
    let place = lease.place(queue, sequence)?;
    Ok(Ok(Held { place, lease }))
}
