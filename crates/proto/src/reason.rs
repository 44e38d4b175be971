//! The stable reasons of errors. `google.rpc.ErrorInfo` carries one beside [`DOMAIN`]; so does an item's error.
//!
//! Act on these, never on an error's text.

/// The domain of every reason below.
pub const DOMAIN: &str = "ticketrail";

/// A field is outside its limits, or makes no sense. `INVALID_ARGUMENT`; nothing happened.
pub const INVALID: &str = "INVALID";
/// No such queue. `NOT_FOUND`; nothing happened.
pub const QUEUE_NOT_FOUND: &str = "QUEUE_NOT_FOUND";
/// No such message: it is finished, or never was. `NOT_FOUND`.
pub const MESSAGE_NOT_FOUND: &str = "MESSAGE_NOT_FOUND";
/// Nobody gave this namespace defaults of its own. `NOT_FOUND`; nothing happened.
pub const NAMESPACE_NOT_FOUND: &str = "NAMESPACE_NOT_FOUND";
/// No such member of the cluster. `NOT_FOUND`; nothing happened.
pub const MEMBER_NOT_FOUND: &str = "MEMBER_NOT_FOUND";
/// The change of the membership would do harm, or cannot be done as things are. `FAILED_PRECONDITION`; nothing happened.
pub const CLUSTER_UNSAFE: &str = "CLUSTER_UNSAFE";
/// The queue is there already. `ALREADY_EXISTS`; nothing happened.
pub const QUEUE_EXISTS: &str = "QUEUE_EXISTS";
/// The queue refuses enqueues. `FAILED_PRECONDITION`; nothing happened.
pub const QUEUE_CLOSED: &str = "QUEUE_CLOSED";
/// A bound of the queue would be passed. `RESOURCE_EXHAUSTED` with a retry delay; nothing happened.
pub const FULL: &str = "FULL";
/// The lease is over, or the token was never good. `FAILED_PRECONDITION`; nothing happened.
pub const LEASE_LOST: &str = "LEASE_LOST";
/// The message is with a receiver, or has been: it can't be cancelled or rescheduled any more. `FAILED_PRECONDITION`;
/// nothing happened.
pub const TOO_LATE: &str = "TOO_LATE";
/// The outcome of this request is forgotten: the client said that it had seen it. `FAILED_PRECONDITION`.
pub const REQUEST_ID_OLD: &str = "REQUEST_ID_OLD";
/// Too many outcomes are unseen: raise `acked_below`. `FAILED_PRECONDITION`; nothing happened.
pub const SESSION_WINDOW: &str = "SESSION_WINDOW";
/// Another request had this id. `INVALID_ARGUMENT`; this one had no effect.
pub const REQUEST_ID_REUSED: &str = "REQUEST_ID_REUSED";
/// No such session: it idled too long, or never was. `FAILED_PRECONDITION`; this attempt had no effect.
pub const SESSION_EXPIRED: &str = "SESSION_EXPIRED";
/// Too many sessions at one time. `RESOURCE_EXHAUSTED`; nothing happened.
pub const SESSIONS_FULL: &str = "SESSIONS_FULL";
/// Too many outcomes of requests without a session are kept: open a session, or wait some minutes. `RESOURCE_EXHAUSTED`;
/// nothing happened.
pub const REQUEST_IDS_FULL: &str = "REQUEST_IDS_FULL";
/// Too many queues. `RESOURCE_EXHAUSTED`; nothing happened.
pub const QUEUES_FULL: &str = "QUEUES_FULL";
/// Too many namespaces have defaults of their own. `RESOURCE_EXHAUSTED`; nothing happened.
pub const NAMESPACES_FULL: &str = "NAMESPACES_FULL";
/// The disk is nearly full. `RESOURCE_EXHAUSTED` with a retry delay; nothing happened.
pub const DISK_LOW: &str = "DISK_LOW";
/// Calls come faster than they can be taken. `RESOURCE_EXHAUSTED` with a retry delay; nothing happened.
pub const RATE_LIMITED: &str = "RATE_LIMITED";
/// Another node leads. `UNAVAILABLE`; nothing happened.
pub const NOT_LEADER: &str = "NOT_LEADER";
/// There is no leader, or it has lost its quorum. `UNAVAILABLE` with a retry delay; nothing happened.
pub const NO_QUORUM: &str = "NO_QUORUM";
/// The node is shutting down. `UNAVAILABLE`; nothing happened.
pub const DRAINING: &str = "DRAINING";
/// The cluster is being founded. `UNAVAILABLE` with a retry delay; nothing happened.
pub const NOT_INITIALIZED: &str = "NOT_INITIALIZED";
/// The outcome is unknown: send the request again with the same id and `repeat`. `DEADLINE_EXCEEDED`.
pub const UNKNOWN_OUTCOME: &str = "UNKNOWN_OUTCOME";
/// This node is broken and stops; the outcome is unknown, as above. `DEADLINE_EXCEEDED`.
pub const BROKEN: &str = "BROKEN";
/// A read took longer than its deadline. `DEADLINE_EXCEEDED`; reading changes nothing.
pub const TIMEOUT: &str = "TIMEOUT";
