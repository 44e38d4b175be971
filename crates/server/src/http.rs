//! The HTTP port: probes and metrics.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::Config;
use crate::listen::Port;
use crate::metrics::calls::Calls;
use crate::metrics::{self, Metrics};
use crate::phase::{Board, Phase};
use crate::probes::{self, Facts, Verdict};
use crate::storage::ReadyFile;
use crate::{grpc, listen};

/// How long an answer in progress may take once the server has stopped.
const HANG_UP: Duration = Duration::from_secs(1);

/// The HTTP port, where there is one, and what is told there. Dropped, it is closed at once.
pub(crate) struct Http {
    /// Where the server says what it is doing.
    pub(crate) board: Board,
    /// The gRPC calls, counted.
    pub(crate) calls: Arc<Calls>,
    server: Option<Server>,
    // Its file goes with it.
    _ready: ReadyFile,
}

/// The HTTP server at work.
struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

#[derive(Clone)]
struct Seen {
    phase: watch::Receiver<Phase>,
    metrics: Arc<Metrics>,
}

impl Http {
    /// Serves from now on: probes are answered while the data directory is still being opened.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        let ready = ReadyFile::prepare(&config.http_ready_file);
        let (board, calls) = (Board::new(), grpc::calls()?);
        let Some(address) = config.http_listen.0 else {
            return Ok(Self { board, calls, server: None, _ready: ready });
        };
        let listener = listen::listen(address, Port::Http).await?;
        let address = listener.local_addr().context("tell the address that HTTP is listened on")?;
        let metrics = Arc::new(Metrics::new(calls.clone(), config.data_dir.clone(), config.disk_low_bytes.0));
        let router = router(Seen { phase: board.subscribe(), metrics });
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let serve = axum::serve(listener, router).with_graceful_shutdown(async {
                // A dropped sender means the same.
                let _ = stopped.await;
            });
            serve.await
        });
        tracing::info!(%address, "answers probes");
        ready.write(&address.to_string())?;
        Ok(Self { board, calls, server: Some(Server { stop, task }), _ready: ready })
    }

    /// Ends only where the server can't go on; says why.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let Some(server) = &mut self.server else { return std::future::pending().await };
        let ended = (&mut server.task).await;
        self.server = None;
        match ended {
            Ok(Ok(())) => anyhow!("expected the HTTP server to go on, but it has ended"),
            Ok(Err(error)) => anyhow::Error::new(error).context("serve HTTP"),
            Err(error) => anyhow::Error::new(error).context("serve HTTP"),
        }
    }

    /// Lets go of the node, answers what has come, then ends.
    pub(crate) async fn close(mut self) {
        self.board.stopped();
        let Some(Server { stop, mut task }) = self.server.take() else { return };
        // Nobody listens where it has ended.
        let _ = stop.send(());
        if timeout(HANG_UP, &mut task).await.is_err() {
            tracing::debug!("HTTP clients have not hung up in time: their connections are cut");
            task.abort();
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.task.abort();
        }
    }
}

fn router(seen: Seen) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(page))
        .fallback(unknown)
        .with_state(seen)
}

async fn livez(State(seen): State<Seen>, query: RawQuery) -> Response {
    let verdict = probes::live(&Facts::of(&seen.phase.borrow()));
    answer(&verdict, "live", &query)
}

async fn readyz(State(seen): State<Seen>, query: RawQuery) -> Response {
    let verdict = probes::ready(&Facts::of(&seen.phase.borrow()));
    answer(&verdict, "ready", &query)
}

fn answer(verdict: &Verdict, word: &str, RawQuery(query): &RawQuery) -> Response {
    let verbose = query.as_deref().is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let status = if verdict.holds() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], verdict.text(word, verbose)).into_response()
}

async fn page(State(seen): State<Seen>) -> Response {
    let phase = seen.phase.borrow().clone();
    match seen.metrics.page(&phase).await.context("write the metrics") {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
    }
}

async fn unknown(uri: Uri) -> Response {
    let text = format!("expected /livez, /readyz or /metrics, but got {}\n", uri.path());
    (StatusCode::NOT_FOUND, text).into_response()
}
