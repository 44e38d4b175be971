//! Requests on a stream: each keeps its number until its outcome is known, over any number of connections.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ticketrail_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use crate::client::Inner;
use crate::error::Error;
use crate::retry::{self, Attempts, Ended, Next};
use crate::routes::{Route, elsewhere};
use crate::session::{Taken, Ticket};

/// Requests of one stream in flight: what comes while as many are unanswered gathers into the next one.
pub(crate) const IN_FLIGHT: usize = 8;
/// Requests handed to the transport and not yet taken by it.
const HANDED_OVER: usize = 2;
/// How often a new stream may find that another node leads.
const HOPS: usize = 3;

/// A stream that is open.
#[derive(Debug)]
pub(crate) struct Link<Req, Resp> {
    pub(crate) outgoing: mpsc::Sender<Req>,
    incoming: Streaming<Resp>,
    route: Route,
    /// When the server was last heard.
    pub(crate) heard: Instant,
}

impl<Req, Resp> Link<Req, Resp> {
    /// Opens a stream, at the leader if it is known. `first` is what it begins with.
    pub(crate) async fn open<Fut>(
        inner: &Inner,
        first: impl Fn() -> Option<Req>,
        call: impl Fn(Route, ReceiverStream<Req>) -> Fut,
    ) -> Result<Self, Ended>
    where
        Fut: Future<Output = Result<Response<Streaming<Resp>>, Status>>,
    {
        let mut hops = 0;
        loop {
            let route = inner.routes().route();
            let (outgoing, requests) = mpsc::channel(HANDED_OVER);
            if let Some(first) = first() {
                // There is room: it is the first.
                let _ = outgoing.try_send(first);
            }
            let calling = call(route.clone(), ReceiverStream::new(requests));
            let calling = inner.routes().attend(&route, Duration::ZERO, calling);
            let status = match tokio::time::timeout(inner.policy().attempt_timeout, calling).await {
                Ok(Ok(response)) => {
                    if inner.routes().answered(response.metadata()) && hops < HOPS {
                        hops += 1;
                        continue;
                    }
                    let incoming = response.into_inner();
                    return Ok(Self { outgoing, incoming, route, heard: retry::now() });
                }
                Ok(Err(status)) => status,
                Err(_) => Status::unavailable("the server did not open the stream in time"),
            };
            let ended = Ended::from_status(&status);
            inner.routes().failed(&route, &ended, status.metadata());
            return Err(ended);
        }
    }

    /// The next that the server says, or how the stream ended; then the next one may go elsewhere. A server that owes an
    /// answer is not waited for beyond an attempt's time, and none is once another one leads. Nothing is lost where it is
    /// dropped.
    pub(crate) async fn hear(&mut self, inner: &Inner, owes: bool) -> Result<Resp, Ended> {
        let owed_since = owes.then_some(self.heard);
        let status = tokio::select! {
            biased;
            came = self.incoming.message() => match came {
                Ok(Some(response)) => {
                    self.heard = retry::now();
                    return Ok(response);
                }
                Ok(None) => Status::unavailable("the server ended the stream"),
                Err(status) => status,
            },
            () = until(owed_since.map(|since| since + inner.policy().attempt_timeout)) => {
                Status::unavailable("the server did not answer in time")
            }
            () = inner.routes().left(&self.route, owed_since) => elsewhere(),
        };
        let ended = Ended::from_status(&status);
        inner.routes().failed(&self.route, &ended, status.metadata());
        Err(ended)
    }
}

/// One request, over its attempts.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    /// Its number; `None`: it gets one when it is sent.
    ticket: Option<Ticket>,
    attempts: Attempts,
    /// What is asked, and who waits for the answer.
    pub(crate) work: T,
}

impl<T> Asked<T> {
    /// The server says that its session is over.
    fn end_session(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.session().end();
        }
    }
}

/// The requests of one stream whose outcomes are not known.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    /// Sent and not answered, by session and number.
    sent: BTreeMap<(u64, u64), Asked<T>>,
    /// To be sent now.
    ready: VecDeque<Asked<T>>,
    /// To be sent when it is time.
    waiting: Vec<(Instant, Asked<T>)>,
}

/// A request that has failed for good.
pub(crate) type Failed<T> = (T, Error);

impl<T> Requests<T> {
    pub(crate) fn new() -> Self {
        Self { sent: BTreeMap::new(), ready: VecDeque::new(), waiting: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.ready.is_empty() && self.waiting.is_empty()
    }

    /// How many are sent and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// Whether one is to be sent now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A request to be made.
    pub(crate) fn add(&mut self, inner: &Inner, work: T) {
        let attempts = Attempts::begin(inner.policy(), true, Duration::ZERO);
        self.ready.push_back(Asked { ticket: None, attempts, work });
    }

    /// When the next of those that wait is to be sent.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Moves on what has waited long enough.
    pub(crate) fn wake(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = retry::now();
        for (at, asked) in std::mem::take(&mut self.waiting) {
            if at <= now {
                self.ready.push_back(asked);
            } else {
                self.waiting.push((at, asked));
            }
        }
    }

    /// Gives the next request its number and notes it as sent: what it is called, and what it asks. `Ok(None)`: there is
    /// none, or no number is free until something is answered. May wait for a session.
    pub(crate) async fn send(&mut self, inner: &Inner) -> Result<Option<(v1::RequestId, &T)>, Failed<T>> {
        let Some(mut asked) = self.ready.pop_front() else { return Ok(None) };
        let ticket = match asked.ticket.take() {
            Some(ticket) => ticket,
            None => match inner.sessions().take() {
                Taken::Ticket(ticket) => ticket,
                Taken::Wait if !self.sent.is_empty() => {
                    self.ready.push_front(asked);
                    return Ok(None);
                }
                Taken::Open | Taken::Wait => match inner.ticket(&mut asked.attempts).await {
                    Ok(ticket) => ticket,
                    Err(error) => return Err((asked.work, error)),
                },
            },
        };
        let id = ticket.id(asked.attempts.in_doubt());
        asked.ticket = Some(ticket);
        let name = (id.session, id.seq);
        self.sent.insert(name, asked);
        Ok(self.sent.get(&name).map(|asked| (id, &asked.work)))
    }

    /// Takes the request out that an answer names.
    pub(crate) fn answered(&mut self, session: u64, seq: u64) -> Option<Asked<T>> {
        self.sent.remove(&(session, seq))
    }

    /// An attempt has failed: it is made again in time, or gives up.
    pub(crate) fn again(&mut self, mut asked: Asked<T>, ended: Ended) -> Result<(), Failed<T>> {
        if ended.is_session_expired() {
            asked.end_session();
        }
        tracing::debug!(?ended, in_doubt = asked.attempts.in_doubt(), "attempt failed");
        match asked.attempts.after(ended) {
            Next::Again(pause) => self.waiting.push((retry::now() + pause, asked)),
            Next::NewSession => {
                asked.ticket = None;
                self.ready.push_back(asked);
            }
            Next::Stop(stop) => {
                let error = asked.attempts.error(stop);
                return Err((asked.work, error));
            }
        }
        Ok(())
    }

    /// Asks for what an answer has refused of a request, as a request of its own.
    pub(crate) fn anew(&mut self, mut asked: Asked<T>, work: T, ended: Ended) -> Result<(), Failed<T>> {
        asked.attempts.is_known();
        asked.ticket = None;
        asked.work = work;
        self.again(asked, ended)
    }

    /// A list was refused for what it says, which one item may be to blame for. Each half goes out by itself, and so on until
    /// that item is alone. Given back where that is not possible: it is one item, or an earlier attempt is in doubt.
    pub(crate) fn halve(&mut self, asked: Asked<T>, halves: impl FnOnce(T) -> Result<[T; 2], T>) -> Option<Asked<T>> {
        let Asked { ticket, attempts, work } = asked;
        if attempts.in_doubt() {
            return Some(Asked { ticket, attempts, work });
        }
        match halves(work) {
            Ok([first, second]) => {
                for work in [first, second] {
                    self.ready.push_back(Asked { ticket: None, attempts: attempts.clone(), work });
                }
                None
            }
            Err(work) => Some(Asked { ticket, attempts, work }),
        }
    }

    /// The stream has ended. What was sent is made again, or given up.
    ///
    /// In their old order, without a pause: the next stream has one before it.
    pub(crate) fn broken(&mut self, ended: &Ended) -> Vec<Failed<T>> {
        let later = std::mem::take(&mut self.ready);
        let mut failed = Vec::new();
        for mut asked in std::mem::take(&mut self.sent).into_values() {
            match asked.attempts.after(ended.clone()) {
                Next::Again(_) => {}
                Next::NewSession => {
                    asked.end_session();
                    asked.ticket = None;
                }
                Next::Stop(stop) => {
                    let error = asked.attempts.error(stop);
                    failed.push((asked.work, error));
                    continue;
                }
            }
            self.ready.push_back(asked);
        }
        self.ready.extend(later);
        failed
    }

    /// Gives up what is past its deadline, while there is no stream. `last` says why there is none.
    pub(crate) fn expire(&mut self, last: &str) -> Vec<Failed<T>> {
        let mut failed = Vec::new();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(at, asked)| (Some(at), asked));
        let ready = std::mem::take(&mut self.ready).into_iter().map(|asked| (None, asked));
        for (at, asked) in waiting.chain(ready).collect::<Vec<_>>() {
            match (asked.attempts.expired(last), at) {
                (Some(error), _) => failed.push((asked.work, error)),
                (None, Some(at)) => self.waiting.push((at, asked)),
                (None, None) => self.ready.push_back(asked),
            }
        }
        failed
    }

    /// Gives up everything.
    pub(crate) fn fail(&mut self, error: &Error) -> Vec<Failed<T>> {
        let sent = std::mem::take(&mut self.sent).into_values();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(_, asked)| asked);
        let ready = std::mem::take(&mut self.ready);
        sent.chain(waiting).chain(ready).map(|asked| (asked.work, error.clone())).collect()
    }
}

/// The halves of a list of more than one item.
pub(crate) fn halves<I>(mut list: Vec<I>) -> Result<[Vec<I>; 2], Vec<I>> {
    if list.len() < 2 {
        return Err(list);
    }
    let second = list.split_off(list.len() / 2);
    Ok([list, second])
}

/// Waits until the transport takes another request. False: it is gone, as `incoming` will say.
pub(crate) async fn has_room<Req>(outgoing: &mpsc::Sender<Req>) -> bool {
    outgoing.reserve().await.is_ok()
}

/// Waits until `at`; for ever without it.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
