//! What the end of an attempt means.

use ticketrail_history::format::Refusal;
use ticketrail_proto::reason;
use tonic::Status;
use tonic_types::StatusExt as _;

/// How one attempt of a call ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// This attempt did nothing, and another one may do it.
    Nothing(Refusal),
    /// The request was refused for good, whatever happened to its earlier attempts.
    Refused(Refusal),
    /// The request's session is over: this attempt did nothing, and the earlier ones will never be known.
    NoSession(Refusal),
    /// It may have had its effect.
    Unknown(Refusal),
}

impl Ended {
    /// Reads a status.
    pub fn of(status: &Status) -> Self {
        if is_unconnected(status) {
            return Ended::Nothing(Refusal { text: words(status), ..Refusal::new("NOT_CONNECTED") });
        }
        let details = status.get_error_details();
        let Some(info) = details.error_info().filter(|info| info.domain == reason::DOMAIN) else {
            return Ended::Unknown(Refusal { text: words(status), ..Refusal::new(format!("{:?}", status.code())) });
        };
        let refusal = Refusal {
            why: info.reason.clone(),
            rc: info.metadata.get("receive_count").and_then(|count| count.parse().ok()),
            part: part(&info.metadata),
            bound: info.metadata.get("bound").cloned(),
            again: None,
            text: status.message().to_owned(),
        };
        Self::said(refusal)
    }

    fn said(refusal: Refusal) -> Self {
        match refusal.why.as_str() {
            reason::NOT_LEADER
            | reason::NO_QUORUM
            | reason::DRAINING
            | reason::NOT_INITIALIZED
            | reason::RATE_LIMITED
            | reason::DISK_LOW
            | reason::SESSION_WINDOW
            | reason::SESSIONS_FULL
            | reason::REQUEST_IDS_FULL => Ended::Nothing(refusal),
            reason::SESSION_EXPIRED => Ended::NoSession(refusal),
            reason::UNKNOWN_OUTCOME | reason::BROKEN | reason::TIMEOUT => Ended::Unknown(refusal),
            _ => Ended::Refused(refusal),
        }
    }

    /// What was said.
    pub fn refusal(self) -> Refusal {
        match self {
            Ended::Nothing(refusal) | Ended::Refused(refusal) | Ended::NoSession(refusal) | Ended::Unknown(refusal) => {
                refusal
            }
        }
    }
}

/// `s0` for the first lease of a commit, `c0` for its first cancel, `t0` for its first new time, `e0` for its first message.
fn part(metadata: &std::collections::HashMap<String, String>) -> Option<String> {
    let letter = match metadata.get("part")?.as_str() {
        "settle" => 's',
        "enqueue" => 'e',
        "cancel" => 'c',
        "reschedule" => 't',
        _ => return None,
    };
    Some(format!("{letter}{}", metadata.get("index")?))
}

/// Whether the attempt had no connection to go over.
fn is_unconnected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn words(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic::Code;
    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: HashMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Status::with_error_details(code, "no", ErrorDetails::with_error_info(reason, reason::DOMAIN, metadata))
    }

    #[test]
    fn only_a_reason_of_the_server_promises_anything() {
        assert!(matches!(Ended::of(&Status::unavailable("gone")), Ended::Unknown(_)));
        assert!(matches!(Ended::of(&status(Code::Unavailable, reason::NO_QUORUM, &[])), Ended::Nothing(_)));
        assert!(matches!(Ended::of(&status(Code::DeadlineExceeded, reason::UNKNOWN_OUTCOME, &[])), Ended::Unknown(_)));
        assert!(matches!(
            Ended::of(&status(Code::FailedPrecondition, reason::SESSION_EXPIRED, &[])),
            Ended::NoSession(_)
        ));
    }

    #[test]
    fn a_refusal_keeps_its_part_and_its_count() {
        let metadata = [("part", "settle"), ("index", "2"), ("receive_count", "3")];
        let ended = Ended::of(&status(Code::FailedPrecondition, reason::LEASE_LOST, &metadata));
        let Ended::Refused(refusal) = ended else { panic!("{ended:?}") };
        assert_eq!((refusal.why.as_str(), refusal.rc, refusal.part.as_deref()), ("LEASE_LOST", Some(3), Some("s2")));
    }
}
