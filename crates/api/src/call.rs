//! What every verb shares: how long a call may take, its request id, how fresh a read is.

use std::future::Future;
use std::time::Duration;

use ticketrail_core::query::Clock;
use ticketrail_core::{Answer, Answered, Command, Query, Reply};
use ticketrail_node::Handle;
use ticketrail_node::call::{Call, CallError, Done, Freshness, Origin};
use ticketrail_proto::v1;
use tonic::metadata::MetadataMap;

use crate::convert::field::{self, timestamp_of_ms};
use crate::status::{FieldError, Refusal};

/// How long a call may take that has no `grpc-timeout`.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long any call may take: longer than the longest wait of a receive.
const TIMEOUT_MAX: Duration = Duration::from_secs(90);
/// The answer must be on its way before the client gives up: this much of the time is left for it.
const TIMEOUT_RESERVE: Duration = Duration::from_millis(50);

/// How long the node may take: the client's `grpc-timeout` less what the answer needs to travel. Past the whole of it
/// the transport answers, with a bare CANCELLED that says nothing.
pub(crate) fn timeout(metadata: &MetadataMap) -> Duration {
    deadline(metadata).unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX)
}

/// The client's `grpc-timeout` less what the answer needs to travel; `None` where it gave none.
pub(crate) fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let timeout = parse_timeout(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    Some(timeout.saturating_sub(TIMEOUT_RESERVE.min(timeout / 4)))
}

/// How long a receive may wait within `deadline`, so that an empty answer still gets home.
pub(crate) fn wait_within(deadline: Duration) -> Duration {
    deadline.saturating_sub(TIMEOUT_RESERVE.min(deadline / 4))
}

/// Reads a `grpc-timeout` such as `200m` or `5S`: at most eight digits and a unit, as [gRPC over HTTP/2] has it. `None`
/// for any other text.
///
/// [gRPC over HTTP/2]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Puts a command through the log.
pub(crate) async fn propose(
    handle: &Handle,
    command: Command,
    request_id: Option<v1::RequestId>,
    timeout: Duration,
) -> Result<Changed, Refusal> {
    let (id, repeat) = field::request_id(request_id)?;
    put(handle, Call { command, id, repeat, timeout }).await
}

/// The same, under an id that has been read already.
pub(crate) async fn put(handle: &Handle, call: Call) -> Result<Changed, Refusal> {
    let Done { reply, origin } = handle.call(call).await?;
    let Some(answered) = reply.answered.clone() else { return Err(Refusal::mismatch("an answer to a change")) };
    Ok(Changed { commit: commit(&reply, origin), answered })
}

/// A change: where it stands in the log, and its answer.
pub(crate) struct Changed {
    pub(crate) commit: v1::Commit,
    pub(crate) answered: Answered,
}

/// Where a change stands in the log, for the wire.
pub(crate) fn commit(reply: &Reply, origin: Origin) -> v1::Commit {
    v1::Commit {
        index: reply.index,
        ordinal: reply.ordinal,
        cluster_time: Some(timestamp_of_ms(reply.at_ms)),
        node: origin.node,
        term: origin.term,
        replayed: reply.replayed,
    }
}

/// Who answered, for the wire.
pub(crate) fn origin(origin: Origin) -> v1::Origin {
    v1::Origin { node: origin.node, term: origin.term }
}

/// How fresh a read is to be.
pub(crate) fn freshness(stale_ok: bool) -> Freshness {
    if stale_ok { Freshness::StaleOk } else { Freshness::Linearizable }
}

/// Asks the node.
pub(crate) async fn ask(
    handle: &Handle,
    query: Query,
    freshness: Freshness,
    timeout: Duration,
) -> Result<(Answer, Origin), Refusal> {
    within(timeout, handle.query(query, freshness)).await
}

async fn within<T>(timeout: Duration, read: impl Future<Output = Result<T, CallError>>) -> Result<T, Refusal> {
    match tokio::time::timeout(timeout, read).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Refusal::read_timeout(timeout)),
    }
}

/// Where the clocks stand on this node, to tell ages by.
pub(crate) async fn clock(handle: &Handle, timeout: Duration) -> Result<Clock, Refusal> {
    let (answer, _) = ask(handle, Query::Clock, Freshness::StaleOk, timeout).await?;
    let Answer::Clock(clock) = answer else { return Err(Refusal::mismatch("the clocks")) };
    Ok(clock)
}

/// Whether a name without a queue waits for one in a namespace: only where an enqueue would make it.
pub(crate) async fn makes_queues(handle: &Handle, namespace: &str, timeout: Duration) -> Result<bool, Refusal> {
    let query = Query::Namespace(namespace.to_owned());
    let (answer, _) = ask(handle, query, Freshness::StaleOk, timeout).await?;
    let Answer::Namespaces(found) = answer else { return Err(Refusal::mismatch("a namespace")) };
    Ok(found.first().is_none_or(|info| info.auto_create))
}

/// Refuses a limit of a page.
pub(crate) fn page_size(value: u32) -> Result<usize, FieldError> {
    let size = field::count("page_size", value, 100, ticketrail_core::limits::PAGE)?;
    Ok(usize::try_from(size).unwrap_or(ticketrail_core::limits::PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(timeout: &'static str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", tonic::metadata::MetadataValue::from_static(timeout));
        metadata
    }

    #[test]
    fn the_clients_deadline_is_kept_with_a_reserve_for_the_answer() {
        assert_eq!(timeout(&MetadataMap::new()), TIMEOUT_DEFAULT);
        assert_eq!(timeout(&with("5S")), Duration::from_millis(4_950));
        assert_eq!(timeout(&with("100m")), Duration::from_millis(75));
        assert_eq!(timeout(&with("1H")), TIMEOUT_MAX);
        assert_eq!(timeout(&with("99999999H")), TIMEOUT_MAX);
        assert_eq!(deadline(&with("2000000u")), Some(Duration::from_millis(1_950)));
        assert_eq!(deadline(&MetadataMap::new()), None);
        assert_eq!(wait_within(Duration::from_millis(1_950)), Duration::from_millis(1_900));
        assert_eq!(wait_within(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn other_texts_are_no_timeouts() {
        for wrong in ["", "S", "5", "5s", "-5S", "123456789S", "5 S", "+5S"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_read_that_never_ends_is_a_timeout() {
        let read = std::future::pending::<Result<(), CallError>>();
        let refusal = within(Duration::from_millis(1), read).await.unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (tonic::Code::DeadlineExceeded, "TIMEOUT"));
    }
}
