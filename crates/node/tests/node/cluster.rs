//! Several nodes on one machine, each with its stores in memory, talking over real connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use ticketrail_core::{GroupId, MemView};
use ticketrail_node::{Connector, Disk, Member, Node, NodeConfig, NodeStatus, Peering, PeeringConfig, StartError};
use ticketrail_storage::Identity;
use ticketrail_storage::home::{Home as _, MemHome};
use ticketrail_storage::log::RaftLog as _;
use ticketrail_storage::mem::{MemLog, MemState};
use ticketrail_storage::state::StateStore as _;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::poll::until_it;
use crate::rig::{SOON, call, enqueue};

/// What outlives a node: its name, its addresses and its disk.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) disk: Contents,
}

/// A disk.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    pub(crate) home: MemHome,
    pub(crate) log: Arc<MemLog>,
    pub(crate) state: Arc<MemState>,
}

impl Contents {
    /// What a copy of the disk holds, taken while the power is off.
    pub(crate) fn copy(&self) -> Self {
        let home = MemHome::default();
        let mut copied = home.clone();
        if let Some(identity) = self.home.identity() {
            copied.set_identity(identity).expect("an empty home");
        }
        copied.set_seen(&self.home.seen().expect("in memory")).expect("in memory");
        Self { home, log: Arc::new(self.log.crash()), state: Arc::new(self.state.crash()) }
    }

    /// The index of the last entry of its log.
    pub(crate) fn log_end(&self) -> Option<u64> {
        self.log.state(GroupId::QUEUES).last.map(|id| id.index)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.home.identity().expect("an identity")
    }
}

/// A node that runs, with the port that it is reached on, on a runtime of its own: so that all of it can end at once.
pub(crate) struct Running {
    pub(crate) node: Node,
    runtime: Ends,
}

/// A runtime that ends without waiting for anything, as a process does that is killed.
struct Ends(Option<Runtime>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Running {
    pub(crate) fn status(&self) -> NodeStatus {
        self.node.handle().status()
    }

    /// Ends it as a loss of power would.
    pub(crate) fn kill(self) {
        drop(self.node);
        drop(self.runtime);
    }
}

/// Several places, with the nodes that run in them.
pub(crate) struct Cluster {
    pub(crate) places: Vec<Place>,
    pub(crate) running: BTreeMap<usize, Running>,
    peers: Vec<(String, String)>,
    config: NodeConfig,
}

impl Cluster {
    /// `named` places that know each other, none of them running.
    pub(crate) async fn of(named: usize) -> Self {
        Self::with(named, NodeConfig::default()).await
    }

    pub(crate) async fn with(named: usize, config: NodeConfig) -> Self {
        let mut cluster = Self { places: Vec::new(), running: BTreeMap::new(), peers: Vec::new(), config };
        for _ in 0..named {
            let at = cluster.add_place();
            let place = &cluster.places[at];
            cluster.peers.push((place.name.clone(), place.address.clone()));
        }
        cluster
    }

    /// One more place, which the others do not know.
    pub(crate) fn add_place(&mut self) -> usize {
        let at = self.places.len();
        let address = format!("127.0.0.1:{}", free_port());
        self.places.push(Place { name: format!("rail-{at}"), address, disk: Contents::default() });
        at
    }

    /// Starts all places, and waits until one leads.
    pub(crate) async fn start_all(&mut self) {
        let starting: Vec<_> = (0..self.places.len()).map(|at| self.starting(at, &self.places[at].name)).collect();
        for (at, started) in futures::future::join_all(starting).await.into_iter().enumerate() {
            self.running.insert(at, started.expect("a node"));
        }
        self.leader().await;
    }

    /// Starts one place.
    pub(crate) async fn start(&mut self, at: usize) {
        let running = self.try_start(at).await.expect("a node");
        self.running.insert(at, running);
    }

    pub(crate) async fn try_start(&self, at: usize) -> Result<Running, StartError> {
        self.starting(at, &self.places[at].name).await
    }

    /// Starts a place under another name.
    pub(crate) async fn start_as(&self, at: usize, name: &str) -> Result<Running, StartError> {
        self.starting(at, name).await
    }

    /// Starts a place that knows only itself, and founds nothing.
    pub(crate) fn starting_alone(&self, at: usize) -> impl Future<Output = Result<Running, StartError>> + use<> {
        let place = &self.places[at];
        self.starting_with(at, &place.name, vec![(place.name.clone(), place.address.clone())], false)
    }

    fn starting(&self, at: usize, name: &str) -> impl Future<Output = Result<Running, StartError>> + use<> {
        self.starting_with(at, name, self.peers.clone(), true)
    }

    fn starting_with(
        &self,
        at: usize,
        name: &str,
        peers: Vec<(String, String)>,
        may_found: bool,
    ) -> impl Future<Output = Result<Running, StartError>> + use<> {
        let place = &self.places[at];
        let peering = PeeringConfig {
            member: Member {
                name: name.to_owned(),
                peer_address: place.address.clone(),
                client_address: format!("clients.{name}:50000"),
            },
            peers,
            may_found,
            connector: Connector::tcp(),
            ..PeeringConfig::alone()
        };
        let (address, contents, config) = (place.address.clone(), place.disk.clone(), self.config.clone());
        async move {
            let start = move || {
                let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
                let started = runtime.block_on(start_node(peering, contents, address, config));
                match started {
                    Ok(node) => Ok(Running { node, runtime: Ends(Some(runtime)) }),
                    Err(error) => {
                        runtime.shutdown_background();
                        Err(error)
                    }
                }
            };
            tokio::task::spawn_blocking(start).await.expect("a start")
        }
    }

    /// Ends a node as a loss of power would; its disk keeps what was synced.
    pub(crate) fn kill(&mut self, at: usize) {
        self.running.remove(&at).expect("a running node").kill();
        self.places[at].disk = self.places[at].disk.copy();
    }

    /// Ends a node that leaves nothing of its disk.
    pub(crate) fn wipe(&mut self, at: usize) {
        self.kill(at);
        self.places[at].disk = Contents::default();
    }

    /// Stops a node in order.
    pub(crate) async fn stop(&mut self, at: usize) {
        let Running { node, runtime } = self.running.remove(&at).expect("a running node");
        let stopping = runtime.0.as_ref().expect("a runtime").spawn(node.shutdown());
        stopping.await.expect("a stop").expect("an orderly stop");
    }

    /// The place of the leader, once there is one that serves.
    pub(crate) async fn leader(&self) -> usize {
        let mut found = None;
        until_it("a leader", async || {
            found = self.running.iter().find(|(_, running)| running.status().leading).map(|(at, _)| *at);
            found.is_some()
        })
        .await;
        found.expect("a leader")
    }

    /// Puts messages on a queue, at the leader.
    pub(crate) async fn enqueue(&self, queue: &str, bodies: &[&str]) {
        let leader = self.leader().await;
        let handle = self.running[&leader].node.handle();
        call(&handle, enqueue(queue, bodies, 0)).await.expect("an enqueue");
    }

    /// Waits until all running nodes have applied the same, and says what it is.
    pub(crate) async fn agree(&self) -> MemView {
        let mut views = Vec::new();
        until_it("one state everywhere", async || {
            let applied: Vec<_> = self.running.keys().map(|at| self.places[*at].disk.state.applied().last).collect();
            let last: Vec<_> = self.running.values().map(|running| running.status().last_log_index).collect();
            views = self.running.keys().map(|at| all(&self.places[*at].disk.state)).collect();
            applied.iter().all(|applied| applied.map(|id| id.index) == last[0])
                && views.windows(2).all(|w| w[0] == w[1])
        })
        .await;
        let mut view = MemView::new();
        view.commit(
            &views[0]
                .iter()
                .map(|(key, value)| ticketrail_core::Write::Put { key: key.clone(), value: value.clone() })
                .collect(),
        );
        view
    }
}

async fn start_node(
    peering: PeeringConfig,
    contents: Contents,
    address: String,
    config: NodeConfig,
) -> Result<Node, StartError> {
    let peering = Peering::new(peering, Box::new(contents.home.clone()))?;
    let incoming = TcpIncoming::from(bound(&address).await).with_nodelay(Some(true));
    let router = Server::builder().tcp_nodelay(true).add_routes(peering.routes());
    tokio::spawn(async move { router.serve_with_incoming(incoming).await.expect("a server") });
    let identity = tokio::time::timeout(SOON, peering.settle()).await.expect("an identity in time")?;
    let config =
        NodeConfig { node_id: identity.node, cluster_id: identity.cluster.0, peering: Some(peering), ..config };
    Node::start(config, contents.log, contents.state, Disk::endless()).await
}

/// A port that is free, and stays so while a node is down: below those that the system gives to connections.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const PORTS: std::ops::Range<u16> = 15_000..20_000;
    let first = u16::try_from(std::process::id() % 50).unwrap_or(0) * 100;
    loop {
        let port = PORTS.start + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Listens where another node did a moment ago.
async fn bound(address: &str) -> TcpListener {
    let mut bound = None;
    until_it("a free port", async || {
        bound = TcpListener::bind(address).await.ok();
        bound.is_some()
    })
    .await;
    bound.expect("a listener")
}

fn all(state: &MemState) -> Vec<(bytes::Bytes, bytes::Bytes)> {
    state.read(|view| view.scan(b"", b"\xff\xff", usize::MAX)).expect("in memory")
}
