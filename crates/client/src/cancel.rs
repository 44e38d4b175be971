//! Before anybody receives it: messages cancelled, or made ready at another time.

use std::time::{Duration, SystemTime};

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;

use crate::call::{Attempt, service};
use crate::position::{Batch, Position};
use crate::settle::{no_outcome, only};
use crate::{Client, Error, Refusal, wire};

/// Which message: a message id becomes one by itself, [`Queue::dedup`](crate::Queue::dedup) makes one of a dedup id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// The one with this id, wherever it is now.
    Id(String),
    /// The one that its queue remembers under a dedup id, wherever it is now.
    Dedup {
        /// The queue that it was sent to.
        queue: String,
        /// Its dedup id.
        dedup_id: String,
    },
}

impl Target {
    pub(crate) fn into_wire(self) -> v1::Target {
        use v1::target::Which;
        let which = match self {
            Target::Id(id) => Which::MessageId(id),
            Target::Dedup { queue, dedup_id } => Which::Dedup(v1::DedupKey { queue, dedup_id }),
        };
        v1::Target { which: Some(which) }
    }
}

impl From<String> for Target {
    fn from(id: String) -> Self {
        Target::Id(id)
    }
}

impl From<&str> for Target {
    fn from(id: &str) -> Self {
        Target::Id(id.to_owned())
    }
}

impl From<&String> for Target {
    fn from(id: &String) -> Self {
        Target::Id(id.clone())
    }
}

/// When a message is to be ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// So long from now, at most 366 days.
    After(Duration),
    /// At this time, at most 366 days ahead; a past time is now.
    At(SystemTime),
}

/// A reschedule for the wire.
pub(crate) fn new_time(target: Target, when: When) -> v1::NewTime {
    use v1::new_time::Available;
    let available = match when {
        When::Now => None,
        When::After(delay) => Some(Available::Delay(wire::to_duration(delay))),
        When::At(at) => Some(Available::DeliverAt(at.into())),
    };
    v1::NewTime { target: Some(target.into_wire()), available }
}

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// The message is gone, and its dedup id free.
    Cancelled {
        /// Its id, also where it was named by its dedup id.
        message_id: String,
    },
    /// There was none: cancelled before, finished, or never sent. Nothing happened.
    Gone,
}

impl Cancelled {
    /// The outcome's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Cancelled::Cancelled { .. } => "cancelled",
            Cancelled::Gone => "gone",
        }
    }

    pub(crate) fn from_wire(result: v1::CancelResult) -> Result<Result<Self, Refusal>, Error> {
        use v1::cancel_result::Outcome;
        match result.outcome {
            Some(Outcome::Cancelled(v1::Cancelled { message_id })) => Ok(Ok(Cancelled::Cancelled { message_id })),
            Some(Outcome::Gone(v1::Gone {})) => Ok(Ok(Cancelled::Gone)),
            Some(Outcome::Error(error)) => Ok(Err(Refusal::from_item(error))),
            None => Err(no_outcome()),
        }
    }
}

/// A message with a new time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescheduled {
    /// Its id, also where it was named by its dedup id.
    pub message_id: String,
    /// When it is ready, on cluster time; where it waits behind an earlier one of its group: not before then.
    pub available_at: SystemTime,
}

impl Rescheduled {
    pub(crate) fn from_wire(result: v1::RescheduleResult) -> Result<Result<Self, Refusal>, Error> {
        use v1::reschedule_result::Outcome;
        match result.outcome {
            Some(Outcome::Rescheduled(v1::Rescheduled { message_id, available_at })) => {
                Ok(Ok(Rescheduled { message_id, available_at: wire::some_time(available_at) }))
            }
            Some(Outcome::Error(error)) => Ok(Err(Refusal::from_item(error))),
            None => Err(no_outcome()),
        }
    }
}

impl Client {
    /// Takes a message away before anybody receives it, by its id or its dedup id. A repeat is harmless: it finds the
    /// message [`Gone`](Cancelled::Gone).
    ///
    /// ```no_run
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let orders = client.queue("orders");
    /// let sent = orders.send("one table for two").await?;
    /// client.cancel(sent.message_id).await?;
    /// client.cancel(orders.dedup("order-17")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Reason::TooLate`](crate::Reason::TooLate) where it is with a receiver or, named by its dedup id, has finished; as
    /// every change: see [`Error`].
    pub async fn cancel(&self, target: impl Into<Target>) -> Result<Cancelled, Error> {
        let targets = vec![target.into().into_wire()];
        cancel(self, targets, |response| Cancelled::from_wire(only(response.results)?)).await
    }

    /// Takes up to 1,000 messages away, in one call. Each has its own result.
    ///
    /// # Errors
    /// As every change: see [`Error`]. A message that is with a receiver is an item's refusal, not the call's.
    pub async fn cancel_batch<T: Into<Target>>(
        &self,
        targets: impl IntoIterator<Item = T>,
    ) -> Result<Batch<Cancelled>, Error> {
        let targets: Vec<_> = targets.into_iter().map(|target| target.into().into_wire()).collect();
        let count = targets.len();
        let read = |response: v1::CancelResponse| {
            batch(count, response.results, response.commit, Cancelled::from_wire).map(Ok)
        };
        cancel(self, targets, read).await
    }

    /// Makes a message ready at another time, by its id or its dedup id. Its time to live is not moved with it.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ticketrail_client::When;
    /// # async fn example(client: ticketrail_client::Client) -> Result<(), ticketrail_client::Error> {
    /// let reminder = client.queue("mail").dedup("reminder-17");
    /// client.reschedule(reminder, When::After(Duration::from_secs(3_600))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Reason::TooLate`](crate::Reason::TooLate) as in [`Client::cancel`];
    /// [`Reason::MessageNotFound`](crate::Reason::MessageNotFound) where there is none;
    /// [`Reason::Invalid`](crate::Reason::Invalid) where it would have expired by then.
    pub async fn reschedule(&self, target: impl Into<Target>, when: When) -> Result<Rescheduled, Error> {
        let messages = vec![new_time(target.into(), when)];
        reschedule(self, messages, |response| Rescheduled::from_wire(only(response.results)?)).await
    }

    /// Makes up to 1,000 messages ready at another time, in one call. Each has its own result.
    ///
    /// # Errors
    /// As every change: see [`Error`].
    pub async fn reschedule_batch(
        &self,
        messages: impl IntoIterator<Item = (Target, When)>,
    ) -> Result<Batch<Rescheduled>, Error> {
        let messages: Vec<_> = messages.into_iter().map(|(target, when)| new_time(target, when)).collect();
        let count = messages.len();
        let read = |response: v1::RescheduleResponse| {
            batch(count, response.results, response.commit, Rescheduled::from_wire).map(Ok)
        };
        reschedule(self, messages, read).await
    }
}

async fn cancel<T>(
    client: &Client,
    targets: Vec<v1::Target>,
    read: impl Fn(v1::CancelResponse) -> Result<Result<T, Refusal>, Error>,
) -> Result<T, Error> {
    let make = |attempt: Attempt| v1::CancelRequest {
        request_id: Some(attempt.id),
        namespace: client.namespace().to_owned(),
        targets: targets.clone(),
    };
    let send = async |channel, request| service!(QueueServiceClient, channel).cancel(request).await;
    client.changing().change(Duration::ZERO, make, send, read).await
}

async fn reschedule<T>(
    client: &Client,
    messages: Vec<v1::NewTime>,
    read: impl Fn(v1::RescheduleResponse) -> Result<Result<T, Refusal>, Error>,
) -> Result<T, Error> {
    let make = |attempt: Attempt| v1::RescheduleRequest {
        request_id: Some(attempt.id),
        namespace: client.namespace().to_owned(),
        messages: messages.clone(),
    };
    let send = async |channel, request| service!(QueueServiceClient, channel).reschedule(request).await;
    client.changing().change(Duration::ZERO, make, send, read).await
}

/// The results of a list; there must be as many as were asked for.
pub(crate) fn batch<R, T>(
    count: usize,
    results: Vec<R>,
    commit: Option<v1::Commit>,
    read: impl Fn(R) -> Result<Result<T, Refusal>, Error>,
) -> Result<Batch<T>, Error> {
    if results.len() != count {
        let found = format!("{} for {count}", results.len());
        return Err(Error::Protocol { expected: "a result for each item", found });
    }
    let results = results.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(Batch { results, position: Position::from_wire(commit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_id_or_a_dedup_id() {
        use v1::target::Which;
        assert_eq!(Target::from("1.17.m4.3").into_wire().which, Some(Which::MessageId("1.17.m4.3".to_owned())));
        let dedup = Target::Dedup { queue: "orders".to_owned(), dedup_id: "o-1".to_owned() };
        let key = v1::DedupKey { queue: "orders".to_owned(), dedup_id: "o-1".to_owned() };
        assert_eq!(dedup.into_wire().which, Some(Which::Dedup(key)));
    }

    #[test]
    fn a_time_is_now_or_later_or_a_point() {
        use v1::new_time::Available;
        let wire = |when| new_time("m".into(), when).available;
        assert_eq!(wire(When::Now), None);
        let delay = prost_types::Duration { seconds: 7, nanos: 0 };
        assert_eq!(wire(When::After(Duration::from_secs(7))), Some(Available::Delay(delay)));
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        assert_eq!(wire(When::At(at)), Some(Available::DeliverAt(at.into())));
    }

    #[test]
    fn results_are_as_many_as_were_asked_for() {
        let gone = || v1::CancelResult { outcome: Some(v1::cancel_result::Outcome::Gone(v1::Gone {})) };
        let both = batch(2, vec![gone(), gone()], None, Cancelled::from_wire).expect("two");
        assert_eq!(both.results, [Ok(Cancelled::Gone), Ok(Cancelled::Gone)]);
        let error = batch(2, vec![gone()], None, Cancelled::from_wire).expect_err("one is missing");
        assert!(error.to_string().contains("1 for 2"), "{error}");
        let none = batch(1, vec![v1::CancelResult { outcome: None }], None, Cancelled::from_wire);
        assert!(matches!(none, Err(Error::Protocol { .. })));
    }
}
