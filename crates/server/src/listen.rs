//! The address for clients.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Another process has the port.
    #[error(
        "expected to listen on {0}, but another process does (see `ss -ltnp`): stop it, or choose another address with \
         --listen or TICKETRAIL_LISTEN"
    )]
    InUse(SocketAddr),
    /// Not on this machine.
    #[error(
        "expected to listen on {0}, but this machine has no such address: choose one of its own with --listen or \
         TICKETRAIL_LISTEN; 0.0.0.0 is all of them"
    )]
    NotHere(SocketAddr),
    /// Anything else.
    #[error("expected to listen on {address}, but {error}: choose another address with --listen or TICKETRAIL_LISTEN")]
    Other {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
    },
}

/// Listens on `address`.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| {
        if error.kind() == ErrorKind::AddrInUse {
            ListenError::InUse(address)
        } else if error.kind() == ErrorKind::AddrNotAvailable {
            ListenError::NotHere(address)
        } else {
            ListenError::Other { address, error }
        }
    })
}
