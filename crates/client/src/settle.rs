//! Settling: what became of deliveries.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use ticketrail_proto::v1::settlement::Verdict;

use crate::call::{Attempt, service};
use crate::position::{Batch, Position};
use crate::{Client, Delivery, Error, Refusal, retry, wire};

/// A settlement with more than this to say goes out alone, in bytes: code and text of a failure would be far more than the
/// server takes, and outputs should not pile up in one request.
const LONG: usize = 16 << 10;

/// What became of one delivery, for [`Client::settle`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    wire: v1::Settlement,
}

impl Settlement {
    fn new(token: Bytes, verdict: Verdict) -> Self {
        Self { wire: v1::Settlement { lease_token: token, verdict: Some(verdict) } }
    }

    /// Whether it is so long that it should not go out with others: the server may refuse it, or the transport.
    pub(crate) fn is_long(&self) -> bool {
        said(&self.wire) > LONG
    }

    pub(crate) fn into_wire(self) -> v1::Settlement {
        self.wire
    }

    /// Done: the message is deleted for good.
    pub fn ack(delivery: &Delivery) -> Self {
        Self::ack_token(delivery.token.clone())
    }

    /// As [`Settlement::ack`], by the token alone.
    pub fn ack_token(token: Bytes) -> Self {
        Self::ack_token_with(token, Bytes::new())
    }

    /// Done, and `output` is what came of it, at most 64 KiB; kept for a while where the queue retains outcomes.
    pub fn ack_with(delivery: &Delivery, output: impl Into<Bytes>) -> Self {
        Self::ack_token_with(delivery.token.clone(), output)
    }

    /// As [`Settlement::ack_with`], by the token alone.
    pub fn ack_token_with(token: Bytes, output: impl Into<Bytes>) -> Self {
        Self::new(token, Verdict::Ack(v1::Ack { output: output.into() }))
    }

    /// Failed, worth another attempt; `delay` takes the place of the queue's backoff. Code at most 256 bytes, text 512.
    pub fn retry(
        delivery: &Delivery,
        code: impl Into<String>,
        text: impl Into<String>,
        delay: Option<Duration>,
    ) -> Self {
        Self::retry_token(delivery.token.clone(), code, text, delay)
    }

    /// As [`Settlement::retry`], by the token alone.
    pub fn retry_token(
        token: Bytes,
        code: impl Into<String>,
        text: impl Into<String>,
        delay: Option<Duration>,
    ) -> Self {
        let delay = delay.map(wire::to_duration);
        Self::new(token, Verdict::Retry(v1::Retry { code: code.into(), text: text.into(), delay }))
    }

    /// Failed for good: dead-lettered at once. Code at most 256 bytes, text 512.
    pub fn reject(delivery: &Delivery, code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::reject_token(delivery.token.clone(), code, text)
    }

    /// As [`Settlement::reject`], by the token alone.
    pub fn reject_token(token: Bytes, code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(token, Verdict::Reject(v1::Reject { code: code.into(), text: text.into() }))
    }

    /// Given back unfinished: ready at once, nothing is counted.
    pub fn release(delivery: &Delivery) -> Self {
        Self::release_token(delivery.token.clone())
    }

    /// As [`Settlement::release`], by the token alone.
    pub fn release_token(token: Bytes) -> Self {
        Self::new(token, Verdict::Release(v1::Release {}))
    }

    /// As a part of a commit.
    pub(crate) fn into_part(self) -> v1::SettlePart {
        use v1::settle_part::Verdict as Part;
        let v1::Settlement { lease_token, verdict } = self.wire;
        let verdict = verdict.map(|verdict| match verdict {
            Verdict::Ack(ack) => Part::Ack(ack),
            Verdict::Retry(retry) => Part::Retry(retry),
            Verdict::Reject(reject) => Part::Reject(reject),
            Verdict::Release(release) => Part::Release(release),
        });
        v1::SettlePart { lease_token, verdict }
    }
}

/// How much a settlement has to say beside its token, in bytes.
pub(crate) fn said(settlement: &v1::Settlement) -> usize {
    match &settlement.verdict {
        Some(Verdict::Retry(v1::Retry { code, text, .. }) | Verdict::Reject(v1::Reject { code, text })) => {
            code.len() + text.len()
        }
        Some(Verdict::Ack(v1::Ack { output })) => output.len(),
        Some(Verdict::Release(_)) | None => 0,
    }
}

/// What became of one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Finished and deleted.
    Acked(Position),
    /// In a dead-letter queue, under its old id.
    DeadLettered(Position),
    /// Waiting for its next attempt.
    Delayed {
        /// When that is, on cluster time.
        due_at: SystemTime,
        /// Where in the log.
        position: Position,
    },
    /// Ready again.
    Readied(Position),
    /// The queue was purged while it was leased: the message is gone.
    Purged(Position),
    /// Its time to live was over: the message is gone, or dead-lettered where its queue says so. An ack is never this.
    Expired(Position),
    /// Its attempts were used up, and its queue drops such messages: it is gone.
    Dropped(Position),
}

impl Settled {
    /// Where in the log it took effect.
    pub fn position(&self) -> &Position {
        match self {
            Settled::Acked(position)
            | Settled::DeadLettered(position)
            | Settled::Delayed { position, .. }
            | Settled::Readied(position)
            | Settled::Purged(position)
            | Settled::Expired(position)
            | Settled::Dropped(position) => position,
        }
    }

    /// The outcome's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Settled::Acked(_) => "acked",
            Settled::DeadLettered(_) => "dead_lettered",
            Settled::Delayed { .. } => "delayed",
            Settled::Readied(_) => "ready",
            Settled::Purged(_) => "purged",
            Settled::Expired(_) => "expired",
            Settled::Dropped(_) => "dropped",
        }
    }
}

pub(crate) async fn settle(client: &Client, settlements: Vec<Settlement>) -> Result<Batch<Settled>, Error> {
    let count = settlements.len();
    send(client, settlements, |response| {
        let position = Position::from_wire(response.commit);
        if response.results.len() != count {
            let found = format!("{} for {count} settlements", response.results.len());
            return Err(Error::Protocol { expected: "a result for each settlement", found });
        }
        let results = response.results.into_iter().map(|result| item(result, position)).collect::<Result<_, _>>()?;
        Ok(Ok(Batch { results, position }))
    })
    .await
}

pub(crate) async fn settle_one(client: &Client, settlement: Settlement) -> Result<Settled, Error> {
    send(client, vec![settlement], |response| {
        let position = Position::from_wire(response.commit);
        item(only(response.results)?, position)
    })
    .await
}

async fn send<T>(
    client: &Client,
    settlements: Vec<Settlement>,
    read: impl Fn(v1::SettleResponse) -> Result<Result<T, Refusal>, Error>,
) -> Result<T, Error> {
    let settlements: Vec<_> = settlements.into_iter().map(|settlement| settlement.wire).collect();
    let make = |attempt: Attempt| v1::SettleRequest { request_id: Some(attempt.id), settlements: settlements.clone() };
    let send = async |channel, request| service!(QueueServiceClient, channel).settle(request).await;
    client.changing().change(Duration::ZERO, make, send, read).await
}

pub(crate) fn item(result: v1::SettleResult, position: Position) -> Result<Result<Settled, Refusal>, Error> {
    use v1::settle_result::Outcome;
    Ok(Ok(match result.outcome {
        Some(Outcome::Acked(v1::Acked {})) => Settled::Acked(position),
        Some(Outcome::DeadLettered(_)) => Settled::DeadLettered(position),
        Some(Outcome::Delayed(delayed)) => Settled::Delayed { due_at: wire::some_time(delayed.due_at), position },
        Some(Outcome::Readied(v1::Readied {})) => Settled::Readied(position),
        Some(Outcome::Purged(v1::Purged {})) => Settled::Purged(position),
        Some(Outcome::Expired(v1::Expired {})) => Settled::Expired(position),
        Some(Outcome::Dropped(v1::Dropped {})) => Settled::Dropped(position),
        Some(Outcome::Error(error)) => return Ok(Err(Refusal::from_item(error))),
        None => return Err(no_outcome()),
    }))
}

/// Extends one lease: when the extension was sent, and what was left of the lease then.
pub(crate) async fn extend(
    client: &Client,
    token: Bytes,
    lease: Option<Duration>,
) -> Result<(Instant, Duration), Error> {
    let extension = v1::Extension { lease_token: token, lease: lease.map(wire::to_duration) };
    let make =
        |attempt: Attempt| v1::ExtendRequest { request_id: Some(attempt.id), extensions: vec![extension.clone()] };
    // A replayed extension tells what was left when it took effect: count it from the first attempt.
    let sent_at = retry::now();
    let send = async |channel, request| service!(QueueServiceClient, channel).extend(request).await;
    let read = |response: v1::ExtendResponse| extension_result(only(response.results)?);
    let remaining = client.changing().change(Duration::ZERO, make, send, read).await?;
    Ok((sent_at, remaining))
}

/// What is left of an extended lease.
pub(crate) fn extension_result(result: v1::ExtendResult) -> Result<Result<Duration, Refusal>, Error> {
    use v1::extend_result::Outcome;
    match result.outcome {
        Some(Outcome::Extended(extended)) => {
            Ok(Ok(extended.lease_remaining.and_then(wire::duration).unwrap_or_default()))
        }
        Some(Outcome::Error(error)) => Ok(Err(Refusal::from_item(error))),
        None => Err(no_outcome()),
    }
}

impl Client {
    /// Gives the lease of a token more time, as [`Delivery::extend`]. Returns what is left.
    ///
    /// # Errors
    /// As [`Delivery::ack`].
    pub async fn extend_token(&self, token: Bytes, lease: Option<Duration>) -> Result<Duration, Error> {
        let (_, remaining) = extend(self, token, lease).await?;
        Ok(remaining)
    }
}

pub(crate) fn only<T>(results: Vec<T>) -> Result<T, Error> {
    let count = results.len();
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(result), None) => Ok(result),
        (Some(_), Some(_)) | (None, _) => Err(Error::Protocol { expected: "one result", found: format!("{count}") }),
    }
}

pub(crate) fn no_outcome() -> Error {
    Error::Protocol { expected: "an outcome", found: "none, or one of a newer server".to_owned() }
}
