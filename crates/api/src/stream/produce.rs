//! `Produce`: enqueues, many on one stream.

use std::future::ready;
use std::pin::Pin;

use futures::StreamExt as _;
use futures::stream::{FuturesUnordered, unfold};
use ticketrail_core::command::Commit;
use ticketrail_core::limits;
use ticketrail_core::reply::{Committed, EnqueueOutcome, EnqueueResult};
use ticketrail_proto::v1;
use tokio::sync::watch;
use tonic::{Status, Streaming};

use super::{CALL_TIMEOUT, Closing, Ending, Name, Outgoing, name};
use crate::convert::field::{self, timestamp_of_ms};
use crate::convert::message;
use crate::queue::{QueueApi, each};
use crate::status::{FieldError, Refusal};

/// One request's answer on its way.
type Answering = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// An answer, and what its request held of the stream's room.
struct Answered {
    response: v1::ProduceResponse,
    bytes: usize,
    ending: Option<Ending>,
}

/// A stream of enqueues.
struct Producing {
    api: QueueApi,
    incoming: Streaming<v1::ProduceRequest>,
    closing: Closing,
    namespace: String,
    queue: String,
    in_flight: FuturesUnordered<Answering>,
    bytes: usize,
    ending: Option<Ending>,
    ended: bool,
}

/// Serves a stream of enqueues.
pub(crate) fn serve(
    api: QueueApi,
    incoming: Streaming<v1::ProduceRequest>,
    closing: watch::Receiver<bool>,
) -> Outgoing<v1::ProduceResponse> {
    let producing = Producing {
        api,
        incoming,
        closing: Closing(closing),
        namespace: String::new(),
        queue: String::new(),
        in_flight: FuturesUnordered::new(),
        bytes: 0,
        ending: None,
        ended: false,
    };
    Box::pin(unfold(producing, Producing::next))
}

impl Producing {
    async fn next(mut self) -> Option<(Result<v1::ProduceResponse, Status>, Self)> {
        if self.ended {
            return None;
        }
        loop {
            if self.in_flight.is_empty()
                && let Some(ending) = self.ending.take()
            {
                self.ended = true;
                return match ending {
                    Ending::Over => None,
                    Ending::Failed(status) => Some((Err(*status), self)),
                };
            }
            let reads = self.ending.is_none()
                && self.in_flight.len() < limits::STREAM_REQUESTS
                && self.bytes < limits::STREAM_BYTES;
            tokio::select! {
                biased;
                Some(Answered { response, bytes, ending }) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.bytes -= bytes;
                    self.ending = self.ending.take().or(ending);
                    return Some((Ok(response), self));
                }
                came = self.incoming.message(), if reads => match came {
                    Ok(Some(request)) => {
                        if let Err(wrong) = self.take(request) {
                            self.ending = Some(Ending::failed(wrong));
                        }
                    }
                    Ok(None) => self.ending = Some(Ending::Over),
                    Err(status) => self.ending = Some(Ending::failed(status)),
                },
                () = self.closing.closed(), if self.ending.is_none() => self.ending = Some(Ending::draining()),
            }
        }
    }

    /// Takes a request in. Errors where it breaks the protocol.
    fn take(&mut self, request: v1::ProduceRequest) -> Result<(), FieldError> {
        let v1::ProduceRequest { request_id, namespace, queue, messages, all_or_nothing } = request;
        let name = name(request_id)?;
        if !namespace.is_empty() {
            self.namespace = field::namespace(namespace)?;
        }
        if !queue.is_empty() {
            self.queue = field::queue_name("queue", queue)?;
        }
        if self.queue.is_empty() {
            return Err(FieldError::new("queue", "expected the first request of a stream to name it, but got none"));
        }
        let command = message::enqueue(&self.api.settings, self.namespace.clone(), self.queue.clone(), messages);
        self.in_flight.push(match command {
            Ok(mut command) => {
                command.atomic = all_or_nothing;
                let sizes = command.enqueue.iter().filter_map(|part| part.message.as_ref()).map(|m| m.size());
                let bytes = usize::try_from(sizes.sum::<u64>()).unwrap_or(usize::MAX);
                self.bytes += bytes;
                Box::pin(enqueue(self.api.clone(), name, command, bytes))
            }
            Err(wrong) => Box::pin(ready(refused(name, wrong.into(), 0))),
        });
        Ok(())
    }
}

async fn enqueue(api: QueueApi, name: Name, command: Commit, bytes: usize) -> Answered {
    let asked = command.enqueue.len();
    let done = api.commit_as(command, name.id, name.repeat, CALL_TIMEOUT).await;
    let answer = done.and_then(|(commit, committed)| Ok((commit, outcome(asked, committed)?)));
    match answer {
        Ok((commit, outcome)) => Answered {
            response: v1::ProduceResponse {
                session: name.session,
                seq: name.seq,
                commit: Some(commit),
                outcome: Some(outcome),
            },
            bytes,
            ending: None,
        },
        Err(refusal) => refused(name, refusal, bytes),
    }
}

fn refused(name: Name, refusal: Refusal, bytes: usize) -> Answered {
    let ending = Ending::after(&refusal);
    let outcome = v1::produce_response::Outcome::Error(refusal.into_item());
    let response = v1::ProduceResponse { session: name.session, seq: name.seq, commit: None, outcome: Some(outcome) };
    Answered { response, bytes, ending }
}

/// The messages' results: in one where they stand one behind the other, else one by one.
fn outcome(asked: usize, committed: Committed) -> Result<v1::produce_response::Outcome, Refusal> {
    use v1::produce_response::Outcome;
    let results = committed.enqueued;
    Ok(match range(&results).filter(|range| range.count as usize == asked) {
        Some(range) => Outcome::Enqueued(range),
        None => Outcome::Results(v1::EnqueueResults { results: each(asked, &results, message::enqueue_result)? }),
    })
}

/// The results as one, where all messages stand one behind the other, with one priority, ready at the same time, and none is
/// a duplicate.
fn range(results: &[EnqueueResult]) -> Option<v1::EnqueuedRange> {
    let enqueued = |result: &EnqueueResult| match &result.outcome {
        Some(EnqueueOutcome::Enqueued(enqueued)) => Some(*enqueued),
        Some(EnqueueOutcome::Rejected(_)) | None => None,
    };
    let first = enqueued(results.first()?).filter(|first| !first.duplicate)?;
    for (result, n) in results.iter().zip(0..) {
        let mut expected = first;
        expected.place.sequence = first.place.sequence.checked_add(n)?;
        if enqueued(result)? != expected {
            return None;
        }
    }
    Some(v1::EnqueuedRange {
        first_message_id: first.place.message_id()?.to_string(),
        first_sequence: first.place.sequence,
        count: u32::try_from(results.len()).ok()?,
        available_at: Some(timestamp_of_ms(first.available_at_ms)),
    })
}

#[cfg(test)]
mod tests {
    use ticketrail_core::Rejection;
    use ticketrail_core::reply::{Enqueued, PlaceRecord, QueueNamed, RejectionRecord};

    use super::*;

    fn at(lane: u32, sequence: u64, available_at_ms: u64) -> EnqueueResult {
        let place = PlaceRecord { queue: 7, lane, sequence };
        let enqueued = Enqueued { place, available_at_ms, duplicate: false };
        EnqueueResult { outcome: Some(EnqueueOutcome::Enqueued(enqueued)) }
    }

    fn duplicate(sequence: u64) -> EnqueueResult {
        let place = PlaceRecord { queue: 7, lane: 4, sequence };
        let enqueued = Enqueued { place, available_at_ms: 1, duplicate: true };
        EnqueueResult { outcome: Some(EnqueueOutcome::Enqueued(enqueued)) }
    }

    #[test]
    fn messages_that_stand_one_behind_the_other_have_one_result() {
        let all = range(&[at(4, 10, 1_000), at(4, 11, 1_000), at(4, 12, 1_000)]).expect("a range");
        assert_eq!((all.first_message_id.as_str(), all.first_sequence, all.count), ("1.7.m4.10", 10, 3));
        assert_eq!(all.available_at, Some(prost_types::Timestamp { seconds: 1, nanos: 0 }));
    }

    #[test]
    fn others_have_one_each() {
        let closed = Rejection::QueueClosed(QueueNamed { namespace: "default".into(), name: "orders".into() });
        let no = EnqueueResult { outcome: Some(EnqueueOutcome::Rejected(RejectionRecord { rejection: Some(closed) })) };
        for others in [
            vec![],
            vec![at(4, 10, 1), no.clone()],
            vec![no, at(4, 10, 1)],
            vec![at(4, 10, 1), at(4, 12, 1)],
            vec![at(4, 10, 1), at(4, 11, 2)],
            vec![at(4, 10, 1), at(20, 11, 1)],
            vec![at(4, 10, 1), at(9, 11, 1)],
            vec![duplicate(10)],
            vec![duplicate(10), duplicate(11)],
            vec![at(4, 10, 1), duplicate(11)],
        ] {
            assert_eq!(range(&others), None, "{others:?}");
        }
        let Ok(v1::produce_response::Outcome::Results(each)) =
            outcome(2, Committed { enqueued: vec![at(4, 10, 1), at(4, 12, 1)], ..Default::default() })
        else {
            panic!("expected a result for each")
        };
        assert_eq!(each.results.len(), 2);
        assert!(outcome(3, Committed { enqueued: vec![at(4, 10, 1); 2], ..Default::default() }).is_err());
    }
}
