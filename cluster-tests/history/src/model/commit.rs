//! Commits: settlements, cancels, reschedules, enqueues; each by itself, or all or nothing.

use super::ends::End;
use super::failure::Failed;
use super::queue::State;
use super::settings::{DELAY, LEASES};
use super::{Model, Pick, Step, agree, cancel};
use crate::format::{
    Applied, CancelOutcome, EnqueueOutcome, EnqueuePart, NewTime, Refusal, Settle, SettleOutcome, Target, TimeOutcome,
    Verdict,
};

/// The longest that a lease may run from its grant, in milliseconds.
const LEASE_MOST: u64 = 43_200_000;
/// The largest output, in bytes.
const OUTPUT: u64 = 64 << 10;
/// Parts or bytes of a request that may be too large for an entry.
const LARGE: (usize, u64) = (300, 2 << 20);
/// Retries of one commit whose waits are guessed.
const CHOICES: u32 = 8;

/// The parts of a commit.
pub(super) struct Parts<'a> {
    pub(super) s: &'a [Settle],
    pub(super) c: &'a [Target],
    pub(super) t: &'a [NewTime],
    pub(super) e: &'a [EnqueuePart],
    pub(super) auto: bool,
}

impl Parts<'_> {
    fn is_large(&self) -> bool {
        let parts = self.s.len() + self.c.len() + self.t.len() + self.e.len();
        parts > LARGE.0 || self.e.iter().map(|part| part.m.n).sum::<u64>() > LARGE.1
    }
}

/// What became of the parts of a commit.
#[derive(Default)]
struct Outcomes {
    s: Vec<SettleOutcome>,
    c: Vec<CancelOutcome>,
    t: Vec<TimeOutcome>,
    e: Vec<EnqueueOutcome>,
}

impl Model {
    pub(super) fn commit(
        &mut self,
        parts: &Parts<'_>,
        atomic: bool,
        told: Option<&Applied>,
        pick: Pick<'_>,
    ) -> Step<Applied> {
        if let Some(Applied::Refused(refusal)) = told
            && (refusal.why == "INVALID" && refusal.part.is_none() && parts.is_large())
        {
            return Ok(Applied::Refused(refusal.clone()));
        }
        if !atomic {
            let Outcomes { s, c, t, e } = self.parts(parts, None, told, pick)?.unwrap_or_default();
            return Ok(Applied::Committed { s, c, t, e });
        }
        match told {
            Some(told @ Applied::Refused(_)) => self.refused(parts, told),
            Some(_) | None => self.whole(parts, told, pick),
        }
    }

    /// Carries out a commit that is all or nothing, and undoes it where a part is refused.
    fn whole(&mut self, parts: &Parts<'_>, told: Option<&Applied>, pick: Pick<'_>) -> Step<Applied> {
        let last_queue = self.last_queue;
        let is_refused = matches!(told, Some(Applied::Refused(_)));
        self.begin_trial();
        let mut first = None;
        let done = self.parts(parts, Some(&mut first), told, pick);
        self.end_trial(matches!(done, Ok(Some(_))) && !is_refused, last_queue);
        match (done?, first) {
            (Some(Outcomes { s, c, t, e }), _) => Ok(Applied::Committed { s, c, t, e }),
            (None, refusal) => Ok(Applied::Refused(refusal.unwrap_or_else(|| Refusal::new("INVALID")))),
        }
    }

    /// A commit that was refused as a whole: nobody is told whether its retries would have waited, on which depends what
    /// the parts after them find. Any choice explains the refusal.
    fn refused(&mut self, parts: &Parts<'_>, told: &Applied) -> Step<Applied> {
        // A bit a retry: whether it waits.
        let mut choice = 0_u32;
        loop {
            let mut chosen = 0;
            let expected = self.whole(parts, Some(told), &mut |most| {
                let waits = chosen < CHOICES && choice >> chosen & 1 == 1;
                chosen += 1;
                if waits { most } else { 0 }
            })?;
            choice += 1;
            let is_last = choice >> chosen.min(CHOICES) != 0;
            if is_last || agree::applied(&expected, told).is_ok() {
                return Ok(expected);
            }
        }
    }

    /// Carries out all parts. With `first` the first refusal ends it and is noted there: then nothing is returned.
    fn parts(
        &mut self,
        parts: &Parts<'_>,
        mut first: Option<&mut Option<Refusal>>,
        told: Option<&Applied>,
        pick: Pick<'_>,
    ) -> Step<Option<Outcomes>> {
        let told: (&[SettleOutcome], &[EnqueueOutcome]) = match told {
            Some(Applied::Committed { s, e, .. }) => (s, e),
            Some(_) | None => (&[], &[]),
        };
        let mut namespace: Option<String> = None;
        // Whether a part goes to another namespace than those before it.
        let mut elsewhere = |own: Option<String>| {
            let Some(own) = own else { return false };
            *namespace.get_or_insert_with(|| own.clone()) != own
        };
        let mut outcomes = Outcomes::default();
        for (number, part) in parts.s.iter().enumerate() {
            let own = first.is_some().then(|| self.namespace_of_token(part)).flatten();
            let outcome = self.settle(part, told.0.get(number), pick)?;
            if let Some(first) = first.as_deref_mut() {
                let refusal = if let SettleOutcome::No(refusal) = &outcome { Some(refusal.clone()) } else { None };
                let refusal = refusal.or_else(|| elsewhere(own).then(|| Refusal::new("INVALID")));
                if let Some(refusal) = refusal {
                    *first = Some(Refusal { part: Some(format!("s{number}")), ..refusal });
                    return Ok(None);
                }
            }
            outcomes.s.push(outcome);
        }
        for (number, target) in parts.c.iter().enumerate() {
            let own = first.is_some().then(|| self.namespace_of(target)).flatten();
            let outcome = self.cancel(target)?;
            if let Some(first) = first.as_deref_mut() {
                let refusal = if let CancelOutcome::No(refusal) = &outcome { Some(refusal.clone()) } else { None };
                let refusal = refusal.or_else(|| elsewhere(own).then(|| Refusal::new("INVALID")));
                if let Some(refusal) = refusal {
                    *first = Some(Refusal { part: Some(format!("c{number}")), ..refusal });
                    return Ok(None);
                }
            }
            outcomes.c.push(outcome);
        }
        for (number, time) in parts.t.iter().enumerate() {
            let own = first.is_some().then(|| self.namespace_of(&time.of)).flatten();
            let outcome = self.reschedule(time)?;
            if let Some(first) = first.as_deref_mut() {
                let refusal = if let TimeOutcome::No(refusal) = &outcome { Some(refusal.clone()) } else { None };
                let refusal = refusal.or_else(|| elsewhere(own).then(|| Refusal::new("INVALID")));
                if let Some(refusal) = refusal {
                    *first = Some(Refusal { part: Some(format!("t{number}")), ..refusal });
                    return Ok(None);
                }
            }
            outcomes.t.push(outcome);
        }
        for (number, part) in parts.e.iter().enumerate() {
            let outcome = self.enqueue(part, parts.auto, told.1.get(number))?;
            if let Some(first) = first.as_deref_mut() {
                let refusal = if let EnqueueOutcome::No(refusal) = &outcome { Some(refusal.clone()) } else { None };
                let own = Some(part.q.namespace().to_owned());
                let refusal = refusal.or_else(|| elsewhere(own).then(|| Refusal::new("INVALID")));
                if let Some(refusal) = refusal {
                    *first = Some(Refusal { part: Some(format!("e{number}")), ..refusal });
                    return Ok(None);
                }
            }
            outcomes.e.push(outcome);
        }
        Ok(Some(outcomes))
    }

    fn namespace_of_token(&self, part: &Settle) -> Option<String> {
        let (queue, _) = self.tokens.get(&part.tok)?;
        self.queues.get(queue).map(|queue| queue.name.namespace().to_owned())
    }

    fn namespace_of(&self, target: &Target) -> Option<String> {
        if let Target::Dedup { q, .. } = target {
            return Some(q.namespace().to_owned());
        }
        let cancel::Found::At(queue, _) = self.seek(target) else { return None };
        self.queues.get(&queue).map(|queue| queue.name.namespace().to_owned())
    }

    /// Why a settlement must be refused.
    fn settle_refusal(&self, part: &Settle) -> Option<Refusal> {
        let lawful = match part.how {
            Verdict::Retry { d } => d.is_none_or(|delay| delay <= DELAY),
            Verdict::Extend { lease } => lease == 0 || LEASES.contains(&lease),
            Verdict::Ack => part.out.is_none_or(|output| output.n <= OUTPUT),
            Verdict::Reject | Verdict::Release => true,
        };
        if !lawful {
            return Some(Refusal::new("INVALID"));
        }
        let lost = |rc: Option<u32>| Some(Refusal::counted("LEASE_LOST", rc));
        let Some((id, sequence)) = self.tokens.get(&part.tok) else { return lost(None) };
        let Some(queue) = self.queues.get(id) else { return lost(None) };
        let Some(message) = queue.messages.get(sequence) else { return lost(None) };
        match message.state {
            State::Leased { token, end, .. } if token == Some(part.tok) && end > self.lease_now => None,
            State::Leased { .. } | State::Delayed { .. } | State::Ready { .. } | State::Blocked => {
                lost(Some(message.receive_count))
            }
        }
    }

    /// Carries out a settlement.
    fn settle(&mut self, part: &Settle, told: Option<&SettleOutcome>, pick: Pick<'_>) -> Step<SettleOutcome> {
        if let Some(expected) = self.settle_refusal(part) {
            // Of a token that was never given, nothing is known but that it is worth nothing.
            return Ok(SettleOutcome::No(match told {
                Some(SettleOutcome::No(refusal))
                    if !self.tokens.contains_key(&part.tok) && ["LEASE_LOST", "INVALID"].contains(&&*refusal.why) =>
                {
                    refusal.clone()
                }
                Some(_) | None => expected,
            }));
        }
        let Some((id, sequence)) = self.tokens.get(&part.tok).copied() else {
            return Ok(SettleOutcome::No(Refusal::new("LEASE_LOST")));
        };
        let now = self.now;
        let queue = self.queue_mut(id)?;
        let purged = sequence < queue.head.purged_below;
        let expired = queue.messages.get(&sequence).is_some_and(|message| message.is_expired(now));
        match part.how {
            Verdict::Ack => {
                self.take_out(id, sequence, End::Acked(part.out))?;
                Ok(SettleOutcome::Acked)
            }
            Verdict::Extend { lease } => self.extend(id, sequence, lease),
            Verdict::Retry { .. } | Verdict::Reject | Verdict::Release if purged => {
                self.take_out(id, sequence, End::Purged)?;
                Ok(SettleOutcome::Purged)
            }
            Verdict::Release if expired => {
                self.end_expired(id, sequence)?;
                Ok(SettleOutcome::Expired)
            }
            Verdict::Release => {
                queue.head.changed = true;
                if let Some(message) = queue.messages.get_mut(&sequence) {
                    message.expiries = 0;
                }
                queue.leave(sequence);
                queue.give_back(sequence);
                Ok(SettleOutcome::Readied)
            }
            Verdict::Retry { d } => self.fail(id, sequence, Failed::Transient { delay: d }, told, pick),
            Verdict::Reject => self.fail(id, sequence, Failed::Permanent, told, pick),
        }
    }

    fn extend(&mut self, id: u64, sequence: u64, lease: u64) -> Step<SettleOutcome> {
        let now = self.lease_now;
        let queue = self.queue_mut(id)?;
        let lease = if lease == 0 { queue.settings.lease } else { lease };
        let lost = SettleOutcome::No(Refusal::new("LEASE_LOST"));
        let Some(message) = queue.messages.get_mut(&sequence) else { return Ok(lost) };
        let State::Leased { token, granted, granted_lease, .. } = message.state else { return Ok(lost) };
        let end = (now + lease).min(granted_lease + LEASE_MOST);
        message.state = State::Leased { token, granted, granted_lease, end };
        Ok(SettleOutcome::Extended { left: end.saturating_sub(now) })
    }
}
