//! What both streams share: the numbers of their requests, and how they end.
//!
//! A stream is a state machine that the transport polls: no task, no channel. Where the client hangs up, the state is
//! dropped with all that it waits for, and so what was leased and not sent is released.

pub(crate) mod consume;
pub(crate) mod produce;

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use ticketrail_core::RequestId;
use ticketrail_proto::{reason, v1};
use tokio::sync::watch;
use tonic::Status;

use crate::convert::field;
use crate::status::{FieldError, Refusal};

/// What a server sends on a stream.
pub(crate) type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How long a call of a stream may take, in which the node waits for a leader; then it is refused and sent again.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How a stream ends, once all that was read is answered.
#[derive(Debug)]
enum Ending {
    /// The client has said all it had to say.
    Over,
    /// With an error.
    Failed(Box<Status>),
}

impl Ending {
    /// The client broke the protocol, or sent something that cannot be read.
    fn failed(status: impl Into<Status>) -> Self {
        Self::Failed(Box::new(status.into()))
    }

    /// The server stops.
    fn draining() -> Self {
        Self::failed(Refusal::draining())
    }

    /// What a refusal of a request means for its stream: one that another node would take sends the stream there.
    fn after(refusal: &Refusal) -> Option<Self> {
        let elsewhere = [reason::DRAINING, reason::NO_QUORUM].contains(&refusal.reason);
        elsewhere.then(|| Self::failed(refusal.clone()))
    }
}

/// Becomes true when the server stops: streams are to end.
#[derive(Debug, Clone)]
struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Waits until the server stops.
    async fn closed(&mut self) {
        if self.0.wait_for(|closing| *closing).await.is_err() {
            // Nobody is left who could stop it.
            std::future::pending::<()>().await;
        }
    }
}

/// The name of a stream's request: what its answer carries, and what the node is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    session: u64,
    seq: u64,
    id: Option<RequestId>,
    repeat: bool,
}

/// Reads a request's name. A wrong one ends the stream: nobody could tell what the answer belongs to.
fn name(id: Option<v1::RequestId>) -> Result<Name, FieldError> {
    let v1::RequestId { session, seq, acked_below, repeat, token } = id.unwrap_or_default();
    if seq == 0 {
        return Err(FieldError::new(
            "request_id.seq",
            "expected a number from 1 on, which the answer will carry, but got 0",
        ));
    }
    if !token.is_empty() {
        // The number does no more than tell which request an answer belongs to.
        let token = v1::RequestId { session, acked_below, repeat, token, ..Default::default() };
        let (id, repeat) = field::request_id(Some(token))?;
        return Ok(Name { session, seq, id, repeat });
    }
    if session == 0 {
        if repeat {
            return Err(FieldError::new(
                "request_id.repeat",
                "expected a repeat to name its session or its token, but got neither; open a session with OpenSession",
            ));
        }
        return Ok(Name { session, seq, id: None, repeat });
    }
    let of_session = v1::RequestId { session, seq, acked_below, repeat, token };
    let (id, repeat) = field::request_id(Some(of_session))?;
    Ok(Name { session, seq, id, repeat })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_request_has_a_number_and_mostly_a_session() {
        let id =
            |session, seq, repeat| Some(v1::RequestId { session, seq, acked_below: 1, repeat, ..Default::default() });
        assert_eq!(name(None).unwrap_err().field, "request_id.seq");
        assert_eq!(name(id(7, 0, false)).unwrap_err().field, "request_id.seq");
        assert_eq!(name(id(0, 3, true)).unwrap_err().field, "request_id.repeat");
        assert_eq!(name(id(0, 3, false)), Ok(Name { session: 0, seq: 3, id: None, repeat: false }));
        let full = RequestId { session: 7, seq: 3, acked_below: 1, ..Default::default() };
        assert_eq!(name(id(7, 3, true)), Ok(Name { session: 7, seq: 3, id: Some(full), repeat: true }));
    }

    #[test]
    fn a_token_names_a_request_and_a_number_its_answer() {
        let id = |seq, token: &[u8]| {
            Some(v1::RequestId { seq, repeat: true, token: token.to_vec().into(), ..Default::default() })
        };
        let token =
            RequestId { token_high: 0x0101_0101_0101_0101, token_low: 0x0101_0101_0101_0101, ..Default::default() };
        assert_eq!(name(id(3, &[1; 16])), Ok(Name { session: 0, seq: 3, id: Some(token), repeat: true }));
        assert_eq!(name(id(0, &[1; 16])).unwrap_err().field, "request_id.seq");
        assert_eq!(name(id(3, &[1; 15])).unwrap_err().field, "request_id.token");
        let both = v1::RequestId { session: 7, seq: 3, token: vec![1; 16].into(), ..Default::default() };
        assert_eq!(name(Some(both)).unwrap_err().field, "request_id.token");
    }
}
