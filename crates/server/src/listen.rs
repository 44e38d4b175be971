//! The addresses that are listened on.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// What is listened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Clients.
    Clients,
    /// Peers.
    Peers,
    /// Probes and metrics.
    Http,
}

impl Port {
    fn flag(self) -> &'static str {
        match self {
            Port::Clients => "--listen or TICKETRAIL_LISTEN",
            Port::Peers => "--peer-listen or TICKETRAIL_PEER_LISTEN",
            Port::Http => "--http-listen or TICKETRAIL_HTTP_LISTEN",
        }
    }
}

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Another process has the port.
    #[error(
        "expected to listen on {0}, but another process does (see `ss -ltnp`): stop it, or choose another address with {flag}",
        flag = .1.flag()
    )]
    InUse(SocketAddr, Port),
    /// Not on this machine.
    #[error(
        "expected to listen on {0}, but this machine has no such address: choose one of its own with {flag}; 0.0.0.0 is \
         all of them",
        flag = .1.flag()
    )]
    NotHere(SocketAddr, Port),
    /// Anything else.
    #[error("expected to listen on {address}, but {error}: choose another address with {}", .port.flag())]
    Other {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: std::io::Error,
        /// What for.
        port: Port,
    },
}

/// Listens on `address`.
pub(crate) async fn listen(address: SocketAddr, port: Port) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| {
        if error.kind() == ErrorKind::AddrInUse {
            ListenError::InUse(address, port)
        } else if error.kind() == ErrorKind::AddrNotAvailable {
            ListenError::NotHere(address, port)
        } else {
            ListenError::Other { address, error, port }
        }
    })
}
