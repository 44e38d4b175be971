//! What stands on a stream between follower and leader, to and from what the node works with.

use std::str::FromStr as _;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use ticketrail_core::command::{Content, QueueRef, Request};
use ticketrail_core::query::{DeadLetter, DeadReason, Delivery};
use ticketrail_core::reply::RejectionRecord;
use ticketrail_core::{MessageId, Rejection, Reply, Timestamp};
use ticketrail_proto::raft::{self as pb, dead_letter::Reason, forward_reply::Outcome, refused::Why};

use crate::attempt::Attempt;
use crate::call::{CallError, Deliveries, Done, Origin, Unavailable};
use crate::forward::client::millis;
use crate::read::ReadPoint;

/// A request for the leader.
pub(super) fn encode_request(request: &Request) -> Bytes {
    request.encode_to_vec().into()
}

/// A request of a follower. `Err` says what was expected.
pub(super) fn decode_request(bytes: Bytes) -> Result<Request, String> {
    let request =
        Request::decode(bytes).map_err(|error| format!("expected a request, but it does not decode: {error}"))?;
    if request.command.is_none() {
        return Err("expected a command that this node knows, but it is of a newer version; upgrade this node".into());
    }
    Ok(request)
}

/// What became of a command, for a follower.
pub(super) fn of_done(attempt: Attempt<Done>) -> Outcome {
    outcome(attempt, |Done { reply, origin }| {
        Outcome::Replied(pb::Replied { reply: reply.encode_to_vec().into(), term: origin.term })
    })
}

/// What became of a poll, for a follower.
pub(super) fn of_deliveries(attempt: Attempt<Deliveries>) -> Outcome {
    outcome(attempt, |Deliveries { deliveries, reply, origin, waited }| {
        let reply = reply.map(|reply| reply.encode_to_vec().into());
        let messages = deliveries.into_iter().map(of_delivery).collect();
        Outcome::Polled(pb::Polled { reply, term: origin.term, messages, waited_ms: millis(waited) })
    })
}

/// Where a read is safe, for a follower.
pub(super) fn of_read_point(attempt: Attempt<ReadPoint>) -> Outcome {
    outcome(attempt, |ReadPoint { index, origin }| Outcome::ReadAt(pb::ReadAt { index, term: origin.term }))
}

fn outcome<T>(attempt: Attempt<T>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    match attempt {
        Attempt::Done(answer) => done(answer),
        Attempt::Rejected(rejection) => rejected(rejection),
        Attempt::Elsewhere(leader) => refused(Why::NotLeader(leader.unwrap_or(0))),
        Attempt::InDoubt => unknown(),
        Attempt::Over(error) => of_error(error),
    }
}

fn of_error(error: CallError) -> Outcome {
    match error {
        CallError::Rejected(rejection) => rejected(rejection),
        CallError::Unavailable(Unavailable::NotLeader { leader }) => refused(Why::NotLeader(leader.unwrap_or(0))),
        CallError::Unavailable(Unavailable::NoQuorum) => refused(Why::NoQuorum(pb::Nothing {})),
        CallError::Unavailable(Unavailable::Draining) => refused(Why::Draining(pb::Nothing {})),
        CallError::DiskLow => refused(Why::DiskLow(pb::Nothing {})),
        CallError::Overloaded { queued_bytes } => {
            refused(Why::OverloadedBytes(u64::try_from(queued_bytes).unwrap_or(u64::MAX)))
        }
        CallError::Unknown | CallError::Broken(_) => unknown(),
    }
}

fn rejected(rejection: Rejection) -> Outcome {
    refused(Why::Rejected(RejectionRecord { rejection: Some(rejection) }.encode_to_vec().into()))
}

/// It may have happened or not.
pub(super) fn unknown() -> Outcome {
    refused(Why::Unknown(pb::Nothing {}))
}

fn refused(why: Why) -> Outcome {
    Outcome::Refused(pb::Refused { why: Some(why) })
}

/// What the leader says of a command.
pub(super) fn to_done(node: u64, outcome: Outcome) -> Attempt<Done> {
    match outcome {
        Outcome::Replied(pb::Replied { reply, term }) => match Reply::decode(reply) {
            Ok(reply) => Attempt::Done(Done { reply, origin: Origin { node, term } }),
            Err(error) => unreadable(&error),
        },
        Outcome::Refused(refused) => to_refusal(refused),
        Outcome::Polled(_) | Outcome::ReadAt(_) => unreadable(&"an answer to another kind of call"),
    }
}

/// What the leader says of a poll.
pub(super) fn to_deliveries(node: u64, outcome: Outcome) -> Attempt<Deliveries> {
    match outcome {
        Outcome::Polled(pb::Polled { reply, term, messages, waited_ms }) => {
            let read = || -> Result<Deliveries, String> {
                let reply = reply.map(Reply::decode).transpose().map_err(|error| error.to_string())?;
                let deliveries = messages.into_iter().map(to_delivery).collect::<Result<_, _>>()?;
                let waited = Duration::from_millis(waited_ms);
                Ok(Deliveries { deliveries, reply, origin: Origin { node, term }, waited })
            };
            match read() {
                Ok(deliveries) => Attempt::Done(deliveries),
                Err(error) => unreadable(&error),
            }
        }
        Outcome::Refused(refused) => to_refusal(refused),
        Outcome::Replied(_) | Outcome::ReadAt(_) => unreadable(&"an answer to another kind of call"),
    }
}

/// What the leader says of a read.
pub(super) fn to_read_point(node: u64, outcome: Outcome) -> Attempt<ReadPoint> {
    match outcome {
        Outcome::ReadAt(pb::ReadAt { index, term }) => {
            Attempt::Done(ReadPoint { index, origin: Origin { node, term } })
        }
        Outcome::Refused(refused) => to_refusal(refused),
        Outcome::Replied(_) | Outcome::Polled(_) => unreadable(&"an answer to another kind of call"),
    }
}

/// The tokens of the leases that an outcome grants.
pub(super) fn tokens(outcome: Outcome) -> Vec<Bytes> {
    match outcome {
        Outcome::Polled(polled) => polled.messages.into_iter().map(|message| message.token).collect(),
        Outcome::Replied(_) | Outcome::ReadAt(_) | Outcome::Refused(_) => Vec::new(),
    }
}

fn to_refusal<T>(pb::Refused { why }: pb::Refused) -> Attempt<T> {
    match why {
        Some(Why::Rejected(bytes)) => match RejectionRecord::decode(bytes).map(|record| record.rejection) {
            Ok(Some(rejection)) => Attempt::Rejected(rejection),
            Ok(None) => unreadable(&"a rejection of a newer version"),
            Err(error) => unreadable(&error),
        },
        Some(Why::NotLeader(leader)) => Attempt::Elsewhere(Some(leader).filter(|leader| *leader != 0)),
        // Whoever leads next may take it.
        Some(Why::NoQuorum(_) | Why::Draining(_)) => Attempt::Elsewhere(None),
        Some(Why::DiskLow(_)) => Attempt::Over(CallError::DiskLow),
        Some(Why::OverloadedBytes(bytes)) => {
            Attempt::Over(CallError::Overloaded { queued_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) })
        }
        Some(Why::Unknown(_)) => Attempt::InDoubt,
        None => unreadable(&"a refusal of a newer version"),
    }
}

/// An answer that this version cannot read: asking again would not help.
fn unreadable<T>(error: &dyn std::fmt::Display) -> Attempt<T> {
    tracing::warn!(%error, "expected an answer of the leader that this version knows, but cannot read it; upgrade this node");
    Attempt::Over(CallError::Unknown)
}

fn of_delivery(delivery: Delivery) -> pb::PolledMessage {
    let QueueRef { namespace, name } = delivery.queue;
    pb::PolledMessage {
        namespace,
        queue: name,
        id: delivery.id.to_string(),
        enqueued_at_ms: delivery.enqueued_at.0,
        content: delivery.content.encode_to_vec().into(),
        dead_letter: delivery.dead_letter.map(of_dead_letter),
        token: delivery.token,
        lease_remaining_ms: delivery.remaining_ms,
        receive_count: delivery.receive_count,
        failures: delivery.failures,
        group: delivery.group,
        priority: delivery.priority.into(),
    }
}

fn to_delivery(message: pb::PolledMessage) -> Result<Delivery, String> {
    Ok(Delivery {
        id: MessageId::from_str(&message.id).map_err(|error| error.to_string())?,
        queue: QueueRef { namespace: message.namespace, name: message.queue },
        content: Content::decode(message.content).map_err(|error| error.to_string())?,
        enqueued_at: Timestamp(message.enqueued_at_ms),
        token: message.token,
        remaining_ms: message.lease_remaining_ms,
        receive_count: message.receive_count,
        failures: message.failures,
        dead_letter: message.dead_letter.map(to_dead_letter).transpose()?,
        group: message.group,
        priority: u8::try_from(message.priority).map_err(|error| error.to_string())?,
    })
}

fn of_dead_letter(letter: DeadLetter) -> pb::DeadLetter {
    let reason = match letter.reason {
        DeadReason::Attempts => Reason::Attempts,
        DeadReason::Rejected => Reason::Rejected,
        DeadReason::Expired => Reason::Expired,
        DeadReason::Group => Reason::Group,
    };
    pb::DeadLetter {
        namespace: letter.source.namespace,
        queue: letter.source.name,
        reason: reason.into(),
        at_ms: letter.at.0,
        receive_count: letter.receive_count,
        failures: letter.failures,
    }
}

fn to_dead_letter(letter: pb::DeadLetter) -> Result<DeadLetter, String> {
    let reason = match letter.reason() {
        Reason::Attempts => DeadReason::Attempts,
        Reason::Rejected => DeadReason::Rejected,
        Reason::Expired => DeadReason::Expired,
        Reason::Group => DeadReason::Group,
        Reason::Unspecified => return Err(format!("a dead letter has reason {}", letter.reason)),
    };
    Ok(DeadLetter {
        source: QueueRef { namespace: letter.namespace, name: letter.queue },
        reason,
        at: Timestamp(letter.at_ms),
        receive_count: letter.receive_count,
        failures: letter.failures,
    })
}

#[cfg(test)]
mod tests {
    use ticketrail_core::reply::Empty;
    use ticketrail_core::{Place, QueueId, Space};

    use super::*;

    fn delivery(dead_letter: Option<DeadLetter>) -> Delivery {
        let place = Place { queue: QueueId(3), space: Space::Held, priority: 4, sequence: 9 };
        Delivery {
            id: MessageId { group: ticketrail_core::GroupId::QUEUES, origin: place },
            queue: QueueRef { namespace: "default".into(), name: "orders".into() },
            content: Content { body: Bytes::from_static(b"espresso"), ..Content::default() },
            enqueued_at: Timestamp(7),
            token: Bytes::from_static(b"token"),
            remaining_ms: 11,
            receive_count: 2,
            failures: 1,
            dead_letter,
            group: "table 4".into(),
            priority: 7,
        }
    }

    #[test]
    fn deliveries_come_through_unchanged() {
        let source = QueueRef { namespace: "default".into(), name: "orders".into() };
        for reason in [DeadReason::Attempts, DeadReason::Rejected, DeadReason::Expired, DeadReason::Group] {
            let letter = DeadLetter { source: source.clone(), reason, at: Timestamp(5), receive_count: 6, failures: 5 };
            for dead_letter in [None, Some(letter)] {
                let sent = Deliveries {
                    deliveries: vec![delivery(dead_letter)],
                    reply: Some(Reply { index: 12, ..Reply::default() }),
                    origin: Origin { node: 2, term: 4 },
                    waited: Duration::from_millis(13),
                };
                let outcome = of_deliveries(Attempt::Done(sent.clone()));
                assert_eq!(tokens(outcome.clone()), [Bytes::from_static(b"token")]);
                let Attempt::Done(got) = to_deliveries(2, outcome) else { panic!("expected deliveries") };
                assert_eq!(got, sent);
            }
        }
    }

    #[test]
    fn each_refusal_says_after_the_way_whether_anything_happened() {
        let way = |attempt| to_done(2, of_done(attempt));
        let over = |error| way(Attempt::Over(error));
        let expired = Rejection::SessionExpired(Empty {});
        assert!(matches!(way(Attempt::Rejected(expired.clone())), Attempt::Rejected(got) if got == expired));
        assert!(matches!(over(CallError::Rejected(expired.clone())), Attempt::Rejected(got) if got == expired));
        assert!(matches!(way(Attempt::Elsewhere(Some(3))), Attempt::Elsewhere(Some(3))));
        assert!(matches!(way(Attempt::Elsewhere(None)), Attempt::Elsewhere(None)));
        assert!(matches!(over(CallError::Unavailable(Unavailable::Draining)), Attempt::Elsewhere(None)));
        assert!(matches!(over(CallError::Unavailable(Unavailable::NoQuorum)), Attempt::Elsewhere(None)));
        assert!(matches!(over(CallError::DiskLow), Attempt::Over(CallError::DiskLow)));
        let overloaded = CallError::Overloaded { queued_bytes: 9 };
        assert!(matches!(over(overloaded.clone()), Attempt::Over(got) if got == overloaded));
        for unknown in
            [Attempt::InDoubt, Attempt::Over(CallError::Unknown), Attempt::Over(CallError::Broken("x".into()))]
        {
            assert!(matches!(way(unknown), Attempt::InDoubt));
        }
    }
}
