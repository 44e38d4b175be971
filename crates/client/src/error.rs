//! What a failed call did: nothing, or nobody knows.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ticketrail_proto::{reason, v1};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{Part, wire};

/// Why a call failed. [`Error::effect`] says whether it may have had an effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The server said no. Nothing happened.
    #[error("{0}")]
    Refused(Refusal),
    /// No server took the call before its deadline. Nothing happened.
    #[error("expected an answer within {waited:?}, but {last}; nothing happened")]
    Unavailable {
        /// How the last attempt ended.
        last: String,
        /// How long the call was tried.
        waited: Duration,
        /// The server's reason, where it gave one.
        reason: Option<Reason>,
    },
    /// The call may have had its effect, or may still have it.
    #[error("expected an outcome, but it is unknown: {last}; look whether it happened before sending it anew")]
    Unknown {
        /// How the last attempt ended.
        last: String,
        /// How long the call was tried.
        waited: Duration,
    },
    /// The client was set up with something that makes no sense. Nothing happened.
    #[error("expected {expected}, but got {got}")]
    Config {
        /// What was expected.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The server answered with something this version does not understand.
    #[error("expected {expected} in the server's answer, but {found}; upgrade this client")]
    Protocol {
        /// What was expected.
        expected: &'static str,
        /// What was there.
        found: String,
    },
}

/// Whether a failed call had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing happened: the call can be made anew.
    Nothing,
    /// Unknown: it may have happened, or may still happen.
    Unknown,
}

impl Error {
    /// Whether the call may have had its effect.
    pub fn effect(&self) -> Effect {
        match self {
            Error::Refused(_) | Error::Unavailable { .. } | Error::Config { .. } => Effect::Nothing,
            Error::Unknown { .. } | Error::Protocol { .. } => Effect::Unknown,
        }
    }

    /// The server's reason, where it gave one.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Error::Refused(refusal) => Some(&refusal.reason),
            Error::Unavailable { reason, .. } => reason.as_ref(),
            Error::Unknown { .. } | Error::Config { .. } | Error::Protocol { .. } => None,
        }
    }

    /// The refusal, where the server refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            Error::Unavailable { .. } | Error::Unknown { .. } | Error::Config { .. } | Error::Protocol { .. } => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::Refused(refusal)
    }
}

/// A lawful no of the server, of a whole call or of one item of a list. Nothing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC status code.
    pub code: Code,
    /// Why: act on this.
    pub reason: Reason,
    /// For a person: what was expected, what came, how to mend it.
    pub text: String,
    /// Data of the reason: for [`Reason::Full`] `queue`, `bound`, `limit`, `held`; for [`Reason::LeaseLost`] and
    /// [`Reason::TooLate`] `receive_count`, where the message is still there; for a part of a commit also `part` and
    /// `index`.
    pub metadata: BTreeMap<String, String>,
    /// When it is worth another try; `None`: not by waiting.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The message's receive count now, where a lease was lost or it was too late, and the message is still there.
    pub fn receive_count(&self) -> Option<u32> {
        self.metadata.get("receive_count")?.parse().ok()
    }

    /// The part of a [`Commit`](crate::Commit), or of a list sent all or nothing, for whose sake the whole was refused;
    /// `None` where it was no part's.
    pub fn part(&self) -> Option<Part> {
        Part::parse(self.metadata.get("part")?, self.metadata.get("index")?)
    }

    pub(crate) fn from_item(error: v1::ItemError) -> Self {
        Self {
            code: Code::from_i32(error.code),
            reason: Reason::parse(&error.reason),
            text: error.message,
            metadata: error.metadata,
            retry_after: error.retry_after.and_then(wire::duration),
        }
    }

    /// What a status says, with the details that it carries.
    pub(crate) fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let (reason, mut metadata) = match details.error_info() {
            Some(info) if info.domain == reason::DOMAIN => {
                (Reason::parse(&info.reason), info.metadata.clone().into_iter().collect::<BTreeMap<_, _>>())
            }
            Some(_) | None => (Reason::None, BTreeMap::new()),
        };
        if let Some(violation) = details.bad_request().and_then(|bad| bad.field_violations.first()) {
            metadata.entry("field".to_owned()).or_insert_with(|| violation.field.clone());
        }
        Self {
            code: status.code(),
            reason,
            text: status.message().to_owned(),
            metadata,
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:ident;)*) => {
        /// A stable reason, to act on.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
            /// The server gave no reason.
            None,
            /// A reason of a newer server.
            Other(String),
        }

        impl Reason {
            /// The reason of this name.
            pub(crate) fn parse(text: &str) -> Self {
                match text {
                    $(reason::$name => Reason::$variant,)*
                    "" => Reason::None,
                    other => Reason::Other(other.to_owned()),
                }
            }

            /// The reason's name, such as `LEASE_LOST`; empty where there is none.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Reason::$variant => reason::$name,)*
                    Reason::None => "",
                    Reason::Other(other) => other,
                }
            }
        }
    };
}

reasons! {
    /// A field is outside its limits, or makes no sense.
    Invalid = INVALID;
    /// No such queue.
    QueueNotFound = QUEUE_NOT_FOUND;
    /// No such message: it is finished, or never was.
    MessageNotFound = MESSAGE_NOT_FOUND;
    /// The message is with a receiver, or has been: it can't be cancelled or rescheduled any more.
    TooLate = TOO_LATE;
    /// Nobody gave this namespace defaults of its own.
    NamespaceNotFound = NAMESPACE_NOT_FOUND;
    /// No such member of the cluster.
    MemberNotFound = MEMBER_NOT_FOUND;
    /// The change of the membership would do harm, or cannot be done as things are.
    ClusterUnsafe = CLUSTER_UNSAFE;
    /// The queue is there already.
    QueueExists = QUEUE_EXISTS;
    /// The queue refuses enqueues.
    QueueClosed = QUEUE_CLOSED;
    /// A bound of the queue would be passed.
    Full = FULL;
    /// The lease is over, or the token was never good: the work now belongs to somebody else. Never retried.
    LeaseLost = LEASE_LOST;
    /// The outcome of this request is forgotten.
    RequestIdOld = REQUEST_ID_OLD;
    /// Too many outcomes of the session are unseen.
    SessionWindow = SESSION_WINDOW;
    /// Another request had this id.
    RequestIdReused = REQUEST_ID_REUSED;
    /// The session is over.
    SessionExpired = SESSION_EXPIRED;
    /// Too many sessions at one time.
    SessionsFull = SESSIONS_FULL;
    /// Too many outcomes of requests without a session are kept.
    RequestIdsFull = REQUEST_IDS_FULL;
    /// Too many queues.
    QueuesFull = QUEUES_FULL;
    /// Too many namespaces have defaults of their own.
    NamespacesFull = NAMESPACES_FULL;
    /// The disk is nearly full.
    DiskLow = DISK_LOW;
    /// Calls come faster than they can be taken.
    RateLimited = RATE_LIMITED;
    /// Another node leads.
    NotLeader = NOT_LEADER;
    /// There is no leader, or it has lost its quorum.
    NoQuorum = NO_QUORUM;
    /// The node is shutting down.
    Draining = DRAINING;
    /// The cluster is being founded.
    NotInitialized = NOT_INITIALIZED;
    /// The outcome is unknown.
    UnknownOutcome = UNKNOWN_OUTCOME;
    /// The node's data is broken and it stops.
    Broken = BROKEN;
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn details_of_a_status_become_a_refusal() {
        let mut details = ErrorDetails::new();
        details.set_error_info("FULL", "ticketrail", [("queue".to_owned(), "orders".to_owned())]);
        details.set_retry_info(Some(Duration::from_millis(1_200)));
        let status = Status::with_error_details(Code::ResourceExhausted, "queue is full", details);
        let refusal = Refusal::from_status(&status);
        assert_eq!(refusal.reason, Reason::Full);
        assert_eq!(refusal.code, Code::ResourceExhausted);
        assert_eq!(refusal.retry_after, Some(Duration::from_millis(1_200)));
        assert_eq!(refusal.metadata.get("queue").map(String::as_str), Some("orders"));
        assert_eq!(refusal.to_string(), "queue is full");
    }

    #[test]
    fn the_field_of_a_bad_request_is_kept() {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID", "ticketrail", std::collections::HashMap::<String, String>::new());
        details.add_bad_request_violation("messages[3].body", "at most 1048576 bytes");
        let status = Status::with_error_details(Code::InvalidArgument, "too large", details);
        let refusal = Refusal::from_status(&status);
        assert_eq!(refusal.reason, Reason::Invalid);
        assert_eq!(refusal.metadata.get("field").map(String::as_str), Some("messages[3].body"));
    }

    #[test]
    fn a_foreign_or_broken_detail_is_no_reason() {
        let mut details = ErrorDetails::new();
        details.set_error_info("FULL", "example.com", std::collections::HashMap::<String, String>::new());
        let foreign = Status::with_error_details(Code::ResourceExhausted, "quota", details);
        assert_eq!(Refusal::from_status(&foreign).reason, Reason::None);
        let broken = Status::with_details(Code::Unavailable, "x", bytes::Bytes::from_static(b"\xff\xff\xff"));
        assert_eq!(Refusal::from_status(&broken).reason, Reason::None);
    }

    #[test]
    fn an_items_error_becomes_a_refusal() {
        let item = v1::ItemError {
            code: 9,
            reason: "LEASE_LOST".to_owned(),
            message: "the lease is over".to_owned(),
            metadata: BTreeMap::from([("receive_count".to_owned(), "3".to_owned())]),
            retry_after: None,
        };
        let refusal = Refusal::from_item(item);
        assert_eq!(refusal.code, Code::FailedPrecondition);
        assert_eq!(refusal.reason, Reason::LeaseLost);
        assert_eq!(refusal.receive_count(), Some(3));
    }

    #[test]
    fn reasons_read_back_as_written() {
        for name in ["FULL", "LEASE_LOST", "NOT_LEADER", "BROKEN", "A_NEWER_ONE", ""] {
            assert_eq!(Reason::parse(name).as_str(), name);
        }
    }
}
