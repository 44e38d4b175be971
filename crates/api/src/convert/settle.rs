//! What became of deliveries, and more time for them.

use ticketrail_core::command::{Ack, Commit, Extend, Failure, Release, Retry, Settle, Verdict};
use ticketrail_core::limits;
use ticketrail_core::reply::{SettleOutcome, SettleResult};
use ticketrail_proto::v1;

use super::field::{self, at_most, duration_of_ms, timestamp_of_ms};
use super::receive::lease;
use crate::status::{self, FieldError, Refusal};

/// Settlements as a commit of its parts.
pub(crate) fn settle(settlements: Vec<v1::Settlement>) -> Result<Commit, FieldError> {
    field::batch("settlements", settlements.len())?;
    let parts = settlements.into_iter().enumerate().map(|(at, part)| settlement(&format!("settlements[{at}]"), part));
    let parts: Vec<Settle> = parts.collect::<Result<_, _>>()?;
    outputs("settlements", &parts)?;
    Ok(commit(parts))
}

/// Refuses outputs that are too much together.
pub(crate) fn outputs(field: &str, parts: &[Settle]) -> Result<(), FieldError> {
    let output = |part: &Settle| match &part.verdict {
        Some(Verdict::Ack(ack)) => ack.output.len(),
        Some(Verdict::Retry(_) | Verdict::Reject(_) | Verdict::Release(_) | Verdict::Extend(_)) | None => 0,
    };
    at_most(field, "bytes of outputs together", parts.iter().map(output).sum(), limits::BATCH_BYTES)
}

/// Extensions as a commit of its parts.
pub(crate) fn extend(extensions: Vec<v1::Extension>) -> Result<Commit, FieldError> {
    field::batch("extensions", extensions.len())?;
    let parts = extensions.into_iter().enumerate().map(|(at, part)| extension(&format!("extensions[{at}]"), part));
    Ok(commit(parts.collect::<Result<_, _>>()?))
}

fn commit(settle: Vec<Settle>) -> Commit {
    Commit { settle, ..Commit::default() }
}

/// A settlement found in the field `at`.
pub(crate) fn settlement(at: &str, part: v1::Settlement) -> Result<Settle, FieldError> {
    let v1::Settlement { lease_token, verdict } = part;
    let token = field::lease_token(&format!("{at}.lease_token"), lease_token)?;
    let verdict = match verdict {
        Some(v1::settlement::Verdict::Ack(v1::Ack { output })) => {
            at_most(&format!("{at}.ack.output"), "bytes", output.len(), limits::OUTPUT_BYTES)?;
            Verdict::Ack(Ack { output })
        }
        Some(v1::settlement::Verdict::Retry(v1::Retry { code, text, delay })) => {
            let at = format!("{at}.retry");
            let delay_ms = match delay {
                Some(delay) => Some(field::duration_ms(&format!("{at}.delay"), &delay, 0, limits::DELAY_MAX_MS)?),
                None => None,
            };
            Verdict::Retry(Retry { failure: Some(failure(&at, code, text)?), delay_ms })
        }
        Some(v1::settlement::Verdict::Reject(v1::Reject { code, text })) => {
            Verdict::Reject(failure(&format!("{at}.reject"), code, text)?)
        }
        Some(v1::settlement::Verdict::Release(v1::Release {})) => Verdict::Release(Release {}),
        None => {
            return Err(FieldError::new(at, "expected one of ack, retry, reject, release, but got none that is known"));
        }
    };
    Ok(Settle { token, verdict: Some(verdict) })
}

fn failure(at: &str, code: String, text: String) -> Result<Failure, FieldError> {
    Ok(Failure {
        code: field::text(&format!("{at}.code"), code, limits::FIELD_BYTES)?,
        text: field::text(&format!("{at}.text"), text, limits::FAILURE_TEXT_BYTES)?,
    })
}

fn extension(at: &str, part: v1::Extension) -> Result<Settle, FieldError> {
    let token = field::lease_token(&format!("{at}.lease_token"), part.lease_token)?;
    let lease_ms = lease(&format!("{at}.lease"), part.lease)?;
    Ok(Settle { token, verdict: Some(Verdict::Extend(Extend { lease_ms })) })
}

/// What became of one settlement.
pub(crate) fn settle_result(result: &SettleResult) -> Result<v1::SettleResult, Refusal> {
    use v1::settle_result::Outcome;
    let outcome = match &result.outcome {
        Some(SettleOutcome::Acked(_)) => Outcome::Acked(v1::Acked {}),
        Some(SettleOutcome::DeadLettered(dead)) => {
            Outcome::DeadLettered(v1::DeadLettered { sequence: dead.place.sequence, queue_id: dead.place.queue })
        }
        Some(SettleOutcome::Delayed(delayed)) => {
            Outcome::Delayed(v1::Delayed { due_at: Some(timestamp_of_ms(delayed.due_ms)) })
        }
        Some(SettleOutcome::Readied(_)) => Outcome::Readied(v1::Readied {}),
        Some(SettleOutcome::Purged(_)) => Outcome::Purged(v1::Purged {}),
        Some(SettleOutcome::Expired(_)) => Outcome::Expired(v1::Expired {}),
        Some(SettleOutcome::Dropped(_)) => Outcome::Dropped(v1::Dropped {}),
        Some(SettleOutcome::Rejected(record)) => Outcome::Error(status::item(record)),
        Some(SettleOutcome::Extended(_)) | None => return Err(Refusal::mismatch("a settlement's result")),
    };
    Ok(v1::SettleResult { outcome: Some(outcome) })
}

/// What became of one extension.
pub(crate) fn extend_result(result: &SettleResult) -> Result<v1::ExtendResult, Refusal> {
    use v1::extend_result::Outcome;
    let outcome = match &result.outcome {
        Some(SettleOutcome::Extended(extended)) => {
            Outcome::Extended(v1::Extended { lease_remaining: Some(duration_of_ms(extended.remaining_ms)) })
        }
        Some(SettleOutcome::Rejected(record)) => Outcome::Error(status::item(record)),
        Some(
            SettleOutcome::Acked(_)
            | SettleOutcome::DeadLettered(_)
            | SettleOutcome::Delayed(_)
            | SettleOutcome::Readied(_)
            | SettleOutcome::Purged(_)
            | SettleOutcome::Expired(_)
            | SettleOutcome::Dropped(_),
        )
        | None => return Err(Refusal::mismatch("an extension's result")),
    };
    Ok(v1::ExtendResult { outcome: Some(outcome) })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ticketrail_core::{GroupId, LeaseToken, QueueId};
    use v1::settlement::Verdict as Wire;

    use super::*;

    fn token() -> Bytes {
        LeaseToken { group: GroupId(1), queue: QueueId(7), sequence: 9, hash: [3; 16] }.to_bytes().into()
    }

    fn one(verdict: Wire) -> Result<Settle, FieldError> {
        let part = v1::Settlement { lease_token: token(), verdict: Some(verdict) };
        settle(vec![part]).map(|commit| commit.settle[0].clone())
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn each_verdict_goes_in() {
        let why = || Failure { code: "c".into(), text: "t".into() };
        let ack = |output: &'static [u8]| one(Wire::Ack(v1::Ack { output: output.into() }));
        assert_eq!(ack(b"").unwrap().verdict, Some(Verdict::Ack(Ack::default())));
        assert_eq!(ack(b"42").unwrap().verdict, Some(Verdict::Ack(Ack { output: Bytes::from_static(b"42") })));
        assert_eq!(one(Wire::Release(v1::Release {})).unwrap().verdict, Some(Verdict::Release(Release {})));
        let reject = v1::Reject { code: "c".into(), text: "t".into() };
        assert_eq!(one(Wire::Reject(reject)).unwrap().verdict, Some(Verdict::Reject(why())));
        let retry = |delay| v1::Retry { code: "c".into(), text: "t".into(), delay };
        let domain = |delay_ms| Some(Verdict::Retry(Retry { failure: Some(why()), delay_ms }));
        assert_eq!(one(Wire::Retry(retry(None))).unwrap().verdict, domain(None));
        assert_eq!(one(Wire::Retry(retry(seconds(0)))).unwrap().verdict, domain(Some(0)));
        assert_eq!(one(Wire::Retry(retry(seconds(5)))).unwrap().verdict, domain(Some(5_000)));
    }

    #[test]
    fn each_limit_of_a_settlement_is_refused_by_field() {
        let retry = |code: usize, text: usize, delay| {
            Wire::Retry(v1::Retry { code: "c".repeat(code), text: "t".repeat(text), delay })
        };
        let reject =
            |code: usize, text: usize| Wire::Reject(v1::Reject { code: "c".repeat(code), text: "t".repeat(text) });
        let rows = [
            (retry(257, 0, None), "settlements[0].retry.code"),
            (retry(0, 513, None), "settlements[0].retry.text"),
            (retry(0, 0, seconds(-1)), "settlements[0].retry.delay"),
            (retry(0, 0, seconds(366 * 86_400 + 1)), "settlements[0].retry.delay"),
            (reject(257, 0), "settlements[0].reject.code"),
            (reject(0, 513), "settlements[0].reject.text"),
            (Wire::Ack(v1::Ack { output: vec![0; (64 << 10) + 1].into() }), "settlements[0].ack.output"),
        ];
        for (wire, field) in rows {
            assert_eq!(one(wire).unwrap_err().field, field);
        }
        assert!(one(retry(256, 512, seconds(366 * 86_400))).is_ok());
    }

    #[test]
    fn lists_tokens_and_verdicts_are_checked() {
        assert_eq!(settle(vec![]).unwrap_err().field, "settlements");
        let ack = || v1::Settlement { lease_token: token(), verdict: Some(Wire::Ack(v1::Ack::default())) };
        let large = || {
            let output = vec![0; 64 << 10].into();
            v1::Settlement { verdict: Some(Wire::Ack(v1::Ack { output })), ..ack() }
        };
        assert!(settle(vec![large(); 64]).is_ok());
        assert_eq!(settle(vec![large(); 65]).unwrap_err().field, "settlements");
        assert_eq!(settle(vec![ack(); 1_001]).unwrap_err().field, "settlements");
        assert_eq!(settle(vec![ack(); 1_000]).unwrap().settle.len(), 1_000);
        let none = v1::Settlement { verdict: None, ..ack() };
        assert_eq!(settle(vec![ack(), none]).unwrap_err().field, "settlements[1]");
        let short = v1::Settlement { lease_token: token().slice(..36), ..ack() };
        let error = settle(vec![short]).unwrap_err();
        assert_eq!(error.field, "settlements[0].lease_token");
        assert!(error.reason.contains("37 bytes") && error.reason.contains("36 bytes"), "{}", error.reason);
    }

    #[test]
    fn extensions_are_settlements() {
        let part = |lease| v1::Extension { lease_token: token(), lease };
        let commit = extend(vec![part(None), part(seconds(90))]).unwrap();
        let leases: Vec<_> = commit.settle.iter().map(|s| s.verdict.clone()).collect();
        let extend_by = |lease_ms| Some(Verdict::Extend(Extend { lease_ms }));
        assert_eq!(leases, [extend_by(0), extend_by(90_000)]);
        assert_eq!(extend(vec![]).unwrap_err().field, "extensions");
        for wrong in [0, -5, 12 * 3_600 + 1] {
            assert_eq!(extend(vec![part(seconds(wrong))]).unwrap_err().field, "extensions[0].lease");
        }
    }
}
