//! gRPC calls, counted and timed by method and code where they enter the server.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::http::{HeaderMap, Request, Response};
use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use ticketrail_node::Clock;
use ticketrail_storage::histogram::Histogram;
use tonic::Code;
use tower::{Layer, Service};

use super::page::{Family, Labels};

/// 250 µs to 60 s: a call that waits for one sync takes a few milliseconds, a receive that waits takes up to a minute.
const MICROS: [u64; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 20_000_000,
    60_000_000,
];
/// What stands for all methods that the server does not have.
const OTHER: &str = "_other";
/// The codes of gRPC, at the places of their numbers.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The calls since the process started. The methods are known from the start, so that no caller can add a series.
#[derive(Debug)]
pub(crate) struct Calls {
    clock: Clock,
    begun: AtomicU64,
    ended: AtomicU64,
    methods: Vec<Method>,
    /// From `/package.Service/Method` to its place among the methods.
    paths: HashMap<String, usize>,
}

#[derive(Debug)]
struct Method {
    service: String,
    method: String,
    codes: [AtomicU64; CODES.len()],
    micros: Histogram,
}

impl Method {
    fn new(service: &str, method: &str) -> Self {
        Self {
            service: service.to_owned(),
            method: method.to_owned(),
            codes: [const { AtomicU64::new(0) }; CODES.len()],
            micros: Histogram::new(&MICROS),
        }
    }

    fn labels(&self) -> Labels {
        vec![("grpc_service", self.service.clone()), ("grpc_method", self.method.clone())]
    }
}

impl Calls {
    /// None yet, of the methods that `descriptors` (encoded `FileDescriptorSet`s) describe.
    pub(crate) fn new(clock: Clock, descriptors: &[&[u8]]) -> Result<Self, prost::DecodeError> {
        // The first place is for all that is unknown.
        let mut calls = Self {
            clock,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            methods: vec![Method::new(OTHER, OTHER)],
            paths: HashMap::new(),
        };
        for encoded in descriptors {
            for file in FileDescriptorSet::decode(*encoded)?.file {
                for service in &file.service {
                    let name = format!("{}.{}", file.package(), service.name());
                    for method in &service.method {
                        calls.paths.insert(format!("/{name}/{}", method.name()), calls.methods.len());
                        calls.methods.push(Method::new(&name, method.name()));
                    }
                }
            }
        }
        Ok(calls)
    }

    /// The figures.
    pub(super) fn families(&self) -> [Family; 3] {
        let handled = self.methods.iter().flat_map(|method| {
            method.codes.iter().zip(CODES).filter_map(|(count, code)| {
                let count = count.load(Ordering::Relaxed);
                let mut labels = method.labels();
                labels.push(("grpc_code", code.to_owned()));
                (count > 0).then_some((labels, count))
            })
        });
        let durations = self.methods.iter().map(|method| (method.labels(), method.micros.read()));
        let ended = self.ended.load(Ordering::Relaxed);
        [
            Family::gauge(
                "ticketrail_grpc_calls_in_progress",
                "gRPC calls that have come and have not ended, streams and waiting receives among them.",
                self.begun.load(Ordering::Relaxed).saturating_sub(ended),
            ),
            Family::counters(
                "ticketrail_grpc_calls",
                "gRPC calls that have ended, by code; CANCELLED: the caller went away.",
                handled,
            ),
            Family::histograms(
                "ticketrail_grpc_call_duration_seconds",
                "From a gRPC call's arrival to the end of its answer, with a receive's wait and a stream's life.",
                1e6,
                durations.filter(|(_, reading)| reading.count() > 0),
            ),
        ]
    }

    fn begin(self: &Arc<Self>, path: &str) -> Call {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let method = self.paths.get(path).copied().unwrap_or_default();
        Call { calls: self.clone(), method, begun: self.clock.now(), code: Code::Cancelled }
    }
}

/// One call. It ends when it is dropped.
#[derive(Debug)]
struct Call {
    calls: Arc<Calls>,
    method: usize,
    begun: tokio::time::Instant,
    /// As far as is known: until there is an answer, the caller may go away.
    code: Code,
}

impl Call {
    /// Takes the code from headers or trailers, where they have one. Whether they had.
    fn learn(&mut self, headers: &HeaderMap) -> bool {
        let code = headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()));
        self.code = code.unwrap_or(self.code);
        code.is_some()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.ended.fetch_add(1, Ordering::Relaxed);
        let Some(method) = self.calls.methods.get(self.method) else { return };
        let took = self.calls.clock.now().saturating_duration_since(self.begun);
        method.micros.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        // The codes' numbers are gRPC's.
        if let Some(count) = method.codes.get(self.code as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts the calls that pass.
#[derive(Debug, Clone)]
pub(crate) struct CountCalls(pub(crate) Arc<Calls>);

impl<S> Layer<S> for CountCalls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, calls: self.0.clone() }
    }
}

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    calls: Arc<Calls>,
}

impl<S, Asked, Answered> Service<Request<Asked>> for Counted<S>
where
    S: Service<Request<Asked>, Response = Response<Answered>>,
    S::Future: Send + 'static,
{
    type Response = Response<CountedBody<Answered>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let mut call = self.calls.begin(request.uri().path());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await.inspect_err(|_| call.code = Code::Internal)?;
            // An answer without a body has its code among the headers.
            let ended = call.learn(response.headers());
            let call = (!ended).then_some(call);
            Ok(response.map(|inner| CountedBody { inner, call }))
        })
    }
}

/// The body of an answer; its trailers have the call's code.
#[derive(Debug)]
pub(crate) struct CountedBody<B> {
    inner: B,
    call: Option<Call>,
}

impl<B: Body + Unpin> Body for CountedBody<B>
where
    B::Data: Buf,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(mut call) = self.call.take() {
            match &frame {
                Some(Ok(frame)) => match frame.trailers_ref() {
                    Some(trailers) => drop(call.learn(trailers)),
                    None => self.call = Some(call),
                },
                Some(Err(_)) => call.code = Code::Internal,
                // Without a code it ended as nobody knows.
                None => call.code = Code::Unknown,
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
