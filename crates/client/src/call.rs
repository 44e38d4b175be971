//! One call over its attempts: numbers, repeats, deadlines.

use std::future::Future;
use std::time::Duration;

use ticketrail_proto::v1;
use ticketrail_proto::v1::queue_service_client::QueueServiceClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::client::Inner;
use crate::error::{Error, Refusal};
use crate::retry::{Attempts, Ended, Next};
use crate::session::{Taken, Ticket};

/// The largest request and reply, as the server has it.
pub(crate) const MESSAGE_BYTES: usize = 16 << 20;

/// A client of a generated service over `channel`, with the server's limits.
macro_rules! service {
    ($client:ident, $channel:expr) => {
        $client::new($channel)
            .max_decoding_message_size($crate::call::MESSAGE_BYTES)
            .max_encoding_message_size($crate::call::MESSAGE_BYTES)
    };
}
pub(crate) use service;

/// What a change says about an attempt: the request for it.
pub(crate) struct Attempt {
    /// The request's id.
    pub(crate) id: v1::RequestId,
    /// What is left of a long poll's wait.
    pub(crate) wait_left: Duration,
}

impl Inner {
    /// Makes a change: under a request id, repeated until its outcome is known or the deadline is past.
    ///
    /// `read` takes the answer apart. Where it finds the call's only item refused, that refusal is treated as the whole
    /// call's.
    pub(crate) async fn change<Req, Resp, T, Fut>(
        &self,
        wait: Duration,
        make: impl Fn(Attempt) -> Req,
        send: impl Fn(Channel, Request<Req>) -> Fut,
        read: impl Fn(Resp) -> Result<Result<T, Refusal>, Error>,
    ) -> Result<T, Error>
    where
        Fut: Future<Output = Result<Response<Resp>, Status>>,
    {
        let mut attempts = Attempts::begin(self.policy(), true, wait);
        let mut ticket = self.ticket(&mut attempts).await?;
        loop {
            let id = ticket.id(attempts.in_doubt());
            let wait_left = attempts.wait_left();
            let mut request = Request::new(make(Attempt { id, wait_left }));
            request.set_timeout(attempts.attempt_timeout());
            let route = self.routes().route();
            let attempt = send(route.channel.clone(), request);
            let (ended, answered) = match self.routes().attend(&route, wait_left, attempt).await {
                Ok(response) => {
                    self.routes().answered(response.metadata());
                    match read(response.into_inner())? {
                        Ok(answer) => return Ok(answer),
                        Err(refusal) => (Ended::Refused(refusal), true),
                    }
                }
                Err(status) => {
                    let ended = Ended::from_status(&status);
                    self.routes().failed(&route, &ended, status.metadata());
                    (ended, false)
                }
            };
            tracing::debug!(?ended, in_doubt = attempts.in_doubt(), "attempt failed");
            if ended.is_session_expired() {
                ticket.session().end();
            }
            match attempts.after(ended) {
                Next::Again(pause) => {
                    tokio::time::sleep(pause).await;
                    // A refusal that was an answer may be kept under its number; nothing is in doubt, so take a new one.
                    if answered && !attempts.in_doubt() {
                        ticket = self.ticket(&mut attempts).await?;
                    }
                }
                Next::NewSession => ticket = self.ticket(&mut attempts).await?,
                Next::Stop(stop) => return Err(attempts.error(stop)),
            }
        }
    }

    /// Reads: repeated until it is answered or the deadline is past.
    pub(crate) async fn read<Req, Resp, Fut>(
        &self,
        make: impl Fn() -> Req,
        send: impl Fn(Channel, Request<Req>) -> Fut,
    ) -> Result<Resp, Error>
    where
        Fut: Future<Output = Result<Response<Resp>, Status>>,
    {
        let mut attempts = Attempts::begin(self.policy(), false, Duration::ZERO);
        self.repeat(&mut attempts, make, send).await
    }

    async fn repeat<Req, Resp, Fut>(
        &self,
        attempts: &mut Attempts,
        make: impl Fn() -> Req,
        send: impl Fn(Channel, Request<Req>) -> Fut,
    ) -> Result<Resp, Error>
    where
        Fut: Future<Output = Result<Response<Resp>, Status>>,
    {
        loop {
            let mut request = Request::new(make());
            request.set_timeout(attempts.attempt_timeout());
            let route = self.routes().route();
            let attempt = send(route.channel.clone(), request);
            let ended = match self.routes().attend(&route, Duration::ZERO, attempt).await {
                Ok(response) => {
                    self.routes().answered(response.metadata());
                    return Ok(response.into_inner());
                }
                Err(status) => {
                    let ended = Ended::from_status(&status);
                    self.routes().failed(&route, &ended, status.metadata());
                    ended
                }
            };
            tracing::debug!(?ended, "attempt failed");
            match attempts.after(ended) {
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::NewSession => {}
                Next::Stop(stop) => return Err(attempts.error(stop)),
            }
        }
    }

    /// Opens a session unless one is open. A number is taken for it and never sent.
    pub(crate) async fn ensure_session(&self) -> Result<(), Error> {
        let mut attempts = Attempts::begin(self.policy(), false, Duration::ZERO);
        self.ticket(&mut attempts).await.map(drop)
    }

    /// A number for a request, of a session opened for it where needed.
    pub(crate) async fn ticket(&self, attempts: &mut Attempts) -> Result<Ticket, Error> {
        loop {
            match self.sessions().take() {
                Taken::Ticket(ticket) => return Ok(ticket),
                Taken::Wait => {
                    let freed = tokio::time::timeout(attempts.attempt_timeout(), self.sessions().freed()).await;
                    if freed.is_err()
                        && let Next::Stop(stop) =
                            attempts.after(Ended::NotSent("all numbers of all sessions are in flight".to_owned()))
                    {
                        return Err(attempts.error(stop));
                    }
                }
                Taken::Open => {
                    let _alone = self.sessions().opening.lock().await;
                    match self.sessions().take() {
                        Taken::Ticket(ticket) => return Ok(ticket),
                        Taken::Wait => {}
                        Taken::Open => self.open_session(attempts).await?,
                    }
                }
            }
        }
    }

    /// Opens a session. Nothing is lost where an attempt's answer is: the server ends a session that nobody uses.
    async fn open_session(&self, attempts: &mut Attempts) -> Result<(), Error> {
        let mut opening = attempts.aside();
        let make = || v1::OpenSessionRequest { renew: 0 };
        let opened = self.repeat(&mut opening, make, open).await?;
        if opened.session == 0 {
            return Err(Error::Protocol { expected: "a session's id", found: "0".to_owned() });
        }
        self.sessions().add(&opened);
        Ok(())
    }

    /// Renews the sessions that have been idle; one that the server knows no more is ended.
    pub(crate) async fn renew_idle_sessions(&self) {
        for session in self.sessions().idle() {
            let id = session.id();
            let make = || v1::OpenSessionRequest { renew: id };
            match self.read(make, open).await {
                Ok(_) => session.touch(),
                Err(Error::Refused(refusal)) => {
                    tracing::debug!(session = id, %refusal, "session ended");
                    session.end();
                }
                // Tried again in the next round, while the server still keeps it.
                Err(
                    error @ (Error::Unavailable { .. }
                    | Error::Unknown { .. }
                    | Error::Config { .. }
                    | Error::Protocol { .. }),
                ) => {
                    tracing::debug!(session = id, %error, "session not renewed");
                }
            }
        }
    }
}

async fn open(
    channel: Channel,
    request: Request<v1::OpenSessionRequest>,
) -> Result<Response<v1::OpenSessionResponse>, Status> {
    service!(QueueServiceClient, channel).open_session(request).await
}
