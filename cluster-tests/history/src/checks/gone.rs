//! I14: what has expired, was cancelled or has finished is not delivered.

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};
use crate::fates::{Doing, Event};
use crate::story::{CancelTold, NONE, SentTold, SettledTold};

pub(super) struct Gone;

impl Check for Gone {
    fn name(&self) -> &'static str {
        "I14 what is over is not delivered"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (cp, now) = (at.line.cp, at.line.ts);
        for turn in at.turns {
            let Some(was) = turn.was else { continue };
            if !matches!(turn.event, Event::Leased | Event::Taken) {
                continue;
            }
            out.expect(was.state != Doing::Gone, || {
                format!("at position {cp}: message {} is delivered, but by then it was gone", turn.id)
            });
            out.expect(was.expires == 0 || now < was.expires, || {
                format!(
                    "at position {cp}: message {} is delivered at cluster time {now}, but it expired at {}",
                    turn.id, was.expires
                )
            });
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        for (v, deliveries) in case.index.lives(&case.story) {
            let Some(sent) = case.index.sent(v) else { continue };
            expired(case, sent, deliveries, out);
            cancelled(case, sent, deliveries, out);
            ended(case, deliveries, out);
        }
    }
}

/// Nothing is delivered from its queue once its time to live is over; as a dead letter it has none.
fn expired(case: &Case, sent: u32, deliveries: &[u32], out: &mut Findings) {
    let story = &case.story;
    let message = &story.sent[sent as usize];
    let (ttl, x) = message.m.more.as_ref().map_or((0, 0), |more| (more.ttl, more.x));
    // Of a message without one of its own, the longest that its queue ever gave.
    let ttl = if (ttl, x) == (0, 0) { case.bounds(message.queue).ttl.1 } else { ttl };
    let ttl = if ttl == 0 { u64::MAX } else { ttl };
    if ttl == u64::MAX && x == 0 {
        return;
    }
    let told = if let SentTold::In { at, dup: false, .. } = message.told { Some(at) } else { None };
    let by_ttl = told.map_or(u64::MAX, |at| at.saturating_add(ttl));
    let expires = by_ttl.min(if x == 0 { u64::MAX } else { x });
    let enqueued = story.ops[message.op as usize].t1;
    for got in deliveries.iter().map(|got| &story.got[*got as usize]).filter(|got| got.dead == NONE) {
        let op = &story.ops[got.op as usize];
        if op.ts != 0 {
            out.expect(op.ts < expires, || {
                format!(
                    "{} at cluster time {}: expected nobody to get it from {expires} on, when it expired",
                    case.delivery(got),
                    op.ts
                )
            });
        }
        // By the clients' clock, for a time to live alone.
        let life = message.m.d.saturating_add(ttl).saturating_mul(MS);
        if ttl != u64::MAX && message.m.at == 0 && enqueued != u64::MAX {
            let until = enqueued.saturating_add(life).saturating_add(case.slack(life));
            out.expect(op.t0 <= until, || {
                let late = op.t0.saturating_sub(until) / MS;
                format!(
                    "{}: its receive began {late} ms after its time to live of {ttl} ms was over",
                    case.delivery(got)
                )
            });
        }
    }
}

/// Once a client was told that a message is cancelled, or that it is not there, nobody who asks later gets it.
fn cancelled(case: &Case, sent: u32, deliveries: &[u32], out: &mut Findings) {
    let story = &case.story;
    let message = &story.sent[sent as usize];
    for cancel in case.index.cancels(story, sent) {
        let op = &story.ops[cancel.op as usize];
        let words = match cancel.told {
            CancelTold::Cancelled(id) if message.told.added().is_none_or(|own| own == id) => "was cancelled",
            // By a dedup id another message may have been meant, or it was enqueued only later.
            CancelTold::Gone if matches!(cancel.target, crate::format::Target::Id(_)) => "was not there",
            CancelTold::Cancelled(_) | CancelTold::Gone | CancelTold::Nothing | CancelTold::No(_) => continue,
        };
        for got in deliveries.iter().map(|got| &story.got[*got as usize]) {
            if matches!(cancel.told, CancelTold::Cancelled(id) if id != got.id) {
                continue;
            }
            let receive = &story.ops[got.op as usize];
            let behind = receive.cp().zip(op.cp()).is_some_and(|(received, cancelled)| received > cancelled);
            out.expect(receive.t0 <= op.t1 && (receive.replayed || !behind), || {
                format!(
                    "{}: expected nobody to get it, for {} was told that it {words}",
                    case.delivery(got),
                    story.name(cancel.op)
                )
            });
        }
    }
}

/// Once a settlement was told that a message is gone, nobody who asks later gets it, unless as a dead letter.
fn ended(case: &Case, deliveries: &[u32], out: &mut Findings) {
    let story = &case.story;
    for settle in deliveries.iter().flat_map(|got| case.index.settles(*got)) {
        let part = &story.settles[*settle as usize];
        let (words, dead_too) = match part.told {
            SettledTold::Dropped => ("was dropped", true),
            SettledTold::Purged => ("was purged", true),
            SettledTold::Expired => ("had expired", false),
            SettledTold::Nothing
            | SettledTold::Acked
            | SettledTold::Dead { .. }
            | SettledTold::Delayed { .. }
            | SettledTold::Readied
            | SettledTold::Extended { .. }
            | SettledTold::Gone
            | SettledTold::No(_) => continue,
        };
        let end = story.ops[part.op as usize].t1;
        for got in deliveries.iter().map(|got| &story.got[*got as usize]).filter(|got| dead_too || got.dead == NONE) {
            out.expect(story.ops[got.op as usize].t0 <= end, || {
                format!(
                    "{}: expected nobody to get it, for {} was told that it {words}",
                    case.delivery(got),
                    story.name(part.op)
                )
            });
        }
    }
}
