//! A place where a node runs, and the node that runs there.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::pending;
use parking_lot::Mutex;
use ticketrail_api::{About, AdminApi, ClusterApi, CommitApi, Leader, NamesLeader, QueueApi, Settings, Streams};
use ticketrail_node::{
    Clock, Disk as Watermark, Handle, Member, Node, NodeConfig, Peering, PeeringConfig, Random, Simulated, Work,
};
use ticketrail_proto::v1::admin_service_server::AdminServiceServer;
use ticketrail_proto::v1::cluster_service_server::ClusterServiceServer;
use ticketrail_proto::v1::commit_service_server::CommitServiceServer;
use ticketrail_proto::v1::queue_service_server::QueueServiceServer;
use tokio::sync::{Notify, watch};
use tonic::transport::Server;
use tower::layer::layer_fn;

use crate::disk::{self, Contents, Disk};
use crate::net::{Dialer, Observed, incoming};
use crate::options::Options;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::truth::{Truth, Witnessed};

/// The port for peers.
pub const PEER_PORT: u16 = 7_001;
/// The port for clients.
pub const CLIENT_PORT: u16 = 7_000;
/// What a wall clock that is right shows at the start of a run, in milliseconds since the Unix epoch.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// A place where a node runs.
pub struct Place {
    /// The name of the host and of the node.
    pub name: Arc<str>,
    /// Its disk.
    pub disk: Arc<Disk>,
    options: Arc<Options>,
    truth: Truth,
    trace: Trace,
    /// The nodes that know each other from the start, by name.
    named: Vec<String>,
    /// How far its wall clock is off, in milliseconds.
    skew_ms: AtomicI64,
    /// How far it was moved, all moves together, in milliseconds.
    jumped_ms: AtomicU64,
    boots: AtomicU64,
    stop: Notify,
    running: Mutex<Running>,
}

/// What runs in a place.
#[derive(Default)]
struct Running {
    node: Option<Handle>,
    clock: Option<Clock>,
    /// Why its process has ended, once it has.
    ended: Option<String>,
}

impl Place {
    /// A place with an empty disk.
    pub fn new(name: String, options: &Arc<Options>, named: &[String], truth: &Truth, trace: &Trace) -> Self {
        Self {
            name: name.into(),
            disk: Arc::new(Disk::new((options.sync_from_us, options.sync_to_us))),
            options: options.clone(),
            truth: truth.clone(),
            trace: trace.clone(),
            named: named.to_vec(),
            skew_ms: AtomicI64::new(0),
            jumped_ms: AtomicU64::new(0),
            boots: AtomicU64::new(0),
            stop: Notify::new(),
            running: Mutex::default(),
        }
    }

    /// The node that runs here, once it does.
    pub fn node(&self) -> Option<Handle> {
        self.running.lock().node.clone()
    }

    /// Its Raft id, once its disk has one.
    pub fn id(&self) -> Option<u64> {
        use ticketrail_storage::home::Home as _;
        self.disk.contents().home.identity().map(|identity| identity.node)
    }

    /// Why its process has ended, if it has since this was asked last.
    pub fn take_ended(&self) -> Option<String> {
        self.running.lock().ended.take()
    }

    /// Forgets what ran here.
    pub fn forget(&self) {
        *self.running.lock() = Running::default();
    }

    /// Has the node stop in order.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Moves the wall clock.
    pub fn jump(&self, ms: i64) {
        self.skew_ms.fetch_add(ms, Ordering::Relaxed);
        self.jumped_ms.fetch_add(ms.unsigned_abs(), Ordering::Relaxed);
        if let Some(clock) = &self.running.lock().clock {
            clock.jump(ms);
        }
    }

    /// How far the wall clock is off, in milliseconds.
    pub fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::Relaxed)
    }

    /// How far the wall clock was moved, all moves together, in milliseconds.
    pub fn jumped_ms(&self) -> u64 {
        self.jumped_ms.load(Ordering::Relaxed)
    }

    /// Runs the process of the node, from its start until the host is crashed.
    pub async fn run(self: Arc<Self>) -> turmoil::Result {
        let why = match self.serve().await {
            Ok(why) => why,
            Err(error) => error.to_string(),
        };
        self.trace.tell(&self.name, format_args!("ends: {why}"));
        self.running.lock().ended = Some(why);
        // Whoever runs the hosts ends all that this process has begun.
        pending().await
    }

    /// Runs the node; says why it has ended.
    async fn serve(&self) -> turmoil::Result<String> {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed);
        let rng = Rng::new(self.options.seed).fork(&self.name).fork(&boot.to_string());
        self.trace.tell(&self.name, format_args!("starts for the {}. time", boot + 1));
        let contents = self.disk.contents();
        tokio::spawn(disk::work(self.disk.clone(), contents.log.clone(), rng.fork("disk")));
        let clock = self.clock();
        let random = Random::seeded(if self.options.plain { unforeseen() } else { rng.fork("random").draw() });
        let dialer = Dialer::new(self.trace.clone(), rng.fork("dialer"), self.options.slow_refusals_percent);
        let peering = self.peering(&contents, &clock, &random, &dialer)?;
        self.serve_peers(&peering).await?;
        let identity = peering.settle().await?;
        let config = NodeConfig {
            heartbeat_ms: self.options.heartbeat_ms,
            election_min_ms: self.options.election_min_ms,
            election_max_ms: self.options.election_max_ms,
            quorum_loss_probe_ms: 2 * self.options.election_max_ms,
            log_retention_bytes: self.options.log_retention_bytes,
            log_retention_age_ms: 5_000,
            flush_age_ms: self.options.flush_age_ms,
            drain_ms: 1_000,
            peering: Some(peering),
            work: Work::Inline,
            clock,
            random,
            ..NodeConfig::new(identity.node, identity.cluster.0)
        };
        let log = contents.log.clone();
        let state = Arc::new(Witnessed {
            host: self.name.clone(),
            state: contents.state.clone(),
            log: contents.log.clone(),
            truth: self.truth.clone(),
            trace: self.trace.clone(),
        });
        let watched = self.disk.clone();
        let watermark = Watermark::watched(move || watched.is_low());
        let node = Node::start_on::<Simulated, _, _>(config, log, state, watermark).await?;
        let handle = node.handle();
        self.running.lock().node = Some(handle.clone());
        let (closing, closed) = watch::channel(false);
        self.serve_clients(handle, closed).await?;
        tokio::select! {
            biased;
            why = node.failed() => Ok(why),
            () = self.stop.notified() => {
                closing.send_replace(true);
                node.shutdown().await?;
                Ok("it was told to stop".to_owned())
            }
        }
    }

    fn clock(&self) -> Clock {
        let elapsed = u64::try_from(self.trace.now().as_millis()).unwrap_or(0);
        let clock = Clock::simulated((EPOCH_MS + elapsed).saturating_add_signed(self.skew_ms()));
        self.running.lock().clock = Some(clock.clone());
        clock
    }

    fn peering(
        &self,
        contents: &Contents,
        clock: &Clock,
        random: &Random,
        dialer: &Dialer,
    ) -> turmoil::Result<Peering> {
        let config = PeeringConfig {
            member: Member {
                name: self.name.to_string(),
                peer_address: format!("{}:{PEER_PORT}", self.name),
                client_address: format!("{}:{CLIENT_PORT}", self.name),
            },
            peers: self.named.iter().map(|name| (name.clone(), format!("{name}:{PEER_PORT}"))).collect(),
            connector: dialer.connector(),
            clock: clock.clone(),
            random: random.clone(),
            work: Work::Inline,
            ..PeeringConfig::alone()
        };
        Ok(Peering::new(config, Box::new(contents.home.clone()))?)
    }

    async fn serve_peers(&self, peering: &Peering) -> turmoil::Result {
        let (host, trace) = (self.name.clone(), self.trace.clone());
        let router = Server::builder()
            .layer(layer_fn(move |service| Observed::new(service, host.clone(), trace.clone())))
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .add_routes(peering.routes());
        let incoming = incoming(PEER_PORT, self.trace.clone()).await?;
        tokio::spawn(router.serve_with_incoming(incoming));
        Ok(())
    }

    /// As the server does it, without what needs real sockets.
    async fn serve_clients(&self, node: Handle, closing: watch::Receiver<bool>) -> turmoil::Result {
        let of = node.clone();
        let leader: Leader = Arc::new(move || {
            let address = of.other_leader()?.client_address;
            (!address.is_empty()).then_some(address)
        });
        let settings = Settings::default();
        let streams = Streams { closing, leader: leader.clone() };
        let about = About { version: env!("CARGO_PKG_VERSION"), disk: Arc::new(|| None) };
        let (host, trace) = (self.name.clone(), self.trace.clone());
        let router = Server::builder()
            .layer(layer_fn(move |service| Observed::new(service, host.clone(), trace.clone())))
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .add_service(NamesLeader::new(
                QueueServiceServer::new(QueueApi::new(node.clone(), settings, streams)),
                leader.clone(),
            ))
            .add_service(NamesLeader::new(
                CommitServiceServer::new(CommitApi::new(node.clone(), settings)),
                leader.clone(),
            ))
            .add_service(NamesLeader::new(AdminServiceServer::new(AdminApi::new(node.clone(), about)), leader.clone()))
            .add_service(NamesLeader::new(ClusterServiceServer::new(ClusterApi::new(node)), leader));
        let incoming = incoming(CLIENT_PORT, self.trace.clone()).await?;
        tokio::spawn(router.serve_with_incoming(incoming));
        Ok(())
    }
}

/// A number that no seed gives.
fn unforeseen() -> u64 {
    RandomState::new().build_hasher().finish()
}
