//! Receives: whose turn it is.

use super::queue::{Queue, State};
use super::settings::LEASES;
use super::{Model, Step, expect_refusal, same, unexpected, wrong};
use crate::format::{Applied, Grant, QueueName, Refusal};

/// Messages of one receive.
const BATCH: u32 = 1_000;
/// Bytes of one receive that names no bound.
const BYTES: u64 = 4 << 20;
/// While both lanes hold something, each so many deliveries one comes from the fresh lane.
const FRESH_TURN: u64 = 4;

impl Queue {
    /// The message whose turn it is, and whether it is one that came back.
    fn turn(&self) -> Option<(u64, bool)> {
        let (returned, fresh) = (self.returned.front().copied(), self.fresh.front().copied());
        match (returned, fresh) {
            (Some(_), Some(fresh)) if self.turn % FRESH_TURN == FRESH_TURN - 1 => Some((fresh, false)),
            (Some(returned), _) => Some((returned, true)),
            (None, Some(fresh)) => Some((fresh, false)),
            (None, None) => None,
        }
    }
}

impl Model {
    pub(super) fn receive(&mut self, name: &QueueName, max: u32, bytes: u64, lease: u64, got: &Applied) -> Step {
        if !(1..=BATCH).contains(&max) || (lease != 0 && !LEASES.contains(&lease)) {
            return expect_refusal(&Refusal::new("INVALID"), got);
        }
        let Some(id) = self.names.get(name).copied() else {
            return expect_refusal(&Refusal::new("QUEUE_NOT_FOUND"), got);
        };
        let Applied::Granted { g } = got else { return unexpected("leases", got) };
        let bytes = if bytes == 0 { BYTES } else { bytes };
        let (index, lease_now) = (self.at.index, self.lease_now);
        let queue = self.queue_mut(id)?;
        let lease = if lease == 0 { queue.settings.lease } else { lease };
        let mut taken = 0;
        let mut given = g.iter();
        for count in 0..max {
            let next = queue.turn().filter(|_| queue.paused.is_none());
            let Some((sequence, returned)) = next else { break };
            let Some(message) = queue.messages.get_mut(&sequence) else {
                return wrong("a lane names a message", format!("expected message {sequence}, but there is none"));
            };
            if count > 0 && taken + message.size > bytes {
                break;
            }
            taken += message.size;
            let Some(grant) = given.next() else {
                let text = format!(
                    "expected {} or more messages, the next with sequence {sequence} ({}), but only {} were given",
                    count + 1,
                    message.id,
                    g.len()
                );
                return wrong("a receive gives what is ready", text);
            };
            message.receive_count += 1;
            let expected = Grant {
                q: id,
                seq: sequence,
                tok: grant.tok.map(|(_, token)| (message.id, token)),
                rc: message.receive_count,
                f: message.failures,
                end: lease_now + lease,
            };
            if expected != *grant {
                let text = format!("expected delivery {count} to be {expected:?}, but it is {grant:?}");
                let rule = if expected.seq == grant.seq { "a lease is granted as asked" } else { "whose turn it is" };
                return wrong(rule, text);
            }
            let token = grant.tok.map(|(_, token)| token);
            message.state = State::Leased { token, granted: index, granted_lease: lease_now, end: expected.end };
            let (size, again) = (message.size, message.receive_count > 1);
            if !queue.returned.is_empty() && !queue.fresh.is_empty() {
                queue.turn += 1;
            }
            if returned {
                queue.returned.pop_front();
            } else {
                queue.fresh.pop_front();
            }
            queue.stats.ready -= 1;
            queue.stats.leased += 1;
            queue.stats.leased_bytes += size;
            queue.stats.received += 1;
            queue.stats.redelivered += u64::from(again);
        }
        if let Some(more) = given.next() {
            return wrong("a receive gives what is ready", format!("expected no more messages, but got {more:?}"));
        }
        for grant in g {
            let Some((_, token)) = grant.tok else { continue };
            let before = self.tokens.insert(token, (grant.q, grant.seq));
            same("a token is given once", "the message that had this token before", None, before)?;
        }
        Ok(())
    }
}
