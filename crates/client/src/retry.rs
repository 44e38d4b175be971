//! When a call is tried again. The only place of this crate that reads a clock.
//!
//! Each failure is treated in its own way:
//!
//! | How an attempt ended | What it means | What follows |
//! |---|---|---|
//! | no connection | nothing was sent | again after a backoff |
//! | `UNAVAILABLE` with a reason | nothing happened | again after a backoff |
//! | `UNAVAILABLE` without one, a lost connection, `DEADLINE_EXCEEDED`, `INTERNAL` | unknown | again with the same id, marked as a repeat |
//! | `FULL`, `RATE_LIMITED`, `DISK_LOW`, `SESSIONS_FULL` | nothing happened | again when the server said, if the policy waits for that |
//! | `SESSION_WINDOW` | nothing happened | again after a backoff, with a newer `acked_below` |
//! | `SESSION_EXPIRED` | this attempt did nothing | anew in a new session, unless an attempt is in doubt |
//! | `LEASE_LOST` and all others | a lawful no | never again |

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use ticketrail_proto::v1;
use tonic::{Code, Status};

use crate::error::{Error, Reason, Refusal};

/// How long, and for what, calls are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// A call's deadline over all its attempts; a receive's wait comes on top. Default 30 s.
    pub timeout: Duration,
    /// An attempt without an answer for so long is given up and repeated; a receive's wait comes on top. Default 5 s.
    /// After 1 s the other nodes are asked who leads, and where it is another one, the attempt is repeated there at once.
    pub attempt_timeout: Duration,
    /// The first backoff: each wait is between 0 and it, doubled each time. Default 25 ms.
    pub backoff_base: Duration,
    /// The longest backoff. Default 1 s.
    pub backoff_cap: Duration,
    /// Whether a full queue, a low disk or a rate limit is waited out until the deadline. Default true.
    pub wait_for_room: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(5),
            backoff_base: Duration::from_millis(25),
            backoff_cap: Duration::from_secs(1),
            wait_for_room: true,
        }
    }
}

impl RetryPolicy {
    /// Full jitter: between 0 and the base doubled `failed` times, at most the cap.
    pub(crate) fn backoff(&self, failed: u32) -> Duration {
        let ceiling = self.backoff_base.saturating_mul(1 << failed.min(16)).min(self.backoff_cap);
        let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(random() % nanos.max(1))
    }
}

/// The monotonic clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How one attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No connection: nothing was sent.
    NotSent(String),
    /// It may have had its effect.
    Unknown(String),
    /// The server said no.
    Refused(Refusal),
}

impl Ended {
    /// Whether the server knows the request's session no more.
    pub(crate) fn is_session_expired(&self) -> bool {
        matches!(self, Ended::Refused(refusal) if refusal.reason == Reason::SessionExpired)
    }

    /// Reads a status: what the transport or the server says about the attempt.
    pub(crate) fn from_status(status: &Status) -> Self {
        if let Some(why) = not_connected(status) {
            return Ended::NotSent(why);
        }
        if std::error::Error::source(status).is_some() {
            // Made up here, of what befell the connection: whatever its code, the server did not say it.
            return Ended::Unknown(sources(status));
        }
        Self::said(Refusal::from_status(status), || sources(status))
    }

    /// Whether the server refused what the request says.
    pub(crate) fn is_invalid(&self) -> bool {
        matches!(self, Ended::Refused(refusal) if refusal.reason == Reason::Invalid)
    }

    /// How, in words.
    pub(crate) fn text(&self) -> &str {
        match self {
            Ended::NotSent(text) | Ended::Unknown(text) => text,
            Ended::Refused(refusal) => &refusal.text,
        }
    }

    /// Reads what the server says of one request of a stream.
    pub(crate) fn from_item(error: v1::ItemError) -> Self {
        let refusal = Refusal::from_item(error);
        let text = refusal.text.clone();
        Self::said(refusal, || text)
    }

    /// Reads what the server says; `unknown` is the text where it does not know.
    fn said(refusal: Refusal, unknown: impl FnOnce() -> String) -> Self {
        match (refusal.code, &refusal.reason) {
            (Code::Unavailable, Reason::NotLeader | Reason::NoQuorum | Reason::Draining | Reason::NotInitialized) => {
                Ended::Refused(refusal)
            }
            // Whatever else comes with these codes is of the transport, or of a node that does not know.
            (
                Code::Unavailable
                | Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Internal
                | Code::DataLoss
                | Code::Aborted
                | Code::Ok,
                _,
            ) => Ended::Unknown(unknown()),
            (
                Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::ResourceExhausted
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::Unauthenticated,
                _,
            ) => Ended::Refused(refusal),
        }
    }
}

/// Why the attempt had no connection to go over; `None`: it had one.
fn not_connected(status: &Status) -> Option<String> {
    let mut connecting = false;
    let mut last = None;
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        connecting |= error.is::<tonic::ConnectError>();
        last = Some(error);
        source = error.source();
    }
    // The deepest cause is what the operating system said.
    last.filter(|_| connecting).map(|cause| format!("no server was reached: {cause}"))
}

/// A status in words, with what lies beneath it.
fn sources(status: &Status) -> String {
    let mut text = status.message().to_owned();
    if text.is_empty() {
        text = format!("the call ended with {:?}", status.code());
    }
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let more = error.to_string();
        if !more.is_empty() && !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

/// What to do after an attempt failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try again after so long, under the same id.
    Again(Duration),
    /// Try again at once, under an id of a new session.
    NewSession,
    /// It is over.
    Stop(Stop),
}

/// How a call ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The server's no stands.
    Refused(Refusal),
    /// Nobody took it.
    Unavailable(String, Option<Reason>),
    /// Nobody knows.
    Unknown(String),
}

/// New sessions that one call opens at most: expiry after expiry is a server that keeps none.
const SESSIONS_PER_CALL: u32 = 3;

/// The state of one call over its attempts.
#[derive(Debug, Clone)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    started: Instant,
    deadline: Instant,
    /// Added to each attempt's timeout: a long poll's wait.
    wait: Duration,
    failed: u32,
    sessions: u32,
    /// Whether the call changes anything; a read is never in doubt.
    changes: bool,
    in_doubt: bool,
}

impl Attempts {
    /// A call that begins now. `wait` is a long poll's, on top of all timeouts.
    pub(crate) fn begin(policy: &RetryPolicy, changes: bool, wait: Duration) -> Self {
        let started = now();
        Self {
            policy: policy.clone(),
            started,
            deadline: started + policy.timeout + wait,
            wait,
            failed: 0,
            sessions: 0,
            changes,
            in_doubt: false,
        }
    }

    /// The attempts of a call that is made on this one's behalf and changes nothing: within the same deadline.
    pub(crate) fn aside(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            started: self.started,
            deadline: self.deadline,
            wait: Duration::ZERO,
            failed: 0,
            sessions: 0,
            changes: false,
            in_doubt: false,
        }
    }

    /// Whether an earlier attempt may have had the effect.
    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// How long the next attempt may take.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(now());
        left.min(self.policy.attempt_timeout + self.wait).max(Duration::from_millis(1))
    }

    /// What is left of a long poll's wait; all of it for the first attempt.
    pub(crate) fn wait_left(&self) -> Duration {
        if self.failed == 0 {
            return self.wait;
        }
        (self.started + self.wait).saturating_duration_since(now())
    }

    /// What to do now that an attempt has ended so.
    pub(crate) fn after(&mut self, ended: Ended) -> Next {
        self.decide(ended, now())
    }

    fn decide(&mut self, ended: Ended, now: Instant) -> Next {
        self.failed = self.failed.saturating_add(1);
        if let Ended::Unknown(_) = ended
            && self.changes
        {
            self.in_doubt = true;
        }
        match ended {
            Ended::NotSent(last) | Ended::Unknown(last) => {
                self.again(self.backoff(), now, Stop::Unavailable(last, None))
            }
            Ended::Refused(refusal) => self.refused(refusal, now),
        }
    }

    fn refused(&mut self, refusal: Refusal, now: Instant) -> Next {
        match refusal.reason {
            Reason::NotLeader | Reason::NoQuorum | Reason::Draining | Reason::NotInitialized => {
                let wait = self.backoff().max(refusal.retry_after.unwrap_or_default());
                self.again(wait, now, Stop::Unavailable(refusal.text, Some(refusal.reason)))
            }
            Reason::Full | Reason::RateLimited | Reason::DiskLow | Reason::SessionsFull | Reason::RequestIdsFull => {
                if !self.policy.wait_for_room && !self.in_doubt {
                    return Next::Stop(Stop::Refused(refusal));
                }
                // The server says when; the jitter on top keeps a crowd from coming back together.
                let wait = refusal.retry_after.unwrap_or_default() + self.backoff();
                self.again(wait, now, Stop::Refused(refusal))
            }
            Reason::SessionWindow => self.again(self.backoff(), now, Stop::Refused(refusal)),
            Reason::SessionExpired if self.in_doubt => Next::Stop(Stop::Unknown(refusal.text)),
            Reason::SessionExpired => {
                self.sessions += 1;
                if self.sessions > SESSIONS_PER_CALL || now >= self.deadline {
                    Next::Stop(Stop::Refused(refusal))
                } else {
                    Next::NewSession
                }
            }
            // The outcome was there and is forgotten: only an attempt in doubt can meet that.
            Reason::RequestIdOld | Reason::RequestIdReused if self.in_doubt => Next::Stop(Stop::Unknown(refusal.text)),
            Reason::RequestIdOld
            | Reason::RequestIdReused
            | Reason::Invalid
            | Reason::QueueNotFound
            | Reason::MessageNotFound
            | Reason::NamespaceNotFound
            | Reason::MemberNotFound
            | Reason::ClusterUnsafe
            | Reason::QueueExists
            | Reason::QueueClosed
            | Reason::LeaseLost
            | Reason::TooLate
            | Reason::QueuesFull
            | Reason::NamespacesFull
            | Reason::UnknownOutcome
            | Reason::Broken
            | Reason::None
            | Reason::Other(_) => Next::Stop(Stop::Refused(refusal)),
        }
    }

    /// Again after `wait`, unless that is past the deadline: then it ends as `stop`, or unknown where in doubt.
    fn again(&self, wait: Duration, now: Instant, stop: Stop) -> Next {
        if now + wait < self.deadline {
            return Next::Again(wait);
        }
        if !self.in_doubt {
            return Next::Stop(stop);
        }
        Next::Stop(match stop {
            Stop::Refused(refusal) => Stop::Unknown(refusal.text),
            Stop::Unavailable(last, _) | Stop::Unknown(last) => Stop::Unknown(last),
        })
    }

    fn backoff(&self) -> Duration {
        self.policy.backoff(self.failed)
    }

    /// The call's error, where its deadline is past. `last` says how the last attempt ended: it was not sent.
    pub(crate) fn expired(&self, last: &str) -> Option<Error> {
        if now() < self.deadline {
            return None;
        }
        let last = last.to_owned();
        Some(self.error(if self.in_doubt { Stop::Unknown(last) } else { Stop::Unavailable(last, None) }))
    }

    /// The outcome of all attempts is known: nothing is in doubt any more.
    pub(crate) fn is_known(&mut self) {
        self.in_doubt = false;
    }

    /// The call's error.
    pub(crate) fn error(&self, stop: Stop) -> Error {
        let waited = now().saturating_duration_since(self.started);
        // In whole milliseconds: it is for people.
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        match stop {
            Stop::Refused(refusal) => Error::Refused(refusal),
            Stop::Unavailable(last, reason) => Error::Unavailable { last, waited, reason },
            Stop::Unknown(last) => Error::Unknown { last, waited },
        }
    }
}

/// A random number, good enough for jitter: the standard library seeds its hashers randomly.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn refusal(reason: Reason) -> Refusal {
        let retry_after = matches!(reason, Reason::Full).then_some(Duration::from_secs(2));
        Refusal { code: Code::Unknown, reason, text: "no".to_owned(), metadata: BTreeMap::new(), retry_after }
    }

    #[derive(Debug, PartialEq)]
    enum Kind {
        Again,
        NewSession,
        Refused,
        Unavailable,
        Unknown,
    }

    fn kind(next: &Next) -> Kind {
        match next {
            Next::Again(_) => Kind::Again,
            Next::NewSession => Kind::NewSession,
            Next::Stop(Stop::Refused(_)) => Kind::Refused,
            Next::Stop(Stop::Unavailable(..)) => Kind::Unavailable,
            Next::Stop(Stop::Unknown(_)) => Kind::Unknown,
        }
    }

    fn after(ended: Ended, in_doubt: bool, late: bool, wait_for_room: bool) -> (Kind, bool) {
        let policy = RetryPolicy { wait_for_room, ..RetryPolicy::default() };
        let mut attempts = Attempts::begin(&policy, true, Duration::ZERO);
        attempts.in_doubt = in_doubt;
        let at = if late { attempts.deadline } else { attempts.started };
        let next = attempts.decide(ended, at);
        (kind(&next), attempts.in_doubt)
    }

    #[test]
    fn the_table_of_decisions() {
        let not_sent = || Ended::NotSent("refused".to_owned());
        let unknown = || Ended::Unknown("reset".to_owned());
        let no = |reason| Ended::Refused(refusal(reason));
        // (how it ended, in doubt before, past the deadline) -> (what follows, in doubt after)
        let table = [
            (not_sent(), false, false, Kind::Again, false),
            (not_sent(), true, false, Kind::Again, true),
            (not_sent(), false, true, Kind::Unavailable, false),
            (not_sent(), true, true, Kind::Unknown, true),
            (unknown(), false, false, Kind::Again, true),
            (unknown(), false, true, Kind::Unknown, true),
            (no(Reason::NotLeader), false, false, Kind::Again, false),
            (no(Reason::NoQuorum), true, false, Kind::Again, true),
            (no(Reason::Draining), false, true, Kind::Unavailable, false),
            (no(Reason::NotInitialized), true, true, Kind::Unknown, true),
            (no(Reason::Full), false, false, Kind::Again, false),
            (no(Reason::Full), false, true, Kind::Refused, false),
            (no(Reason::Full), true, true, Kind::Unknown, true),
            (no(Reason::RateLimited), false, false, Kind::Again, false),
            (no(Reason::DiskLow), false, false, Kind::Again, false),
            (no(Reason::SessionsFull), false, false, Kind::Again, false),
            (no(Reason::SessionWindow), false, false, Kind::Again, false),
            (no(Reason::SessionExpired), false, false, Kind::NewSession, false),
            (no(Reason::SessionExpired), true, false, Kind::Unknown, true),
            (no(Reason::RequestIdOld), false, false, Kind::Refused, false),
            (no(Reason::RequestIdOld), true, false, Kind::Unknown, true),
            (no(Reason::RequestIdReused), false, false, Kind::Refused, false),
            (no(Reason::LeaseLost), false, false, Kind::Refused, false),
            (no(Reason::LeaseLost), true, false, Kind::Refused, true),
            (no(Reason::Invalid), false, false, Kind::Refused, false),
            (no(Reason::QueueNotFound), false, false, Kind::Refused, false),
            (no(Reason::QueueExists), false, false, Kind::Refused, false),
            (no(Reason::QueueClosed), false, false, Kind::Refused, false),
            (no(Reason::QueuesFull), false, false, Kind::Refused, false),
            (no(Reason::Other("NEWER".to_owned())), false, false, Kind::Refused, false),
        ];
        for (ended, in_doubt, late, expected, doubt_after) in table {
            let label = format!("{ended:?}, in doubt {in_doubt}, late {late}");
            assert_eq!(after(ended, in_doubt, late, true), (expected, doubt_after), "{label}");
        }
    }

    #[test]
    fn a_full_queue_is_not_waited_for_where_the_policy_says_so() {
        let full = || Ended::Refused(refusal(Reason::Full));
        assert_eq!(after(full(), false, false, false).0, Kind::Refused);
        // In doubt, "full" does not prove that nothing happened: the repeat goes on.
        assert_eq!(after(full(), true, false, false).0, Kind::Again);
    }

    #[test]
    fn a_full_queue_is_tried_again_when_the_server_said() {
        let mut attempts = Attempts::begin(&RetryPolicy::default(), true, Duration::ZERO);
        let Next::Again(wait) = attempts.after(Ended::Refused(refusal(Reason::Full))) else {
            panic!("expected another attempt");
        };
        assert!(wait >= Duration::from_secs(2), "{wait:?}");
    }

    #[test]
    fn a_read_is_never_in_doubt() {
        let mut attempts = Attempts::begin(&RetryPolicy::default(), false, Duration::ZERO);
        let at = attempts.deadline;
        assert_eq!(kind(&attempts.decide(Ended::Unknown("reset".to_owned()), at)), Kind::Unavailable);
        assert!(!attempts.in_doubt());
    }

    #[test]
    fn sessions_are_not_opened_for_ever() {
        let mut attempts = Attempts::begin(&RetryPolicy::default(), true, Duration::ZERO);
        let expired = || Ended::Refused(refusal(Reason::SessionExpired));
        for _ in 0..SESSIONS_PER_CALL {
            assert_eq!(attempts.after(expired()), Next::NewSession);
        }
        assert_eq!(kind(&attempts.after(expired())), Kind::Refused);
    }

    #[test]
    fn the_backoff_stays_below_its_ceiling() {
        let mut attempts = Attempts::begin(&RetryPolicy::default(), true, Duration::ZERO);
        for failed in 0..40 {
            attempts.failed = failed;
            let ceiling = Duration::from_millis(25).saturating_mul(1 << failed.min(16)).min(Duration::from_secs(1));
            assert!(attempts.backoff() < ceiling);
        }
    }

    #[test]
    fn statuses_say_whether_anything_happened() {
        use tonic_types::{ErrorDetails, StatusExt as _};
        let with = |code, reason: &str| {
            let mut details = ErrorDetails::new();
            details.set_error_info(reason, "ticketrail", std::collections::HashMap::<String, String>::new());
            Status::with_error_details(code, "text", details)
        };
        let bare = Status::unavailable("broken pipe");
        assert!(matches!(Ended::from_status(&bare), Ended::Unknown(_)));
        let promised = with(Code::Unavailable, "NO_QUORUM");
        assert!(matches!(Ended::from_status(&promised), Ended::Refused(r) if r.reason == Reason::NoQuorum));
        let unknown = with(Code::DeadlineExceeded, "UNKNOWN_OUTCOME");
        assert!(matches!(Ended::from_status(&unknown), Ended::Unknown(_)));
        let broken = with(Code::Internal, "BROKEN");
        assert!(matches!(Ended::from_status(&broken), Ended::Unknown(_)));
        let lost = with(Code::FailedPrecondition, "LEASE_LOST");
        assert!(matches!(Ended::from_status(&lost), Ended::Refused(r) if r.reason == Reason::LeaseLost));
        // HTTP/2's ENHANCE_YOUR_CALM becomes RESOURCE_EXHAUSTED, but is no server's word.
        let mut local = Status::resource_exhausted("h2 protocol error");
        local.set_source(std::sync::Arc::new(std::io::Error::other("enhance your calm")));
        assert!(matches!(Ended::from_status(&local), Ended::Unknown(_)));
        let refused = Status::from_error(Box::new(tonic::ConnectError("connection refused".into())));
        assert!(matches!(Ended::from_status(&refused), Ended::NotSent(_)));
    }
}
