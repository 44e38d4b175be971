//! The applied requests of a log in the words of a history: what `audit.jsonl` holds.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::{bail, ensure};
use ticketrail_core::command::Target;
use ticketrail_core::query::{Delivery, MessageInfo, MessageState};
use ticketrail_core::reply::{Answered, Expired, Handle, Received};
use ticketrail_core::{Answer, Command, Effect, Entry, MemView, MessageId, Query, Rejection, Reply, Request, answer};
use ticketrail_history::format::{self, Applied, AuditLine, Grant, Position, SettleOutcome, Token};
use ticketrail_history::recorder::JsonLines;
use ticketrail_history::run;
use ticketrail_storage::log::RaftLog;

use crate::log::{Step, ensure_whole, walk};
use crate::replay::clock;
use crate::words;

/// Turns applied entries into lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The ids of messages that are leased, by queue and sequence: an `Expire` names no ids.
    ids: HashMap<(u64, u64), MessageId>,
    /// What the entry has ended so far: leases that ran out, and queues.
    ended: BTreeSet<(u64, u64)>,
    removed: BTreeSet<u64>,
}

impl Lines {
    /// The lines of an entry, one a request; one for an entry without requests, which moves the clock alone.
    pub fn of(&mut self, step: &Step<'_>) -> anyhow::Result<Vec<AuditLine>> {
        let at = clock(step.view)?;
        let line = |ordinal: u32| AuditLine {
            cp: Position { index: step.at.index, ordinal },
            term: step.at.term,
            st: step.entry.proposed_at_ms,
            ts: at.cluster.0,
            lc: at.lease.0,
            rid: None,
            ab: 0,
            c: format::Command::Nothing,
            r: Applied::Nothing,
            replay: None,
        };
        if step.entry.requests.is_empty() {
            return Ok(vec![line(0)]);
        }
        let (requests, replies) = (&step.entry.requests, &step.outcome.replies);
        ensure!(requests.len() == replies.len(), "expected a reply a request in entry {:?}", step.at);
        self.ended.clear();
        self.removed.clear();
        let mut lines = Vec::with_capacity(requests.len());
        for ((request, result), ordinal) in requests.iter().zip(replies).zip(0u32..) {
            let (c, r, replay) = self.one(step, at.lease.0, request, result)?;
            let rid = request.id.as_ref().map(words::rid);
            let ab = request.id.map_or(0, |id| id.acked_below);
            lines.push(AuditLine { rid, ab, c, r, replay, ..line(ordinal) });
        }
        Ok(lines)
    }

    fn one(
        &mut self,
        step: &Step<'_>,
        lease_now: u64,
        request: &Request,
        result: &Result<Reply, Rejection>,
    ) -> anyhow::Result<(format::Command, Applied, Option<Position>)> {
        let Some(command) = &request.command else { bail!("expected a command in each request, but one has none") };
        let told = words::command(command);
        let reply = match result {
            Ok(reply) => reply,
            Err(rejection) => return Ok((told, Applied::Refused(words::refusal(rejection)), None)),
        };
        let replay = reply.replayed.then_some(Position { index: reply.index, ordinal: reply.ordinal });
        let Some(answered) = &reply.answered else { bail!("expected an answer in each reply, but one has none") };
        let applied = match (command, answered) {
            (Command::Receive(receive), Answered::Received(received)) if receive.auto_ack => {
                Applied::Taken { d: received.taken.iter().map(words::taken).collect::<anyhow::Result<_>>()? }
            }
            (_, Answered::Received(received)) => self.granted(step.view, received)?,
            (_, Answered::Ticked(ticked)) => {
                let more = step.outcome.effects.contains(&Effect::TickAgain);
                Applied::Ticked { n: ticked.fired, more }
            }
            (Command::Expire(expire), Answered::Expired(expired)) => self.expired(step, lease_now, expire, expired)?,
            (Command::DeleteQueue(delete), answered) if !reply.replayed => {
                self.removed.extend(delete.queue.as_ref().and_then(|name| step.before.removed.get(name)));
                words::answered(answered)?
            }
            (_, answered) => words::answered(answered)?,
        };
        Ok((told, applied, replay))
    }

    fn granted(&mut self, view: &MemView, received: &Received) -> anyhow::Result<Applied> {
        let answered = answer(view, &Query::Deliver(received.handles.clone()))?;
        let Answer::Deliveries(deliveries) = answered else { bail!("expected deliveries, but got {answered:?}") };
        // A delivery says not which handle it is for, but its token and receive count do.
        let mut tokens: HashMap<(u64, u64, u32), &Delivery> = HashMap::new();
        for delivery in &deliveries {
            let token = ticketrail_core::LeaseToken::from_bytes(&delivery.token)?;
            tokens.insert((token.queue.0, token.sequence, delivery.receive_count), delivery);
        }
        let mut grants = Vec::with_capacity(received.handles.len());
        for handle in &received.handles {
            let Handle { place, receive_count, failures, granted_index: _, deadline_ms } = *handle;
            let delivery = tokens.get(&(place.queue, place.sequence, receive_count));
            if let Some(delivery) = delivery {
                self.ids.insert((place.queue, place.sequence), delivery.id);
            }
            grants.push(Grant {
                q: place.queue,
                seq: place.sequence,
                tok: delivery.map(|d| (words::id(d.id), Token::of(&d.token))),
                rc: receive_count,
                f: failures,
                end: deadline_ms,
            });
        }
        Ok(Applied::Granted { g: grants })
    }

    /// The leases of an `Expire` that had run out, as the state before the entry shows, and what became of the messages, as
    /// the state after it shows: the reply only counts them. Nothing else can end a lease that has run out, but the end of
    /// its queue.
    fn expired(
        &mut self,
        step: &Step<'_>,
        lease_now: u64,
        expire: &ticketrail_core::command::Expire,
        expired: &Expired,
    ) -> anyhow::Result<Applied> {
        let mut l = Vec::new();
        for (number, named) in (0u32..).zip(&expire.leases) {
            if l.len() as u64 == u64::from(expired.count) {
                break;
            }
            let place = (named.queue, named.sequence);
            let lease = step.before.leases.get(&place).filter(|lease| {
                lease.granted_index == named.granted_index
                    && lease.deadline.0 <= lease_now
                    && !self.removed.contains(&named.queue)
            });
            if lease.is_none() || !self.ended.insert(place) {
                continue;
            }
            let Some(id) = self.ids.get(&place).copied() else {
                bail!("expected to know the message of the lease {named:?}");
            };
            let answered = answer(step.view, &Query::Get(id))?;
            let Answer::Message(message) = answered else { bail!("expected a message, but got {answered:?}") };
            let outcome = match message {
                None => SettleOutcome::Gone,
                Some(message) if message.place.queue.0 != named.queue => {
                    SettleOutcome::Dead { seq: message.place.sequence, q: message.place.queue.0 }
                }
                // Put at another time by the rest of the entry.
                Some(message) if is_moved(step.entry, &message) => SettleOutcome::Unseen,
                Some(MessageInfo { state: MessageState::Delayed, due: Some(due), .. }) => {
                    SettleOutcome::Delayed { due: due.0 }
                }
                Some(_) => SettleOutcome::Readied,
            };
            l.push((number, outcome));
        }
        let (got, expected) = (l.len(), expired.count);
        ensure!(got as u64 == u64::from(expected), "expected {expected} leases to have run out, but found {got}");
        Ok(Applied::Expired { l })
    }
}

/// Whether some request of an entry puts a message at another time.
fn is_moved(entry: &Entry, message: &MessageInfo) -> bool {
    let commits = entry.requests.iter().filter_map(|request| match &request.command {
        Some(Command::Commit(commit)) => Some(commit),
        _ => None,
    });
    let names = |target: &Target| match &target.id {
        Some(id) => id.message_id() == Some(message.id),
        None => target.queue.as_ref() == Some(&message.queue) && target.dedup_id == message.dedup_id,
    };
    let mut moved = commits.flat_map(|commit| &commit.reschedule);
    moved.any(|time| time.target.as_ref().is_some_and(names))
}

/// Writes the applied requests of a log, which must hold all entries from the first on, up to `last`, into a run's
/// directory. Returns how many there are.
pub fn write_audit(dir: &Path, log: &impl RaftLog, last: u64) -> anyhow::Result<u64> {
    ensure_whole(log)?;
    let mut file = JsonLines::create(&dir.join(run::AUDIT))?;
    let mut lines = Lines::default();
    let mut written = 0;
    walk(&mut MemView::new(), log, 0, last, |step| {
        for line in lines.of(&step)? {
            file.write(&line);
            written += 1;
        }
        Ok(())
    })?;
    file.finish()?;
    Ok(written)
}
