//! What a client was told is what the log holds: each answer stands at its position, word for word; a request stands in
//! the log as it was asked; and what was unknown to its client is found in the log, behind what was known before, or is
//! not there at all.

use super::{After, Applying, Check, Findings};
use crate::case::Case;
use crate::fast::FastSet;
use crate::format::{
    Applied, AuditLine, CancelOutcome, Command, EnqueueOutcome, EnqueuePart, Kind, NewTime, QueueName, SettleOutcome,
    Target, TimeOutcome,
};
use crate::model::has_effect;
use crate::story::{
    Cancel, CancelTold, End, Extra, OpRow, Sent, SentTold, Settled, SettledTold, Story, Timed, TimedTold,
};

#[derive(Default)]
pub(super) struct Resolution {
    /// Where each operation took effect; 0: nowhere so far.
    effects: Vec<u64>,
    /// Whether the answer was found where it was told.
    found: Vec<bool>,
    /// The sessions that clients of the history opened.
    sessions: Option<FastSet<u64>>,
}

impl Check for Resolution {
    fn name(&self) -> &'static str {
        "resolution: answers stand in the log, and unknown ones are found or absent"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let story = &at.case.story;
        self.effects.resize(story.ops.len(), 0);
        self.found.resize(story.ops.len(), false);
        let Some(number) = at.op else {
            self.stranger(at, out);
            return;
        };
        let (op, line) = (&story.ops[number as usize], at.line);
        let who = || story.name(number);
        out.expect(asked(story, op, &line.c), || {
            format!(
                "{}: expected the log to hold what was asked, but at position {} it has {:?}",
                who(),
                line.cp,
                line.c
            )
        });
        let effect = has_effect(&line.r) && line.replay.is_none();
        if effect {
            self.effects[number as usize] = line.cp.index;
            // A retried request may be told a later position than that of its first attempt; but never an earlier one.
            out.expect(line.cp > op.floor(), || {
                format!(
                    "{}: expected it behind {}, which was told before it began, but the log has it at {}",
                    who(),
                    op.floor(),
                    line.cp
                )
            });
        }
        let told = op.cp().filter(|_| op.is_ok());
        if told.is_some() && (told == Some(line.cp) || (op.replayed && told == line.replay)) {
            self.found[number as usize] = true;
            out.expect(op.replayed || line.replay.is_none(), || {
                format!(
                    "{}: expected to be told that an earlier attempt had this outcome (position {})",
                    who(),
                    line.cp
                )
            });
            out.expect(op.term == 0 || u64::from(op.term) >= line.term, || {
                format!("{}: was told term {}, but the log has term {} at {}", who(), op.term, line.term, line.cp)
            });
            if let Err(problem) = agrees(story, op, line) {
                out.violation(|| format!("{}: {problem}, which stands at position {}", who(), line.cp));
            }
        }
    }

    fn end(&mut self, case: &Case, after: &After<'_>, out: &mut Findings) {
        if after.lines == 0 {
            out.notes.push("there is no audit to look into".to_owned());
            return;
        }
        let story = &case.story;
        let at = |list: &[u64], number: usize| list.get(number).copied().unwrap_or(0);
        let (mut happened, mut absent) = (0u64, 0u64);
        for (number, op) in story.ops.iter().enumerate().filter(|(_, op)| !op.kind.is_read()) {
            let index = at(&self.effects, number);
            let name = || story.name(u32::try_from(number).unwrap_or(u32::MAX));
            match (op.end, op.cp()) {
                (End::Ok, Some(cp)) => {
                    let found = self.found.get(number).copied().unwrap_or(false);
                    out.expect(found, || {
                        format!(
                            "{}: expected the log (up to index {}) to hold it at {cp}, but it does not",
                            name(),
                            after.last_index
                        )
                    });
                }
                // A receiver that was told that nothing came may have been given something too late: it is released.
                (End::Ok, None) => out.expect(index == 0 || op.kind == Kind::Receive, || {
                    format!("{}: was told nothing of the log, but it took effect at index {index}", name())
                }),
                (End::Info, _) if index == 0 => absent += 1,
                (End::Info, _) => happened += 1,
                (End::Fail, _) => {}
            }
        }
        out.notes.push(format!("of the unknown operations {happened} had happened and {absent} had not"));
    }
}

impl Resolution {
    /// A request that is nobody's must not be one of a client's session.
    fn stranger(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let ops = &at.case.story.ops;
        let opened = |op: &OpRow| (op.kind == Kind::Open && op.is_ok()).then_some(op.number);
        let sessions = self.sessions.get_or_insert_with(|| ops.iter().filter_map(opened).collect());
        let Some(rid) = at.line.rid.filter(|rid| !rid.free && sessions.contains(&rid.session)) else { return };
        out.expect(!has_effect(&at.line.r), || {
            format!(
                "at position {}: request {rid} took effect, but no client asked for it: {:?}",
                at.line.cp, at.line.c
            )
        });
    }
}

/// Whether the log holds what was asked.
fn asked(story: &Story, op: &OpRow, command: &Command) -> bool {
    let queue = |name| story.queue_name(op.queue) == Some(name);
    let nothing = Extra::default();
    let extra = story.extra_of(op).unwrap_or(&nothing);
    let settles = |s: &[crate::format::Settle]| {
        let asked = &story.settles[op.settles.range()];
        asked.len() == s.len() && asked.iter().zip(s).all(|(a, b)| (a.tok, a.how, a.out) == (b.tok, b.how, b.out))
    };
    let cancels = |c: &[Target]| {
        let asked = &story.cancels[extra.cancels.range()];
        asked.len() == c.len() && asked.iter().zip(c).all(|(a, b)| a.target == *b)
    };
    let times = |t: &[NewTime]| {
        let asked = &story.times[extra.times.range()];
        asked.len() == t.len() && asked.iter().zip(t).all(|(a, b)| a.time == *b)
    };
    let then = |then: &[QueueName]| {
        then.len() == extra.then.len() && extra.then.iter().zip(then).all(|(a, b)| story.queue_name(*a) == Some(b))
    };
    let enqueues = |e: &[EnqueuePart]| {
        let asked = &story.sent[op.sent.range()];
        let same = |(a, b): (&Sent, &EnqueuePart)| a.m == b.m && story.queue_name(a.queue) == Some(&b.q);
        asked.len() == e.len() && asked.iter().zip(e).all(same)
    };
    match (op.kind, command) {
        (Kind::Settle | Kind::Cancel | Kind::Reschedule, Command::Commit { s, c, t, e, atomic: false, .. }) => {
            settles(s) && cancels(c) && times(t) && enqueues(e)
        }
        (Kind::Enqueue, Command::Commit { s, c, t, e, atomic, .. }) => {
            *atomic == extra.turned && settles(s) && cancels(c) && times(t) && enqueues(e)
        }
        (Kind::Commit, Command::Commit { s, c, t, e, atomic, .. }) => {
            *atomic != extra.turned && settles(s) && cancels(c) && times(t) && enqueues(e)
        }
        (Kind::Receive, Command::Receive { q, then: more, max, lease, auto, .. }) => {
            let same = *max <= op.max && *lease == op.argument && *auto == extra.auto;
            queue(q) && then(more) && same
        }
        // Their texts are not kept.
        (Kind::SetNamespace, Command::SetNamespace { .. })
        | (Kind::DeleteNamespace, Command::DeleteNamespace { .. }) => true,
        (Kind::Open, Command::Open { renew }) => *renew == op.argument,
        (Kind::Create, Command::Create { q, .. }) | (Kind::Update, Command::Update { q, .. }) => queue(q),
        (Kind::Pause, Command::Pause { q, until }) => queue(q) && *until == op.argument,
        (Kind::Resume, Command::Resume { q })
        | (Kind::Close, Command::Close { q })
        | (Kind::Reopen, Command::Reopen { q })
        | (Kind::Purge, Command::Purge { q })
        | (Kind::Delete, Command::Delete { q }) => queue(q),
        (
            _,
            Command::Nothing
            | Command::Commit { .. }
            | Command::Receive { .. }
            | Command::Expire { .. }
            | Command::Tick
            | Command::Init
            | Command::Open { .. }
            | Command::Create { .. }
            | Command::Update { .. }
            | Command::Pause { .. }
            | Command::Resume { .. }
            | Command::Close { .. }
            | Command::Reopen { .. }
            | Command::Purge { .. }
            | Command::Delete { .. }
            | Command::SetNamespace { .. }
            | Command::DeleteNamespace { .. },
        ) => false,
    }
}

/// Whether the answer is the log's outcome.
fn agrees(story: &Story, op: &OpRow, line: &AuditLine) -> Result<(), String> {
    let told = |what: &dyn std::fmt::Debug| Err(format!("was told {what:?}, but the outcome is {:?}", line.r));
    match &line.r {
        Applied::Committed { s, c, t, e } => {
            let (settled, sent) = (&story.settles[op.settles.range()], &story.sent[op.sent.range()]);
            let nothing = Extra::default();
            let extra = story.extra_of(op).unwrap_or(&nothing);
            let (cancels, times) = (&story.cancels[extra.cancels.range()], &story.times[extra.times.range()]);
            let same = settled.len() == s.len()
                && sent.len() == e.len()
                && cancels.len() == c.len()
                && times.len() == t.len()
                && cancels.iter().zip(c).all(|(a, b)| same_cancel(story, a, b))
                && times.iter().zip(t).all(|(a, b)| same_time(story, a, b))
                && settled.iter().zip(s).all(|(a, b)| same_settled(story, a, b))
                && sent.iter().zip(e).all(|(a, b)| same_sent(story, a, b));
            if same { Ok(()) } else { told(&(settled, cancels, times, sent)) }
        }
        Applied::Granted { g } => {
            let got = &story.got[op.got.range()];
            // What was no longer leased when the answer was made up is left out.
            let mut grants = g.iter();
            let same = got.iter().all(|got| {
                grants.by_ref().any(|grant| {
                    grant.tok.is_none_or(|told| told == (got.id, got.tok))
                        && (grant.rc, grant.f) == (got.rc, got.f)
                        && got.left <= grant.end.saturating_sub(line.lc)
                })
            });
            if same { Ok(()) } else { told(&got) }
        }
        Applied::Taken { d } => {
            let got = &story.got[op.got.range()];
            let rows = |taken: &crate::format::TakenOut| (taken.id, taken.rc, taken.f);
            // What was taken is told once; what the first answer lost is lost.
            let d = if op.replayed { &[] } else { d.as_slice() };
            let same = got.len() == d.len() && got.iter().zip(d).all(|(got, d)| (got.id, got.rc, got.f) == rows(d));
            if same { Ok(()) } else { told(&got) }
        }
        Applied::Namespace => Ok(()),
        Applied::Session { s } if *s == op.number => Ok(()),
        Applied::Changed { q } if op.number == 0 || *q == op.number => Ok(()),
        Applied::Removed { n } if *n == op.number => Ok(()),
        Applied::Nothing
        | Applied::Expired { .. }
        | Applied::Ticked { .. }
        | Applied::Initialized { .. }
        | Applied::Session { .. }
        | Applied::Changed { .. }
        | Applied::Removed { .. }
        | Applied::Refused(_) => told(&op.number),
    }
}

fn same_sent(story: &Story, told: &Sent, log: &EnqueueOutcome) -> bool {
    match (told.told, log) {
        (SentTold::In { id, seq, at, dup }, EnqueueOutcome::In { id: i, seq: s, at: a, dup: d }) => {
            (id, seq, at, dup) == (*i, *s, *a, *d)
        }
        (SentTold::No(number), EnqueueOutcome::No(refusal)) => {
            story.refusal(number).is_some_and(|told| told.why == refusal.why)
        }
        (SentTold::Nothing | SentTold::In { .. } | SentTold::No(_), _) => false,
    }
}

fn same_cancel(story: &Story, told: &Cancel, log: &CancelOutcome) -> bool {
    match (told.told, log) {
        (CancelTold::Cancelled(id), CancelOutcome::Cancelled { id: i }) => id == *i,
        (CancelTold::Gone, CancelOutcome::Gone) => true,
        (CancelTold::No(number), CancelOutcome::No(refusal)) => {
            story.refusal(number).is_some_and(|told| (&told.why, told.rc) == (&refusal.why, refusal.rc))
        }
        (CancelTold::Nothing | CancelTold::Cancelled(_) | CancelTold::Gone | CancelTold::No(_), _) => false,
    }
}

fn same_time(story: &Story, told: &Timed, log: &TimeOutcome) -> bool {
    match (told.told, log) {
        (TimedTold::Moved { id, at }, TimeOutcome::Moved { id: i, at: a }) => (id, at) == (*i, *a),
        (TimedTold::No(number), TimeOutcome::No(refusal)) => {
            story.refusal(number).is_some_and(|told| (&told.why, told.rc) == (&refusal.why, refusal.rc))
        }
        (TimedTold::Nothing | TimedTold::Moved { .. } | TimedTold::No(_), _) => false,
    }
}

fn same_settled(story: &Story, told: &Settled, log: &SettleOutcome) -> bool {
    match (told.told, log) {
        (SettledTold::Acked, SettleOutcome::Acked)
        | (SettledTold::Readied, SettleOutcome::Readied)
        | (SettledTold::Purged, SettleOutcome::Purged)
        | (SettledTold::Expired, SettleOutcome::Expired)
        | (SettledTold::Dropped, SettleOutcome::Dropped) => true,
        (SettledTold::Dead { seq, q }, SettleOutcome::Dead { seq: s, q: to }) => (seq, q) == (*s, *to),
        (SettledTold::Delayed { due }, SettleOutcome::Delayed { due: d }) => due == *d,
        (SettledTold::Extended { left }, SettleOutcome::Extended { left: most }) => left <= *most,
        (SettledTold::No(number), SettleOutcome::No(refusal)) => {
            story.refusal(number).is_some_and(|told| (&told.why, told.rc) == (&refusal.why, refusal.rc))
        }
        (
            SettledTold::Nothing
            | SettledTold::Acked
            | SettledTold::Dead { .. }
            | SettledTold::Delayed { .. }
            | SettledTold::Readied
            | SettledTold::Extended { .. }
            | SettledTold::Purged
            | SettledTold::Expired
            | SettledTold::Dropped
            | SettledTold::Gone
            | SettledTold::No(_),
            _,
        ) => false,
    }
}
