//! The simulated network under real gRPC.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::{Stream, stream};
use hyper_util::rt::TokioIo;
use ticketrail_api::parse_timeout;
use ticketrail_node::{Connector, tuned};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time;
use tonic::Status;
use tonic::codegen::http::header::DATE;
use tonic::codegen::http::{HeaderValue, Request, Response, Uri};
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

use crate::poll::pause;
use crate::rng::Rng;
use crate::trace::Trace;

/// How a connection is refused whose first packet is lost: at once, or after this long, as a real one is.
const SYN_LOST: Duration = Duration::from_millis(900);

/// What stands in a request for its host: the dialer knows where it goes.
const ANY: &str = "http://ticketrail";

/// A connection that tells the trace what it carries.
pub struct Wire {
    stream: TcpStream,
    trace: Trace,
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.trace.sent(bytes.get(..written).unwrap_or(bytes));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Wire {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// The connections that come to a port of this host.
pub async fn incoming(port: u16, trace: Trace) -> io::Result<impl Stream<Item = io::Result<Wire>>> {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    Ok(stream::unfold((listener, trace), |(listener, trace)| async move {
        let accepted = listener.accept().await.map(|(stream, _)| Wire { stream, trace: trace.clone() });
        Some((accepted, (listener, trace)))
    }))
}

/// Makes connections from one host to others.
#[derive(Clone)]
pub struct Dialer {
    trace: Trace,
    /// Draws how long a refusal takes.
    draws: Arc<AtomicU64>,
    /// So many of a hundred refusals take their time.
    slow_percent: u64,
}

impl Dialer {
    /// Connections whose refusals follow from `rng`.
    pub fn new(trace: Trace, mut rng: Rng, slow_percent: u64) -> Self {
        Self { trace, draws: Arc::new(AtomicU64::new(rng.draw())), slow_percent }
    }

    /// For a node, to its peers.
    pub fn connector(&self) -> Connector {
        let dialer = self.clone();
        Connector::new(move |address| Ok(dialer.channel(tuned(Endpoint::from_static(ANY)), address)))
    }

    /// For a client, to a node; connects when it is first used.
    pub fn client(&self, address: &str) -> Channel {
        let endpoint = Endpoint::from_static(ANY)
            .connect_timeout(Duration::from_secs(1))
            .http2_keep_alive_interval(Duration::from_secs(2))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true);
        self.channel(endpoint, address)
    }

    fn channel(&self, endpoint: Endpoint, address: &str) -> Channel {
        let (dialer, address) = (self.clone(), address.to_owned());
        endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
            let (dialer, address) = (dialer.clone(), address.clone());
            async move { dialer.dial(&address).await.map(TokioIo::new) }
        }))
    }

    async fn dial(&self, address: &str) -> io::Result<Wire> {
        match TcpStream::connect(address).await {
            Ok(stream) => Ok(Wire { stream, trace: self.trace.clone() }),
            Err(error) => {
                let draw = self.draws.fetch_add(1, Ordering::Relaxed);
                if Rng::new(draw).chance(self.slow_percent) {
                    pause(SYN_LOST).await;
                }
                Err(error)
            }
        }
    }
}

/// A service whose calls are told to the trace, and whose answers carry a fixed date: hyper would read the wall clock.
#[derive(Clone)]
pub struct Observed<S> {
    service: S,
    host: Arc<str>,
    trace: Trace,
}

impl<S> Observed<S> {
    /// Observes `service` of `host`.
    pub fn new(service: S, host: Arc<str>, trace: Trace) -> Self {
        Self { service, host, trace }
    }
}

impl<S, Asked, Answered> Service<Request<Asked>> for Observed<S>
where
    S: Service<Request<Asked>, Response = Response<Answered>>,
    S::Future: Send + 'static,
    Answered: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let (host, trace) = (self.host.clone(), self.trace.clone());
        let path = request.uri().path().trim_start_matches("/ticketrail.").to_owned();
        trace.tell(&host, format_args!("is asked {path}"));
        let timeout = request.headers().get("grpc-timeout").and_then(|value| parse_timeout(value.to_str().ok()?));
        let serving = self.service.call(request);
        // tonic would answer at the same moment, past this layer and so with the date of the wall clock.
        let serving = time::timeout(timeout.unwrap_or(Duration::MAX), serving);
        Box::pin(async move {
            let mut response = match serving.await {
                Ok(served) => served?,
                Err(_) => Status::cancelled("Timeout expired").into_http(),
            };
            let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok()).unwrap_or("-");
            trace.tell(&host, format_args!("answers {path} {status}"));
            response.headers_mut().insert(DATE, HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"));
            Ok(response)
        })
    }
}
