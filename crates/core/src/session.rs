//! Sessions: a request that comes again has no second effect and gets its first outcome (SEMANTICS "Request ids").

use std::collections::BTreeMap;

use prost::Message;

use crate::command::{OpenSession, RequestId};
use crate::keys;
use crate::limits;
use crate::overlay::Overlay;
use crate::planted::{Bug, is_planted};
use crate::queue::lease;
use crate::records::{OutcomeRecord, OutcomesRecord, OutcomesRow, SessionRecord, decode};
use crate::reply::{
    Answered, CancelOutcome, Empty, EnqueueOutcome, Fault, Handle, Invalid, LimitReached, Received, Rejection, Reply,
    RequestIdOld, RescheduleOutcome, SessionOpened, SettleOutcome, Taken,
};
use crate::txn::{Session, Txn};

/// What a request id says about a request.
pub(crate) enum Admission {
    /// It is new: carry it out.
    New,
    /// It was carried out before.
    Replay(Reply),
    /// It can't be carried out.
    Rejected(Rejection),
}

/// Opens a session, or renews one.
pub(crate) fn open(txn: &mut Txn<'_>, ordinal: u32, open: OpenSession) -> Result<Result<Answered, Rejection>, Fault> {
    if open.renew != 0 {
        if let Some(rejection) = expired(txn, open.renew)? {
            return Ok(Err(rejection));
        }
        touch(txn, &RequestId { session: open.renew, ..RequestId::default() })?;
        return Ok(Ok(Answered::SessionOpened(SessionOpened { session: open.renew })));
    }
    if txn.header.sessions >= limits::SESSIONS {
        return Ok(Err(Rejection::SessionsFull(LimitReached { limit: limits::SESSIONS })));
    }
    txn.header.sessions = txn.header.sessions.saturating_add(1);
    let session = session_id(txn.at.index, ordinal);
    let now = txn.header.lease_ms;
    txn.set_session(session, Some(SessionRecord { active_ms: now, acked_below: 1, ..SessionRecord::default() }));
    txn.overlay.put(keys::session_timer(now.saturating_add(limits::SESSION_IDLE_MS), session), Vec::new());
    Ok(Ok(Answered::SessionOpened(SessionOpened { session })))
}

/// The id of the session that the request `ordinal` of entry `index` opens: unique, since an entry holds at most 256.
fn session_id(index: u64, ordinal: u32) -> u64 {
    index.saturating_mul(1 << 10).saturating_add(ordinal.into())
}

/// Looks a request id up. Changes nothing: a request that is rejected leaves no trace.
pub(crate) fn admit(txn: &mut Txn<'_>, id: &RequestId) -> Result<Admission, Fault> {
    if let Some(rejection) = expired(txn, id.session)? {
        return Ok(Admission::Rejected(rejection));
    }
    let Some(session) = txn.session(id.session)? else {
        return Ok(Admission::Rejected(Rejection::SessionExpired(Empty {})));
    };
    let acked_below = session.record.acked_below.max(id.acked_below);
    if id.seq == 0 {
        let reason = "expected a number from 1, but got 0".into();
        return Ok(Admission::Rejected(Rejection::Invalid(Invalid { field: "request_id.seq".into(), reason })));
    }
    if id.seq < acked_below {
        return Ok(Admission::Rejected(Rejection::RequestIdOld(RequestIdOld { acked_below })));
    }
    let seen = session.record.rows.iter().filter(|row| row.highest < acked_below);
    let stored_after = seen.fold(session.record.stored, |stored, row| stored.saturating_sub(row.count));
    if let Some(outcome) = stored(txn, id.session, id.seq)?
        && !is_planted(Bug::RepeatRunsAgain)
    {
        if outcome.fingerprint != id.fingerprint {
            return Ok(Admission::Rejected(Rejection::RequestIdReused(Empty {})));
        }
        let reply = replay(txn, outcome.reply)?;
        touch(txn, id)?;
        return Ok(Admission::Replay(reply));
    }
    if stored_after >= limits::SESSION_OUTCOMES {
        return Ok(Admission::Rejected(Rejection::SessionWindow(LimitReached { limit: limits::SESSION_OUTCOMES })));
    }
    Ok(Admission::New)
}

fn expired(txn: &mut Txn<'_>, id: u64) -> Result<Option<Rejection>, Fault> {
    let now = txn.header.lease_ms;
    let live = txn.session(id)?.is_some_and(|s| now.saturating_sub(s.record.active_ms) < limits::SESSION_IDLE_MS);
    Ok((!live).then_some(Rejection::SessionExpired(Empty {})))
}

/// Notes that a session is in use, and removes the records whose outcomes have all been seen.
fn touch(txn: &mut Txn<'_>, id: &RequestId) -> Result<(), Fault> {
    let now = txn.header.lease_ms;
    let session = txn.session_mut(id.session)?;
    session.record.active_ms = now;
    session.record.acked_below = session.record.acked_below.max(id.acked_below);
    let below = session.record.acked_below;
    let gone: Vec<OutcomesRow> = session.record.rows.extract_if(.., |row| row.highest < below).collect();
    let forgotten = gone.iter().map(|row| row.count).fold(0, u64::saturating_add);
    session.record.stored = session.record.stored.saturating_sub(forgotten);
    for row in gone {
        txn.overlay.delete(keys::outcomes(id.session, row.index));
    }
    Ok(())
}

/// The stored outcome of a request.
fn stored(txn: &mut Txn<'_>, id: u64, seq: u64) -> Result<Option<OutcomeRecord>, Fault> {
    let Some(session) = txn.session(id)? else { return Ok(None) };
    if session.fresh.seqs.contains(&seq) {
        let outcomes = session.fresh.decode(id)?;
        return Ok(outcomes.into_iter().find(|o| o.seq == seq));
    }
    let rows: Vec<u64> = session
        .record
        .rows
        .iter()
        .filter(|row| (row.lowest..=row.highest).contains(&seq))
        .map(|row| row.index)
        .collect();
    for index in rows {
        let record: Option<OutcomesRecord> = txn.record("a session's outcomes", &keys::outcomes(id, index))?;
        if let Some(outcome) = record.into_iter().flat_map(|r| r.outcomes).find(|o| o.seq == seq) {
            return Ok(Some(outcome));
        }
    }
    Ok(None)
}

/// The first outcome once more. A repeated receive gets the leases that are still live.
pub(crate) fn replay(txn: &mut Txn<'_>, mut reply: Reply) -> Result<Reply, Fault> {
    reply.replayed = true;
    if let Some(Answered::Received(received)) = reply.answered {
        let mut live = Vec::new();
        for handle in received.handles {
            if let Some(lease) = lease::live(txn, &handle)? {
                live.push(Handle { deadline_ms: lease.deadline_ms, ..handle });
            }
        }
        reply.answered = Some(Answered::Received(Received { handles: live, taken: Vec::new() }));
    }
    Ok(reply)
}

/// Notes a request that was carried out, and keeps its outcome if it had an effect.
pub(crate) fn remember(txn: &mut Txn<'_>, id: &RequestId, reply: &mut Reply) -> Result<(), Fault> {
    touch(txn, id)?;
    if !reply.answered.as_ref().is_some_and(has_effect) {
        return Ok(());
    }
    let taken = set_taken_aside(reply);
    let session = txn.session_mut(id.session)?;
    session.record.stored = session.record.stored.saturating_add(1);
    let outcome = OutcomeRecord { seq: id.seq, fingerprint: id.fingerprint, reply: std::mem::take(reply) };
    session.fresh.push(&outcome);
    *reply = outcome.reply;
    put_taken_back(reply, taken);
    Ok(())
}

/// Bodies are not stored: whoever receives at most once gets them once.
pub(crate) fn set_taken_aside(reply: &mut Reply) -> Vec<Taken> {
    match &mut reply.answered {
        Some(Answered::Received(received)) => std::mem::take(&mut received.taken),
        Some(_) | None => Vec::new(),
    }
}

/// Gives them to whoever asked first.
pub(crate) fn put_taken_back(reply: &mut Reply, taken: Vec<Taken>) {
    if let Some(Answered::Received(received)) = &mut reply.answered {
        received.taken = taken;
    }
}

/// Outcomes of one entry, encoded one by one as an [`OutcomesRecord`].
#[derive(Debug, Clone, Default)]
pub(crate) struct FreshOutcomes {
    seqs: Vec<u64>,
    bytes: Vec<u8>,
}

impl FreshOutcomes {
    /// The field of `OutcomesRecord` that holds them.
    const FIELD: u32 = 1;

    fn push(&mut self, outcome: &OutcomeRecord) {
        self.seqs.push(outcome.seq);
        prost::encoding::message::encode(Self::FIELD, outcome, &mut self.bytes);
    }

    fn decode(&self, session: u64) -> Result<Vec<OutcomeRecord>, Fault> {
        let key = keys::session(session);
        let record: OutcomesRecord = decode("outcomes of this entry", &key, self.bytes.clone().into())?;
        Ok(record.outcomes)
    }
}

/// Refusals without effect and empty receives are not stored: they may end otherwise when they come again.
pub(crate) fn has_effect(answered: &Answered) -> bool {
    match answered {
        Answered::Committed(committed) => {
            committed.enqueued.iter().any(|r| matches!(r.outcome, Some(EnqueueOutcome::Enqueued(_))))
                || committed.settled.iter().any(|r| !matches!(r.outcome, Some(SettleOutcome::Rejected(_)) | None))
                || committed.cancelled.iter().any(|r| matches!(r.outcome, Some(CancelOutcome::Cancelled(_))))
                || committed.rescheduled.iter().any(|r| matches!(r.outcome, Some(RescheduleOutcome::Rescheduled(_))))
        }
        Answered::Received(received) => !received.handles.is_empty() || !received.taken.is_empty(),
        Answered::Expired(_)
        | Answered::Ticked(_)
        | Answered::Initialized(_)
        | Answered::SessionOpened(_)
        | Answered::QueueChanged(_)
        | Answered::QueueDeleted(_)
        | Answered::QueuePurged(_)
        | Answered::NamespaceChanged(_) => true,
    }
}

/// Writes the sessions that an entry has touched: each once, and its new outcomes once.
pub(crate) fn store_outcomes(overlay: &mut Overlay<'_>, index: u64, sessions: BTreeMap<u64, Option<Session>>) {
    for (id, session) in sessions {
        let Some(mut session) = session.filter(|s| s.changed) else { continue };
        let FreshOutcomes { seqs, bytes } = session.fresh;
        if let (Some(lowest), Some(highest)) = (seqs.iter().min(), seqs.iter().max()) {
            let (lowest, highest, count) = (*lowest, *highest, u64::try_from(seqs.len()).unwrap_or(u64::MAX));
            session.record.rows.push(OutcomesRow { index, lowest, highest, count });
            overlay.put(keys::outcomes(id, index), bytes);
        }
        overlay.put(keys::session(id), session.record.encode_to_vec());
    }
}

/// Ends a session that idled too long, or sets its timer again.
pub(crate) fn fire_timer(txn: &mut Txn<'_>, id: u64) -> Result<(), Fault> {
    let now = txn.header.lease_ms;
    let Some(session) = txn.session(id)? else { return Ok(()) };
    let ends = session.record.active_ms.saturating_add(limits::SESSION_IDLE_MS);
    if ends > now {
        txn.overlay.put(keys::session_timer(ends, id), Vec::new());
        return Ok(());
    }
    let rows = session.record.rows.clone();
    for row in rows {
        txn.overlay.delete(keys::outcomes(id, row.index));
    }
    txn.set_session(id, None);
    txn.header.sessions = txn.header.sessions.saturating_sub(1);
    Ok(())
}

/// Whether the outcome of a request is stored or forgotten, so that only `apply` may answer it.
pub(crate) fn seen(txn: &mut Txn<'_>, id: u64, seq: u64) -> Result<bool, Fault> {
    match txn.session(id)? {
        Some(session) if seq >= session.record.acked_below => Ok(stored(txn, id, seq)?.is_some()),
        Some(_) | None => Ok(true),
    }
}
