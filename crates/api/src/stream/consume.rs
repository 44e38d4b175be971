//! `Consume`: receiving, settling and extending on one stream.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::OptionFuture;
use futures::stream::{FuturesUnordered, unfold};
use ticketrail_core::command::{Commit, Receive};
use ticketrail_core::limits;
use ticketrail_node::call::{CallError, Deliveries, ReceiveCall, Unavailable};
use ticketrail_proto::v1;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tonic::{Status, Streaming};
use v1::consume_response::Part;

use super::{CALL_TIMEOUT, Closing, Ending, Name, Outgoing, name};
use crate::call;
use crate::convert::{message, receive, settle};
use crate::queue::{QueueApi, each};
use crate::status::{FieldError, Refusal};

/// Receives of one stream at a time: while one is on its way through the log, the other one waits for what comes next.
const RECEIVES: usize = 2;
/// The pause after a receive that could not be made: an election takes about a second.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one receive waits; then the next one does.
const WAIT: Duration = Duration::from_millis(limits::WAIT_MAX_MS);

/// A receive on its way, and its outcome.
type Receiving = Pin<Box<dyn Future<Output = Received> + Send>>;

/// What became of a receive.
struct Received {
    /// The credits that it held.
    reserved: u32,
    /// The latest stamp when it was answered.
    stamp: u64,
    result: Result<Deliveries, CallError>,
}

/// A list of settlements or extensions on its way.
type Answering = Pin<Box<dyn Future<Output = Answered> + Send>>;

struct Answered {
    part: Part,
    ending: Option<Ending>,
}

/// A stream of deliveries.
struct Consuming {
    api: QueueApi,
    incoming: Streaming<v1::ConsumeRequest>,
    closing: Closing,
    /// What is received; `None` before the first request.
    started: Option<Receive>,
    /// Credits that no receive holds.
    credits: u32,
    /// Credits that receives hold.
    reserved: u32,
    receives: FuturesUnordered<Receiving>,
    pause: Option<Pin<Box<Sleep>>>,
    calls: FuturesUnordered<Answering>,
    stamp: Arc<AtomicU64>,
    drained: bool,
    ending: Option<Ending>,
    ended: bool,
}

/// Serves a stream of deliveries.
pub(crate) fn serve(
    api: QueueApi,
    incoming: Streaming<v1::ConsumeRequest>,
    closing: watch::Receiver<bool>,
) -> Outgoing<v1::ConsumeResponse> {
    let consuming = Consuming {
        api,
        incoming,
        closing: Closing(closing),
        started: None,
        credits: 0,
        reserved: 0,
        receives: FuturesUnordered::new(),
        pause: None,
        calls: FuturesUnordered::new(),
        stamp: Arc::default(),
        drained: false,
        ending: None,
        ended: false,
    };
    Box::pin(unfold(consuming, Consuming::next))
}

impl Consuming {
    async fn next(mut self) -> Option<(Result<v1::ConsumeResponse, Status>, Self)> {
        if self.ended {
            return None;
        }
        loop {
            if self.calls.is_empty()
                && let Some(ending) = self.ending.take()
            {
                self.ended = true;
                return match ending {
                    Ending::Over => None,
                    Ending::Failed(status) => Some((Err(*status), self)),
                };
            }
            self.receive();
            let reads = self.ending.is_none() && self.calls.len() < limits::STREAM_REQUESTS;
            tokio::select! {
                biased;
                Some(Answered { part, ending }) = self.calls.next(), if !self.calls.is_empty() => {
                    if let Some(ending) = ending {
                        self.end(ending);
                    }
                    return Some((Ok(v1::ConsumeResponse { part: Some(part) }), self));
                }
                Some(received) = self.receives.next(), if !self.receives.is_empty() => {
                    if let Some(part) = self.received(received) {
                        return Some((Ok(v1::ConsumeResponse { part: Some(part) }), self));
                    }
                }
                came = self.incoming.message(), if reads => match came {
                    Ok(Some(request)) => match self.take(request) {
                        Ok(true) => {
                            let part = Some(Part::Drained(v1::Drained {}));
                            return Some((Ok(v1::ConsumeResponse { part }), self));
                        }
                        Ok(false) => {}
                        Err(wrong) => self.end(Ending::failed(wrong)),
                    },
                    Ok(None) => self.end(Ending::Over),
                    Err(status) => self.end(Ending::failed(status)),
                },
                Some(()) = OptionFuture::from(self.pause.as_mut()), if self.pause.is_some() => self.pause = None,
                () = self.closing.closed(), if self.ending.is_none() => self.end(Ending::draining()),
            }
        }
    }

    /// Ends the stream, once all settlements are answered. What is leased and not sent is released.
    fn end(&mut self, ending: Ending) {
        self.drain();
        self.ending.get_or_insert(ending);
    }

    fn drain(&mut self) {
        self.drained = true;
        (self.credits, self.reserved) = (0, 0);
        self.receives.clear();
    }

    /// Receives as much as there are credits for.
    fn receive(&mut self) {
        let Some(started) = &self.started else { return };
        while self.credits > 0 && !self.drained && self.pause.is_none() && self.receives.len() < RECEIVES {
            // All of them: those that come back meanwhile are for the next receive.
            let reserved = self.credits.min(started.max);
            self.credits -= reserved;
            self.reserved += reserved;
            let receive = Receive { max: reserved, ..started.clone() };
            let (api, stamp) = (self.api.clone(), Arc::clone(&self.stamp));
            self.receives.push(Box::pin(async move {
                // Where this node cannot tell, the receive will say why.
                let auto_create =
                    api.waits_for_queues(&receive, CALL_TIMEOUT).await.unwrap_or(api.settings.auto_create);
                let call = ReceiveCall { receive, id: None, repeat: false, wait: WAIT, auto_create };
                let result = api.handle.receive(call).await;
                Received { reserved, stamp: stamp.load(Ordering::Relaxed), result }
            }));
        }
    }

    /// What is to be sent for a receive that has ended.
    fn received(&mut self, Received { reserved, stamp, result }: Received) -> Option<Part> {
        self.reserved -= reserved;
        let why = match result {
            Ok(Deliveries { deliveries, reply, origin, waited: _ }) => {
                let used = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
                self.credits += reserved.saturating_sub(used);
                if deliveries.is_empty() {
                    return None;
                }
                return Some(Part::Deliveries(v1::Deliveries {
                    deliveries: deliveries.into_iter().map(message::delivery).collect(),
                    commit: reply.map(|reply| call::commit(&reply, origin)),
                    stamp,
                }));
            }
            Err(why) => why,
        };
        self.credits += reserved;
        match why {
            // Another node may do better.
            CallError::Unavailable(Unavailable::Draining | Unavailable::NoQuorum) => {
                self.end(Ending::failed(Refusal::from(why)));
            }
            // There will be a leader, or room. What an unknown receive has leased comes back with its lease.
            CallError::Unavailable(Unavailable::NotLeader { .. })
            | CallError::Rejected(ticketrail_core::Rejection::NotInitialized(_))
            | CallError::DiskLow
            | CallError::Overloaded { .. }
            | CallError::Unknown => self.pause = Some(Box::pin(sleep(PAUSE))),
            CallError::Rejected(_) | CallError::Broken(_) => self.end(Ending::failed(Refusal::from(why))),
        }
        None
    }

    /// Takes a request in; whether it is to be answered with `drained`. Errors where it breaks the protocol.
    fn take(&mut self, request: v1::ConsumeRequest) -> Result<bool, FieldError> {
        let v1::ConsumeRequest { start, add_credits, settle, extend, drain, stamp } = request;
        match (start, &self.started) {
            (Some(start), None) => self.started = Some(receive::start(start)?),
            (None, Some(_)) => {}
            (Some(_), Some(_)) => {
                return Err(FieldError::new("start", "expected it in the first request alone, but it came again"));
            }
            (None, None) => {
                return Err(FieldError::new("start", "expected it in the first request, but it was not there"));
            }
        }
        if stamp != 0 {
            self.stamp.store(stamp, Ordering::Relaxed);
        }
        if !self.drained {
            let credits = u64::from(self.credits) + u64::from(self.reserved) + u64::from(add_credits);
            if credits > u64::from(limits::CREDITS) {
                let reason =
                    format!("expected at most {} unused credits, but there would be {credits}", limits::CREDITS);
                return Err(FieldError::new("add_credits", reason));
            }
            self.credits += add_credits;
        }
        if let Some(v1::SettleRequest { request_id, settlements }) = settle {
            let name = name(request_id)?;
            self.calls.push(match settle::settle(settlements) {
                Ok(command) => Box::pin(settled(self.api.clone(), name, command)),
                Err(wrong) => Box::pin(ready(not_settled(name, wrong.into()))),
            });
        }
        if let Some(v1::ExtendRequest { request_id, extensions }) = extend {
            let name = name(request_id)?;
            self.calls.push(match settle::extend(extensions) {
                Ok(command) => Box::pin(extended(self.api.clone(), name, command)),
                Err(wrong) => Box::pin(ready(not_extended(name, wrong.into()))),
            });
        }
        if drain {
            self.drain();
        }
        Ok(drain)
    }
}

async fn settled(api: QueueApi, name: Name, command: Commit) -> Answered {
    let asked = command.settle.len();
    let done = api.commit_as(command, name.id, name.repeat, CALL_TIMEOUT).await;
    let answer = done.and_then(|(commit, committed)| {
        let results = each(asked, &committed.settled, settle::settle_result)?;
        Ok(v1::SettleResponse { commit: Some(commit), results })
    });
    match answer {
        Ok(response) => {
            let outcome = Some(v1::settled::Outcome::Response(response));
            let part = Part::Settled(v1::Settled { session: name.session, seq: name.seq, outcome });
            Answered { part, ending: None }
        }
        Err(refusal) => not_settled(name, refusal),
    }
}

fn not_settled(name: Name, refusal: Refusal) -> Answered {
    let ending = Ending::after(&refusal);
    let outcome = Some(v1::settled::Outcome::Error(refusal.into_item()));
    Answered { part: Part::Settled(v1::Settled { session: name.session, seq: name.seq, outcome }), ending }
}

async fn extended(api: QueueApi, name: Name, command: Commit) -> Answered {
    let asked = command.settle.len();
    let done = api.commit_as(command, name.id, name.repeat, CALL_TIMEOUT).await;
    let answer = done.and_then(|(commit, committed)| {
        let results = each(asked, &committed.settled, settle::extend_result)?;
        Ok(v1::ExtendResponse { commit: Some(commit), results })
    });
    match answer {
        Ok(response) => {
            let outcome = Some(v1::leases_extended::Outcome::Response(response));
            let part = Part::Extended(v1::LeasesExtended { session: name.session, seq: name.seq, outcome });
            Answered { part, ending: None }
        }
        Err(refusal) => not_extended(name, refusal),
    }
}

fn not_extended(name: Name, refusal: Refusal) -> Answered {
    let ending = Ending::after(&refusal);
    let outcome = Some(v1::leases_extended::Outcome::Error(refusal.into_item()));
    Answered { part: Part::Extended(v1::LeasesExtended { session: name.session, seq: name.seq, outcome }), ending }
}
