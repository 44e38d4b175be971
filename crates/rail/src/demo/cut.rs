//! A network that cuts its connection on command: after a request was sent, before its reply is read.
//!
//! Armed, a connection lets the request out, waits until the reply has arrived at this machine, and closes without
//! reading it. The server has done its work and the client cannot know: only a repeat under the same id is safe.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use ticketrail_client::transport::{Channel, Endpoint, Uri};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const OPEN: u8 = 0;
const ARMED: u8 = 1;
const SENT: u8 = 2;

/// Cuts connections of its channel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut {
    state: Arc<AtomicU8>,
}

impl Cut {
    /// The connection is cut once the next request has been sent and its reply has arrived.
    pub(crate) fn arm(&self) {
        self.state.store(ARMED, Ordering::SeqCst);
    }

    /// A channel to any of `addresses`, of which there must be one, over connections that can be cut. Each connection
    /// goes to the next address that takes it.
    pub(crate) fn channel(&self, addresses: &[String]) -> anyhow::Result<Channel> {
        let uris = addresses.iter().map(|address| address.parse()).collect::<Result<Vec<Uri>, _>>()?;
        let hosts: Arc<[String]> = uris.iter().filter_map(|uri| Some(uri.authority()?.as_str().to_owned())).collect();
        let endpoint = Endpoint::from(uris.into_iter().next().context("expected an address, but got none")?);
        let state = Arc::clone(&self.state);
        let next = Arc::new(AtomicUsize::new(0));
        Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (state, hosts, next) = (Arc::clone(&state), Arc::clone(&hosts), Arc::clone(&next));
            async move {
                let stream = connect(&hosts, &next).await?;
                stream.set_nodelay(true)?;
                Ok::<_, io::Error>(TokioIo::new(Line { stream, state }))
            }
        })))
    }
}

/// A connection to the first of `hosts` that takes it, from the one whose turn it is.
async fn connect(hosts: &[String], next: &AtomicUsize) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for _ in hosts {
        let host = &hosts[next.fetch_add(1, Ordering::Relaxed) % hosts.len()];
        match TcpStream::connect(host).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// A connection that can be cut.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    state: Arc<AtomicU8>,
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.state.load(Ordering::SeqCst) == SENT {
            // Looks whether the reply is there without taking it.
            let mut one = [0];
            ready!(self.stream.poll_peek(cx, &mut ReadBuf::new(&mut one)))?;
            self.state.store(OPEN, Ordering::SeqCst);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut before the reply was read")));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        // The reader registers anew: it may be waiting for the reply as a plain connection does.
        let _ = self.state.compare_exchange(ARMED, SENT, Ordering::SeqCst, Ordering::SeqCst);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_armed_line_sends_and_never_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).await.expect("connected");
        let (mut peer, _) = listener.accept().await.expect("accepted");
        let cut = Cut::default();
        let mut line = Line { stream, state: Arc::clone(&cut.state) };

        line.write_all(b"one").await.expect("sent");
        peer.write_all(b"1").await.expect("answered");
        let mut reply = [0];
        line.read_exact(&mut reply).await.expect("read before it is armed");

        cut.arm();
        line.write_all(b"two").await.expect("sent");
        let mut request = [0; 6];
        peer.read_exact(&mut request).await.expect("the request went out");
        assert_eq!(&request, b"onetwo");
        peer.write_all(b"2").await.expect("answered");
        let error = line.read_exact(&mut reply).await.expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(cut.state.load(Ordering::SeqCst), OPEN, "the next connection is whole");
    }

    #[tokio::test]
    async fn whoever_takes_the_connection_is_good() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let up = listener.local_addr().expect("address").to_string();
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("bound").local_addr().expect("address").to_string();
        let next = AtomicUsize::new(0);
        for _ in 0..2 {
            let stream = connect(&[gone.clone(), up.clone()], &next).await.expect("connected");
            assert_eq!(stream.peer_addr().expect("address").to_string(), up);
        }
        connect(&[gone], &next).await.expect_err("nobody there");
        connect(&[], &next).await.expect_err("nobody named");
    }
}
