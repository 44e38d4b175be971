//! What a receiver asks for.

use std::time::Duration;

use ticketrail_core::command::{QueueRef, Receive};
use ticketrail_core::limits;
use ticketrail_proto::v1;

use super::field::{self, at_most};
use crate::status::FieldError;

/// A receive, and how long it waits for a first message.
pub(crate) fn receive(request: v1::ReceiveRequest) -> Result<(Receive, Duration), FieldError> {
    let v1::ReceiveRequest {
        request_id: _,
        namespace,
        queue,
        max_messages,
        max_bytes,
        wait,
        lease,
        worker,
        more_queues,
        auto_ack,
    } = request;
    at_most("max_bytes", "bytes", max_bytes, limits::BATCH_BYTES as u64)?;
    let wait_ms = match wait {
        Some(wait) => field::duration_ms("wait", &wait, 0, limits::WAIT_MAX_MS)?,
        None => limits::WAIT_DEFAULT_MS,
    };
    let receive = Receive {
        queues: queues("", namespace, queue, more_queues)?,
        max: field::count("max_messages", max_messages, 1, limits::BATCH)?,
        max_bytes,
        lease_ms: self::lease("lease", lease)?,
        worker: field::text("worker", worker, limits::FIELD_BYTES)?,
        auto_ack,
    };
    Ok((receive, Duration::from_millis(wait_ms)))
}

/// What a `Consume` stream receives; `max` is that of one response.
pub(crate) fn start(start: v1::ConsumeStart) -> Result<Receive, FieldError> {
    let v1::ConsumeStart { namespace, queue, lease, worker, max_batch, more_queues, auto_ack } = start;
    let most = u32::try_from(limits::BATCH).unwrap_or(u32::MAX);
    Ok(Receive {
        queues: queues("start.", namespace, queue, more_queues)?,
        max: field::count("start.max_batch", max_batch, most, limits::BATCH)?,
        max_bytes: 0,
        lease_ms: self::lease("start.lease", lease)?,
        worker: field::text("start.worker", worker, limits::FIELD_BYTES)?,
        auto_ack,
    })
}

/// The queues of a receive, each once, in order of preference.
fn queues(at: &str, namespace: String, queue: String, more_queues: Vec<String>) -> Result<Vec<QueueRef>, FieldError> {
    let most = limits::RECEIVE_QUEUES.saturating_sub(1);
    at_most(&format!("{at}more_queues"), "queues", more_queues.len(), most)?;
    let first = field::queue(namespace, queue)?;
    let mut queues = vec![first.clone()];
    for (number, name) in more_queues.into_iter().enumerate() {
        let at = format!("{at}more_queues[{number}]");
        let name = field::queue_name(&at, name)?;
        let queue = QueueRef { name, ..first.clone() };
        if queues.contains(&queue) {
            let reason = format!("expected each queue once, but {:?} is there twice", queue.name);
            return Err(FieldError::new(at, reason));
        }
        queues.push(queue);
    }
    Ok(queues)
}

/// A lease in milliseconds; absent: 0, the queue's.
pub(crate) fn lease(at: &str, lease: Option<prost_types::Duration>) -> Result<u64, FieldError> {
    match lease {
        Some(lease) => field::duration_ms(at, &lease, limits::LEASE_MIN_MS, limits::LEASE_MAX_MS),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> v1::ReceiveRequest {
        v1::ReceiveRequest { queue: "orders".into(), ..Default::default() }
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn defaults_are_one_message_ten_seconds_and_the_queues_lease() {
        let (receive, wait) = receive(request()).unwrap();
        assert_eq!((receive.max, receive.max_bytes, receive.lease_ms), (1, 0, 0));
        assert_eq!(receive.queues[0].name, "orders");
        assert_eq!(wait, Duration::from_secs(10));
    }

    #[test]
    fn each_limit_is_refused_by_field_and_value() {
        let rows = [
            (v1::ReceiveRequest { max_messages: 1_001, ..request() }, "max_messages", "1001"),
            (v1::ReceiveRequest { max_bytes: (4 << 20) + 1, ..request() }, "max_bytes", "4194305"),
            (v1::ReceiveRequest { wait: seconds(61), ..request() }, "wait", "61 s"),
            (v1::ReceiveRequest { wait: seconds(-1), ..request() }, "wait", "-1"),
            (v1::ReceiveRequest { lease: seconds(0), ..request() }, "lease", "0 s"),
            (v1::ReceiveRequest { lease: seconds(12 * 3_600 + 1), ..request() }, "lease", "43201 s"),
            (v1::ReceiveRequest { worker: "w".repeat(257), ..request() }, "worker", "257"),
            (v1::ReceiveRequest { queue: String::new(), ..request() }, "queue", "0"),
            (v1::ReceiveRequest { namespace: "a b".into(), ..request() }, "namespace", "' '"),
        ];
        for (wire, field, value) in rows {
            let error = receive(wire).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.reason.contains(value), "{field}: {}", error.reason);
        }
    }

    #[test]
    fn several_queues_stand_in_order_and_each_once() {
        let with = |names: &[&str]| v1::ReceiveRequest {
            namespace: "shop".into(),
            more_queues: names.iter().map(|name| (*name).to_owned()).collect(),
            auto_ack: true,
            ..request()
        };
        let (receive, _) = super::receive(with(&["mail", "reports"])).unwrap();
        let names: Vec<_> = receive.queues.iter().map(|queue| (&*queue.namespace, &*queue.name)).collect();
        assert_eq!(names, [("shop", "orders"), ("shop", "mail"), ("shop", "reports")]);
        assert!(receive.auto_ack);
        assert_eq!(super::receive(with(&["mail", "orders"])).unwrap_err().field, "more_queues[1]");
        assert_eq!(super::receive(with(&["a b"])).unwrap_err().field, "more_queues[0]");
        let error = super::receive(with(&["q"; 16])).unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.reason.as_str()),
            ("more_queues", "expected at most 15 queues, but got 16")
        );
        let start = v1::ConsumeStart { queue: "a".into(), more_queues: vec!["a".into()], ..Default::default() };
        assert_eq!(super::start(start).unwrap_err().field, "start.more_queues[0]");
    }

    #[test]
    fn values_at_their_limits_pass() {
        let wire = v1::ReceiveRequest {
            max_messages: 1_000,
            max_bytes: 4 << 20,
            wait: seconds(60),
            lease: seconds(12 * 3_600),
            ..request()
        };
        let (receive, wait) = receive(wire).unwrap();
        assert_eq!((receive.max, receive.max_bytes, receive.lease_ms), (1_000, 4 << 20, limits::LEASE_MAX_MS));
        assert_eq!(wait, Duration::from_secs(60));
        let (_, wait) = super::receive(v1::ReceiveRequest { wait: seconds(0), ..request() }).unwrap();
        assert_eq!(wait, Duration::ZERO);
    }
}
