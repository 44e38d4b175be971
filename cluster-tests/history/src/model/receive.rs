//! Receives: whose turn it is.

use super::ends::End;
use super::queue::State;
use super::settings::LEASES;
use super::{Model, Pick, Step, same, unexpected, wrong};
use crate::format::{Applied, Grant, QueueName, Refusal, TakenOut, Token};

/// Queues of one receive.
const QUEUES: usize = 16;
/// Messages of one receive.
const BATCH: u32 = 1_000;
/// Bytes of one receive that names no bound.
const BYTES: u64 = 4 << 20;
/// Expired messages that one receive ends.
const SCAN: usize = 200;

/// What a receive asks for, beside its queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) max: u32,
    pub(super) bytes: u64,
    pub(super) lease: u64,
    pub(super) auto: bool,
}

/// How far a receive is.
struct Scan {
    asked: Asked,
    /// Messages and bytes that were given, and expired messages that were met.
    count: u32,
    bytes: u64,
    met: usize,
}

/// One delivery, as it stands in an outcome.
enum Given {
    Leased(Grant),
    Taken(TakenOut),
}

impl Model {
    pub(super) fn receive(
        &mut self,
        names: &[&QueueName],
        asked: Asked,
        told: Option<&Applied>,
        pick: Pick<'_>,
    ) -> Step<Applied> {
        let one_namespace = names.windows(2).all(|pair| pair[0].namespace() == pair[1].namespace());
        let lawful = (1..=BATCH).contains(&asked.max) && (asked.lease == 0 || LEASES.contains(&asked.lease));
        if !lawful || names.len() > QUEUES || !one_namespace {
            return Ok(Applied::Refused(Refusal::new("INVALID")));
        }
        let ids: Vec<u64> = names.iter().filter_map(|name| self.names.get(*name).copied()).collect();
        if ids.is_empty() {
            return Ok(Applied::Refused(Refusal::new("QUEUE_NOT_FOUND")));
        }
        // Deliveries as the log tells them: place, receive count, and the rest for comparison.
        let (grants, taken) = match told {
            None => (None, None),
            Some(Applied::Granted { g }) if !asked.auto => (Some(g.as_slice()), None),
            Some(Applied::Taken { d }) if asked.auto => (None, Some(d.as_slice())),
            Some(other) => return unexpected("messages", other),
        };
        let len = grants.map(<[Grant]>::len).or_else(|| taken.map(<[TakenOut]>::len));
        self.taken.clear();
        let bytes = if asked.bytes == 0 { BYTES } else { asked.bytes };
        let mut scan = Scan { asked: Asked { bytes, ..asked }, count: 0, bytes: 0, met: 0 };
        let (mut g, mut d) = (Vec::new(), Vec::new());
        'queues: for id in ids {
            while scan.count < asked.max {
                let Some((sequence, size)) = self.next(id, &mut scan)? else { break };
                let number = scan.count as usize;
                // Whether it goes on once it has ended so many is its own affair.
                let ends = scan.met >= SCAN && len.is_none_or(|len| number >= len);
                if ends || (scan.count > 0 && scan.bytes + size > bytes) {
                    break 'queues;
                }
                if len.is_some_and(|len| number >= len) {
                    let text = format!(
                        "expected {} or more messages, the next with sequence {sequence} of queue {id}, but only {number} were given",
                        number + 1,
                    );
                    return wrong("a receive gives what is ready", text);
                }
                let token = match grants.map(|grants| grants[number].tok) {
                    Some(told) => told.map(|(_, token)| token),
                    None => Some(Token((u128::from(pick(u64::MAX)) << 64) | u128::from(pick(u64::MAX)))),
                };
                match self.give(id, sequence, &scan, token)? {
                    Given::Leased(grant) => {
                        if let Some(told) = grants.map(|grants| &grants[number]) {
                            compare(number, &grant, told, (grant.q, grant.seq) == (told.q, told.seq))?;
                        }
                        g.push(grant);
                    }
                    Given::Taken(taken_out) => {
                        if let Some(told) = taken.map(|taken| &taken[number]) {
                            let place = (taken_out.q, taken_out.seq) == (told.q, told.seq);
                            compare(number, &taken_out, told, place)?;
                        }
                        d.push(taken_out);
                    }
                }
                scan.count += 1;
                scan.bytes += size;
            }
            if scan.met >= SCAN {
                break;
            }
        }
        if len.is_some_and(|len| len > scan.count as usize) {
            let text = format!("expected {} messages, but got {told:?}", scan.count);
            return wrong("a receive gives what is ready", text);
        }
        for grant in &g {
            let Some((_, token)) = grant.tok else { continue };
            let before = self.tokens.insert(token, (grant.q, grant.seq));
            same("a token is given once", "the message that had this token before", None, before)?;
        }
        Ok(if asked.auto { Applied::Taken { d } } else { Applied::Granted { g } })
    }

    /// The next message of a queue that can be given: its sequence and size. Ends expired ones on the way.
    fn next(&mut self, id: u64, scan: &mut Scan) -> Step<Option<(u64, u64)>> {
        let now = self.now;
        loop {
            let queue = self.queue_mut(id)?;
            let Some((sequence, _, _)) = queue.turn().filter(|_| queue.paused.is_none()) else { return Ok(None) };
            let Some(message) = queue.messages.get(&sequence) else {
                return wrong("a lane names a message", format!("expected message {sequence}, but there is none"));
            };
            if !message.is_expired(now) {
                return Ok(Some((sequence, message.size)));
            }
            if scan.met >= SCAN {
                return Ok(None);
            }
            scan.met += 1;
            self.end_expired(id, sequence)?;
        }
    }

    /// Gives a message whose turn it is.
    fn give(&mut self, id: u64, sequence: u64, scan: &Scan, token: Option<Token>) -> Step<Given> {
        let (index, lease_now) = (self.at.index, self.lease_now);
        let queue = self.queue_mut(id)?;
        let lease = if scan.asked.lease == 0 { queue.settings.lease } else { scan.asked.lease };
        if let Some((_, priority, true)) = queue.turn()
            && let Some(turn) = queue.head.turns.get_mut(usize::from(priority))
        {
            *turn += 1;
        }
        queue.head.changed = true;
        queue.head.stats.received += 1;
        if !scan.asked.auto {
            queue.leave(sequence);
        }
        let Some(message) = queue.messages.get_mut(&sequence) else {
            return wrong("a lane names a message", format!("expected message {sequence}, but there is none"));
        };
        message.receive_count += 1;
        let (rc, f, message_id, size) = (message.receive_count, message.failures, message.id, message.size);
        queue.head.stats.redelivered += u64::from(rc > 1);
        if scan.asked.auto {
            let shown = self.shown(message_id);
            self.taken.extend(shown);
            self.take_out(id, sequence, End::Acked(None))?;
            return Ok(Given::Taken(TakenOut { q: id, seq: sequence, id: message_id, rc, f }));
        }
        let end = lease_now + lease;
        message.state = State::Leased { token, granted: index, granted_lease: lease_now, end };
        queue.head.stats.leased += 1;
        queue.head.stats.leased_bytes += size;
        let tok = token.map(|token| (message_id, token));
        Ok(Given::Leased(Grant { q: id, seq: sequence, tok, rc, f, end }))
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(number: usize, expected: &T, got: &T, same_place: bool) -> Step {
    if expected == got {
        return Ok(());
    }
    let text = format!("expected delivery {number} to be {expected:?}, but it is {got:?}");
    wrong(if same_place { "a lease is granted as asked" } else { "whose turn it is" }, text)
}
