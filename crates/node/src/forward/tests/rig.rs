//! A leader that is real, and followers that only believe in it: their consensus is a stand-in that a test tells who
//! leads, and they read the leader's state, as late as the test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ticketrail_core::command::{Commit, Content, Enqueue, QueueRef, Receive};
use ticketrail_core::query::QueueInfo;
use ticketrail_core::{Answer, Command, Fault, GroupId, Query, Timestamp};
use ticketrail_proto::raft::forward_service_server::ForwardServiceServer;
use ticketrail_storage::home::MemHome;
use ticketrail_storage::log::{LeaderId, LogId};
use ticketrail_storage::mem::{MemLog, MemState};
use ticketrail_storage::state::StateError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::net::Net;
use super::poll::SOON;
use crate::call::{Call, CallError, Deliveries, Done, Freshness, ReceiveCall};
use crate::consensus::{AppliedState, Consensus, Figures, Outcome, Proposed, ReadRefused, Role, Standing, Stored};
use crate::forward::client::Forwards;
use crate::forward::server::{ForwardServer, Served};
use crate::member::{Member, Members};
use crate::peering::{Peering, PeeringConfig};
use crate::peers::Peers;
use crate::precheck::Precheck;
use crate::proposer::Progress;
use crate::queue::Queue;
use crate::raft::Snapshots;
use crate::release::Releases;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::waiters::Waiters;
use crate::{Disk, Handle, Node, NodeConfig, scheduler};

/// A leader, node 1.
pub(super) struct Leader {
    pub(super) node: Node,
    pub(super) handle: Handle,
    pub(super) log: Arc<MemLog>,
    pub(super) state: Arc<MemState>,
    server: JoinSet<()>,
}

impl Leader {
    pub(super) async fn start(net: &Net, config: NodeConfig) -> Self {
        Self::start_on(net, config, Arc::default(), Arc::default()).await
    }

    pub(super) async fn start_on(net: &Net, config: NodeConfig, log: Arc<MemLog>, state: Arc<MemState>) -> Self {
        let node = Node::start(config, log.clone(), state.clone(), Disk::endless()).await.expect("a node");
        let handle = node.handle();
        tokio::time::timeout(SOON, handle.serving()).await.expect("a leader");
        let server = serve(net, &handle.shared);
        Self { node, handle, log, state, server }
    }

    /// Ends as by a loss of power; what is left of it.
    pub(super) async fn crash(mut self, net: &Net) -> (Arc<MemLog>, Arc<MemState>) {
        let left = (Arc::new(self.log.crash()), Arc::new(self.state.crash()));
        net.close(&address(1));
        self.server.shutdown().await;
        self.node.shutdown().await.expect("the old node to end");
        left
    }

    pub(super) async fn stop(mut self) {
        self.server.shutdown().await;
        self.node.shutdown().await.expect("an orderly stop");
    }

    pub(super) async fn info(&self, name: &str) -> Option<QueueInfo> {
        info(&self.handle, name).await
    }
}

/// A node that does not lead.
pub(super) struct Follower {
    pub(super) handle: Handle,
    pub(super) shared: Arc<Shared>,
    standing: watch::Sender<Standing>,
    state: Arc<Behind>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    server: JoinSet<()>,
}

impl Follower {
    /// Node `id`, which takes `leader` for the leader and reads `state`.
    pub(super) fn start(net: &Net, config: NodeConfig, leader: &Leader) -> Self {
        let id = config.node_id;
        let (standing, stands) = watch::channel(following(Some(1), 1));
        let state = Arc::new(Behind { live: Stored(leader.state.clone()), held: Mutex::default() });
        let shared = shared(net, config, stands, state.clone());
        let (stop, stopping) = watch::channel(false);
        let (tell, _) = watch::channel(None);
        let mut tasks = JoinSet::new();
        for job in crate::node::jobs(&shared, tell, &stopping) {
            tasks.spawn(job);
        }
        // Applies what the leader applies.
        let (mut progress, behind) = (leader.handle.shared.signals.progress(), shared.clone());
        tasks.spawn(async move {
            while progress.changed().await.is_ok() {
                behind.signals.reached();
            }
        });
        let server = if id == 2 { JoinSet::new() } else { serve(net, &shared) };
        Self { handle: Handle { shared: shared.clone() }, shared, standing, state, stop, tasks, server }
    }

    /// Whom it takes for the leader.
    pub(super) fn follows(&self, leader: Option<u64>, term: u64) {
        self.standing.send_replace(following(leader, term));
    }

    /// Applies nothing any more, or catches up.
    pub(super) fn hold_back(&self, held: bool) {
        *self.state.held.lock() = if held { self.state.live.applied() } else { None };
        self.shared.signals.reached();
    }

    /// Refuses calls as a node that shuts down.
    pub(super) fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.waiters.close(&crate::call::Unavailable::Draining);
        self.shared.forwards.drain();
    }

    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.server.shutdown().await;
        // The one that follows the leader's progress ends with the leader.
        self.tasks.shutdown().await;
    }
}

pub(super) fn address(node: u64) -> String {
    format!("node-{node}")
}

fn following(leader: Option<u64>, term: u64) -> Standing {
    Standing { role: Role::Follower, term, leader, leading: None }
}

fn serve(net: &Net, shared: &Arc<Shared>) -> JoinSet<()> {
    let incoming = net.listen(&address(shared.config.node_id));
    let service = ForwardServiceServer::new(ForwardServer { shared: shared.clone() });
    let mut server = JoinSet::new();
    server.spawn(async move {
        let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await;
        served.expect("a server that goes on");
    });
    server
}

fn shared(net: &Net, config: NodeConfig, standing: watch::Receiver<Standing>, state: Arc<Behind>) -> Arc<Shared> {
    let state: Arc<dyn AppliedState> = state;
    let (broken, signals, flight) = (Arc::default(), Arc::default(), Arc::default());
    let queue = Arc::new(Queue::new(config.proposal_queue_bytes));
    let waiters = Arc::new(Waiters::new(
        config.parked_receives,
        Arc::clone(&signals),
        Arc::clone(&flight),
        state.clone(),
        queue.clone(),
        Arc::clone(&broken),
        config.clock.clone(),
    ));
    let releases = Arc::new(Releases::new(state.clone(), queue.clone(), Arc::clone(&flight), Arc::clone(&broken)));
    let member = |node: u64| Member {
        name: format!("kitchen-{node}"),
        peer_address: address(node),
        client_address: format!("kitchen-{node}:7450"),
    };
    let nodes: BTreeMap<u64, Member> = (1..=3).map(|node| (node, member(node))).collect();
    let voters = vec![BTreeSet::from([1, 2, 3])];
    let (_, members) = watch::channel(Arc::new(Members { voters, nodes, committed: true, at: None }));
    let identity = (config.node_id, config.cluster_id, GroupId::QUEUES);
    let peers = Peers::new(identity, config.clock.clone(), Disk::endless(), net.connector(), members);
    let started = config.clock.now();
    Arc::new(Shared {
        started,
        consensus: Arc::new(Follows),
        state,
        disk: Disk::endless(),
        broken,
        signals,
        queue,
        flight,
        sessions: Arc::new(Sessions::new(1)),
        poll_sessions: Arc::new(Sessions::new(0)),
        waiters,
        releases,
        peers: Arc::new(peers),
        forwards: Arc::new(Forwards::new(config.proposal_queue_bytes, config.parked_receives)),
        served: Served::default(),
        precheck: Precheck::default(),
        progress: Arc::new(Progress::new(started)),
        passes: scheduler::Passes::default(),
        standing,
        lead: watch::channel(None).1,
        cut_off: watch::channel(false).1,
        draining: AtomicBool::new(false),
        peering: Peering::new(PeeringConfig::alone(), Box::new(MemHome::default())).expect("a home in memory"),
        snapshots: Snapshots::default(),
        config,
    })
}

/// The Raft of a node that never leads.
struct Follows;

impl Consensus for Follows {
    fn propose(&self, _leader: LeaderId, _entry: Bytes) -> BoxFuture<'_, Outcome> {
        Box::pin(async { Outcome(Box::pin(async { Proposed::NotLeader })) })
    }

    fn read_index(&self) -> BoxFuture<'_, Result<(), ReadRefused>> {
        Box::pin(async { Err(ReadRefused::NotLeader { leader: None }) })
    }

    fn acknowledged_ago(&self) -> Option<Duration> {
        None
    }

    fn figures(&self) -> Figures {
        Figures::default()
    }

    fn appended_bytes(&self) -> u64 {
        0
    }

    fn held_bytes(&self) -> u64 {
        0
    }

    fn take_snapshot(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn purge(&self, _index: u64) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The leader's state, of which a test may hold back the news.
struct Behind {
    live: Stored<MemState>,
    held: Mutex<Option<LogId>>,
}

impl AppliedState for Behind {
    fn answer(&self, query: &Query) -> Result<Answer, Fault> {
        self.live.answer(query)
    }

    fn next_due(&self) -> Result<Option<Timestamp>, Fault> {
        self.live.next_due()
    }

    fn applied(&self) -> Option<LogId> {
        let held = *self.held.lock();
        held.or_else(|| self.live.applied())
    }

    fn flushed(&self) -> Option<LogId> {
        self.live.flushed()
    }

    fn unflushed_bytes(&self) -> u64 {
        0
    }

    fn flush(&self) -> Result<(), StateError> {
        Ok(())
    }
}

pub(super) fn node(id: u64) -> NodeConfig {
    NodeConfig::new(id, [7; 16])
}

pub(super) async fn call(handle: &Handle, command: Command) -> Result<Done, CallError> {
    handle.call(Call { command, id: None, repeat: false, timeout: SOON }).await
}

pub(super) fn queue(name: &str) -> QueueRef {
    QueueRef { namespace: "default".into(), name: name.into() }
}

pub(super) fn enqueue(name: &str, body: &str) -> Command {
    let content = Content { body: Bytes::copy_from_slice(body.as_bytes()), ..Content::default() };
    let enqueue = vec![Enqueue { message: Some(content), ..Enqueue::default() }];
    Command::Commit(Commit { queues: vec![queue(name)], enqueue, auto_create: true, ..Commit::default() })
}

pub(super) fn receive(name: &str, wait_ms: u64) -> ReceiveCall {
    let receive = Receive { queues: vec![queue(name)], max: 1, worker: "tester".into(), ..Receive::default() };
    ReceiveCall { receive, id: None, repeat: false, wait: Duration::from_millis(wait_ms), auto_create: true }
}

pub(super) fn bodies(deliveries: &Deliveries) -> Vec<&[u8]> {
    deliveries.deliveries.iter().map(|delivery| &delivery.content.body[..]).collect()
}

pub(super) async fn info(handle: &Handle, name: &str) -> Option<QueueInfo> {
    let answer = handle.query(Query::Queue(queue(name)), Freshness::Linearizable).await.expect("an answer").0;
    let Answer::Queue(info) = answer else { panic!("expected a queue, but got {answer:?}") };
    info
}
