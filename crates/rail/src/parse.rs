//! Values on the command line: durations, times, sizes, pairs, lease tokens.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

/// `90s`, `1h 30m`, `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("expected a duration such as 30s or 5m: {error}"))
}

/// An RFC 3339 time such as `2026-12-24T18:00:00Z`, or a date and time of this machine's zone.
pub(crate) fn time(text: &str) -> Result<SystemTime, String> {
    let wrong =
        || "expected a time such as 2026-12-24T18:00:00Z or 2026-12-24T18:00 (of this machine's zone)".to_owned();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time.into());
    }
    let local: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
    let zoned = local.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| wrong())?;
    Ok(zoned.timestamp().into())
}

/// `4096`, `64KiB`, `10MB`, `1GiB`: bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a size such as 4096, 64KiB or 10MB, but got {text:?}");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("expected key=value, but got {text:?}")),
    }
}

/// A lease token as `rail msg receive` printed it.
pub(crate) fn token(text: &str) -> Result<Bytes, String> {
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|error| format!("expected a lease token as `rail msg receive` printed it: {error}"))?;
    Ok(bytes.into())
}

/// A lease token in text.
pub(crate) fn token_text(token: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(token)
}

/// Any bytes in text.
pub(crate) fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        for bad in ["", "5", "5 parsecs", "-1s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(12 * 3_600);
        assert_eq!(time("1970-01-01T12:00:00Z"), Ok(noon));
        assert_eq!(time("1970-01-01T13:00:00+01:00"), Ok(noon));
        assert!(time("2026-12-24T18:00").is_ok());
        for bad in ["", "noon", "2026-13-01T00:00:00Z"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4_096));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("10MB"), Ok(10_000_000));
        for bad in ["", "KiB", "1.5M", "-1", "1XB", "99999999999GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("=b").is_err() && pair("ab").is_err());
    }

    #[test]
    fn tokens_read_back_as_printed() {
        let bytes: Vec<u8> = (0..37).map(|n| n * 7).collect();
        let text = token_text(&bytes);
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)), "{text}");
        assert_eq!(token(&text).as_deref(), Ok(&bytes[..]));
        assert!(token("not base64!").is_err());
    }
}
