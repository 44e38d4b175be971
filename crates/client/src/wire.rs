//! Times between the wire and the standard library.

use std::time::{Duration, SystemTime};

/// A duration for the wire; beyond what the wire can hold it is cut to the longest.
pub(crate) fn to_duration(d: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(d).unwrap_or(prost_types::Duration { seconds: 315_576_000_000, nanos: 0 })
}

/// A duration from the wire; `None` where it is negative.
pub(crate) fn duration(d: prost_types::Duration) -> Option<Duration> {
    Duration::try_from(d).ok()
}

/// A time from the wire; the epoch where it cannot be represented.
pub(crate) fn time(t: prost_types::Timestamp) -> SystemTime {
    SystemTime::try_from(t).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time that may be absent.
pub(crate) fn maybe_time(t: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    t.map(time)
}

/// A time that must be there; the epoch where it is not.
pub(crate) fn some_time(t: Option<prost_types::Timestamp>) -> SystemTime {
    t.map_or(SystemTime::UNIX_EPOCH, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_wire() {
        let d = Duration::new(3, 7);
        assert_eq!(duration(to_duration(d)), Some(d));
        assert_eq!(duration(prost_types::Duration { seconds: -1, nanos: 0 }), None);
        let t = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567);
        assert_eq!(time(t.into()), t);
        assert!(duration(to_duration(Duration::MAX)).is_some());
    }
}
