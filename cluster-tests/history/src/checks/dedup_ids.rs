//! I11, of dedup ids: while a queue remembers one, it adds no second message, and answers with the first; afterwards it
//! does.

use std::collections::{HashMap, HashSet};

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};
use crate::fast::FastMap;
use crate::fates::{Doing, Event, Fate};
use crate::format::{Kind, MessageId};
use crate::story::{CancelTold, End, SentTold, SettledTold};

#[derive(Default)]
pub(super) struct DedupIds {
    /// By queue and dedup id: the message, and until when it is remembered at least.
    known: HashMap<(u64, Box<str>), (MessageId, u64)>,
    /// What is known of those messages.
    fates: FastMap<MessageId, Ended>,
}

/// How far a message is whose dedup id was remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// In its queue; when it expires.
    Not { expires: u64 },
    /// Gone, its id remembered for its window.
    Finished,
    /// Cancelled or purged: its id is free.
    Freed,
    /// Nobody knows.
    Unsure,
}

impl Check for DedupIds {
    fn name(&self) -> &'static str {
        "I11 a dedup id has one message while it is remembered"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let (cp, now) = (at.line.cp, at.line.ts);
        for turn in at.turns {
            match &turn.event {
                Event::Came { fate, dedup: Some((dedup, until)) } => {
                    let key = (fate.queue, dedup.clone());
                    if let Some((first, remembered)) = self.known.get(&key).copied() {
                        let holds = match self.fates.get(&first).copied().unwrap_or(Ended::Unsure) {
                            // It may have followed a dead letter of its group, which no line of the log tells.
                            Ended::Not { .. } if !at.fates.of(first).is_some_and(|fate| is_there(fate.state)) => {
                                now < remembered
                            }
                            Ended::Not { expires } => expires == 0 || now < expires || now < remembered,
                            Ended::Finished => now < remembered,
                            Ended::Freed | Ended::Unsure => false,
                        };
                        out.expect(!holds, || {
                            format!("at position {cp}: message {} was added under the dedup id {dedup}, but its queue remembered it for {first} (until {remembered}, now {now})", turn.id)
                        });
                    }
                    self.known.insert(key, (turn.id, *until));
                    self.fates.insert(turn.id, Ended::Not { expires: fate.expires });
                }
                Event::Again { queue, dedup } => {
                    let known = self.known.get(&(*queue, dedup.clone())).copied();
                    let right = known.is_some_and(|(first, _)| first == turn.id);
                    out.expect(right, || {
                        let first = known.map_or_else(|| "none".to_owned(), |(first, _)| first.to_string());
                        format!("at position {cp}: the dedup id {dedup} was answered with message {}, but its first one is {first}", turn.id)
                    });
                    let free = known.is_some_and(|(_, until)| match self.fates.get(&turn.id) {
                        Some(Ended::Finished) => now >= until,
                        Some(Ended::Freed) => true,
                        Some(Ended::Not { .. } | Ended::Unsure) | None => false,
                    });
                    out.expect(!free, || {
                        format!("at position {cp}: the dedup id {dedup} was answered with message {}, but its queue had forgotten it by then", turn.id)
                    });
                }
                Event::Ended(how) => {
                    let freed = matches!(*how, "cancelled" | "purged");
                    let ended = if freed { Ended::Freed } else { Ended::Finished };
                    // Of a lease that ran out only the end is seen: by a purge, or with its time.
                    let gone = how.starts_with("gone");
                    // What may be a dead letter by now frees no id, which its queue remembers as that of one that is finished.
                    let dead = |was: Fate| was.state == Doing::Unsure || (was.expires != 0 && now >= was.expires);
                    let dead = freed && turn.was.is_some_and(dead);
                    self.note(turn.id, if gone || dead { Ended::Unsure } else { ended });
                }
                Event::Taken | Event::Died { .. } | Event::Left => self.note(turn.id, Ended::Finished),
                Event::Swept { queue, .. } => self.sweep(*queue),
                Event::Leased => {
                    let unsure = turn.was.is_some_and(|was: Fate| was.state == Doing::Unsure && was.dead);
                    if unsure {
                        self.note(turn.id, Ended::Unsure);
                    }
                }
                Event::Came { .. }
                | Event::Back { .. }
                | Event::Moved { .. }
                | Event::TooLate { .. }
                | Event::NotThere => {}
            }
        }
    }

    /// Black box: two messages under one dedup id came so close after each other that it was remembered.
    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        let story = &case.story;
        let swept = |kind: Kind| matches!(kind, Kind::Purge | Kind::Delete);
        let swept: HashSet<u32> =
            story.ops.iter().filter(|op| swept(op.kind) && op.end != End::Fail).map(|op| op.queue).collect();
        for (queue, dedup, sent) in case.index.dedup_ids() {
            // Only messages that were added once and for all tell anything.
            let mut added: Vec<u32> =
                sent.iter().copied().filter(|sent| story.sent[*sent as usize].told.added().is_some()).collect();
            added.sort_unstable_by_key(|sent| story.ops[story.sent[*sent as usize].op as usize].t0);
            for pair in added.windows(2).filter(|_| !swept.contains(&queue)) {
                let (a, b) = (&story.sent[pair[0] as usize], &story.sent[pair[1] as usize]);
                let (first, second) = (&story.ops[a.op as usize], &story.ops[b.op as usize]);
                let window = case.bounds(queue).dedup.0.saturating_mul(MS);
                // Whichever of the two came first: one that was on its way for long may be the later one.
                let remembered = |t0: u64| t0.saturating_add(window).saturating_sub(case.slack(window));
                let close = second.t1 < remembered(first.t0) && first.t1 < remembered(second.t0);
                let freed = case.may_be_cancelled(pair[0], second.t1) || case.may_be_cancelled(pair[1], first.t1);
                out.expect(!close || freed, || {
                    format!(
                        "{} and {} both added a message under the dedup id {dedup}, though the first was remembered",
                        story.name(a.op),
                        story.name(b.op)
                    )
                });
            }
            // Whoever is told of a duplicate is told of a message that came under this dedup id, and is never seen itself.
            let ids: HashSet<MessageId> =
                added.iter().filter_map(|sent| story.sent[*sent as usize].told.added()).collect();
            let unknown = sent.iter().any(|sent| story.sent[*sent as usize].told == SentTold::Nothing);
            for duplicate in sent.iter().map(|sent| &story.sent[*sent as usize]) {
                let SentTold::In { id, dup: true, .. } = duplicate.told else { continue };
                out.expect(unknown || ids.contains(&id), || {
                    format!("{}: was told that dedup id {dedup} is that of message {id}, but nobody added that one under it", story.name(duplicate.op))
                });
                let seen = case.index.deliveries(story, duplicate.m.v).first();
                out.expect(seen.is_none(), || {
                    let delivery = seen.map(|got| case.delivery(&story.got[*got as usize])).unwrap_or_default();
                    format!(
                        "{}: was told that message v {} is a duplicate, but there is {delivery}",
                        story.name(duplicate.op),
                        duplicate.m.v
                    )
                });
                forgotten(case, queue, dedup, id, duplicate.op, out);
            }
        }
    }
}

/// A dedup id is not remembered for longer than it may be: its window is over, and its message had been acked or cancelled.
fn forgotten(case: &Case, queue: u32, dedup: &str, id: MessageId, asked: u32, out: &mut Findings) {
    let story = &case.story;
    let Some(first) = case.index.targets(story, &crate::format::Target::Id(id)).first().copied() else { return };
    let (message, op) = (&story.sent[first as usize], &story.ops[asked as usize]);
    let enqueued = story.ops[message.op as usize].t1;
    let deliveries = case.index.deliveries(story, message.m.v);
    let acks =
        deliveries.iter().flat_map(|got| case.index.settles(*got)).map(|settle| &story.settles[*settle as usize]);
    let acked = acks.filter(|part| part.told == SettledTold::Acked).map(|part| story.ops[part.op as usize].t1).min();
    let window = case.bounds(queue).dedup.1.saturating_mul(MS);
    let until = enqueued.saturating_add(window).saturating_add(case.slack(window));
    let over = acked.is_some_and(|acked| acked < op.t0) && until < op.t0;
    out.expect(!over, || {
        format!(
            "{}: was told that dedup id {dedup} is that of message {id}, which was acked and whose window was over",
            story.name(asked)
        )
    });
    let cancels = case.index.cancels(story, first);
    // As a dead letter it is in another queue, and its id is not freed: one that cannot have died.
    let alive = |until: u64| !case.may_be_dead(first, until);
    let cancelled = cancels
        .filter(|cancel| cancel.told == CancelTold::Cancelled(id) && alive(story.ops[cancel.op as usize].t1))
        .map(|cancel| story.ops[cancel.op as usize].t1)
        .min();
    out.expect(cancelled.is_none_or(|cancelled| cancelled >= op.t0), || {
        format!(
            "{}: was told that dedup id {dedup} is that of message {id}, which had been cancelled",
            story.name(asked)
        )
    });
}

/// Whether a message is in its queue for certain.
fn is_there(state: Doing) -> bool {
    matches!(state, Doing::Here | Doing::Leased)
}

impl DedupIds {
    fn note(&mut self, id: MessageId, ended: Ended) {
        if let Some(known) = self.fates.get_mut(&id).filter(|known| matches!(known, Ended::Not { .. } | Ended::Unsure))
        {
            *known = ended;
        }
    }

    /// All that is not leased is gone, and its ids are free; of what is leased nobody knows.
    fn sweep(&mut self, queue: u64) {
        for ((at, _), (id, _)) in &self.known {
            if *at == queue
                && let Some(known) = self.fates.get_mut(id).filter(|known| matches!(known, Ended::Not { .. }))
            {
                *known = Ended::Unsure;
            }
        }
    }
}
