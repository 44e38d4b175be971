//! I10: the members of a group come one after the other, in the order in which they joined its line. Those that were delayed,
//! put at another time or moved join when nobody sees it: of them only is known that nobody else of their group is leased.

use std::collections::{BTreeMap, HashMap};

use super::{After, Applying, Check, Findings};
use crate::case::{Case, MS};
use crate::fast::FastMap;
use crate::fates::{Event, Fate};
use crate::format::{Kind, MessageId, OnGroup, Verdict};
use crate::story::{End, NONE, OpRow};

#[derive(Default)]
pub(super) struct GroupOrder {
    lines: FastMap<(u64, u32), Line>,
    /// The lines that wait for a dead letter.
    waiting: FastMap<MessageId, (u64, u32)>,
}

/// What is known of the line of a group.
#[derive(Debug, Default)]
struct Line {
    /// Those that joined as they came, by sequence, which is the order of their numbers; when they expire.
    members: BTreeMap<u64, u64>,
    /// Who is leased.
    leased: Option<(u64, MessageId)>,
    /// The dead letter that all wait for.
    blocked: Option<MessageId>,
}

impl Check for GroupOrder {
    fn name(&self) -> &'static str {
        "I10 a group comes in order, one at a time"
    }

    fn applied(&mut self, at: &Applying<'_>, out: &mut Findings) {
        let now = at.line.ts;
        for turn in at.turns {
            if let Event::Ended(_) | Event::Taken = turn.event
                && let Some(line) = self.waiting.remove(&turn.id).and_then(|line| self.lines.get_mut(&line))
            {
                line.blocked = None;
            }
            let key = |fate: Fate| fate.group.map(|group| (fate.queue, group));
            match (&turn.event, turn.was) {
                (Event::Came { fate, .. }, _) => {
                    if let Some(key) = key(*fate).filter(|_| fate.prompt) {
                        self.lines.entry(key).or_default().members.insert(fate.seq, fate.expires);
                    }
                }
                (Event::Leased | Event::Taken, Some(was)) => {
                    let Some(key) = key(was) else { continue };
                    let line = self.lines.entry(key).or_default();
                    look(at, line, turn.id, was, now, out);
                    if turn.event == Event::Leased {
                        line.leased = Some((was.seq, turn.id));
                    } else {
                        line.members.remove(&was.seq);
                    }
                }
                (Event::Back { .. }, Some(was)) => {
                    if let Some(line) = key(was).and_then(|key| self.lines.get_mut(&key)) {
                        line.leased = line.leased.filter(|(_, id)| *id != turn.id);
                    }
                }
                (Event::Ended(_) | Event::Died { .. } | Event::Left, Some(was)) => {
                    let Some(key) = key(was) else { continue };
                    let line = self.lines.entry(key).or_default();
                    line.members.remove(&was.seq);
                    line.leased = line.leased.filter(|(_, id)| *id != turn.id);
                    let Event::Died { policy, .. } = turn.event else { continue };
                    match policy {
                        Some(OnGroup::Block) => {
                            line.blocked = Some(turn.id);
                            self.waiting.insert(turn.id, key);
                        }
                        // They may go now, in ticks.
                        Some(OnGroup::Follow) => line.members.clear(),
                        Some(OnGroup::Continue) | None => {}
                    }
                }
                (Event::Swept { queue, removed }, _) => self.sweep(*queue, *removed),
                (Event::Again { .. } | Event::Moved { .. } | Event::TooLate { .. } | Event::NotThere, _)
                | (_, None) => {}
            }
        }
    }

    fn end(&mut self, case: &Case, _: &After<'_>, out: &mut Findings) {
        one_at_a_time(case, out);
        let groups = Groups::of(case);
        for ((queue, group), members) in &groups.members {
            in_order(case, *queue, group, members, &groups, out);
        }
    }
}

/// Looks at a delivery.
fn look(at: &Applying<'_>, line: &mut Line, id: MessageId, was: Fate, now: u64, out: &mut Findings) {
    let cp = at.line.cp;
    let name = || at.fates.group(was.group.unwrap_or(u32::MAX)).to_owned();
    let other = line.leased.filter(|(_, leased)| *leased != id);
    out.expect(other.is_none(), || {
        let other = other.map_or_else(String::new, |(_, other)| other.to_string());
        format!("at position {cp}: message {id} of group {} is delivered while {other} of it is leased", name())
    });
    let blocked = line.blocked;
    out.expect(blocked.is_none(), || {
        let dead = blocked.map_or_else(String::new, |dead| dead.to_string());
        format!(
            "at position {cp}: message {id} of group {} is delivered, but its line waits for the dead letter {dead}",
            name()
        )
    });
    if !line.members.contains_key(&was.seq) {
        return;
    }
    // What has expired may have been ended by a tick: it holds nobody up.
    while let Some((seq, expires)) = line.members.first_key_value().map(|(seq, expires)| (*seq, *expires)) {
        if expires == 0 || now < expires || seq == was.seq {
            break;
        }
        line.members.remove(&seq);
    }
    let first = line.members.iter().find(|(seq, expires)| **seq == was.seq || **expires == 0 || now < **expires);
    let first = first.map_or(was.seq, |(seq, _)| *seq);
    out.expect(first == was.seq, || {
        format!(
            "at position {cp}: message {id} of group {} is delivered, but the message with sequence {first} is before it in the line and has not finished",
            name()
        )
    });
}

impl GroupOrder {
    fn sweep(&mut self, queue: u64, removed: bool) {
        // Dead letters that lines wait for may be among what is gone.
        self.waiting.clear();
        for ((at, _), line) in &mut self.lines {
            line.blocked = None;
            if *at != queue {
                continue;
            }
            let leased = line.leased.filter(|_| !removed);
            line.members.retain(|seq, _| leased.is_some_and(|(leased, _)| leased == *seq));
            line.leased = leased;
        }
    }
}

/// The members of each group, and what can end them without anybody being told.
struct Groups<'a> {
    /// By queue and group: messages by their place in the story, in the order in which their enqueues began.
    members: BTreeMap<(u32, &'a str), Vec<u32>>,
    /// The first purge or delete of a queue, and the first receive that took at most once.
    swept: HashMap<u32, u64>,
    taken: HashMap<u32, u64>,
    /// The shortest lease that anybody asked for.
    lease: u64,
}

impl<'a> Groups<'a> {
    fn of(case: &'a Case) -> Self {
        let story = &case.story;
        let mut members: BTreeMap<(u32, &str), Vec<u32>> = BTreeMap::new();
        for (number, sent) in (0u32..).zip(&story.sent).filter(|(_, sent)| !sent.m.group().is_empty()) {
            if story.ops[sent.op as usize].end != End::Fail && !matches!(sent.told, crate::story::SentTold::No(_)) {
                members.entry((sent.queue, sent.m.group())).or_default().push(number);
            }
        }
        let (mut swept, mut taken): (HashMap<u32, u64>, HashMap<u32, u64>) = (HashMap::new(), HashMap::new());
        let mut lease = u64::MAX;
        for op in story.ops.iter().filter(|op| op.end != End::Fail) {
            let first = |times: &mut HashMap<u32, u64>, queue: u32| {
                let time = times.entry(queue).or_insert(op.t0);
                *time = op.t0.min(*time);
            };
            if matches!(op.kind, Kind::Purge | Kind::Delete) {
                first(&mut swept, op.queue);
            }
            if op.kind == Kind::Receive {
                let extra = story.extra_of(op);
                if extra.is_some_and(|extra| extra.auto) {
                    let then = extra.map(|extra| extra.then.clone()).unwrap_or_default();
                    then.into_iter().chain(Some(op.queue)).for_each(|queue| first(&mut taken, queue));
                }
                lease = lease.min(if op.argument == 0 { case.bounds(op.queue).lease.0 } else { op.argument });
            }
        }
        Self { members, swept, taken, lease: lease.saturating_mul(MS) }
    }
}

/// From when and until when somebody held a lease for certain, and which delivery it was.
type Held = (u64, u64, u32);

/// No two of a group are leased at once: the times in which they were leased for certain do not overlap.
fn one_at_a_time(case: &Case, out: &mut Findings) {
    let story = &case.story;
    let mut leased: HashMap<(u32, &str), Vec<Held>> = HashMap::new();
    let removed: Vec<&OpRow> = story.ops.iter().filter(|op| op.kind == Kind::Delete && op.end != End::Fail).collect();
    for (v, deliveries) in case.index.lives(story) {
        let Some(sent) = case.index.sent(v).map(|sent| &story.sent[sent as usize]) else { continue };
        if sent.m.group().is_empty() {
            continue;
        }
        for number in deliveries.iter().filter(|got| !story.got[**got as usize].taken) {
            let got = &story.got[*number as usize];
            let (from, until) = (story.ops[got.op as usize].t1, leased_until(case, *number, &removed));
            if from < until {
                leased.entry((got.queue, sent.m.group())).or_default().push((from, until, *number));
            }
        }
    }
    for ((_, group), mut leased) in leased {
        leased.sort_unstable();
        let mut before: Option<(u64, u32)> = None;
        for (from, until, number) in leased {
            let got = &story.got[number as usize];
            let overlaps = before.filter(|(end, other)| *end > from && story.got[*other as usize].v != got.v);
            out.expect(overlaps.is_none(), || {
                let other = overlaps.map(|(_, other)| case.delivery(&story.got[other as usize])).unwrap_or_default();
                format!(
                    "{other} and {} were leased at the same time, but both are of group {group}",
                    case.delivery(got)
                )
            });
            if before.is_none_or(|(end, _)| until > end) {
                before = Some((until, number));
            }
        }
    }
}

/// Until when a delivery was leased for certain: its lease may have ended with its queue too.
fn leased_until(case: &Case, number: u32, removed: &[&OpRow]) -> u64 {
    let story = &case.story;
    let got = &story.got[number as usize];
    let from = |begin: u64, lease: u64| begin.saturating_add(lease).saturating_sub(case.slack(lease));
    let mut until = from(story.ops[got.op as usize].t0, case.lease(got));
    for settle in case.index.settles(number) {
        let settle = &story.settles[*settle as usize];
        let begin = story.ops[settle.op as usize].t0;
        let ends = if let Verdict::Extend { lease } = settle.how {
            let lease = if lease == 0 { case.bounds(got.queue).lease.0 } else { lease };
            from(begin, lease.saturating_mul(MS))
        } else {
            begin
        };
        until = until.min(ends);
    }
    let begin = story.ops[got.op as usize].t0;
    let removed = removed.iter().filter(|op| op.queue == got.queue && op.t1 >= begin).map(|op| op.t0).min();
    removed.map_or(until, |removed| until.min(removed))
}

/// Who was enqueued before another one began is finished before that one is delivered.
fn in_order(case: &Case, queue: u32, group: &str, members: &[u32], groups: &Groups<'_>, out: &mut Findings) {
    let story = &case.story;
    let swept = groups.swept.get(&queue).copied().unwrap_or(u64::MAX);
    // Members whose place in the line is known: they were ready as they came, and added for certain.
    let prompt = |sent: &&u32| {
        let sent = &story.sent[**sent as usize];
        sent.m.d == 0 && sent.m.at == 0 && sent.told.added().is_some()
    };
    let mut ordered: Vec<u32> = members.iter().filter(prompt).copied().collect();
    let begin = |sent: u32| story.ops[story.sent[sent as usize].op as usize].t0;
    let end = |sent: u32| story.ops[story.sent[sent as usize].op as usize].t1;
    ordered.sort_unstable_by_key(|sent| (begin(*sent), *sent));
    let mut by_end = ordered.clone();
    by_end.sort_unstable_by_key(|sent| (end(*sent), *sent));
    let follows = case.bounds(queue).follows;
    // The earliest time at which any of the group may have died, so that the others followed.
    let first_death = if follows { members.iter().map(|sent| death(case, *sent, groups)).min() } else { None };
    let earliest = |sent: u32| {
        let over = ends(case, sent, groups).min(swept);
        first_death.map_or(over, |death| over.min(death))
    };
    let mut passed = 0;
    // Of all that ended before: who may have been finished last, at the earliest.
    let mut latest: Option<(u64, u32)> = None;
    for sent in ordered {
        while let Some(other) = by_end.get(passed).copied().filter(|other| end(*other) < begin(sent)) {
            passed += 1;
            let over = earliest(other);
            if latest.is_none_or(|(last, _)| over > last) {
                latest = Some((over, other));
            }
        }
        let v = story.sent[sent as usize].m.v;
        let deliveries = case.index.deliveries(story, v).iter().map(|got| &story.got[*got as usize]);
        let own = deliveries.filter(|got| got.queue == queue && got.dead == NONE);
        let Some(first) = own.min_by_key(|got| story.ops[got.op as usize].t1) else { continue };
        let at = story.ops[first.op as usize].t1;
        let held_up = latest.filter(|(over, _)| *over > at);
        out.expect(held_up.is_none(), || {
            let before = held_up.map_or(0, |(_, before)| story.sent[before as usize].m.v);
            format!(
                "{} came before message v {before} of its group {group} can have been finished, which was enqueued before it",
                case.delivery(first)
            )
        });
    }
}

/// The earliest time at which a message can have died: been rejected, or used its attempts up.
fn death(case: &Case, sent: u32, groups: &Groups<'_>) -> u64 {
    let story = &case.story;
    let message = &story.sent[sent as usize];
    let deliveries = case.index.deliveries(story, message.m.v);
    let settles =
        deliveries.iter().flat_map(|got| case.index.settles(*got)).map(|settle| &story.settles[*settle as usize]);
    let fails = settles.filter(|part| matches!(part.how, Verdict::Reject | Verdict::Retry { .. }));
    let failed = fails.map(|part| story.ops[part.op as usize].t0).min().unwrap_or(u64::MAX);
    // So many leases must have run out, of which nobody need have been told.
    let attempts = u64::from(case.attempts(message.m.v, message.queue).0);
    let leases = groups.lease.saturating_mul(attempts);
    failed.min(story.ops[message.op as usize].t0.saturating_add(leases).saturating_sub(case.slack(leases)))
}

/// The earliest time at which a message can have been finished.
fn ends(case: &Case, sent: u32, groups: &Groups<'_>) -> u64 {
    let story = &case.story;
    let message = &story.sent[sent as usize];
    let deliveries = case.index.deliveries(story, message.m.v);
    let settles =
        deliveries.iter().flat_map(|got| case.index.settles(*got)).map(|settle| &story.settles[*settle as usize]);
    let finishes = settles.filter(|part| !matches!(part.how, Verdict::Extend { .. }));
    let settled = finishes.map(|part| story.ops[part.op as usize].t0).min().unwrap_or(u64::MAX);
    let cancels = case.index.cancels(story, sent).map(|cancel| story.ops[cancel.op as usize].t0).min();
    let taken = groups.taken.get(&message.queue).copied().unwrap_or(u64::MAX);
    let begin = story.ops[message.op as usize].t0;
    let ttl = message.m.more.as_ref().map_or(0, |more| more.ttl);
    let expires_at = message.m.more.as_ref().is_some_and(|more| more.x != 0);
    let ttl = if ttl == 0 { case.bounds(message.queue).ttl.0 } else { ttl }.saturating_mul(MS);
    let expired = if expires_at { begin } else { begin.saturating_add(ttl).saturating_sub(case.slack(ttl)) };
    let times = [settled, cancels.unwrap_or(u64::MAX), taken, expired, death(case, sent, groups)];
    times.into_iter().min().unwrap_or(u64::MAX)
}
