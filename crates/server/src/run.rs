//! One server, from its data directory to its last flush.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ticketrail_node::{Disk, Handle, Node, NodeConfig, Peering, Role};
use ticketrail_storage::Identity;
use ticketrail_storage::dir::DataDir;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;

use crate::config::Config;
use crate::health::Health;
use crate::http::Http;
use crate::listen::Port;
use crate::metrics::calls::Calls;
use crate::phase::Running;
use crate::storage::ReadyFile;
use crate::{grpc, listen, peers, storage};

/// How long the node's stop may take: draining, and a flush of 64 MiB on a slow disk.
const NODE_STOP: Duration = Duration::from_secs(17);
/// How long a client may take to end a call that has its answer, once the node has stopped.
const HANG_UP: Duration = Duration::from_secs(3);

/// Runs one server until `shutdown` ends, then stops in order: not ready, polls end with DRAINING, what is on its way is
/// finished, the state is flushed; within 20 s.
///
/// Errors where it cannot start (the port is in use, the directory is locked or damaged), and where its node fails: what
/// was acknowledged is on the disk, start it again.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    config.check()?;
    let ready = ReadyFile::prepare(&config.ready_file);
    let listener = listen::listen(config.listen, Port::Clients).await?;
    let address = listener.local_addr().context("tell the address that is listened on")?;
    let http = Http::open(&config).await?;
    let dir = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || storage::lock(&config)).await.context("open the data directory")??
    };
    let peering = peers::peering(&config, dir.home(), address.port())?;
    let mut peer_tasks = JoinSet::new();
    let (hang_up, hung_up) = oneshot::channel::<()>();
    let stop_peers = async {
        // A dropped sender means the same.
        let _ = hung_up.await;
    };
    peers::serve(&config, &peering, &mut peer_tasks, stop_peers).await?;
    let mut shutdown = pin!(shutdown);
    http.board.starting("looking for a cluster to belong to");
    let identity = tokio::select! {
        biased;
        () = &mut shutdown => {
            tracing::info!("stopped before there was a cluster to belong to");
            return Ok(());
        }
        identity = peering.settle() => identity?,
    };
    let result = run_node(&config, dir, peering, identity, listener, address, &ready, http, shutdown).await;
    // The others may still be in the middle of a call.
    let _ = hang_up.send(());
    if timeout(HANG_UP, async { while peer_tasks.join_next().await.is_some() {} }).await.is_err() {
        peer_tasks.shutdown().await;
    }
    match &result {
        Ok(()) => tracing::info!("stopped in order"),
        Err(error) => tracing::error!(error = format!("{error:#}"), "stopped by an error"),
    }
    result
}

/// Runs the node of a disk that has an identity.
#[expect(clippy::too_many_arguments, reason = "what one server is made of")]
async fn run_node(
    config: &Config,
    dir: DataDir,
    peering: Peering,
    identity: Identity,
    listener: TcpListener,
    address: SocketAddr,
    ready: &ReadyFile,
    mut http: Http,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<()> {
    http.board.starting("reading what is on its disk");
    let store = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || storage::open(&config, dir)).await.context("open the stores")??
    };
    // What is left of `store` holds the directory's lock: it goes last.
    let disk = Arc::new(store.disk);
    let is_low = {
        let disk = disk.clone();
        Disk::watched(move || storage::is_low(&disk))
    };
    let node_config = NodeConfig { peering: Some(peering), ..node_config(config, &identity) };
    let syncs = store.log.syncs();
    let node = Node::start(node_config, store.log, store.state, is_low).await?;
    let first_term = node.handle().status().term;
    http.board.running(Running { node: node.handle(), first_term, syncs });
    let mut tasks = JoinSet::new();
    tasks.spawn(storage::watch(disk));
    let result = match serve(config, &node, listener, http.calls.clone(), &mut tasks).await {
        Ok(mut serving) => {
            let why = tokio::select! {
                why = until_stopped(config, &node, address, &mut serving, ready, shutdown) => why,
                error = http.failed() => Err(error),
            };
            http.board.stopping();
            ready.remove();
            let stopped = stop(node, serving).await;
            why.and(stopped)
        }
        Err(error) => {
            let _ = node.shutdown().await;
            Err(error)
        }
    };
    tasks.shutdown().await;
    http.close().await;
    result
}

fn node_config(config: &Config, identity: &Identity) -> NodeConfig {
    NodeConfig {
        heartbeat_ms: config.heartbeat.as_ms(),
        election_min_ms: config.election_timeout_min.as_ms(),
        election_max_ms: config.election_timeout_max.as_ms(),
        log_retention_bytes: config.log_retention_bytes.0,
        log_retention_age_ms: config.log_retention_age.as_ms(),
        proposal_queue_bytes: usize::try_from(config.proposal_queue_bytes.0).unwrap_or(usize::MAX),
        flush_bytes: config.flush_bytes.0,
        flush_age_ms: config.flush_age.as_ms(),
        parked_receives: config.parked_receives,
        snapshot_bytes_per_second: config.snapshot_rate.0,
        drain_ms: config.drain_timeout.as_ms(),
        ..NodeConfig::new(identity.node, identity.cluster.0)
    }
}

/// The gRPC server at work.
struct Serving {
    health: Health,
    follower: AbortHandle,
    closing: watch::Sender<bool>,
    hang_up: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    ended: bool,
}

async fn serve(
    config: &Config,
    node: &Node,
    listener: TcpListener,
    calls: Arc<Calls>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Serving> {
    let (closing, closed) = watch::channel(false);
    let (router, health) = grpc::router(config, node.handle(), calls, closed).await?;
    let follower = tasks.spawn(health.clone().follow(node.handle()));
    let (hang_up, hung_up) = oneshot::channel::<()>();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async {
        // A dropped sender means the same.
        let _ = hung_up.await;
    }));
    Ok(Serving { health, follower, closing, hang_up, server, ended: false })
}

/// Waits until the node serves, and says so.
async fn announce(config: &Config, handle: &Handle, address: SocketAddr, ready: &ReadyFile) -> anyhow::Result<()> {
    let status = loop {
        handle.serving().await;
        let status = handle.status();
        if status.serving {
            break status;
        }
        // A leader that was lost again at once is waited for once more.
        if status.broken.is_some() || status.role == Role::Stopped {
            return Ok(());
        }
    };
    tracing::info!(
        %address,
        dir = %config.data_dir.display(),
        node = status.node_id,
        leader = status.leader,
        term = status.term,
        applied = status.applied_index,
        "serving"
    );
    ready.write(&address.to_string())?;
    Ok(())
}

/// Waits until the server is told to stop, or cannot go on.
async fn until_stopped(
    config: &Config,
    node: &Node,
    address: SocketAddr,
    serving: &mut Serving,
    ready: &ReadyFile,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> anyhow::Result<()> {
    let handle = node.handle();
    let announced = async {
        announce(config, &handle, address, ready).await?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        biased;
        () = shutdown => Ok(()),
        reason = node.failed() => Err(anyhow!(
            "expected a healthy node, but {reason}; what was acknowledged is on the disk: see to the cause, then start it again"
        )),
        ended = &mut serving.server => {
            serving.ended = true;
            Err(match ended {
                Ok(Ok(())) => anyhow!("expected the gRPC server to go on, but it has ended"),
                Ok(Err(error)) => anyhow::Error::new(error).context("serve gRPC"),
                Err(error) => anyhow::Error::new(error).context("serve gRPC"),
            })
        }
        failed = announced => failed,
    }
}

/// Stops in order: not ready, the streams end, the node drains and flushes, the clients hang up.
async fn stop(node: Node, serving: Serving) -> anyhow::Result<()> {
    let Serving { health, follower, closing, hang_up, mut server, ended } = serving;
    follower.abort();
    health.stop().await;
    // Streams end before the node does: what they have read is still done.
    closing.send_replace(true);
    let stopped = match timeout(NODE_STOP, node.shutdown()).await {
        Ok(stopped) => stopped.map_err(anyhow::Error::new),
        Err(_) => Err(anyhow!(
            "expected the node to stop within {NODE_STOP:?}, but it has not; the next start replays the log"
        )),
    };
    // Nobody listens where the server has ended.
    let _ = hang_up.send(());
    if !ended && timeout(HANG_UP, &mut server).await.is_err() {
        tracing::warn!("clients have not hung up in time: their connections are cut");
        server.abort();
    }
    stopped
}
