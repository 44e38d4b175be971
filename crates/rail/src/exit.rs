//! Exit codes, and errors that say what to do next. One table: scripts rely on it.

use std::fmt;
use std::process::ExitCode;

use ticketrail_client::{Error, Reason};

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// Failed, for a reason that none of the others names.
    Failed,
    /// Called wrongly, or with a value outside its limits. `rail demo`: INVALID.
    Usage,
    /// Some items of a list were refused, others done.
    Partly,
    /// No such queue, message or file.
    NotFound,
    /// It is there already, is closed, or somebody else has the lease.
    Conflict,
    /// No server, no leader or no quorum; nothing happened.
    Unavailable,
    /// Not allowed.
    Denied,
    /// No outcome in time; it may have happened.
    Timeout,
    /// A bound, a quota or the disk is full; nothing happened.
    Exhausted,
    /// `rail check`: a threshold for a warning is passed.
    Warning,
    /// `rail check`: a critical threshold is passed.
    Critical,
    /// `rail check`: nobody knows.
    NotKnown,
    /// Stopped from the keyboard.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only what starts children cleans up after Ctrl-C"))]
    Interrupted,
}

impl Exit {
    /// All of them but those of `rail check`: for the help text.
    #[cfg(test)]
    const ALL: [Exit; 11] = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::Partly,
        Exit::NotFound,
        Exit::Conflict,
        Exit::Unavailable,
        Exit::Denied,
        Exit::Timeout,
        Exit::Exhausted,
        Exit::Interrupted,
    ];

    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Partly => 3,
            Exit::NotFound => 4,
            Exit::Conflict => 5,
            Exit::Unavailable => 6,
            Exit::Denied => 7,
            Exit::Timeout => 8,
            Exit::Exhausted => 9,
            // What monitoring systems understand.
            Exit::Warning => 1,
            Exit::Critical => 2,
            Exit::NotKnown => 3,
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The table, for the end of `rail --help`.
pub(crate) const TABLE: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 partly done, 4 not found, 5 conflict, \
6 unavailable (nothing happened), 7 denied, 8 timeout (outcome unknown), 9 exhausted (full), 130 interrupted. `rail check`: 0 ok, 1 warning, 2 critical, 3 unknown. `rail diff`: \
1 where something differs.";

/// Why a command failed: what happened, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What happened.
    pub(crate) what: String,
    /// What to do next.
    pub(crate) next: Option<String>,
}

impl Failure {
    /// A failure with its way out.
    pub(crate) fn new(exit: Exit, what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { exit, what: what.into(), next: Some(next.into()) }
    }

    /// A mistake in how the program was called.
    pub(crate) fn usage(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, next)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.next {
            Some(next) => write!(f, "\n next: {next}"),
            None => Ok(()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self { exit: Exit::Failed, what: format!("{error:#}"), next: None },
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { exit: Exit::Failed, what: error.to_string(), next: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, next) = judge(&error);
        Self { exit, what: error.to_string(), next }
    }
}

/// The exit code of a client's error, and what to do about it.
fn judge(error: &Error) -> (Exit, Option<String>) {
    let refusal = match error {
        Error::Refused(refusal) => refusal,
        Error::Unavailable { .. } => {
            let next = "is the server running there? start one with `rail dev`, or name another with --address";
            return (Exit::Unavailable, Some(next.to_owned()));
        }
        Error::Unknown { .. } => {
            let next = "look with `rail queue show` or `rail msg get` before repeating it; allow more with --timeout";
            return (Exit::Timeout, Some(next.to_owned()));
        }
        Error::Config { .. } => return (Exit::Usage, None),
        Error::Protocol { .. } => return (Exit::Failed, None),
    };
    let queue = refusal.metadata.get("queue").map_or("QUEUE", String::as_str);
    let next = match &refusal.reason {
        Reason::Invalid => "mend that value; limits stand in docs/limits.md".to_owned(),
        Reason::QueueNotFound => {
            "see what is there with `rail queue ls`, or make it with `rail queue create`".to_owned()
        }
        Reason::MessageNotFound => "it is finished, or never was in this namespace; see `rail msg peek`".to_owned(),
        Reason::TooLate => "it is with a receiver or has finished: see `rail msg get`".to_owned(),
        Reason::NamespaceNotFound => "see which have defaults of their own with `rail namespace ls`".to_owned(),
        Reason::MemberNotFound => "see who is there with `rail cluster members`".to_owned(),
        Reason::ClusterUnsafe => "see how the members are with `rail cluster members`".to_owned(),
        Reason::QueueExists => format!("change it with `rail queue update {queue}`, or see `rail queue show {queue}`"),
        Reason::QueueClosed => format!("admit messages again with `rail queue reopen {queue}`"),
        Reason::Full => {
            let wait = refusal.retry_after.map_or_else(|| "later".to_owned(), |wait| format!("in {wait:?}"));
            full(queue, refusal.metadata.get("bound").map_or("max_depth", String::as_str), &wait)
        }
        Reason::LeaseLost => "its lease is over and the work is somebody else's: receive again".to_owned(),
        Reason::DiskLow => "make room on the server's disk; deliveries and acks go on meanwhile".to_owned(),
        Reason::RateLimited | Reason::SessionsFull | Reason::RequestIdsFull => match refusal.retry_after {
            Some(wait) => format!("try again in {wait:?}"),
            None => "try again later".to_owned(),
        },
        Reason::QueuesFull => "delete a queue that nobody uses: `rail queue ls`".to_owned(),
        Reason::NamespacesFull => "take defaults that nobody needs back: `rail namespace ls`".to_owned(),
        Reason::RequestIdOld
        | Reason::SessionWindow
        | Reason::RequestIdReused
        | Reason::SessionExpired
        | Reason::NotLeader
        | Reason::NoQuorum
        | Reason::Draining
        | Reason::NotInitialized
        | Reason::UnknownOutcome
        | Reason::Broken => "try again".to_owned(),
        Reason::None | Reason::Other(_) => return (exit_of(refusal), None),
    };
    (exit_of(refusal), Some(next))
}

/// What to do about a full queue.
fn full(queue: &str, bound: &str, wait: &str) -> String {
    match bound {
        "dedup_ids" => format!("shorten how long they are remembered: `rail queue update {queue} --dedup-window 1h`"),
        "shed" => format!(
            "try again {wait}, give it a higher --priority, or change the rules: `rail queue update {queue} --shed`"
        ),
        "max_wait" => {
            format!("try again {wait}, add workers, or allow more: `rail queue update {queue} --max-wait DURATION`")
        }
        bound => {
            let flag = bound.replace('_', "-");
            format!("try again {wait}, let workers catch up, or raise it: `rail queue update {queue} --{flag} N`")
        }
    }
}

/// The exit code of a refusal, by its status code: items of a list carry one too.
pub(crate) fn exit_of(refusal: &ticketrail_client::Refusal) -> Exit {
    use ticketrail_client::Code;
    match refusal.code {
        Code::Ok => Exit::Ok,
        Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => Exit::Usage,
        Code::NotFound => Exit::NotFound,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => Exit::Conflict,
        Code::Unavailable => Exit::Unavailable,
        Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
        Code::DeadlineExceeded | Code::Cancelled => Exit::Timeout,
        Code::ResourceExhausted => Exit::Exhausted,
        Code::Unknown | Code::Internal | Code::DataLoss => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ticketrail_client::{Code, Refusal};

    use super::*;

    #[test]
    fn the_codes_are_for_ever() {
        let codes: Vec<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130]);
        for code in codes {
            assert!(TABLE.contains(&format!(" {code} ")), "the help text lacks {code}");
        }
    }

    fn refused(code: Code, reason: Reason) -> Failure {
        let metadata = [("queue".to_owned(), "orders".to_owned()), ("bound".to_owned(), "max_depth".to_owned())].into();
        let retry_after = Some(Duration::from_millis(1_200));
        Error::Refused(Refusal { code, reason, text: "no".to_owned(), metadata, retry_after }).into()
    }

    #[test]
    fn each_reason_has_its_code_and_says_what_to_do() {
        let table = [
            (Code::InvalidArgument, Reason::Invalid, Exit::Usage),
            (Code::NotFound, Reason::QueueNotFound, Exit::NotFound),
            (Code::NotFound, Reason::MessageNotFound, Exit::NotFound),
            (Code::AlreadyExists, Reason::QueueExists, Exit::Conflict),
            (Code::FailedPrecondition, Reason::QueueClosed, Exit::Conflict),
            (Code::FailedPrecondition, Reason::LeaseLost, Exit::Conflict),
            (Code::FailedPrecondition, Reason::TooLate, Exit::Conflict),
            (Code::NotFound, Reason::NamespaceNotFound, Exit::NotFound),
            (Code::ResourceExhausted, Reason::RequestIdsFull, Exit::Exhausted),
            (Code::ResourceExhausted, Reason::Full, Exit::Exhausted),
            (Code::ResourceExhausted, Reason::DiskLow, Exit::Exhausted),
            (Code::ResourceExhausted, Reason::QueuesFull, Exit::Exhausted),
        ];
        for (code, reason, exit) in table {
            let failure = refused(code, reason.clone());
            assert_eq!(failure.exit, exit, "{reason:?}");
            assert!(failure.next.is_some(), "{reason:?}");
        }
        assert_eq!(refused(Code::PermissionDenied, Reason::None).exit, Exit::Denied);
    }

    #[test]
    fn a_full_queue_names_its_bound_and_when_to_come_back() {
        let text = refused(Code::ResourceExhausted, Reason::Full).to_string();
        assert!(text.contains("1.2s") && text.contains("rail queue update orders --max-depth N"), "{text}");
    }

    #[test]
    fn no_server_and_no_outcome_are_told_apart() {
        let waited = Duration::from_secs(1);
        let none = Error::Unavailable { last: "refused".to_owned(), waited, reason: None };
        assert_eq!(Failure::from(none).exit, Exit::Unavailable);
        let unknown = Error::Unknown { last: "reset".to_owned(), waited };
        assert_eq!(Failure::from(unknown).exit, Exit::Timeout);
    }
}
