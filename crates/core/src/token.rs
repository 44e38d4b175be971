//! Requests without a session: their outcomes stand under 16 bytes of the caller's own, in buckets of the lease clock
//! that are dropped whole (SEMANTICS "Request ids").

use crate::command::RequestId;
use crate::keys;
use crate::limits;
use crate::planted::{Bug, is_planted};
use crate::queue::invalid;
use crate::records::{OutcomeRecord, TokenBucket};
use crate::reply::{Empty, Fault, LimitReached, Rejection, Reply};
use crate::session::{self, Admission};
use crate::txn::Txn;

/// Buckets in which an outcome is looked for: the current one and two before.
const BUCKETS: u64 = 3;

fn bucket(txn: &Txn<'_>) -> u64 {
    txn.header.lease_ms.checked_div(limits::TOKEN_BUCKET_MS).unwrap_or_default()
}

/// Looks a request up. Changes nothing: a request that is rejected leaves no trace.
pub(crate) fn admit(txn: &mut Txn<'_>, id: &RequestId) -> Result<Admission, Fault> {
    let rejected = |rejection| Ok(Admission::Rejected(rejection));
    if id.seq != 0 {
        return rejected(invalid("request_id", "expected a session or 16 bytes, but there are both"));
    }
    if id.token_high == 0 && id.token_low == 0 {
        return rejected(invalid("request_id", "expected a session or 16 bytes that are not all 0, but got neither"));
    }
    if let Some(outcome) = stored(txn, id.token_high, id.token_low)?
        && !is_planted(Bug::RepeatRunsAgain)
    {
        if outcome.fingerprint != id.fingerprint {
            return rejected(Rejection::RequestIdReused(Empty {}));
        }
        return Ok(Admission::Replay(session::replay(txn, outcome.reply)?));
    }
    // What is older is dropped by the next tick, and counts no longer.
    let oldest = oldest(txn);
    let live = txn.header.token_buckets.iter().filter(|known| known.bucket >= oldest);
    if live.map(|known| known.count).fold(0, u64::saturating_add) >= limits::TOKENS {
        return rejected(Rejection::RequestIdsFull(LimitReached { limit: limits::TOKENS }));
    }
    Ok(Admission::New)
}

/// The oldest bucket that still counts.
fn oldest(txn: &Txn<'_>) -> u64 {
    bucket(txn).saturating_sub(BUCKETS.saturating_sub(1))
}

fn stored(txn: &Txn<'_>, high: u64, low: u64) -> Result<Option<OutcomeRecord>, Fault> {
    let oldest = oldest(txn);
    for known in txn.header.token_buckets.iter().filter(|known| known.bucket >= oldest) {
        let key = keys::token(known.bucket, high, low);
        if let Some(outcome) = txn.record("the outcome of a request", &key)? {
            return Ok(Some(outcome));
        }
    }
    Ok(None)
}

/// Keeps the outcome of a request that was carried out, if it had an effect.
pub(crate) fn remember(txn: &mut Txn<'_>, id: &RequestId, reply: &mut Reply) {
    if !reply.answered.as_ref().is_some_and(session::has_effect) {
        return;
    }
    let taken = session::set_taken_aside(reply);
    let now = bucket(txn);
    let outcome = OutcomeRecord { seq: 0, fingerprint: id.fingerprint, reply: reply.clone() };
    txn.put(keys::token(now, id.token_high, id.token_low), &outcome);
    session::put_taken_back(reply, taken);
    let buckets = &mut txn.header.token_buckets;
    match buckets.iter_mut().find(|known| known.bucket == now) {
        Some(known) => known.count = known.count.saturating_add(1),
        None => buckets.push(TokenBucket { bucket: now, count: 1 }),
    }
}

/// Drops the buckets that are over. Nothing will be written into them: the lease clock never goes back.
pub(crate) fn drop_old(txn: &mut Txn<'_>) {
    let oldest = oldest(txn);
    let old: Vec<TokenBucket> = txn.header.token_buckets.extract_if(.., |known| known.bucket < oldest).collect();
    for known in old {
        txn.overlay.delete_range(keys::token(known.bucket, 0, 0), keys::token(known.bucket.saturating_add(1), 0, 0));
    }
}

/// When the oldest bucket is over, on the lease clock.
pub(crate) fn next_drop(buckets: &[TokenBucket]) -> Option<u64> {
    buckets.first().map(|known| known.bucket.saturating_add(BUCKETS).saturating_mul(limits::TOKEN_BUCKET_MS))
}

/// Whether the outcome of a request is stored, so that only `apply` may answer it.
pub(crate) fn seen(txn: &Txn<'_>, high: u64, low: u64) -> Result<bool, Fault> {
    Ok(stored(txn, high, low)?.is_some())
}
