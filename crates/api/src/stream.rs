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
use ticketrail_proto::v1;
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
    let v1::RequestId { session, seq, repeat, .. } = id.unwrap_or_default();
    if seq == 0 {
        return Err(FieldError::new(
            "request_id.seq",
            "expected a number from 1 on, which the answer will carry, but got 0",
        ));
    }
    if session == 0 {
        if repeat {
            return Err(FieldError::new(
                "request_id.repeat",
                "expected a repeat to name its session, but got session 0; open one with OpenSession",
            ));
        }
        return Ok(Name { session, seq, id: None, repeat });
    }
    let (id, repeat) = field::request_id(id)?;
    Ok(Name { session, seq, id, repeat })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_request_has_a_number_and_mostly_a_session() {
        let id = |session, seq, repeat| Some(v1::RequestId { session, seq, acked_below: 1, repeat });
        assert_eq!(name(None).unwrap_err().field, "request_id.seq");
        assert_eq!(name(id(7, 0, false)).unwrap_err().field, "request_id.seq");
        assert_eq!(name(id(0, 3, true)).unwrap_err().field, "request_id.repeat");
        assert_eq!(name(id(0, 3, false)), Ok(Name { session: 0, seq: 3, id: None, repeat: false }));
        let full = RequestId { session: 7, seq: 3, acked_below: 1, fingerprint: 0 };
        assert_eq!(name(id(7, 3, true)), Ok(Name { session: 7, seq: 3, id: Some(full), repeat: true }));
    }
}
