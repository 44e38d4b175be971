//! Single fields: names, texts, times, counts, ids, page tokens.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use ticketrail_core::command::QueueRef;
use ticketrail_core::{LeaseToken, MessageId, Namespace, QueueName, RequestId, limits};
use ticketrail_proto::v1;

use crate::status::FieldError;

/// The namespace of a call that names none.
const DEFAULT_NAMESPACE: &str = "default";
/// Milliseconds since the epoch at the end of the year 9999, the last that a wire timestamp can name.
const TIMESTAMP_MAX_MS: u64 = 253_402_300_799_999;

/// A namespace; empty: `default`.
pub(crate) fn namespace(text: String) -> Result<String, FieldError> {
    if text.is_empty() {
        return Ok(DEFAULT_NAMESPACE.to_owned());
    }
    let name = Namespace::parse(text).map_err(|e| FieldError::new("namespace", e.to_string()))?;
    Ok(name.as_str().to_owned())
}

/// A queue's name in the field `field`.
pub(crate) fn queue_name(field: &str, text: String) -> Result<String, FieldError> {
    let name = QueueName::parse(text).map_err(|e| FieldError::new(field, e.to_string()))?;
    Ok(name.as_str().to_owned())
}

/// A queue by its namespace and its name.
pub(crate) fn queue(in_namespace: String, name: String) -> Result<QueueRef, FieldError> {
    Ok(QueueRef { namespace: namespace(in_namespace)?, name: queue_name("queue", name)? })
}

/// A message's id.
pub(crate) fn message_id(text: &str) -> Result<MessageId, FieldError> {
    text.parse().map_err(|e: ticketrail_core::IdError| FieldError::new("message_id", e.to_string()))
}

/// A lease token that has the shape of one. Whether it is good, only `apply` can tell.
pub(crate) fn lease_token(field: &str, bytes: Bytes) -> Result<Bytes, FieldError> {
    match LeaseToken::from_bytes(&bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(FieldError::new(field, e.to_string())),
    }
}

/// A request's id, and whether it is a repeat.
pub(crate) fn request_id(id: Option<v1::RequestId>) -> Result<(Option<RequestId>, bool), FieldError> {
    let Some(v1::RequestId { session, seq, acked_below, repeat, token }) = id else { return Ok((None, false)) };
    if !token.is_empty() {
        if session != 0 || seq != 0 || acked_below != 0 {
            let reason = "expected a token alone or a session's number, but got both";
            return Err(FieldError::new("request_id.token", reason));
        }
        return Ok((Some(request_token(&token)?), repeat));
    }
    if session == 0 {
        let reason = "expected a session as OpenSession gave it, or a token of 16 bytes, but got neither";
        return Err(FieldError::new("request_id.session", reason));
    }
    if seq == 0 {
        return Err(FieldError::new("request_id.seq", "expected a number from 1 on, but got 0"));
    }
    // The fingerprint is the log's business: it is set where the request becomes one.
    Ok((Some(RequestId { session, seq, acked_below, ..RequestId::default() }), repeat))
}

/// The id of a request without a session: 16 bytes, not all 0.
pub(crate) fn request_token(token: &[u8]) -> Result<RequestId, FieldError> {
    let wrong = |got: String| {
        let reason =
            format!("expected {} bytes such as those of a UUID, not all 0, but got {got}", limits::TOKEN_BYTES);
        FieldError::new("request_id.token", reason)
    };
    let all: u128 = match <[u8; limits::TOKEN_BYTES]>::try_from(token) {
        Ok(bytes) => u128::from_be_bytes(bytes),
        Err(_) => return Err(wrong(format!("{} bytes", token.len()))),
    };
    if all == 0 {
        return Err(wrong("zeros".to_owned()));
    }
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    Ok(RequestId { token_high: half(all >> 64), token_low: half(all), ..RequestId::default() })
}

/// A priority, 0 to 9.
pub(crate) fn priority(field: &str, value: u32) -> Result<u8, FieldError> {
    at_most(field, "as a priority", value, limits::PRIORITY_MAX.into())?;
    Ok(u8::try_from(value).unwrap_or(limits::PRIORITY_MAX))
}

/// A text of at most `max` bytes.
pub(crate) fn text(field: &str, text: String, max: usize) -> Result<String, FieldError> {
    at_most(field, "bytes", text.len(), max)?;
    Ok(text)
}

/// Refuses a `value` above `max`, in `unit`.
pub(crate) fn at_most<N: PartialOrd + Display>(field: &str, unit: &str, value: N, max: N) -> Result<(), FieldError> {
    if value <= max {
        return Ok(());
    }
    Err(FieldError::new(field, format!("expected at most {max} {unit}, but got {value}")))
}

/// Refuses a list that is empty or holds more than a batch.
pub(crate) fn batch(field: &str, len: usize) -> Result<(), FieldError> {
    if len == 0 {
        return Err(FieldError::new(field, format!("expected 1 to {} items, but got none", limits::BATCH)));
    }
    at_most(field, "items", len, limits::BATCH)
}

/// A count from 1 to `max`; 0: `default`.
pub(crate) fn count(field: &str, value: u32, default: u32, max: usize) -> Result<u32, FieldError> {
    if value == 0 {
        return Ok(default);
    }
    at_most(field, "items", value as usize, max)?;
    Ok(value)
}

/// A duration in milliseconds, rounded up, from `min_ms` to `max_ms`.
pub(crate) fn duration_ms(
    field: &str,
    wire: &prost_types::Duration,
    min_ms: u64,
    max_ms: u64,
) -> Result<u64, FieldError> {
    let prost_types::Duration { seconds, nanos } = *wire;
    let expected = || format!("expected {} to {}", show(min_ms), show(max_ms));
    if seconds < 0 || nanos < 0 {
        return Err(FieldError::new(field, format!("{}, but got {seconds} s and {nanos} ns", expected())));
    }
    if nanos > 999_999_999 {
        return Err(FieldError::new(
            field,
            format!("expected at most 999999999 ns beside the seconds, but got {nanos}"),
        ));
    }
    let ms = seconds
        .unsigned_abs()
        .saturating_mul(1_000)
        .saturating_add(u64::from(nanos.unsigned_abs()).div_ceil(1_000_000));
    if ms < min_ms || ms > max_ms {
        return Err(FieldError::new(field, format!("{}, but got {}", expected(), show(ms))));
    }
    Ok(ms)
}

/// A time in milliseconds since the Unix epoch, rounded up; years 1970 to 9999.
pub(crate) fn timestamp_ms(field: &str, wire: &prost_types::Timestamp) -> Result<u64, FieldError> {
    let prost_types::Timestamp { seconds, nanos } = *wire;
    if !(0..=999_999_999).contains(&nanos) {
        return Err(FieldError::new(field, format!("expected 0 to 999999999 ns, but got {nanos}")));
    }
    let whole = u64::try_from(seconds).ok().map(|s| s.saturating_mul(1_000));
    let ms = whole.map(|ms| ms.saturating_add(u64::from(nanos.unsigned_abs()).div_ceil(1_000_000)));
    match ms {
        Some(ms) if ms <= TIMESTAMP_MAX_MS => Ok(ms),
        Some(_) | None => {
            Err(FieldError::new(field, format!("expected a time from 1970 to 9999, but got {seconds} s since 1970")))
        }
    }
}

/// Milliseconds as a person says them: `1500 ms`, `60 s`, `12 h`, `366 d`.
fn show(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        ms if ms % limits::DAY_MS == 0 => format!("{} d", ms / limits::DAY_MS),
        ms if ms % limits::HOUR_MS == 0 => format!("{} h", ms / limits::HOUR_MS),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

/// A duration for the wire. All ours are far below what it can hold.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// Milliseconds as a duration for the wire.
pub(crate) fn duration_of_ms(ms: u64) -> prost_types::Duration {
    duration(Duration::from_millis(ms))
}

/// Milliseconds since the Unix epoch as a time for the wire.
pub(crate) fn timestamp_of_ms(ms: u64) -> prost_types::Timestamp {
    let prost_types::Duration { seconds, nanos } = duration_of_ms(ms);
    prost_types::Timestamp { seconds, nanos }
}

/// A page token: a cursor in hexadecimal.
pub(crate) fn page_token(cursor: &[u8]) -> String {
    use std::fmt::Write as _;
    cursor.iter().fold(String::with_capacity(2 * cursor.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The cursor of a page token.
pub(crate) fn cursor(token: &str) -> Result<Bytes, FieldError> {
    let wrong = || {
        let shown: String = token.chars().take(64).collect();
        FieldError::new("page_token", format!("expected next_page_token of an earlier page, but got {shown:?}"))
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = token.as_bytes().chunks(2).map(pair).collect();
    bytes.map(Bytes::from).ok_or_else(wrong)
}

/// The name in a page token of a listing by name; empty: from the first.
pub(crate) fn name_cursor(token: &str) -> Result<String, FieldError> {
    if token.is_empty() {
        return Ok(String::new());
    }
    let text = String::from_utf8(cursor(token)?.to_vec()).unwrap_or_default();
    queue_name("page_token", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(seconds: i64, nanos: i32) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos }
    }

    #[test]
    fn names_are_legal_or_refused_by_field() {
        assert_eq!(namespace(String::new()).as_deref(), Ok("default"));
        assert_eq!(namespace("shop".into()).as_deref(), Ok("shop"));
        assert_eq!(namespace("a b".into()).unwrap_err().field, "namespace");
        let error = queue(String::new(), "x".repeat(201)).unwrap_err();
        assert_eq!(error.field, "queue");
        assert!(error.reason.contains("200") && error.reason.contains("201"), "{}", error.reason);
        assert_eq!(queue(String::new(), String::new()).unwrap_err().field, "queue");
    }

    #[test]
    fn durations_are_rounded_up_and_bounded_on_both_sides() {
        let lease = |wire| duration_ms("lease", &wire, limits::LEASE_MIN_MS, limits::LEASE_MAX_MS);
        assert_eq!(lease(wire(1, 0)), Ok(1_000));
        assert_eq!(lease(wire(1, 1)), Ok(1_001));
        assert_eq!(lease(wire(12 * 3_600, 0)), Ok(limits::LEASE_MAX_MS));
        let long = lease(wire(12 * 3_600, 1)).unwrap_err();
        assert_eq!(long.reason, "expected 1 s to 12 h, but got 43200001 ms");
        let short = lease(wire(0, 999_000_000)).unwrap_err();
        assert_eq!(short.reason, "expected 1 s to 12 h, but got 999 ms");
        for wrong in [wire(-1, 0), wire(0, -1), wire(i64::MIN, 0), wire(i64::MAX, 0), wire(1, 1_000_000_000)] {
            assert_eq!(lease(wrong).unwrap_err().field, "lease");
        }
        let never = duration_ms("delay", &wire(i64::MAX, 999_999_999), 0, limits::DELAY_MAX_MS).unwrap_err();
        assert!(never.reason.starts_with("expected 0 s to 366 d"), "{}", never.reason);
    }

    #[test]
    fn times_are_between_1970_and_9999() {
        let time = |seconds, nanos| timestamp_ms("deliver_at", &prost_types::Timestamp { seconds, nanos });
        assert_eq!(time(0, 0), Ok(0));
        assert_eq!(time(1_700_000_000, 1), Ok(1_700_000_000_001));
        assert_eq!(time(253_402_300_799, 0), Ok(253_402_300_799_000));
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (253_402_300_800, 0), (i64::MAX, 0)] {
            assert_eq!(time(seconds, nanos).unwrap_err().field, "deliver_at");
        }
        assert_eq!(
            timestamp_of_ms(1_700_000_000_001),
            prost_types::Timestamp { seconds: 1_700_000_000, nanos: 1_000_000 }
        );
    }

    #[test]
    fn batches_have_1_to_1000_items() {
        assert!(batch("messages", 0).unwrap_err().reason.contains("none"));
        assert_eq!(batch("messages", 1), Ok(()));
        assert_eq!(batch("messages", 1_000), Ok(()));
        assert_eq!(batch("messages", 1_001).unwrap_err().reason, "expected at most 1000 items, but got 1001");
    }

    #[test]
    fn counts_have_defaults_and_limits() {
        assert_eq!(count("page_size", 0, 100, limits::PAGE), Ok(100));
        assert_eq!(count("page_size", 1_000, 100, limits::PAGE), Ok(1_000));
        assert_eq!(count("page_size", 1_001, 100, limits::PAGE).unwrap_err().field, "page_size");
    }

    #[test]
    fn page_tokens_read_back_and_others_are_refused() {
        let bytes = [0, 1, 0x7f, 0xff];
        assert_eq!(page_token(&bytes), "00017fff");
        assert_eq!(cursor("00017fff"), Ok(Bytes::copy_from_slice(&bytes)));
        assert_eq!(cursor(""), Ok(Bytes::new()));
        for wrong in ["0", "0g", "ä", "+1"] {
            assert_eq!(cursor(wrong).unwrap_err().field, "page_token", "{wrong}");
        }
        assert_eq!(name_cursor("").as_deref(), Ok(""));
        assert_eq!(name_cursor(&page_token(b"orders")).as_deref(), Ok("orders"));
        for wrong in ["ff", "20", "0"] {
            assert_eq!(name_cursor(wrong).unwrap_err().field, "page_token", "{wrong}");
        }
    }

    #[test]
    fn request_ids_start_at_1() {
        let id = |session, seq| v1::RequestId { session, seq, acked_below: 1, repeat: true, ..Default::default() };
        assert_eq!(request_id(None), Ok((None, false)));
        let good = RequestId { session: 7, seq: 1, acked_below: 1, ..Default::default() };
        assert_eq!(request_id(Some(id(7, 1))), Ok((Some(good), true)));
        assert_eq!(request_id(Some(id(0, 1))).unwrap_err().field, "request_id.session");
        assert_eq!(request_id(Some(id(7, 0))).unwrap_err().field, "request_id.seq");
    }

    #[test]
    fn a_request_without_a_session_has_16_bytes() {
        let with = |token: &'static [u8]| v1::RequestId { token: token.into(), repeat: true, ..Default::default() };
        let token = b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02";
        let good = RequestId { token_high: 1, token_low: 2, ..Default::default() };
        assert_eq!(request_id(Some(with(token))), Ok((Some(good), true)));
        for (wrong, got) in [(&token[..15], "15 bytes"), (&[0; 16][..], "zeros"), (&[1; 17][..], "17 bytes")] {
            let error = request_id(Some(with(wrong))).unwrap_err();
            assert_eq!(error.field, "request_id.token");
            assert!(error.reason.contains(got), "{}", error.reason);
        }
        let both = v1::RequestId { session: 7, seq: 1, ..with(token) };
        assert_eq!(request_id(Some(both)).unwrap_err().field, "request_id.token");
    }

    #[test]
    fn tokens_and_ids_that_are_none_are_refused() {
        assert_eq!(lease_token("t", Bytes::from_static(b"abc")).unwrap_err().field, "t");
        assert_eq!(message_id("1.2").unwrap_err().field, "message_id");
        assert!(message_id("1.17.m4.1043").is_ok());
    }
}
