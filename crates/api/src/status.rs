//! The one table of errors: what a node says, as gRPC says it.
//!
//! A refusal with a reason promises that nothing happened, but for `UNKNOWN_OUTCOME` and `BROKEN`, which come as
//! `DEADLINE_EXCEEDED`: the outcome is unknown, and the request is to be sent again under its id.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message as _;
use ticketrail_core::reply::{
    Full, LeaseLost, LimitReached, Part, PartRefused, QueueNamed, RejectionRecord, RequestIdOld,
};
use ticketrail_core::{Rejection, limits};
use ticketrail_node::ChangeError;
use ticketrail_node::call::{CallError, Unavailable};
use ticketrail_proto::{reason, v1};
use tonic::{Code, Status};
use tonic_types::pb;

/// When to try again where the disk is nearly full: room is made by hand or by compaction, in seconds.
const DISK_RETRY: Duration = Duration::from_secs(2);
/// When to try again where proposals wait: they drain in milliseconds.
const RATE_RETRY: Duration = Duration::from_millis(100);
/// When to try again where there is no leader: an election takes about a second.
const ELECTION_RETRY: Duration = Duration::from_millis(500);
/// When to try again where there are too many sessions: idle ones end by the minute.
const SESSIONS_RETRY: Duration = Duration::from_secs(30);

/// Why a call, or one item of it, was refused. Becomes a `Status` with google.rpc details, or an `ItemError`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The gRPC code.
    pub(crate) code: Code,
    /// The stable reason.
    pub(crate) reason: &'static str,
    /// For a person: what was expected, what came, how to mend it.
    pub(crate) message: String,
    /// Data of the reason.
    pub(crate) metadata: BTreeMap<String, String>,
    /// When another try is worth it.
    pub(crate) retry_after: Option<Duration>,
    /// The field to blame and what is wrong with it.
    pub(crate) field: Option<Box<FieldError>>,
}

/// A field outside its limits. `reason` reads "expected …, but …".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The field, as the API names it: `messages[3].body`.
    pub(crate) field: String,
    /// What was expected, what came.
    pub(crate) reason: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl Refusal {
    fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), metadata: BTreeMap::new(), retry_after: None, field: None }
    }

    fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    fn of_queue(self, queue: &QueueNamed) -> Self {
        self.with("namespace", &queue.namespace).with("queue", &queue.name)
    }

    fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// No such message.
    pub(crate) fn message_not_found(id: &str) -> Self {
        let text = format!("expected a message {id}, but there is none: it is finished, or never was");
        Self::new(Code::NotFound, reason::MESSAGE_NOT_FOUND, text).with("message_id", id)
    }

    /// No message with this dedup id.
    pub(crate) fn dedup_id_not_found(queue: &ticketrail_core::command::QueueRef, dedup_id: &str) -> Self {
        let text = format!(
            "expected a message that queue {:?} remembers under the dedup id {dedup_id:?}, but there is none: it is \
             finished and forgotten, was cancelled, or never was",
            queue.name
        );
        Self::new(Code::NotFound, reason::MESSAGE_NOT_FOUND, text)
            .of_queue(&QueueNamed::from(queue))
            .with("dedup_id", dedup_id)
    }

    /// No such queue.
    pub(crate) fn queue_not_found(namespace: &str, name: &str) -> Self {
        Self::from(&Rejection::QueueNotFound(QueueNamed { namespace: namespace.to_owned(), name: name.to_owned() }))
    }

    /// The server stops.
    pub(crate) fn draining() -> Self {
        Self::from(CallError::Unavailable(Unavailable::Draining))
    }

    /// A read that took too long. Nothing changes by reading.
    pub(crate) fn read_timeout(after: Duration) -> Self {
        let text = format!("expected an answer within {after:?}, but there is none yet; ask again, or with stale_ok");
        Self::new(Code::DeadlineExceeded, reason::TIMEOUT, text)
    }

    /// The node's answer does not match the question: a bug. Whether anything happened is not known.
    pub(crate) fn mismatch(expected: &str) -> Self {
        let text = format!("expected {expected} from the node, but it answered something else; this is a bug");
        Self::new(Code::DeadlineExceeded, reason::BROKEN, text)
    }

    /// The refusal of a part as that of the whole commit.
    pub(crate) fn of_part(mut self, part: Part) -> Self {
        let (kind, index) = match part {
            Part::Settle(index) => ("settle", index),
            Part::Enqueue(index) => ("enqueue", index),
            Part::Cancel(index) => ("cancel", index),
            Part::Reschedule(index) => ("reschedule", index),
        };
        // A field's name begins with its part.
        if self.field.is_none() {
            self.message = format!("{}: {}", part_field(part), self.message);
        }
        self.with("part", kind).with("index", index)
    }

    /// As the result of one item.
    pub(crate) fn into_item(self) -> v1::ItemError {
        v1::ItemError {
            code: self.code as i32,
            reason: self.reason.to_owned(),
            message: self.message,
            metadata: self.metadata,
            retry_after: self.retry_after.map(crate::convert::duration),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let Refusal { code, reason, message, metadata, retry_after, field } = refusal;
        let mut details = Vec::new();
        if let Some(after) = retry_after {
            details.push(detail("RetryInfo", &pb::RetryInfo { retry_delay: Some(crate::convert::duration(after)) }));
        }
        details
            .push(detail("ErrorInfo", &ErrorInfo { reason: reason.into(), domain: reason::DOMAIN.into(), metadata }));
        if let Some(FieldError { field, reason: description }) = field.map(|error| *error) {
            let violation = pb::bad_request::FieldViolation { field, description, ..Default::default() };
            details.push(detail("BadRequest", &pb::BadRequest { field_violations: vec![violation] }));
        }
        let status = pb::Status { code: code.into(), message: message.clone(), details };
        Status::with_details(code, message, status.encode_to_vec().into())
    }
}

/// `google.rpc.ErrorInfo`, with its metadata in the order of their names. The generated one has a hash map, whose order is
/// another one in each process.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// A detail of an error: a message of `google.rpc` by its name.
fn detail(name: &str, message: &impl prost::Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("type.googleapis.com/google.rpc.{name}"), value: message.encode_to_vec() }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        let text = format!("{}: {}", error.field, error.reason);
        let mut refusal = Refusal::new(Code::InvalidArgument, reason::INVALID, text).with("field", &error.field);
        refusal.field = Some(Box::new(error));
        refusal
    }
}

impl From<FieldError> for Status {
    fn from(error: FieldError) -> Status {
        Refusal::from(error).into()
    }
}

impl From<&Rejection> for Refusal {
    fn from(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::NotInitialized(_) => {
                let text = "expected a founded cluster, but it is being founded just now; retry shortly";
                Refusal::new(Code::Unavailable, reason::NOT_INITIALIZED, text).retry_after(ELECTION_RETRY)
            }
            Rejection::Invalid(invalid) => FieldError::new(&invalid.field, &invalid.reason).into(),
            Rejection::QueueNotFound(queue) => {
                let QueueNamed { namespace, name } = queue;
                let text = format!(
                    "expected a queue {name:?} in namespace {namespace:?}, but there is none; create it with \
                     `rail queue create {name}`"
                );
                Refusal::new(Code::NotFound, reason::QUEUE_NOT_FOUND, text).of_queue(queue)
            }
            Rejection::QueueExists(queue) => {
                let text =
                    format!("expected no queue {:?}, but it is there; update it or take another name", queue.name);
                Refusal::new(Code::AlreadyExists, reason::QUEUE_EXISTS, text).of_queue(queue)
            }
            Rejection::QueueClosed(queue) => {
                let QueueNamed { name, .. } = queue;
                let text = format!(
                    "expected queue {name:?} to take messages, but it is closed; reopen it with `rail queue reopen {name}`"
                );
                Refusal::new(Code::FailedPrecondition, reason::QUEUE_CLOSED, text).of_queue(queue)
            }
            Rejection::Full(full) => full_refusal(full),
            Rejection::LeaseLost(lost) => lease_lost(lost),
            Rejection::TooLate(late) => too_late(late),
            Rejection::MessageNotFound(_) => {
                let text = "expected a message that nobody has received yet, but there is none: it was cancelled, is \
                            finished, or never was";
                Refusal::new(Code::NotFound, reason::MESSAGE_NOT_FOUND, text)
            }
            Rejection::NamespaceNotFound(QueueNamed { namespace, .. }) => {
                let text = format!(
                    "expected defaults of namespace {namespace:?}, but nobody gave it any: it has the built-in ones"
                );
                Refusal::new(Code::NotFound, reason::NAMESPACE_NOT_FOUND, text).with("namespace", namespace)
            }
            Rejection::NamespacesFull(LimitReached { limit }) => {
                let text = format!(
                    "expected fewer than {limit} namespaces with defaults of their own, but there are as many; take those \
                     of some back with `rail namespace delete`"
                );
                Refusal::new(Code::ResourceExhausted, reason::NAMESPACES_FULL, text).with("limit", limit)
            }
            Rejection::RequestIdsFull(LimitReached { limit }) => {
                let text = format!(
                    "expected fewer than {limit} outcomes of requests without a session, but as many are kept; open a \
                     session with OpenSession, or wait some minutes"
                );
                Refusal::new(Code::ResourceExhausted, reason::REQUEST_IDS_FULL, text)
                    .with("limit", limit)
                    .retry_after(SESSIONS_RETRY)
            }
            Rejection::RequestIdOld(RequestIdOld { acked_below }) => {
                let text = format!(
                    "expected a request number from {acked_below} on, but all below are forgotten: the client has said \
                     that it had seen their outcomes"
                );
                Refusal::new(Code::FailedPrecondition, reason::REQUEST_ID_OLD, text).with("acked_below", acked_below)
            }
            Rejection::SessionWindow(LimitReached { limit }) => {
                let text = format!(
                    "expected at most {limit} stored outcomes in a session, but there are as many; raise acked_below"
                );
                Refusal::new(Code::FailedPrecondition, reason::SESSION_WINDOW, text).with("limit", limit)
            }
            Rejection::RequestIdReused(_) => {
                let text = "expected the request that had this id first, but this one is different; take a new number";
                Refusal::new(Code::InvalidArgument, reason::REQUEST_ID_REUSED, text)
            }
            Rejection::SessionExpired(_) => {
                let text = format!(
                    "expected a live session, but there is none with this id: it was idle for {} minutes, or never was; \
                     open a new one",
                    limits::SESSION_IDLE_MS / 60_000
                );
                Refusal::new(Code::FailedPrecondition, reason::SESSION_EXPIRED, text)
            }
            Rejection::SessionsFull(LimitReached { limit }) => {
                let text = format!("expected fewer than {limit} sessions, but there are as many; close idle clients");
                Refusal::new(Code::ResourceExhausted, reason::SESSIONS_FULL, text)
                    .with("limit", limit)
                    .retry_after(SESSIONS_RETRY)
            }
            Rejection::QueuesFull(LimitReached { limit }) => {
                let text = format!("expected fewer than {limit} queues, but there are as many; delete some");
                Refusal::new(Code::ResourceExhausted, reason::QUEUES_FULL, text).with("limit", limit)
            }
            Rejection::PartRefused(PartRefused { part: Some(part), why: Some(why) }) => part_refused(*part, why),
            Rejection::PartRefused(_) => Refusal::mismatch("a refused part"),
            // The proposer keeps this to itself; should it ever come here, nothing happened and a retry is right.
            Rejection::EntryFull(_) => {
                let text = "expected room in the log entry, but it was full; retry shortly";
                Refusal::new(Code::ResourceExhausted, reason::RATE_LIMITED, text).retry_after(RATE_RETRY)
            }
        }
    }
}

fn full_refusal(full: &Full) -> Refusal {
    let Full { queue, bound, limit, held, retry_after_ms } = full;
    let name = &queue.name;
    let text = match bound.as_str() {
        "max_wait" => format!(
            "expected a wait of at most {limit} ms in queue {name:?}, but at its rate it would be {held} ms; retry after \
             {retry_after_ms} ms, add workers, or raise max_wait"
        ),
        "shed" => format!(
            "expected a higher priority for queue {name:?}, but it sheds this one from {limit} messages on and holds {held}; \
             retry after {retry_after_ms} ms, drain it, or change its shed rules"
        ),
        "dedup_ids" => format!(
            "expected room for a dedup id in queue {name:?}, but it remembers {held} of at most {limit}; retry after \
             {retry_after_ms} ms, shorten its dedup_window, or send without a dedup id"
        ),
        _ => format!(
            "expected room in queue {name:?}, but it is full: {bound} is {limit} and it holds {held}; retry after \
             {retry_after_ms} ms, drain it, or raise {bound}"
        ),
    };
    Refusal::new(Code::ResourceExhausted, reason::FULL, text)
        .of_queue(queue)
        .with("bound", bound)
        .with("limit", limit)
        .with("held", held)
        .retry_after(Duration::from_millis(*retry_after_ms))
}

fn lease_lost(lost: &LeaseLost) -> Refusal {
    let text = match lost.receive_count {
        Some(count) => format!(
            "expected a live lease, but it is over: the message has been leased {count} times; drop this delivery, \
             another one decides"
        ),
        None => "expected a live lease, but the message is gone: it was finished, moved or removed; drop this delivery"
            .to_owned(),
    };
    let refusal = Refusal::new(Code::FailedPrecondition, reason::LEASE_LOST, text);
    match lost.receive_count {
        Some(count) => refusal.with("receive_count", count),
        None => refusal,
    }
}

fn too_late(late: &LeaseLost) -> Refusal {
    let text = match late.receive_count {
        Some(count) => format!(
            "expected a message that nobody has received yet, but it is with a receiver, which has its lease number {count}; \
             let it finish, or tell the receiver"
        ),
        None => "expected a message that nobody has received yet, but it has finished; only its dedup id is remembered"
            .to_owned(),
    };
    let refusal = Refusal::new(Code::FailedPrecondition, reason::TOO_LATE, text);
    match late.receive_count {
        Some(count) => refusal.with("receive_count", count),
        None => refusal,
    }
}

/// The field of a `CommitRequest` that holds a part.
pub(crate) fn part_field(part: Part) -> String {
    match part {
        Part::Settle(index) => format!("settle[{index}]"),
        Part::Enqueue(index) => format!("enqueue[{index}]"),
        Part::Cancel(index) => format!("cancel[{index}]"),
        Part::Reschedule(index) => format!("reschedule[{index}]"),
    }
}

fn part_refused(part: Part, why: &RejectionRecord) -> Refusal {
    match &why.rejection {
        Some(Rejection::Invalid(invalid)) => {
            Refusal::from(FieldError::new(format!("{}.{}", part_field(part), invalid.field), &invalid.reason))
        }
        Some(rejection) => Refusal::from(rejection),
        None => return Refusal::mismatch("a rejection"),
    }
    .of_part(part)
}

/// The refusal of one item, as it was stored.
pub(crate) fn item(record: &RejectionRecord) -> v1::ItemError {
    match &record.rejection {
        Some(rejection) => Refusal::from(rejection),
        None => Refusal::mismatch("a rejection"),
    }
    .into_item()
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::NoLeader(_) => {
                Refusal::new(Code::Unavailable, reason::NO_QUORUM, text).retry_after(ELECTION_RETRY)
            }
            ChangeError::NotFound(node) => {
                Refusal::new(Code::NotFound, reason::MEMBER_NOT_FOUND, text).with("node", node)
            }
            ChangeError::Precondition(_) => Refusal::new(Code::FailedPrecondition, reason::CLUSTER_UNSAFE, text),
            ChangeError::Unknown(_) => Refusal::new(Code::DeadlineExceeded, reason::UNKNOWN_OUTCOME, text),
        }
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        let text = error.to_string();
        match error {
            CallError::Rejected(rejection) => Refusal::from(&rejection),
            CallError::Unavailable(Unavailable::NotLeader { leader }) => {
                let refusal = Refusal::new(Code::Unavailable, reason::NOT_LEADER, text);
                match leader {
                    Some(leader) => refusal.with("leader", leader),
                    None => refusal,
                }
            }
            CallError::Unavailable(Unavailable::NoQuorum) => {
                Refusal::new(Code::Unavailable, reason::NO_QUORUM, text).retry_after(ELECTION_RETRY)
            }
            CallError::Unavailable(Unavailable::Draining) => {
                Refusal::new(Code::Unavailable, reason::DRAINING, text).retry_after(ELECTION_RETRY)
            }
            CallError::DiskLow => Refusal::new(Code::ResourceExhausted, reason::DISK_LOW, text).retry_after(DISK_RETRY),
            CallError::Overloaded { queued_bytes } => Refusal::new(Code::ResourceExhausted, reason::RATE_LIMITED, text)
                .with("queued_bytes", queued_bytes)
                .retry_after(RATE_RETRY),
            CallError::Unknown => Refusal::new(Code::DeadlineExceeded, reason::UNKNOWN_OUTCOME, text),
            CallError::Broken(_) => Refusal::new(Code::DeadlineExceeded, reason::BROKEN, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use ticketrail_core::reply::{Empty, Invalid};

    use tonic_types::StatusExt as _;

    use super::*;

    fn queue() -> QueueNamed {
        QueueNamed { namespace: "default".into(), name: "orders".into() }
    }

    /// Code, reason, metadata and retry delay of a status, as a client reads them.
    fn read(refusal: Refusal) -> (Code, String, Vec<(String, String)>, Option<Duration>) {
        let status = Status::from(refusal);
        let details = status.get_error_details();
        let info = details.error_info().expect("every error of ours has a reason");
        assert_eq!(info.domain, "ticketrail");
        let mut metadata: Vec<_> = info.metadata.clone().into_iter().collect();
        metadata.sort();
        let retry = details.retry_info().and_then(|retry| retry.retry_delay);
        (status.code(), info.reason.clone(), metadata, retry)
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn each_rejection_has_its_row() {
        let named = pairs(&[("namespace", "default"), ("queue", "orders")]);
        let full = Full { queue: queue(), bound: "max_depth".into(), limit: 10, held: 9, retry_after_ms: 1_500 };
        let full_data = pairs(&[
            ("bound", "max_depth"),
            ("held", "9"),
            ("limit", "10"),
            ("namespace", "default"),
            ("queue", "orders"),
        ]);
        let limit = LimitReached { limit: 7 };
        let seconds = Duration::from_secs;
        let rows = [
            (Rejection::NotInitialized(Empty {}), Code::Unavailable, "NOT_INITIALIZED", vec![], Some(ELECTION_RETRY)),
            (Rejection::QueueNotFound(queue()), Code::NotFound, "QUEUE_NOT_FOUND", named.clone(), None),
            (Rejection::QueueExists(queue()), Code::AlreadyExists, "QUEUE_EXISTS", named.clone(), None),
            (Rejection::QueueClosed(queue()), Code::FailedPrecondition, "QUEUE_CLOSED", named, None),
            (Rejection::Full(full), Code::ResourceExhausted, "FULL", full_data, Some(Duration::from_millis(1_500))),
            (
                Rejection::LeaseLost(LeaseLost { receive_count: Some(3) }),
                Code::FailedPrecondition,
                "LEASE_LOST",
                pairs(&[("receive_count", "3")]),
                None,
            ),
            (
                Rejection::LeaseLost(LeaseLost { receive_count: None }),
                Code::FailedPrecondition,
                "LEASE_LOST",
                vec![],
                None,
            ),
            (
                Rejection::RequestIdOld(RequestIdOld { acked_below: 5 }),
                Code::FailedPrecondition,
                "REQUEST_ID_OLD",
                pairs(&[("acked_below", "5")]),
                None,
            ),
            (
                Rejection::SessionWindow(limit),
                Code::FailedPrecondition,
                "SESSION_WINDOW",
                pairs(&[("limit", "7")]),
                None,
            ),
            (Rejection::RequestIdReused(Empty {}), Code::InvalidArgument, "REQUEST_ID_REUSED", vec![], None),
            (Rejection::SessionExpired(Empty {}), Code::FailedPrecondition, "SESSION_EXPIRED", vec![], None),
            (
                Rejection::SessionsFull(limit),
                Code::ResourceExhausted,
                "SESSIONS_FULL",
                pairs(&[("limit", "7")]),
                Some(seconds(30)),
            ),
            (Rejection::QueuesFull(limit), Code::ResourceExhausted, "QUEUES_FULL", pairs(&[("limit", "7")]), None),
            (
                Rejection::TooLate(LeaseLost { receive_count: Some(2) }),
                Code::FailedPrecondition,
                "TOO_LATE",
                pairs(&[("receive_count", "2")]),
                None,
            ),
            (Rejection::TooLate(LeaseLost { receive_count: None }), Code::FailedPrecondition, "TOO_LATE", vec![], None),
            (Rejection::MessageNotFound(Empty {}), Code::NotFound, "MESSAGE_NOT_FOUND", vec![], None),
            (
                Rejection::NamespaceNotFound(QueueNamed { namespace: "shop".into(), name: String::new() }),
                Code::NotFound,
                "NAMESPACE_NOT_FOUND",
                pairs(&[("namespace", "shop")]),
                None,
            ),
            (
                Rejection::NamespacesFull(limit),
                Code::ResourceExhausted,
                "NAMESPACES_FULL",
                pairs(&[("limit", "7")]),
                None,
            ),
            (
                Rejection::RequestIdsFull(limit),
                Code::ResourceExhausted,
                "REQUEST_IDS_FULL",
                pairs(&[("limit", "7")]),
                Some(seconds(30)),
            ),
            (Rejection::EntryFull(Empty {}), Code::ResourceExhausted, "RATE_LIMITED", vec![], Some(RATE_RETRY)),
        ];
        for (rejection, code, reason, metadata, retry) in rows {
            let refusal = Refusal::from(&rejection);
            assert!(refusal.message.starts_with("expected "), "{}", refusal.message);
            assert_eq!(read(refusal), (code, reason.to_owned(), metadata, retry), "{rejection:?}");
        }
    }

    #[test]
    fn each_bound_says_how_to_mend_it() {
        for (bound, mends) in [
            ("max_depth", "raise max_depth"),
            ("max_bytes", "raise max_bytes"),
            ("max_wait", "add workers"),
            ("shed", "higher priority"),
            ("dedup_ids", "shorten its dedup_window"),
        ] {
            let full = Full { queue: queue(), bound: bound.into(), limit: 10, held: 9, retry_after_ms: 250 };
            let refusal = Refusal::from(&Rejection::Full(full));
            assert!(refusal.message.contains(mends), "{}", refusal.message);
            assert_eq!(refusal.metadata["bound"], bound);
        }
    }

    #[test]
    fn an_invalid_field_is_named_in_a_bad_request() {
        let invalid = Invalid { field: "settings.lease".into(), reason: "expected 1 s, but got 0".into() };
        let refusal = Refusal::from(&Rejection::Invalid(invalid));
        assert_eq!(
            read(refusal.clone()),
            (Code::InvalidArgument, "INVALID".to_owned(), pairs(&[("field", "settings.lease")]), None)
        );
        let details = Status::from(refusal).get_error_details();
        let violation = &details.bad_request().expect("a bad request").field_violations[0];
        assert_eq!(violation.field, "settings.lease");
        assert_eq!(violation.description, "expected 1 s, but got 0");
    }

    #[test]
    fn a_refused_part_is_named_beside_its_own_reason() {
        let closed = Rejection::of_part(Part::Enqueue(2), Rejection::QueueClosed(queue()));
        let data = pairs(&[("index", "2"), ("namespace", "default"), ("part", "enqueue"), ("queue", "orders")]);
        let refusal = Refusal::from(&closed);
        assert!(refusal.message.starts_with("enqueue[2]: expected queue"), "{}", refusal.message);
        assert_eq!(read(refusal), (Code::FailedPrecondition, "QUEUE_CLOSED".to_owned(), data, None));

        let full = Full { queue: queue(), bound: "max_depth".into(), limit: 1, held: 1, retry_after_ms: 250 };
        let (code, reason, _, retry) =
            read(Refusal::from(&Rejection::of_part(Part::Enqueue(0), Rejection::Full(full))));
        assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "FULL"));
        assert_eq!(retry, Some(Duration::from_millis(250)));

        let invalid = Invalid { field: "lease_token".into(), reason: "expected 37 bytes, but got 2".into() };
        let refusal = Refusal::from(&Rejection::of_part(Part::Settle(1), Rejection::Invalid(invalid)));
        let details = Status::from(refusal.clone()).get_error_details();
        assert_eq!(details.bad_request().expect("a bad request").field_violations[0].field, "settle[1].lease_token");
        let data = pairs(&[("field", "settle[1].lease_token"), ("index", "1"), ("part", "settle")]);
        assert_eq!(read(refusal), (Code::InvalidArgument, "INVALID".to_owned(), data, None));
    }

    #[test]
    fn each_call_error_has_its_row_and_unknown_outcomes_are_never_unavailable() {
        let unavailable = |why| CallError::Unavailable(why);
        let rows = [
            (
                unavailable(Unavailable::NotLeader { leader: Some(3) }),
                Code::Unavailable,
                "NOT_LEADER",
                pairs(&[("leader", "3")]),
                None,
            ),
            (unavailable(Unavailable::NotLeader { leader: None }), Code::Unavailable, "NOT_LEADER", vec![], None),
            (unavailable(Unavailable::NoQuorum), Code::Unavailable, "NO_QUORUM", vec![], Some(ELECTION_RETRY)),
            (unavailable(Unavailable::Draining), Code::Unavailable, "DRAINING", vec![], Some(ELECTION_RETRY)),
            (CallError::DiskLow, Code::ResourceExhausted, "DISK_LOW", vec![], Some(DISK_RETRY)),
            (
                CallError::Overloaded { queued_bytes: 9 },
                Code::ResourceExhausted,
                "RATE_LIMITED",
                pairs(&[("queued_bytes", "9")]),
                Some(RATE_RETRY),
            ),
            (CallError::Unknown, Code::DeadlineExceeded, "UNKNOWN_OUTCOME", vec![], None),
            (CallError::Broken("a disk".into()), Code::DeadlineExceeded, "BROKEN", vec![], None),
            (
                CallError::Rejected(Rejection::LeaseLost(LeaseLost { receive_count: None })),
                Code::FailedPrecondition,
                "LEASE_LOST",
                vec![],
                None,
            ),
        ];
        for (error, code, reason, metadata, retry) in rows {
            assert_eq!(read(Refusal::from(error.clone())), (code, reason.to_owned(), metadata, retry), "{error:?}");
        }
    }

    #[test]
    fn an_item_says_the_same_as_a_status() {
        let full = Full { queue: queue(), bound: "max_bytes".into(), limit: 10, held: 9, retry_after_ms: 250 };
        let record = RejectionRecord { rejection: Some(Rejection::Full(full)) };
        let item = item(&record);
        assert_eq!((item.code, item.reason.as_str()), (8, "FULL"));
        assert_eq!(item.metadata["bound"], "max_bytes");
        assert_eq!(item.retry_after, Some(prost_types::Duration { seconds: 0, nanos: 250_000_000 }));
    }
}
